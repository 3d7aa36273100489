"""Slices of a photo collection on a Ray cluster: one worker per device, each with its encoder."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from contextlib import closing
from dataclasses import replace
from typing import Any

import torch

from cala.cluster.ray_cluster import RayCluster
from cala.encoders.base import Encoder
from cala.encoders.encode_shards import Encoded, Slice, Work, encode_slice
from cala.encoders.registry import load_encoder
from cala.errors import InputError


def on_ray(
    cluster: RayCluster,
    uri: str,
    encoder: Encoder,
    views: int | None = None,
    threads: int | None = None,
) -> Work:
    """Encodes slices on a cluster; on devices where it has some, else on processors.

    uri : the encoder's, which every node loads for itself; encoder : as loaded here
    threads : of each worker on a processor, one by default
    """
    each = 1 if cluster.gpus else min(threads or 1, cluster.widest)
    count = cluster.gpus or max(1, cluster.cpus // each)
    device = "cuda" if cluster.gpus else "cpu"

    def work(pieces: Iterable[Slice]) -> Generator[tuple[Slice, Encoded], None, None]:
        under_way: dict[str, Slice] = {}

        def keyed() -> Generator[tuple[str, Slice], None, None]:
            for piece in pieces:
                under_way[piece.key] = piece
                yield piece.key, replace(piece, images=piece.images.located())

        found = cluster.map(
            keyed(),
            make_worker,
            uri,
            device,
            views,
            encoder.fingerprint,
            each,
            count=count,
            cpus=each,
            gpus=int(cluster.gpus > 0),
        )
        with closing(found) as finished:
            for key, encoded in finished:
                yield under_way.pop(str(key)), encoded

    return work


def make_worker(
    uri: str, device: str, views: int | None, fingerprint: str, threads: int
) -> Callable[[Any], Encoded]:
    """On a node: what encodes slices there."""
    torch.set_num_threads(threads)
    encoder = load_encoder(uri, device, views)
    if encoder.fingerprint != fingerprint:
        raise InputError(
            f"encoder {uri} is another one on a node of the cluster (fingerprint "
            f"{encoder.fingerprint[:12]}, here {fingerprint[:12]}): put the same file there"
        )
    return lambda piece: encode_slice(encoder, piece)
