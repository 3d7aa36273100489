"""Tiny image sets of every layout, made of generated pixels."""

from __future__ import annotations

import pickle
import tarfile
from pathlib import Path

import numpy as np
from PIL import Image

from cala.data.images import ImageSet
from cala.data.protocol import Protocol, ShotDraw, canonical_draw, load_protocol, with_rows

CLASSES, TRAIN, TEST = 3, 4, 2
WNIDS = load_protocol("mini_imagenet").expected.classes[:CLASSES]


def picture(seed: int, height: int = 20, width: int = 24) -> np.ndarray:
    """(h, w, 3) uint8 noise that survives no confusion with another seed."""
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3)).astype(np.uint8)


def published_draw(protocol: Protocol, images: ImageSet) -> ShotDraw:
    """The published shots as rows of these images."""
    train = images.train
    return canonical_draw(with_rows(protocol, train.names, train.labels, images.source))


def save(path: Path, seed: int, **options) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(picture(seed)).save(path, **options)
    return path


def seeds():
    """(part, label, number, seed) of every image."""
    for part, count in (("train", TRAIN), ("test", TEST)):
        for label in range(CLASSES):
            for number in range(count):
                yield part, label, number, 1000 * (part == "test") + 10 * label + number


def folder(root: Path) -> Path:
    for part, label, number, seed in seeds():
        save(root / part / f"class {label}" / f"{number}.png", seed)
    return root


def plain_folder(root: Path, images: int = 10) -> Path:
    for label in range(CLASSES):
        for number in range(images):
            save(root / f"class {label}" / f"{number}.png", 10 * label + number)
    return root


def cub200(root: Path) -> Path:
    top = root / "CUB_200_2011"
    lists = {"images": [], "image_class_labels": [], "train_test_split": []}
    for key, (part, label, number, seed) in enumerate(seeds(), start=1):
        name = f"{label + 1:03d}.Bird_{label}/Bird_{part}_{number}.jpg"
        save(top / "images" / name, seed, quality=95)
        lists["images"].append(f"{key} {name}")
        lists["image_class_labels"].append(f"{key} {label + 1}")
        lists["train_test_split"].append(f"{key} {int(part == 'train')}")
    lists["classes"] = [f"{label + 1} {label + 1:03d}.Bird_{label}" for label in range(CLASSES)]
    for name, lines in lists.items():
        (top / f"{name}.txt").write_text("\n".join(lines) + "\n")
    return root


def mini_imagenet(root: Path) -> Path:
    lines = {"train": ["filename,label"], "test": ["filename,label"]}
    for part, label, number, seed in seeds():
        name = f"{WNIDS[label]}{1000 * (part == 'test') + number:08d}.jpg"
        save(root / "images" / name, seed, quality=95)
        lines[part].append(f"{name},{WNIDS[label]}")
    (root / "split").mkdir()
    for part, rows in lines.items():
        (root / "split" / f"{part}.csv").write_text("\n".join(rows) + "\n")
    return root


def mini_folders(root: Path, parts: tuple[str, ...] = ("train", "test"), whole=True) -> Path:
    """whole : with a folder for each of the 100 classes, most of them empty"""
    for part, label, number, seed in seeds():
        if part in parts:
            save(root / part / WNIDS[label] / f"{number}.jpg", seed)
    for part in parts if whole else ():
        for wnid in load_protocol("mini_imagenet").expected.classes:
            (root / part / wnid).mkdir(exist_ok=True)
    return root


def cifar_content(part: str) -> dict:
    chosen = [(label, seed) for p, label, _, seed in seeds() if p == part]
    images = np.stack([picture(seed, 32, 32) for _, seed in chosen])
    return {
        b"data": np.ascontiguousarray(images.transpose(0, 3, 1, 2).reshape(len(images), 3072)),
        b"fine_labels": [label for label, _ in chosen],
        b"batch_label": b"",
    }


def cifar100(root: Path, **changes) -> Path:
    top = root / "cifar-100-python"
    top.mkdir(parents=True, exist_ok=True)
    content = {
        "train": cifar_content("train"),
        "test": cifar_content("test"),
        "meta": {b"fine_label_names": [b"apple", b"aquarium_fish", b"baby"]},
    }
    content.update(changes)
    for name, what in content.items():
        (top / name).write_bytes(pickle.dumps(what, protocol=2))
    return root


def cifar_archive(root: Path) -> Path:
    cifar100(root / "unpacked")
    root.mkdir(exist_ok=True)
    path = root / "cifar-100-python.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        archive.add(root / "unpacked" / "cifar-100-python", "cifar-100-python")
    return path


MAKERS = {
    "cifar100": cifar100,
    "cub200": cub200,
    "folder": folder,
    "mini_imagenet": mini_imagenet,
}
