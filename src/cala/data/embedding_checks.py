"""The members of an embeddings file, checked: what does not fit is named with file and member."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NoReturn

import numpy as np

from cala.core.fakes import FakePool
from cala.core.rows import Array
from cala.errors import InputError
from cala.files import shown

Members = Mapping[str, Array]

REQUIRED = ("x_train", "y_train", "x_test", "y_test")
TEXTS = ("class_names", "names_train", "names_test")
OPTIONAL = (
    "fake",
    "pairs",
    "fake_shot",
    "x_shot",
    "shot_rows",
    "holdout",
    "scale",
    *TEXTS,
    "provenance",
)
PART = "part."  # members that were trained together with the encoder
MAX_LABEL = 10_000_000  # labels count classes: a larger one is an id, and tables of it a full disk


def checked(source: object, members: Members) -> dict[str, Any]:
    """The fields of `Embeddings` from the arrays of a file; `source` is for messages."""
    return _Checks(shown(source), members).fields()


class _Checks:
    def __init__(self, source: str, members: Members) -> None:
        self.source, self.members = source, members

    def fields(self) -> dict[str, Any]:
        missing = [name for name in REQUIRED if name not in self.members]
        if missing:
            holds = ", ".join(shown(name) for name in self.members) or "nothing"
            raise InputError(f"{self.source} lacks {', '.join(missing)}: it holds {holds}")
        x_train, x_test = self.vectors("x_train", 2), self.vectors("x_test", 2)
        if not len(x_train):
            self.fail("x_train", "has no row: a class is learned from at least one")
        if x_test.shape[1] != x_train.shape[1]:
            self.fail(
                "x_test", f"has {x_test.shape[1]} columns, x_train {x_train.shape[1]}: they differ"
                " in dimension"
            )  # fmt: skip
        class_names = self.names("class_names")
        if class_names is not None and len(set(class_names)) < len(class_names):
            twice = next(n for n in class_names if class_names.count(n) > 1)
            self.fail("class_names", f"holds {shown(twice)!r} twice")
        y_train, y_test, class_names = self.labels(len(x_train), len(x_test), class_names)
        return {
            "x_train": x_train,
            "y_train": y_train,
            "x_test": x_test,
            "y_test": y_test,
            "fakes": self.fakes(x_train.shape[1], int(y_train.max()) + 1),
            **self.shots(x_train),
            "holdout": self.holdout(len(x_train)),
            "scale": self.scale(),
            "parts": self.parts(),
            "class_names": class_names,
            "names_train": self.names("names_train", len(x_train)),
            "names_test": self.names("names_test", len(x_test)),
            "provenance": self.provenance(),
        }

    def fail(self, member: str, why: str) -> NoReturn:
        raise InputError(f"{self.source}: {member} {why}")

    def vectors(self, member: str, ndim: int) -> Array:
        """Real, finite numbers as float32."""
        array = self.members[member]
        if array.dtype.kind not in "fiu":
            self.fail(member, f"is {array.dtype}: give real numbers")
        if array.ndim != ndim or 0 in array.shape[1:]:
            want = "(n, d)" if ndim == 2 else "(fake classes, images, d)"
            self.fail(member, f"is {array.shape}, not {want}")
        with np.errstate(over="ignore"):
            values = np.ascontiguousarray(array, dtype=np.float32)
        if not np.isfinite(values).all():
            self.fail(member, "contains NaN, infinity or a number too large for 32 bits")
        return values

    def integers(self, member: str, array: Array, below: int) -> Array:
        """Whole numbers in 0..below-1 as int64."""
        if array.dtype.kind not in "iu":
            self.fail(member, f"is {array.dtype}: give integers, such as {member}.astype(int)")
        bad = array[(array < 0) | (array >= below)]
        if bad.size:
            self.fail(member, f"holds {bad.flat[0]}: it must lie in 0..{below - 1}")
        return array.astype(np.int64)

    def labels(
        self, n_train: int, n_test: int, class_names: tuple[str, ...] | None
    ) -> tuple[Array, Array, tuple[str, ...] | None]:
        """Integers as they are; strings become places in `class_names`, or in sorted order."""
        arrays = {"y_train": self.members["y_train"], "y_test": self.members["y_test"]}
        for (member, array), n in zip(arrays.items(), (n_train, n_test), strict=True):
            if array.shape != (n,):
                x = member.replace("y", "x")
                self.fail(member, f"{array.shape} does not fit {x}: give one label per row, ({n},)")
        texts = [array.dtype.kind in "US" for array in arrays.values()]
        if not any(texts):
            below = MAX_LABEL if class_names is None else len(class_names)
            y_train, y_test = (self.integers(m, a, below) for m, a in arrays.items())
            return y_train, y_test, class_names
        if not all(texts):
            self.fail("y_test", "and y_train must both be integers or both be strings")
        named = {member: _texts(array) for member, array in arrays.items()}
        known = class_names or tuple(sorted({name for n in named.values() for name in n}))
        column = {name: label for label, name in enumerate(known)}
        for member, labels in named.items():
            unknown = next((name for name in labels if name not in column), None)
            if unknown is not None:
                self.fail(member, f"has {shown(unknown)!r}, which class_names lacks")
        y_train, y_test = (
            np.array([column[name] for name in labels], dtype=np.int64) for labels in named.values()
        )
        return y_train, y_test, known

    def fakes(self, dim: int, n_labels: int) -> FakePool | None:
        if "fake" not in self.members:
            if "pairs" in self.members:
                self.fail("pairs", "needs the member fake, the embeddings that they belong to")
            return None
        fake = self.members["fake"]
        if "pairs" not in self.members:
            self.fail("fake", "needs the member pairs, (fake classes, 2): which two each one mixes")
        pairs = self.members["pairs"]
        if fake.ndim != 3 or fake.shape[2] != dim or 0 in fake.shape:
            self.fail("fake", f"is {fake.shape}, not (fake classes, images, {dim}), none of them 0")
        if pairs.shape != (len(fake), 2):
            self.fail("pairs", f"is {pairs.shape}, not ({len(fake)}, 2)")
        mixed = self.integers("pairs", pairs, n_labels)
        same = mixed[mixed[:, 0] == mixed[:, 1], 0]
        if len(same):
            self.fail("pairs", f"mixes class {same[0]} with itself")
        shots = self.vectors("fake_shot", 3) if "fake_shot" in self.members else None
        if shots is not None and shots.shape != fake.shape:
            self.fail("fake_shot", f"is {shots.shape}, not {fake.shape} as fake")
        return FakePool(self.vectors("fake", 3), mixed, shots)

    def shots(self, x_train: Array) -> dict[str, Array]:
        """How training rows are embedded as shots, and which rows these are."""
        both = {"x_shot", "shot_rows"}
        missing = both - self.members.keys()
        if missing == both:
            return {}
        if missing:
            self.fail((both - missing).pop(), f"needs the member {missing.pop()}")
        x_shot, rows = self.vectors("x_shot", 2), self.members["shot_rows"]
        if rows.shape != (len(x_shot),) or x_shot.shape[1] != x_train.shape[1]:
            self.fail("x_shot", f"{x_shot.shape} does not fit shot_rows {rows.shape} and x_train")
        return {"x_shot": x_shot, "shot_rows": self.integers("shot_rows", rows, len(x_train))}

    def holdout(self, n: int) -> Array | None:
        """(n,) bool from a mask, or from row numbers; a mask that marks nothing is none."""
        if "holdout" not in self.members:
            return None
        given = self.members["holdout"]
        if given.ndim != 1:
            self.fail("holdout", f"is {given.shape}, not one bool per training row")
        if given.dtype.kind == "b":
            if given.shape != (n,):
                self.fail("holdout", f"is {given.shape}, not one bool per training row, ({n},)")
            return given.copy() if given.any() else None
        if not given.size:
            return None
        rows = self.integers("holdout", given, max(n, 2))
        if len(rows) == n and int(rows.max()) <= 1:
            if n <= 2:
                self.fail("holdout", "may be a mask or row numbers here: give one bool per row")
            return rows.astype(bool) if rows.any() else None
        # A mask of the wrong length would otherwise pass as the rows 0 and 1.
        if len(np.unique(rows)) < len(rows):
            self.fail("holdout", f"is no mask of {n} rows, and as row numbers they repeat")
        mask = np.zeros(n, dtype=bool)
        mask[rows] = True
        return mask

    def scale(self) -> float | None:
        if "scale" not in self.members:
            return None
        given = self.members["scale"]
        if given.shape != () or given.dtype.kind not in "fiu":
            self.fail("scale", f"is {given.dtype} of shape {given.shape}: give a single number")
        if not (np.isfinite(given) and given > 0):
            self.fail("scale", f"is {given}: a logit scale is finite and above 0")
        return float(given)

    def parts(self) -> dict[str, Array]:
        """Real, finite numbers of any shape, as float32."""
        found = {}
        for member, array in self.members.items():
            if not member.startswith(PART):
                continue
            if array.dtype.kind not in "fiu" or not np.isfinite(array).all():
                self.fail(member, f"is {array.dtype}, or holds NaN or infinity: give real numbers")
            found[member.removeprefix(PART)] = np.asarray(array, dtype=np.float32, order="C")
        return found

    def names(self, member: str, n: int | None = None) -> tuple[str, ...] | None:
        if member not in self.members:
            return None
        given = self.members[member]
        if given.ndim != 1 or (given.dtype.kind not in "US" and given.size):
            self.fail(member, f"is {given.dtype} of shape {given.shape}: give a list of strings")
        if n is not None and len(given) != n:
            self.fail(member, f"has {len(given)} names for {n} rows")
        return _texts(given)

    def provenance(self) -> dict[str, Any] | None:
        if "provenance" not in self.members:
            return None
        given = self.members["provenance"]
        try:
            found = json.loads(_texts(given.reshape(1))[0])
        except ValueError:
            found = None
        if not isinstance(found, dict):
            self.fail("provenance", "is not the text of a JSON object")
        return found


def _texts(array: Array) -> tuple[str, ...]:
    if array.dtype.kind == "S":
        return tuple(text.decode("utf-8", "surrogateescape") for text in array.tolist())
    return tuple(str(text) for text in array.tolist())
