"""Which embeddings serve which methods: one file for all, or one of its own for a host."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from cala.core.rows import Array
from cala.data.embeddings import Embeddings
from cala.errors import InputError, UnknownNameError
from cala.files import shown
from cala.heads import HEADS
from cala.heads.factory import split_name
from cala.registry import unknown

if TYPE_CHECKING:
    from cala.data.images import ImageSet
    from cala.encoders.base import Encoder

HOST = re.compile(r"[\w+-]+")  # no dot, no slash, no colon: these make a path or a URI


@dataclass(frozen=True)
class Source:
    """Embeddings and the name by which a user knows them: a file's, never its whole path.

    images, encoder : what they were made from, where that is at hand
    """

    data: Embeddings
    name: str
    images: ImageSet | None = None
    encoder: Encoder | None = None


Own = Mapping[str, Source]
"""Host -> embeddings that serve its methods alone."""


def host_of(method: str) -> str:
    """The head below a method.

    >>> host_of("cala"), host_of("teen+cala")
    ('nearest-mean', 'teen')
    """
    return split_name(method)[0]


def source_of(method: str, usual: Source, own: Own) -> Source:
    """The embeddings of a method: its host's own, or the usual ones."""
    return own.get(host_of(method), usual)


@dataclass(frozen=True)
class Choices:
    """What a repeated option says: a value for every method, and values for single hosts."""

    usual: str | None = None
    own: dict[str, str] = field(default_factory=dict)


def read_choices(option: str, values: Sequence[str], methods: Sequence[str]) -> Choices:
    """Sort `VALUE` and `HOST=VALUE`; a host that no method has is refused.

    A `=` in a file's name stays part of it unless a head's name stands before it.

    >>> read_choices("--embeddings", ["base.npz", "teen=my.npz"], ["nearest-mean", "teen+cala"])
    Choices(usual='base.npz', own={'teen': 'my.npz'})
    """
    usual: str | None = None
    own: dict[str, str] = {}
    hosts = list(dict.fromkeys(host_of(method) for method in methods))
    for given in values:
        host, value = _split(option, given)
        if host is None:
            if usual is not None:
                raise InputError(
                    f"{option} {shown(usual)} and {shown(value)}: give one for all methods, and "
                    "others as HOST=…"
                )
            usual = value
            continue
        if host in own:
            raise InputError(f"{option} {host}=… is given twice: give one for each host")
        if not value:
            raise InputError(f"{option} {host}=: nothing stands after the =")
        if host not in hosts:
            raise InputError(
                f"{option} {shown(given)}: no method of this run has the host {host}: its hosts "
                f"are {', '.join(hosts)}"
            )
        own[host] = value
    return Choices(usual, own)


def _split(option: str, given: str) -> tuple[str | None, str]:
    host, equals, value = given.partition("=")
    if equals and host in HEADS:
        return host, value
    if not equals or not HOST.fullmatch(host) or os.path.exists(given):
        return None, given
    try:
        below = host_of(host)
    except UnknownNameError:
        message = unknown("host", host, HEADS)
    else:
        message = f"{host} is a method, give its host: {below}=…. Known hosts: {', '.join(HEADS)}"
    raise InputError(f"{option} {shown(given)} is no path, and HOST=… serves a host: {message}")


def brief(encoder: str) -> str:
    """An encoder's name without the folders of an absolute path.

    >>> brief("/home/me/bases/alice/encoder.safetensors"), brief("timm:vit")
    ('alice/encoder.safetensors', 'timm:vit')
    """
    door, colon, path = encoder.rpartition(":")
    if not Path(path).is_absolute():
        return encoder
    return door + colon + "/".join(Path(path).parts[1:][-2:])


def check_same_rows(host: str, found: Source, usual: Source) -> None:
    """Raise unless two embeddings are of the same images in the same order.

    Only then are shots and test images the same for all methods.
    """
    ours, theirs = found.data, usual.data
    differing = [
        what
        for what, first, second in (
            ("y_train", ours.y_train, theirs.y_train),
            ("y_test", ours.y_test, theirs.y_test),
            ("names_train", ours.names_train, theirs.names_train),
            ("names_test", ours.names_test, theirs.names_test),
            ("class_names", ours.class_names, theirs.class_names),
        )
        if not _same(first, second)
    ]
    if differing:
        raise InputError(
            f"{shown(found.name)}, for {host}, differs from {shown(usual.name)} in "
            f"{', '.join(differing)}: all embeddings of a run must be encoded from the same images "
            f"in the same order, with `cala encode` or --encoder {host}=…"
        )


def check_same_queries(host: str, found: Source, usual: Source) -> None:
    """Raise unless both leave the same training rows to be learned from, in a view for dev."""
    if not _same(found.data.learnable(), usual.data.learnable()):
        raise InputError(
            f"{shown(found.name)}, for {host}, gives other dev images than {shown(usual.name)}, "
            "since they mark other rows as held out (holdout), and dev takes base images from "
            "these: train both encoders with the same held-out images, or leave out --split dev"
        )


def _same(first: Array | Sequence[str] | None, second: Array | Sequence[str] | None) -> bool:
    """Whether two are equal, where both are there."""
    if first is None or second is None:
        return True
    if isinstance(first, np.ndarray):
        return np.array_equal(first, second)
    return first == second
