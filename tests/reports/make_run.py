"""Small runs on disk, made without training: synthetic logits, real metrics."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

from cala import storage
from cala.image_groups import IMAGE_GROUPS, image_groups, kept_groups
from cala.metrics import Answers, metrics_of
from cala.records import Record

ADAPTERS = ("la", "cala", "cala-plus")
FEW = ("nearest-mean", "la", "cala")
MANY = tuple(
    f"{host}{end}"
    for host in ("nearest-mean", "calibrated-mean", "teen", "gkeal", "a-host-with-a-long-name")
    for end in ("", "+la", "+cala-plus")
)[:14]


class World:
    """Classes as noisy directions; novel prototypes come from few shots."""

    def __init__(self, base, way, sessions, per_class, dim=24, seed=0):
        rng = np.random.default_rng(seed)
        self.base, self.way, self.sessions = base, way, sessions
        self.classes = base + way * sessions
        self.centres = rng.normal(size=(self.classes, dim)) + 0.7 * rng.normal(size=(1, dim))
        self.labels = np.repeat(np.arange(self.classes), per_class)
        self.x = unit(self.centres[self.labels] + 2.4 * rng.normal(size=(len(self.labels), dim)))

    def prototypes(self, draw):
        rng = np.random.default_rng([7, draw])
        noise = rng.normal(size=self.centres.shape) * 2.4 / np.sqrt(5)
        noise[: self.base] *= 0.1
        return unit(self.centres + noise)


def unit(x):
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def adapter_of(method):
    last = method.rpartition("+")[2]
    return last if last in ADAPTERS else None


def shift_of(method, prototypes, base):
    similarity = prototypes[base:] @ prototypes[:base].T
    beta = np.zeros(len(prototypes))
    kind = adapter_of(method)
    if kind == "la":
        beta[base:] = 0.9
    elif kind:
        beta[base:] = 1.4 - 2.0 * similarity.max(1)
    return beta, similarity


def make_run(
    path: Path, methods=FEW, *, base=12, way=2, sessions=3, draws=3, canonical=True, per_class=12,
    names=None, dataset="toy", schema=3, seed=0, gamma=None, scale=12.0,
) -> Path:  # fmt: skip
    """A run folder like those of `cala run`."""
    world = World(base, way, sessions, per_class, seed=seed)
    listed = ["canonical"] * canonical + [f"random:{i}" for i in range(draws)]
    (path / "artifacts").mkdir(parents=True)
    config = {
        "schema": 1, "dataset": dataset, "methods": list(methods), "draws": listed, "seeds": [0],
        "split": "test", "metric": None, "scale": None, "gamma": gamma, "adapter": {},
        "protocol": {"name": dataset, "base": base, "way": way, "shot": 5, "sessions": sessions},
        "selection": "validation", "embeddings": {"source": "toy.npz", "fingerprint": "ab" * 32},
        "versions": {"cala": "0.1.0", "numpy": np.__version__},
        "machine": {"platform": "Linux", "cpus": 2},
    }  # fmt: skip
    (path / "config.json").write_text(json.dumps(config))
    groups, lines = image_groups(world.labels), []
    for place, method in enumerate(methods):
        wobble = 0.25 * np.random.default_rng(place).normal(size=world.centres.shape)
        for number, draw in enumerate(listed):
            prototypes = unit(world.prototypes(number) + 0.1 * wobble)
            logits = scale * world.x @ prototypes.T
            beta, similarity = shift_of(method, prototypes, base)
            shift = beta * (1.0 if gamma is None else gamma / 10)
            for t in range(sessions + 1):
                c = base + way * t
                seen = world.labels < c
                answers = Answers.of((logits + shift)[seen][:, :c], world.labels[seen], base)
                m = asdict(metrics_of(answers))
                values = {k: None if v != v else v for k, v in m.items()}
                kept = kept_groups(answers, groups[seen], IMAGE_GROUPS, curve=t == sessions)
                record = Record(method, draw, 0, t, c, int(seen.sum()), values, groups=kept)
                lines.append(record.line())
            if number == 0:
                write_artifact(
                    path, method, world, logits, beta, shift, similarity, prototypes, listed, names,
                    schema,
                )  # fmt: skip
    (path / "records.jsonl").write_text("".join(lines))
    return path


def write_artifact(
    path, method, world, logits, beta, shift, similarity, prototypes, listed, names, schema
):
    base, labels = world.base, world.labels
    after = logits + shift
    best_base, best_novel = after[:, :base], after[:, base:]
    confusion = np.zeros((world.classes, world.classes), np.int32)
    np.add.at(confusion, (labels, after.argmax(1)), 1)
    sample = np.flatnonzero(np.arange(len(labels)) % 12 < 12)
    tensors = {
        "confusion": confusion,
        "softmax_before": softmax(logits).mean(0),
        "softmax_after": softmax(after).mean(0),
        "beta": beta,
        "shift": shift,
        "similarity": similarity,
        "labels": labels,
        "switch": best_base.max(1) - best_novel.max(1, initial=-1e9),
        "base_right": best_base.argmax(1) == labels,
        "novel_right": labels * 0 == 1
        if world.classes == base
        else best_novel.argmax(1) + base == labels,
        "prototypes": prototypes,
        "sample": world.x[sample],
        "sample_labels": labels[sample],
    }
    meta = {"method": method, "draw": listed[0], "seed": 0, "split": "test", "n_base": base}
    if schema > 1:
        rng = np.random.default_rng(3)
        gammas = np.array([0, 1, 2, 5, 10, 20, 50, 100.0])
        sweep = [
            [((logits + g / 10 * beta)[labels < c][:, :c].argmax(1) == labels[labels < c]).mean()
             for c in range(base, world.classes + 1, world.way)]
            for g in gammas
        ]  # fmt: skip
        few = (len(listed), world.classes - base)
        tensors |= {
            "predicted_before": logits.argmax(1).astype(np.int32),
            "predicted_after": after.argmax(1).astype(np.int32),
            "confidence_before": softmax(logits).max(1),
            "confidence_after": softmax(after).max(1),
            "sample_logits": logits[sample].astype(np.float16),
            "gamma": gammas,
            "gamma_accuracy": np.array(sweep),
            "beta_draws": beta[base:]
            + (0.05 * rng.normal(size=few) if beta.any() else np.zeros(few)),
            "similarity_draws": similarity.mean(1) + 0.02 * rng.normal(size=few),
        }
        host = {"la": "nearest-mean", "cala": "nearest-mean", "cala-plus": "calibrated-mean"}
        adapter = adapter_of(method)
        meta |= {
            "host": host.get(method, method.rpartition("+")[0]) if adapter else method,
            "adapter": adapter, "metric": "cosine", "gamma": 10.0, "draws": listed,
            "class_names": names,
        }  # fmt: skip
    arrays = {
        k: np.ascontiguousarray(v, np.float32 if v.dtype == np.float64 else v.dtype)
        for k, v in tensors.items()
    }
    file = path / "artifacts" / f"{method}.safetensors"
    if schema == 3:
        storage.write(file, "artifact", meta, arrays)
    else:
        save_file(arrays, file, metadata={"schema": str(schema), "meta": json.dumps(meta)})


def softmax(z):
    e = np.exp(z - z.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)
