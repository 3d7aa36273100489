"""Embeddings files, `.npz` or `.safetensors`: their members as arrays, and whether these fit."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from cala import storage
from cala.core.fakes import FakePool
from cala.core.rows import Array
from cala.data.shards import is_shards
from cala.errors import DamagedFile, InputError
from cala.files import atomic, preview, reason, shown

Members = Mapping[str, Array]

REQUIRED = ("x_train", "y_train", "x_test", "y_test")
TEXTS = ("class_names", "names_train", "names_test")
OPTIONAL = ("fake", "pairs", "fake_shot", "x_shot", "shot_rows", "holdout", "scale", *TEXTS)
PART = "part."  # members that were trained together with the encoder
MAX_LABEL = 10_000_000  # labels count classes: a larger one is an id, and tables of it a full disk
_SUFFIXES = (".npz", ".safetensors")
SAVEZ = "write it with numpy.savez(path, x_train=…, y_train=…, x_test=…, y_test=…)"


def _is_known(name: str) -> bool:
    return name in (*REQUIRED, *OPTIONAL, "provenance") or name.startswith(PART)


def read_members(path: Path) -> tuple[dict[str, Array], tuple[str, ...]]:
    """The known members of a file, unchecked, and the names of whatever else is in it."""
    suffix = _suffix(path)
    try:
        if not path.is_file():
            what = "is a folder" if path.is_dir() else "does not exist"
            detail = f"no embeddings file at {shown(path)}, it {what}"
            raise InputError(detail, "check the path", field="path", code="missing_file")
        found = _read_npz(path) if suffix == ".npz" else _read_safetensors(path)
    except InputError:
        raise
    except Exception as error:  # readers raise whatever broken bytes lead them to
        why = f"{type(error).__name__}: {reason(error)}"
        raise DamagedFile(shown(path), why, storage.AGAIN) from error
    known = {name: array for name, array in found.items() if array is not None}
    return known, tuple(name for name, array in found.items() if array is None)


def _read_npz(path: Path) -> dict[str, Array | None]:
    archive = np.load(path, allow_pickle=False)
    if not isinstance(archive, np.lib.npyio.NpzFile):
        raise DamagedFile(shown(path), "it holds a single array", SAVEZ)
    found: dict[str, Array | None] = {}
    with archive:
        for name in archive.files:
            try:
                found[name] = archive[name] if _is_known(name) else None
            except Exception as error:
                why = f"{name} is damaged or not a plain array: {reason(error)}"
                raise DamagedFile(shown(path), why, SAVEZ) from error
            if isinstance(found[name], bytes):
                raise DamagedFile(shown(path), f"{name} is not an array", SAVEZ)
    return found


def _read_safetensors(path: Path) -> dict[str, Array | None]:
    """Strings are in the header: as JSON under their names, where others wrote the file."""

    def old(header: dict[str, str]) -> dict[str, Any]:
        texts = {name: json.loads(header[name]) for name in TEXTS if name in header}
        return texts | {name: header[name] for name in ("provenance",) if name in header}

    meta, tensors = storage.read(path, "embeddings", old)
    found = {name: array if _is_known(name) else None for name, array in tensors.items()}
    return found | {name: np.array(text) for name, text in meta.items()}


def write_members(path: Path, members: Members, compress: bool = False) -> None:
    """Write in one step: readers see the old file or the new one, never a part."""
    suffix = _suffix(path)
    if compress and suffix != ".npz":
        detail = f"{shown(path)} cannot be compressed"
        raise InputError(detail, "use a name that ends in .npz", field="compress")
    if suffix == ".safetensors":
        meta = {name: a.tolist() for name, a in members.items() if a.dtype.kind == "U"}
        tensors = {name: a for name, a in members.items() if a.dtype.kind != "U"}
        storage.write(path, "embeddings", meta, tensors)
        return
    save: Any = np.savez_compressed if compress else np.savez
    try:
        with atomic(path) as temporary, temporary.open("wb") as file:
            save(file, **members)
    except (OSError, ValueError) as error:
        raise storage.not_written(path, error) from error


def check_target(path: Path) -> None:
    """Raise if `path` cannot become an embeddings file, before the work that fills it."""
    _suffix(path)
    folder = path.resolve().parent
    if path.is_dir() or not folder.is_dir() or not os.access(folder, os.W_OK):
        detail = f"{shown(path)} cannot be written"
        fix = f"check that {shown(folder)} is a folder that you may write to"
        raise InputError(detail, fix, field="out", code="not_written")


def is_embeddings_file(path: str | Path) -> bool:
    """Whether a path ends like an embeddings file or a folder of shards."""
    return Path(path).suffix.lower() in _SUFFIXES or is_shards(path)


def _suffix(path: Path) -> str:
    suffix = path.suffix.lower()
    if suffix not in _SUFFIXES:
        detail = f"{shown(path)} is not an embeddings file by its name"
        raise InputError(detail, f"it must end in {', '.join(_SUFFIXES)}", field="path")
    return suffix


def checked(source: object, members: Members, others: Sequence[str] = ()) -> dict[str, Any]:
    """The fields of `Embeddings` from the members of a file.

    source : for messages, as are `others`, names of members that are not known
    """
    return MemberChecks(shown(source), members, others).fields()


class MemberChecks:
    """Members of `source`, each as what it has to be; an error names what does not fit."""

    def __init__(self, source: str, members: Members, others: Sequence[str] = ()) -> None:
        self.source, self.members, self.others = source, members, others

    def fields(self) -> dict[str, Any]:
        for name in REQUIRED:
            if name not in self.members:
                names = [shown(name) for name in (*self.members, *self.others)]
                holds = preview(names, 10) if names else "nothing"
                self.fail(name, f"is missing; the file holds {holds}")
        x_train = self.reals("x_train", ("n", "d"))
        n, dim = x_train.shape
        x_test = self.reals("x_test", ("m", dim), empty=True)
        class_names = self.texts("class_names")
        if class_names is not None and len(set(class_names)) < len(class_names):
            twice = next(name for name in class_names if class_names.count(name) > 1)
            self.fail("class_names", f"holds {shown(twice)!r} twice")
        y_train, y_test, class_names = self.labels(n, len(x_test), class_names)
        return {
            "x_train": x_train,
            "y_train": y_train,
            "x_test": x_test,
            "y_test": y_test,
            "fakes": self.fakes(dim, int(y_train.max()) + 1),
            **self.shots(n, dim),
            "holdout": self.holdout(n),
            "scale": self.scale(),
            "parts": {
                name.removeprefix(PART): self.reals(name, array.shape, empty=True)
                for name, array in self.members.items()
                if name.startswith(PART)
            },
            "class_names": class_names,
            "names_train": self.texts("names_train", n),
            "names_test": self.texts("names_test", len(x_test)),
            "provenance": self.provenance(),
        }

    def fail(
        self, member: str, why: str, fix: str | None = None, code: str | None = None
    ) -> NoReturn:
        raise InputError(f"{self.source}: {member} {why}", fix, field=member, code=code)

    def array(
        self, member: str, kinds: str, what: str, shape: tuple[int | str, ...], empty: bool = False
    ) -> Array:
        """A member of the right kind and shape; a letter in a shape is any length."""
        array = self.members[member]
        sides = zip(array.shape, shape, strict=False)
        fits = all(have or empty if isinstance(want, str) else have == want for have, want in sides)
        if array.dtype.kind not in kinds or array.ndim != len(shape) or not fits:
            fix = f"give {what} ({', '.join(map(str, shape))})" if shape else f"give {what}"
            self.fail(member, f"is {array.dtype} of shape {array.shape}", fix)
        return array

    def reals(self, member: str, shape: tuple[int | str, ...], empty: bool = False) -> Array:
        """Finite numbers as float32."""
        what = "real numbers" if shape else "a single number"
        array = self.array(member, "fiu", what, shape, empty)
        with np.errstate(over="ignore"):
            values = np.asarray(array, dtype=np.float32, order="C")
        if not np.isfinite(values).all():
            self.fail(member, "contains NaN, infinity or a number too large for 32 bits")
        return values

    def integers(self, member: str, shape: tuple[int, ...], below: int) -> Array:
        """Whole numbers in 0..below-1 as int64."""
        array = self.array(member, "iu", "integers", shape)
        bad = array[(array < 0) | (array >= below)]
        if bad.size:
            self.fail(member, f"holds {bad.flat[0]}", f"use 0..{below - 1}")
        return array.astype(np.int64)

    def labels(
        self, n_train: int, n_test: int, class_names: tuple[str, ...] | None
    ) -> tuple[Array, Array, tuple[str, ...] | None]:
        """Integers as they are; strings become places in `class_names`, or in sorted order."""
        sizes = {"y_train": n_train, "y_test": n_test}
        kinds = {self.members[member].dtype.kind in "US" for member in sizes}
        if len(kinds) > 1:
            self.fail("y_test", "and y_train must both be integers or both be strings")
        if kinds == {False}:
            below = MAX_LABEL if class_names is None else len(class_names)
            y_train, y_test = (self.integers(m, (n,), below) for m, n in sizes.items())
            return y_train, y_test, class_names
        named = {member: self.texts(member, n) or () for member, n in sizes.items()}
        known = class_names or tuple(sorted(set().union(*named.values())))
        column = {name: label for label, name in enumerate(known)}
        for member, names in named.items():
            for name in sorted(set(names) - set(known)):
                self.fail(member, f"has {shown(name)!r}, which class_names lacks")
        labels = ([column[name] for name in names] for names in named.values())
        y_train, y_test = (np.array(found, dtype=np.int64) for found in labels)
        return y_train, y_test, known

    def has(self, first: str, second: str) -> bool:
        """Whether two members that belong together are there."""
        given = [name for name in (first, second) if name in self.members]
        if len(given) == 1:
            lacking = second if given[0] == first else first
            self.fail(given[0], f"is given without {lacking}", "give both, or neither")
        return bool(given)

    def fakes(self, dim: int, n_labels: int) -> FakePool | None:
        if not self.has("fake", "pairs"):
            return None
        features = self.reals("fake", ("fake classes", "images", dim))
        pairs = self.integers("pairs", (len(features), 2), n_labels)
        same = pairs[pairs[:, 0] == pairs[:, 1], 0]
        if len(same):
            self.fail("pairs", f"mixes class {same[0]} with itself")
        shots = self.reals("fake_shot", features.shape) if "fake_shot" in self.members else None
        return FakePool(features, pairs, shots)

    def shots(self, n: int, dim: int) -> dict[str, Array]:
        """How training rows are embedded as shots, and which rows these are."""
        if not self.has("x_shot", "shot_rows"):
            return {}
        x_shot = self.reals("x_shot", ("k", dim))
        return {"x_shot": x_shot, "shot_rows": self.integers("shot_rows", (len(x_shot),), n)}

    def holdout(self, n: int) -> Array | None:
        """(n,) bool from a mask, or from row numbers; a mask that marks nothing is none."""
        given = self.members.get("holdout", np.zeros(0))
        if given.dtype.kind == "b":
            mask = self.array("holdout", "b", "one bool per training row", (n,))
            return mask.copy() if mask.any() else None
        if given.ndim == 1 and not given.size:
            return None
        rows = self.integers("holdout", given.shape[:1], max(n, 2))
        if len(rows) == n and int(rows.max()) <= 1:
            if n <= 2:
                why = "may be a mask or row numbers"
                self.fail("holdout", why, "give one bool per row", "ambiguous")
            return rows.astype(bool) if rows.any() else None
        # A mask of the wrong length would otherwise pass as the rows 0 and 1.
        if len(np.unique(rows)) < len(rows):
            self.fail("holdout", f"is not a mask of {n} rows, and holds row numbers twice")
        mask = np.zeros(n, dtype=bool)
        mask[rows] = True
        return mask

    def scale(self) -> float | None:
        if "scale" not in self.members:
            return None
        given = self.reals("scale", ())
        if given <= 0:
            self.fail("scale", f"is {given}", "use a number above 0")
        return float(self.members["scale"])

    def texts(self, member: str, n: int | None = None) -> tuple[str, ...] | None:
        if member not in self.members:
            return None
        kinds = "US" if self.members[member].size else "USf"
        given = self.array(member, kinds, "strings", ("n" if n is None else n,), empty=True)
        return tuple(_text(text) for text in given.tolist())

    def provenance(self) -> dict[str, Any] | None:
        if "provenance" not in self.members:
            return None
        try:
            found = json.loads(_text(self.members["provenance"].item()))
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            self.fail("provenance", "is not a JSON object")
        return found


def provenance_text(provenance: dict[str, Any]) -> str:
    """Where numbers come from, as JSON."""
    try:
        return json.dumps(provenance, allow_nan=False)
    except (TypeError, ValueError) as error:
        detail = f"provenance cannot be written as JSON ({reason(error)})"
        raise InputError(detail, "use plain values", field="provenance") from error


def _text(given: object) -> str:
    return given.decode("utf-8", "surrogateescape") if isinstance(given, bytes) else str(given)
