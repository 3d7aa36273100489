"""How far to go from pretrained weights to adapted ones, judged on dev queries of CUB-200.

    cala train DIR --as cub200 -o adapted --init efficientnet-lite0 --recipe adapt-cub200 \
        --holdout 5 --set blend=1
    python benchmarks/blends.py adapted --data DIR --values 0,0.5,0.75,1

Dev queries are the base images that training held out and 10 training images of each novel class;
base prototypes are of 10 training images each and the published shots are the shots. No test image
is read. Prints nearest mean in both metrics: AUSUC, last session, average.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import torch

from cala.benchmark.scoring import run_draw
from cala.data.embeddings import Embeddings
from cala.data.images import ImageSplit
from cala.data.protocol import canonical_draw, load_protocol, with_rows
from cala.data.sets import open_images
from cala.encoders.base import Encoder
from cala.encoders.leakage import held_out
from cala.encoders.registry import ARCHITECTURES, load_encoder, weights_file
from cala.encoders.weights import load_weights, read_weights
from cala.heads.base_data import BaseData
from cala.heads.factory import make_head
from cala.metrics import summarise

START = "efficientnet-lite0"
EACH = 10  # training images of a base class, and queries of a novel class


def weights(network: torch.nn.Module, name: str) -> dict[str, torch.Tensor]:
    """Floating-point weights of an encoder under the names of `network`, which they fill."""
    load_weights(network, read_weights(weights_file(name)), name, START)
    own = network.state_dict()
    return {n: w.clone() for n, w in own.items() if w.is_floating_point()}


@torch.inference_mode()
def encoded(split: ImageSplit, rows: list[int], network: torch.nn.Module, like: Encoder):
    """Embeddings without the cache, which is for encoders that stay."""
    batches = split.take(np.array(rows)).batches(32)
    return np.concatenate(
        [network(torch.from_numpy(like.inputs(pixels))).numpy() for pixels in batches]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("encoder", help="folder of `cala train`, trained with --set blend=1")
    parser.add_argument("--data", required=True, help="folder of CUB-200")
    parser.add_argument("--values", default="0,0.5,0.75,1")
    options = parser.parse_args()
    torch.set_num_threads(1)
    images = open_images(options.data, "cub200")
    protocol = load_protocol("cub200")
    trained = load_encoder(options.encoder)
    labels = images.train.labels
    held = held_out(images.train, range(protocol.base), trained)
    assert held is not None, "train with --holdout"
    found = with_rows(protocol, images.train.names, labels, options.data)
    shots = np.concatenate([np.ravel(rows) for rows in canonical_draw(found).rows])
    rng = np.random.default_rng(0)
    train, query = [], []
    for label in range(len(images.classes)):
        own = rng.permutation(np.flatnonzero(labels == label))
        if label < protocol.base:
            train += [*own[~held[own]][:EACH]]
            query += [*own[held[own]]]
        else:
            mine = np.isin(own, shots)
            train += [*own[mine]]
            query += [*own[~mine][:EACH]]
    network = ARCHITECTURES[START]().eval()
    begin, end = (weights(network, name) for name in (START, options.encoder))
    for value in map(float, options.values.split(",")):
        began = time.process_time()
        network.load_state_dict({n: torch.lerp(begin[n], end[n], value) for n in end}, strict=False)
        x_train, x_query = (
            encoded(images.train, rows, network, trained) for rows in (train, query)
        )
        data = Embeddings(
            x_train=x_train, y_train=labels[train], x_test=x_query, y_test=labels[query],
            names_train=[images.train.names[i] for i in train],
        )  # fmt: skip
        ready = with_rows(protocol, data.names_train, data.y_train, "dev")
        for metric in ("cosine", "whitened"):
            head = make_head("nearest-mean", metric=metric)
            base = data.y_train < protocol.base
            head.fit_base(BaseData(data.x_train[base], data.y_train[base]))
            found = summarise(run_draw(head, data, ready, canonical_draw(ready)))
            figures = (f"{n} {100 * getattr(found, n):.1f}" for n in ("ausuc", "last", "avg"))
            print(f"blend {value:<5} {metric:9}", *figures, flush=True)
        print(f"  {len(data.y_test)} queries, {time.process_time() - began:.0f} s", flush=True)


if __name__ == "__main__":
    main()
