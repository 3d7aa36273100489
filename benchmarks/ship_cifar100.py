"""Make the CIFAR-100 encoder and embeddings that the package ships.

    cala train DIR -o base --recipe fast-cifar100 --holdout 25
    python benchmarks/ship_cifar100.py base/encoder.safetensors --data DIR

Weights and embeddings are stored in half precision. The embeddings hold all base training images,
180 training images of each novel class (the canonical shots among them), all test images, and
600 fake classes of 25 images. Training images are called by their row in the official archive.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

import numpy as np

from cala.data.embeddings import Embeddings, save_embeddings
from cala.data.protocol import Protocol, load_protocol
from cala.data.sets import open_images
from cala.encoders.encode import encode_set
from cala.encoders.weights import halve_encoder, load_encoder_file

TARGET = Path(__file__).parents[1] / "src" / "cala" / "shipped" / "cifar100"
NOVEL = 180
LIMIT = 8_000_000


def kept_rows(data: Embeddings, protocol: Protocol, novel: int, seed: int = 0) -> np.ndarray:
    """All base rows, the canonical shots, and other rows of novel classes drawn by the seed."""
    order = np.random.default_rng(seed).permutation(len(data.y_train))
    canonical = np.array([row for session in protocol.canonical for row in session])
    order = np.concatenate([canonical, order[~np.isin(order, canonical)]])
    labels = data.y_train[order]
    rows = [order[labels < protocol.base]]
    rows += [order[labels == c][:novel] for c in range(protocol.base, protocol.n_classes)]
    return np.sort(np.concatenate(rows))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("encoder", type=Path)
    parser.add_argument("--data", type=Path, required=True, help="folder of CIFAR-100")
    parser.add_argument("--out", type=Path, default=TARGET)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    weights = options.out / "encoder.safetensors"
    halve_encoder(options.encoder, weights)
    encoder = load_encoder_file(weights, name="resnet20-cifar100")
    images, protocol = open_images(options.data, "cifar100"), load_protocol("cifar100")

    def advance(done: int, total: int) -> None:
        print(f"\r{done:,} of {total:,} images", end="", flush=True)

    data = encode_set(images, encoder, base=range(protocol.base), advance=advance)
    rows = kept_rows(data, protocol, NOVEL)
    names = [data.names_train[row] for row in rows.tolist()]
    small = replace(
        data,
        x_train=data.x_train[rows],
        y_train=data.y_train[rows],
        holdout=data.holdout[rows],
        names_train=tuple(names),
        names_test=None,
    )
    target = options.out / "embeddings.npz"
    save_embeddings(target, small, half=True, compress=True)
    sizes = {path.name: path.stat().st_size for path in (weights, target)}
    print(f"\r{options.out}: {sizes}, {sum(sizes.values()):,} bytes in all")
    if sum(sizes.values()) > LIMIT:
        raise SystemExit(f"more than {LIMIT:,} bytes: keep fewer rows")


if __name__ == "__main__":
    main()
