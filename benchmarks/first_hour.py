"""A stranger's first hour: small problems as people have them, through `cala.fit` as it comes.

    CALA_DATA=FOLDER python benchmarks/first_hour.py [--problems 30] [--fakes feature] [--json FILE]

Each problem draws 2 to 10 classes of mini-ImageNet or CUB-200 and 3 to 10 photos of each (at most 5
of birds, which have 7), learns them with the defaults of `cala fit`, and asks for other photos of
these classes, for strangers of the same set (near) and of the other one (far), 20 each. FOLDER
holds cub200_sample and miniimagenet_sample. It uses little of cala, so that earlier versions run
too: PYTHONPATH=OLD/src python benchmarks/first_hour.py
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import statistics
import tempfile
import time
import warnings
from collections import defaultdict
from pathlib import Path

import cala

CLASSES, PHOTOS, STRANGERS, TESTED = (2, 10), (3, 10), 20, 10
MOST_BIRDS = 5  # photos to learn from, of 7
T = 2.05  # of a 95 % interval over about 30 problems
EDGES = (0.0, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.995, 1.01)

Answer = tuple[str, str, float]  # label, best class, probability


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, help="folder of the samples (default: $CALA_DATA)")
    parser.add_argument("--problems", type=int, default=30)
    parser.add_argument("--fakes", default="image", help="as for `cala fit`; feature is faster")
    parser.add_argument("--json", type=Path, help="also write everything here")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    sets = photos_of(args.data or Path(os.environ["CALA_DATA"]))
    found = []
    for seed in range(args.problems):
        with tempfile.TemporaryDirectory() as folder:
            found.append(problem(sets, seed, Path(folder), args.fakes))
        print(f"{seed}: {found[-1]['classes']} × {found[-1]['photos']}", flush=True)
    result = {**summary(found), "problems": [about(one) for one in found]}
    print(table(result))
    if args.json is not None:
        args.json.write_text(json.dumps(result, indent=1) + "\n")


def about(one: dict) -> dict:
    """A problem without its answers."""
    return {name: value for name, value in one.items() if not isinstance(value, list)}


def photos_of(folder: Path) -> dict[str, dict[str, list[Path]]]:
    """Photos of each class of both samples."""
    birds, things = defaultdict(list), defaultdict(list)
    for path in sorted((folder / "cub200_sample").rglob("*.jpg")):
        birds[path.parent.name].append(path)
    for path in sorted((folder / "miniimagenet_sample" / "images").glob("*.jpg")):
        things[path.name[:9]].append(path)
    return {"birds": dict(birds), "mini-ImageNet": dict(things)}


def problem(sets: dict[str, dict[str, list[Path]]], seed: int, folder: Path, fakes: str) -> dict:
    """Learn one problem and ask about it."""
    draw = random.Random(seed)
    name = draw.choice(sorted(sets))
    own, far = sets[name], next(classes for other, classes in sets.items() if other != name)
    count, shots = draw.randint(*CLASSES), draw.randint(*PHOTOS)
    if name == "birds":
        shots = min(shots, MOST_BIRDS)
    order = draw.sample(sorted(own), len(own))
    asked: list[tuple[Path, str]] = []
    for label in order[:count]:
        photos = draw.sample(own[label], len(own[label]))
        (folder / "photos" / label).mkdir(parents=True)
        for photo in photos[:shots]:
            (folder / "photos" / label / photo.name).symlink_to(photo)
        asked += [(photo, label) for photo in photos[shots:][:TESTED]]
    near = [photo for label in order[count:] for photo in own[label]]
    strange = {
        "near": draw.sample(near, STRANGERS),
        "far": draw.sample([photo for photos in far.values() for photo in photos], STRANGERS),
    }
    began = time.process_time()
    model = cala.fit(folder / "photos", folder / "model", fakes=fakes)
    seconds = time.process_time() - began
    answers = said(model, [photo for photo, _ in asked])
    return {
        "set": name,
        "classes": count,
        "photos": shots,
        "fit_seconds": round(seconds, 2),
        "genuine": [[label, *answer] for (_, label), answer in zip(asked, answers, strict=True)],
        **{kind: said(model, photos) for kind, photos in strange.items()},
    }


def said(model: cala.Model, photos: list[Path]) -> list[Answer]:
    answers = model.explain(photos, top=1)
    return [(one.label, one.best, round(float(one.probability), 4)) for one in answers]


def summary(found: list[dict]) -> dict:
    """Shares over problems with intervals, and what printed percentages are worth, pooled."""
    shares = defaultdict(list)
    named: list[tuple[float, bool]] = []  # probability, and whether it was right
    for one in found:
        genuine = one["genuine"]
        shares["right"].append(share(best == true for true, _, best, _ in genuine))
        shares["right as answered"].append(share(label == true for true, label, _, _ in genuine))
        shares["called unknown by mistake"].append(share(a[1] == "unknown" for a in genuine))
        for kind in ("near", "far"):
            shares[f"{kind} strangers found"].append(share(a[0] == "unknown" for a in one[kind]))
        one["shares"] = {name: round(values[-1], 4) for name, values in shares.items()}
        named += [(p, best == true) for true, label, best, p in genuine if label != "unknown"]
    bins = []
    for low, high in itertools.pairwise(EDGES):
        inside = [(p, right) for p, right in named if low <= p < high]
        if inside:
            stated = statistics.fmean(p for p, _ in inside)
            bins.append(
                {
                    "from": low,
                    "photos": len(inside),
                    "stated": stated,
                    "right": share(right for _, right in inside),
                }
            )
    error = sum(b["photos"] * abs(b["stated"] - b["right"]) for b in bins) / len(named)
    strangers = [a for one in found for kind in ("near", "far") for a in one[kind]]
    sure = share(label != "unknown" and p >= 0.995 for label, _, p in strangers)
    return {
        "shares": {name: interval(values) for name, values in shares.items()},
        "calibration": {"photos": len(named), "error": error, "bins": bins},
        "strangers named at over 99 %": sure,
    }


def share(values) -> float:
    return statistics.fmean(map(float, values))


def interval(values: list[float]) -> dict[str, float]:
    half = T * statistics.stdev(values) / len(values) ** 0.5 if len(values) > 1 else 0.0
    return {"mean": statistics.fmean(values), "half": half}


def table(result: dict) -> str:
    lines = [f"\n{len(result['problems'])} problems, percent:\n", "| | |", "|---|---|"]
    for name, value in result["shares"].items():
        lines.append(f"| {name} | {100 * value['mean']:.1f} ± {100 * value['half']:.1f} |")
    sure = result["strangers named at over 99 %"]
    lines.append(f"| strangers named at over 99 % | {100 * sure:.1f} |")
    calibration = result["calibration"]
    error, photos = 100 * calibration["error"], calibration["photos"]
    lines.append(f"| calibration error of {photos} answers | {error:.1f} |")
    lines += ["\n| stated, mean | right | photos |", "|---|---|---|"]
    for one in calibration["bins"]:
        stated, right = 100 * one["stated"], 100 * one["right"]
        lines.append(f"| {stated:.1f} | {right:.1f} | {one['photos']} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
