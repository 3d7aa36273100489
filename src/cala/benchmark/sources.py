"""Which embeddings serve which methods: one file for all, or one of its own for a host."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from cala.core.rows import Array, Features, StoredRows
from cala.data.embeddings import Embeddings
from cala.errors import InputError, UnknownNameError
from cala.files import sha256_of, shown
from cala.heads import HEADS
from cala.heads.factory import split_name
from cala.registry import unknown

if TYPE_CHECKING:
    from cala.data.images import ImageSet
    from cala.encoders.base import Encoder

_HOST_NAME = re.compile(r"[\w+-]+")  # no dot, no slash, no colon: these make a path or a URI


@dataclass(frozen=True)
class Source:
    """Embeddings, and the name by which a user knows them: a file's, never its whole path.

    images, encoder : what they were made from, where that is at hand
    """

    data: Embeddings
    name: str
    images: ImageSet | None = None
    encoder: Encoder | None = None

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of everything that results depend on, computed once."""
        data, digest = self.data, hashlib.sha256()
        parts: list[Features | None] = [data.x_train, data.y_train, data.x_test, data.y_test]
        fakes = data.fakes
        parts += [] if fakes is None else [fakes.features, fakes.pairs]
        parts += [data.x_shot, data.shot_rows, None if fakes is None else fakes.shots]
        parts += [data.holdout, *(data.parts[name] for name in sorted(data.parts))]
        for part in (part for part in parts if part is not None):
            digest.update(str(tuple(part.shape)).encode())
            if isinstance(part, StoredRows):
                digest.update(part.fingerprint().encode())
            else:
                digest.update(np.ascontiguousarray(part).tobytes())
        # Names decide which rows are the published shots.
        digest.update(json.dumps([data.scale, data.names_train]).encode())
        return digest.hexdigest()

    @cached_property
    def rows(self) -> str:
        """SHA-256 of labels and of what may be learned from: runs that share it share their draws
        and test images, whatever encoder they use."""
        data = self.data
        parts = (data.y_train, data.learnable(), data.y_test)
        return sha256_of(np.ascontiguousarray(part).tobytes() for part in parts)

    def described(self) -> dict[str, str]:
        """As written to `config.json`."""
        return {"source": self.name, "fingerprint": self.fingerprint}


PerHost = Mapping[str, Source]
"""Host -> embeddings that serve its methods alone."""


def host_of(method: str) -> str:
    """The head below a method.

    >>> host_of("cala"), host_of("teen+cala")
    ('nearest-mean', 'teen')
    """
    return split_name(method)[0]


@dataclass(frozen=True)
class HostOption:
    """A repeated option: a value for every method, and values for single hosts."""

    default: str | None = None
    per_host: dict[str, str] = field(default_factory=dict)


def parse_host_option(option: str, values: Sequence[str], methods: Sequence[str]) -> HostOption:
    """Sort `VALUE` and `HOST=VALUE`; a host that no method has is refused.

    A `=` in a file name is part of the name unless a head's name precedes it.

    >>> parse_host_option("--embeddings", ["base.npz", "teen=my.npz"], ["la", "teen+cala"])
    HostOption(default='base.npz', per_host={'teen': 'my.npz'})
    """
    default: str | None = None
    per_host: dict[str, str] = {}
    hosts = list(dict.fromkeys(host_of(method) for method in methods))
    for given in values:
        host, value = _split(option, given)
        if host is None:
            if default is not None:
                both = f"{option} {shown(default)} and {shown(value)}"
                fix = "give one for all methods, and others as HOST=…"
                raise _refused(option, both, fix, "repeated")
            default = value
            continue
        if host in per_host:
            raise _refused(option, f"{option} {host}=… is given twice", "give it once", "repeated")
        if not value:
            raise _refused(option, f"{option} {host}= has no value", "add one", "no_value")
        if host not in hosts:
            detail = f"{option} {shown(given)}: no method of this run has the host {host}"
            raise _refused(option, detail, f"its hosts are {', '.join(hosts)}", "unused_host")
        per_host[host] = value
    return HostOption(default, per_host)


def _refused(option: str, detail: str, fix: str, code: str) -> InputError:
    return InputError(detail, fix, field=option.lstrip("-"), code=code)


def _split(option: str, given: str) -> tuple[str | None, str]:
    host, equals, value = given.partition("=")
    if equals and host in HEADS:
        return host, value
    if not equals or not _HOST_NAME.fullmatch(host) or os.path.exists(given):
        return None, given
    try:
        fix = f"{host} is a method, give its host: {host_of(host)}=…"
    except UnknownNameError:
        fix = str(unknown("host", host, HEADS))
    raise _refused(
        option, f"{option} {shown(given)} is neither a path nor HOST=…", fix, "not_a_host"
    )


def short_encoder_name(encoder: str) -> str:
    """An encoder's name without the directories of an absolute path.

    >>> short_encoder_name("/home/me/bases/alice/encoder.safetensors")
    'alice/encoder.safetensors'
    """
    door, colon, path = encoder.rpartition(":")
    if not Path(path).is_absolute():
        return encoder
    return door + colon + "/".join(Path(path).parts[1:][-2:])


def check_same_rows(host: str, found: Source, default: Source) -> None:
    """Raise unless two embeddings are of the same images in the same order.

    Only then are shots and test images the same for all methods.
    """
    names = ("y_train", "y_test", "names_train", "names_test", "class_names")
    differing = [n for n in names if not _same(getattr(found.data, n), getattr(default.data, n))]
    if differing:
        raise InputError(
            f"{shown(found.name)}, for {host}, differs from {shown(default.name)} in "
            f"{', '.join(differing)}",
            "encode all embeddings of a run from the same images in the same order, with "
            f"`cala encode` or --encoder {host}=…",
            code="other_rows",
        )


def check_same_queries(host: str, found: Source, default: Source) -> None:
    """Raise unless both leave the same training rows to be learned from, in a view for dev."""
    if not _same(found.data.learnable(), default.data.learnable()):
        raise InputError(
            f"{shown(found.name)}, for {host}, gives other dev images than {shown(default.name)}: "
            "dev takes base images from the held-out rows (holdout), and these differ",
            "train both encoders with the same held-out images, or omit --split dev",
            code="other_queries",
        )


def _same(first: Array | Sequence[str] | None, second: Array | Sequence[str] | None) -> bool:
    """Whether two are equal, where both are there."""
    if first is None or second is None:
        return True
    return np.array_equal(first, second) if isinstance(first, np.ndarray) else first == second
