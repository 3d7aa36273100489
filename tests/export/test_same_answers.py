"""onnxruntime on the exported file says what cala says, for everything that is registered."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from cala.core.metric import METRICS
from cala.encoders.torch_module import TorchForward
from cala.encoders.views import with_views
from cala.export import export_onnx
from cala.heads import ADAPTERS, HEADS, Head
from cala.heads.factory import split_name
from export.small import logits_of, make_model, many, need_onnx, photos, prepared, tiny_encoder

need_onnx()
import onnxruntime  # noqa: E402

HOSTS = [
    name
    for name in HEADS
    if HEADS[name].linear_form is not Head.linear_form
    and not HEADS[name].traits.changes_encoder
    and name != "bidist-base"
]
METHODS = [*HOSTS, *ADAPTERS, *(f"{host}+{list(ADAPTERS)[i % 3]}" for i, host in enumerate(HOSTS))]
# Nearest mean in each metric, the others in one: the metric is not theirs.
PAIRS = [
    (method, metrics[i % len(metrics)])
    for i, method in enumerate(METHODS)
    for metrics in [HEADS[split_name(method)[0]].traits.metrics]
]
PAIRS += [("nearest-mean", metric) for metric in METRICS if ("nearest-mean", metric) not in PAIRS]
CLOSE = 1e-4


def session_of(model, folder, **options):
    done = export_onnx(model, folder / "model.onnx", **options)
    return onnxruntime.InferenceSession(str(done.path), providers=["CPUExecutionProvider"])


def close(found, expected):
    assert found.shape == expected.shape
    # Logits of some hundred, in single precision, differ by more than their own last digit.
    np.testing.assert_allclose(found, expected, rtol=2e-6, atol=CLOSE)


def same_logits(session, model, images, **table):
    expected = logits_of(model, images)
    (found,) = session.run(["logits"], {"images": prepared(model, images), **table})
    close(found, expected)
    assert (found.argmax(1) == expected.argmax(1)).all()


@pytest.fixture(scope="module", params=PAIRS, ids="-".join)
def pair(request, tmp_path_factory):
    """A model that has grown, and its session."""
    method, metric = request.param
    folder = tmp_path_factory.mktemp("model")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CALA_CACHE", str(folder / "cache"))
        model = make_model(folder / "model", method=method, metric=metric)
        model.add(photos(12, 5), "twelve")
        return model, session_of(model, folder), folder


def test_labels_and_logits_of_200_images(pair):
    model, session, _ = pair
    images = many(200)
    assert len(images) == 200
    same_logits(session, model, images)


@pytest.mark.parametrize("n", [1, 7, 64])
def test_any_batch(pair, n):
    model, session, _ = pair
    same_logits(session, model, many(n))


def test_embeddings_are_those_of_the_metric(pair):
    model, session, _ = pair
    images = prepared(model, many(20))
    unit, logits = session.run(["embedding", "logits"], {"images": images})
    np.testing.assert_allclose(np.linalg.norm(unit, axis=1), 1, rtol=1e-5)
    table = np.load(pair[2] / "model.npz")
    close(unit @ table["weights"].T + table["bias"], logits)


@pytest.mark.parametrize("k", [1, 2, 5, 20])
def test_growing_is_what_add_does(pair, k, tmp_path):
    """Two classes are added to the file and, elsewhere, to the model."""
    model, session, folder = pair
    table = dict(np.load(folder / "model.npz"))
    head = model.current.classifier.head_.fork()
    current = model.current
    for label in (13, 14):
        shots = photos(label, k, seed=3)
        row, bias = session.run(["new_weight", "new_bias"], {"images": prepared(model, shots)})
        table["weights"] = np.vstack([table["weights"], row])
        table["bias"] = np.append(table["bias"], bias)
        current = grown(model, current, shots, str(label))
    images = many(60)
    given = {"weights": table["weights"], "bias": table["bias"]}
    (found,) = session.run(["logits"], {"images": prepared(model, images), **given})
    expected = current.classifier.decision_function(features(model, images))
    close(found, expected)
    assert (found.argmax(1) == expected.argmax(1)).all()
    assert len(head.classes) == len(model.classes) == 13


def features(model, images):
    return model.encoder(list(images))


def grown(model, current, shots, name):
    digests = [bytes([len(current.names), row]) * 16 for row in range(len(shots))]
    return current.with_photos(features(model, shots), [name] * len(shots), digests)


@pytest.mark.parametrize("views", [2, 12])
def test_an_encoder_of_several_views(views, tmp_path):
    """All views are inside the graph."""
    plain = tiny_encoder()
    forward = TorchForward(with_views(plain.module, views))
    encoder = replace(plain, forward=forward, dim=views * plain.dim)
    model = make_model(tmp_path / "model", encoder)
    same_logits(session_of(model, tmp_path), model, many(9))
