"""Images per second of base training, side by side in one run.

    python benchmarks/training_throughput.py [--seconds 20] [--threads N] [--json FILE]

For ResNet-20 at 32 pixels and ResNet-18 at 84: the model alone on one fixed batch (the limit),
the loop of `cala train`, and the field's usual loop: a Dataset of PIL images, transforms image by
image, a DataLoader with 0 and 2 workers. Images are noise: only time is measured. The contestants
take turns, a few steps each, so that a busy machine slows all of them alike; but for the one with
workers, which goes on loading in the turns of others: it has a block of its own at the end. The
usual loop has torch's usual memory layout, the others channels last.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections.abc import Callable, Iterator

import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset

from cala.encoders import ARCHITECTURES
from cala.training.loop import BaseImages, Trainer
from cala.training.objective import BaseModel
from cala.training.recipes import RECIPES, Recipe
from machine import machine

CLASSES = 60
CASES = {"resnet20 at 32": ("fast-cifar100", 4096), "resnet18 at 84": ("fast-mini-imagenet", 1024)}


def model(recipe: Recipe) -> BaseModel:
    encoder = ARCHITECTURES[recipe.encoder]()
    return BaseModel(encoder, CLASSES, recipe, CLASSES)


def step_of(recipe: Recipe, net: BaseModel) -> Callable[[torch.Tensor, torch.Tensor], None]:
    optimiser = torch.optim.SGD(net.parameters(), 0.1, momentum=0.9, nesterov=True)

    def step(images: torch.Tensor, labels: torch.Tensor) -> None:
        optimiser.zero_grad(set_to_none=True)
        net(images, labels)[0].backward()
        optimiser.step()

    return step


def limit(recipe: Recipe, images: np.ndarray, labels: torch.Tensor) -> Iterator[int]:
    """The model alone: no loading, no augmentation."""
    net = model(recipe).to(memory_format=torch.channels_last)
    step = step_of(recipe, net)
    side = recipe.transform.size
    batch = torch.randn(recipe.batch, 3, side, side).contiguous(memory_format=torch.channels_last)
    while True:
        step(batch, labels[: recipe.batch])
        yield recipe.batch


def ours(recipe: Recipe, images: np.ndarray, labels: torch.Tensor) -> Iterator[int]:
    """The loop of `cala train`."""
    none = torch.zeros((0, *images.shape[1:]), dtype=torch.uint8)
    data = BaseImages(torch.from_numpy(images), labels, none, labels[:0])
    trainer = Trainer(model(recipe), data, recipe)
    while True:
        before = trainer.progress.step
        trainer.run(after_step=lambda t, b=before: t.progress.step > b)
        yield recipe.batch


class Photos(Dataset):
    """What public code does for every image in every epoch."""

    def __init__(self, recipe: Recipe, images: np.ndarray, labels: torch.Tensor) -> None:
        self.recipe, self.labels = recipe, labels
        self.statistics = recipe.transform.mean, recipe.transform.std
        self.photos = [Image.fromarray(image) for image in images]

    def __len__(self) -> int:
        return len(self.photos)

    def __getitem__(self, row: int) -> tuple[torch.Tensor, int]:
        recipe, photo = self.recipe, self.photos[row]
        side = recipe.transform.size
        if recipe.augment == "crop":
            wide = Image.new("RGB", (side + 8, side + 8))
            wide.paste(photo, (4, 4))
            left, top = random.randint(0, 8), random.randint(0, 8)
            photo = wide.crop((left, top, left + side, top + side))
        else:
            part = int(photo.width * random.uniform(0.5, 1.0))
            left = random.randint(0, photo.width - part)
            top = random.randint(0, photo.height - part)
            box = (left, top, left + part, top + part)
            photo = photo.resize((side, side), Image.Resampling.BILINEAR, box=box)
        if random.random() < 0.5:
            photo = photo.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        pixels = torch.from_numpy(np.array(photo)).permute(2, 0, 1).float().div(255)
        mean, std = (torch.tensor(v)[:, None, None] for v in self.statistics)
        return (pixels - mean) / std, int(self.labels[row])


def usual(workers: int) -> Callable[..., Iterator[int]]:
    """A Dataset of PIL images and a DataLoader; standard memory layout, as is usual."""

    def loop(recipe: Recipe, images: np.ndarray, labels: torch.Tensor) -> Iterator[int]:
        step = step_of(recipe, model(recipe))
        photos = Photos(recipe, images, labels)
        loader = DataLoader(
            photos, recipe.batch, shuffle=True, num_workers=workers, drop_last=True,
            persistent_workers=workers > 0,
        )  # fmt: skip
        while True:
            for batch, targets in loader:
                step(batch, targets)
                yield recipe.batch

    return loop


CONTESTANTS = {
    "model alone": limit,
    "cala train": ours,
    "usual loop, 0 workers": usual(0),
    "usual loop, 2 workers": usual(2),
}


WITH_WORKERS = "usual loop, 2 workers"
AHEAD = 4  # batches that two workers load in advance


def measure(recipe: Recipe, n: int, seconds: float, turns: int = 8) -> dict[str, float]:
    """Images per second of each contestant."""
    draw = np.random.default_rng(0)
    side = max(recipe.store, recipe.transform.size)
    images = draw.integers(0, 256, (n, side, side, 3)).astype(np.uint8)
    labels = torch.from_numpy(draw.integers(0, CLASSES, n))
    done, spent = dict.fromkeys(CONTESTANTS, 0), dict.fromkeys(CONTESTANTS, 0.0)

    def run(name: str, loop: Iterator[int], seconds: float) -> None:
        started = time.perf_counter()
        while time.perf_counter() - started < seconds:
            done[name] += next(loop)
        spent[name] += time.perf_counter() - started

    loops = {
        name: make(recipe, images, labels)
        for name, make in CONTESTANTS.items()
        if name != WITH_WORKERS
    }
    for loop in loops.values():  # kernels are chosen
        next(loop), next(loop)
    for _ in range(turns):
        for name, loop in loops.items():
            run(name, loop, seconds / turns)
    alone = CONTESTANTS[WITH_WORKERS](recipe, images, labels)
    for _ in range(2 + AHEAD):  # workers start, and what they loaded meanwhile is used up
        next(alone)
    run(WITH_WORKERS, alone, seconds)
    alone.close()
    return {name: done[name] / spent[name] for name in CONTESTANTS}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=20.0, help="per contestant and case")
    parser.add_argument("--threads", type=int, default=None)
    parser.add_argument("--cases", nargs="*", choices=CASES, default=list(CASES))
    parser.add_argument("--json", default=None)
    options = parser.parse_args()
    if options.seconds <= 0 or (options.threads is not None and options.threads < 1):
        parser.error("--seconds and --threads must be above 0")
    if options.threads:
        torch.set_num_threads(options.threads)
    print(machine())
    found = {}
    for case in options.cases:
        name, n = CASES[case]
        # Without progressive resizing: all contestants work at the full side.
        recipe = RECIPES[name].changed(sizes=(), schedule="cosine", epochs=1000)
        found[case] = measure(recipe, n, options.seconds)
        top = found[case]["model alone"]
        print(f"\n{case} pixels, batch {recipe.batch}")
        for contestant, rate in found[case].items():
            print(f"  {contestant:<24} {rate:8.1f} img/s  {rate / top:6.1%} of the model alone")
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({"machine": machine(), "img/s": found}, file, indent=1)


if __name__ == "__main__":
    main()
