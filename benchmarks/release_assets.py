"""Lay trained encoders out as assets of a release, for `cala encoders get`.

    python benchmarks/release_assets.py assets NAME=FOLDER --run NAME=RUN
    cala encoders get NAME --from assets                     # try them
    python benchmarks/release_assets.py assets --publish URL # once the files are uploaded to URL

FOLDER is what `cala train -o` wrote, RUN a folder of `cala run` with that encoder: its nearest mean
gives the accuracy in session 0. Writes NAME.safetensors and index.json; entries of an index that is
already there stay. `--publish` copies the index into the package, with its URL.
"""

from __future__ import annotations

import argparse
import json
import shutil
from pathlib import Path
from typing import Any

from cala.encoders.published import INDEX, PUBLISHED_LIST
from cala.encoders.registry import ARCHITECTURES, ENCODERS
from cala.encoders.weights import stated_training
from cala.files import sha256, write_text
from modern_encoders import named

#: Terms of the images that trained the weights, as their authors state them.
LICENCES = {
    "cifar100": "weights Apache-2.0; its images (Krizhevsky, 2009) have no stated licence",
    "cub200": "weights Apache-2.0; its images are for non-commercial research and education",
    "mini_imagenet": "weights Apache-2.0; ImageNet's images are for non-commercial research and "
    "education",
}


def entry(encoder: Path, run: Path | None) -> dict[str, Any]:
    """What the index says about an encoder file of `cala train`."""
    about, _, _ = stated_training(encoder)
    recipe, dataset = about["recipe"], about["dataset"]
    return {
        "sha256": sha256(encoder),
        "bytes": encoder.stat().st_size,
        "dataset": dataset,
        "architecture": recipe["encoder"],
        "recipe": recipe["name"],
        "epochs": about["epochs"],
        "hours": round(about["minutes"] / 60, 1),
        "held_out": None if about["validation"] is None else round(100 * about["validation"], 1),
        "session_0": None if run is None else session_0(run),
        "licence": LICENCES.get(dataset, "weights Apache-2.0; ask who owns the images"),
    }


def session_0(run: Path) -> float:
    """Accuracy of nearest mean on the base test images, in percent."""
    found = json.loads((run / "summary.json").read_text("utf-8"))
    group = found.get("canonical") or found["random"]
    return round(float(group["nearest-mean"]["sessions"]["accuracy"][0]["mean"]), 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("encoders", type=named, nargs="*", metavar="NAME=FOLDER")
    parser.add_argument("--run", type=named, action="append", metavar="NAME=RUN", default=[])
    parser.add_argument("--publish", metavar="URL", help="write the package's index for this URL")
    given = parser.parse_args()
    index = given.out / INDEX
    before = json.loads(index.read_text("utf-8")) if index.exists() else {"encoders": {}}
    runs, entries = dict(given.run), before["encoders"]
    given.out.mkdir(parents=True, exist_ok=True)
    for name, folder in given.encoders:
        if name in ENCODERS or name in ARCHITECTURES or Path(name).name != name or ":" in name:
            parser.error(f"{name} cannot be the name of an asset: choose another")
        place = given.out / f"{name}.safetensors"
        shutil.copyfile(Path(folder, "encoder.safetensors"), place)
        entries[name] = entry(place, Path(runs[name]) if name in runs else None)
    write_text(index, json.dumps({"encoders": entries}, indent=1) + "\n")
    if given.publish:
        own = json.loads(PUBLISHED_LIST.read_text("utf-8"))
        for name, found in entries.items():
            own["encoders"][name] = {**own["encoders"].get(name, {}), **found}
        own["from"] = given.publish
        write_text(PUBLISHED_LIST, json.dumps(own, indent=1) + "\n")
    print(*sorted(p.name for p in given.out.iterdir()), sep="\n")


if __name__ == "__main__":
    main()
