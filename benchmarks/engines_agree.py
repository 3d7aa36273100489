"""Whether two engines give the same answers: labels and logits of many photos.

    python benchmarks/engines_agree.py FOLDER [--photos 1000] [--engines torch onnxruntime]

FOLDER has one folder of photos per class. Half of the photos of every class teach a classifier, by
the embeddings of the second engine; all are asked about with the embeddings of both.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np

from cala import CalaClassifier, load_encoder
from cala.data.decoding import decode
from machine import machine

SUFFIXES = (".jpg", ".jpeg", ".png")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--photos", type=int, default=1000)
    parser.add_argument("--engines", nargs=2, default=["torch", "onnxruntime"])
    parser.add_argument("--encoder", default="efficientnet-lite0")
    options = parser.parse_args()
    paths = sorted(p for p in options.folder.rglob("*") if p.suffix.lower() in SUFFIXES)
    paths = paths[:: max(1, len(paths) // options.photos)][: options.photos]
    y = np.array([path.parent.name for path in paths])
    found = []
    for engine in options.engines:
        encoder = load_encoder(options.encoder, engine=engine)
        inputs = (encoder.inputs([decode(path)[0]]) for path in paths)
        found.append(np.concatenate([encoder.encode(one) for one in inputs]))
    first, second = found
    taught = np.arange(len(y)) % 2 == 0
    model = CalaClassifier().fit(second[taught], y[taught], holdout="all")
    labels = [model.predict(x) for x in found]
    logits = [model.decision_function(x) for x in found]
    cosine = (
        (first * second).sum(1) / np.linalg.norm(first, axis=1) / np.linalg.norm(second, axis=1)
    )
    same = int((labels[0] == labels[1]).sum())
    print(machine())
    print(f"{len(paths):,} photos of {len(set(y))} classes, {' and '.join(options.engines)}")
    print(f"smallest cosine of the two embeddings: {cosine.min():.7f}")
    print(f"largest difference of a logit: {np.abs(logits[0] - logits[1]).max():.2e}")
    print(f"same label: {same:,} of {len(paths):,}")
    sys.exit(same < len(paths))


if __name__ == "__main__":
    main()
