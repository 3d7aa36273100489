"""An exported model against the model itself: labels, logits, and images per second.

    python benchmarks/onnx_speed.py MODEL PHOTOS [--most 200] [--threads 1] [--json FILE]

MODEL is a folder that `cala fit` made, PHOTOS a folder of photos. Both sides get the same prepared
images in the same batches, in turns; decoding and resizing are not in the times.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnxruntime

from arguments import target_file, whole_number
from cala.data.decoding import decode
from cala.errors import CalaError
from cala.export import export_onnx
from cala.model import Model, load
from cala.model.photos import find_files
from machine import use_threads


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path, help="a folder that `cala fit` made")
    parser.add_argument("photos", type=Path, nargs="+", help="photos, or folders of them")
    parser.add_argument("--most", type=whole_number(1), default=200, help="photos (default 200)")
    parser.add_argument("--batch", type=whole_number(1), default=16, help="(default 16)")
    parser.add_argument("--threads", type=whole_number(1), default=1, help="(default 1)")
    parser.add_argument("--json", type=target_file, help="also write the numbers here")
    args = parser.parse_args()
    use_threads(args.threads)
    try:
        numbers = compare(load(args.model), find_files(args.photos)[: args.most], args)
    except CalaError as error:
        sys.exit(f"error: {error}")
    print(
        f"{numbers['photos']} photos: {numbers['other_labels']} other labels, logits within "
        f"{numbers['difference']:.1e} (the largest is {numbers['largest']:.1f})\n"
        f"images per second, median of {numbers['batches']} batches of {args.batch} on "
        f"{args.threads} threads: cala {numbers['cala']:.1f}, onnxruntime {numbers['onnx']:.1f}"
    )
    if args.json:
        args.json.write_text(json.dumps(numbers, indent=2) + "\n", "utf-8")


def compare(model: Model, files: list[Path], args: argparse.Namespace) -> dict[str, float]:
    encoder, classifier = model.encoder, model.current.classifier
    with tempfile.TemporaryDirectory() as folder:
        done = export_onnx(model, Path(folder, "model.onnx"))
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        options.intra_op_num_threads = args.threads
        session = onnxruntime.InferenceSession(str(done.path), options)
    mirrored = model.current.encoder.tta == "flip"

    def by_cala(images: np.ndarray) -> np.ndarray:
        inputs = encoder.transform.normalise(images)
        return classifier.head_.logits(encoder.encode(inputs, "flip" if mirrored else "none"))

    def by_onnx(images: np.ndarray) -> np.ndarray:
        return session.run(["logits"], {"images": images})[0]

    found: dict[str, list[np.ndarray]] = {"cala": [], "onnx": []}
    rates: dict[str, list[float]] = {"cala": [], "onnx": []}
    sides: dict[str, Callable[[np.ndarray], np.ndarray]] = {"cala": by_cala, "onnx": by_onnx}
    for start in range(0, len(files), args.batch):
        part = files[start : start + args.batch]
        images = np.stack([encoder.transform.prepare(decode(path)[0]) for path in part])
        for name, side in sides.items():
            before = time.perf_counter()
            found[name].append(side(images))
            rates[name].append(len(images) / (time.perf_counter() - before))
    ours, theirs = (np.concatenate(found[name]) for name in ("cala", "onnx"))
    return {
        "photos": len(files),
        "classes": done.classes,
        "other_labels": int((ours.argmax(1) != theirs.argmax(1)).sum()),
        "difference": float(np.abs(ours - theirs).max()),
        "largest": float(np.abs(ours).max()),
        "batches": len(rates["cala"]),
        "megabytes": done.bytes / 1e6,
        **{name: statistics.median(values) for name, values in rates.items()},
    }


if __name__ == "__main__":
    main()
