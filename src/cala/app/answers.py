"""What the service says about photos: predictions and evaluations as JSON values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cala.app.photo_encoder import Encoded
from cala.app.snapshot import Snapshot, unit_rows
from cala.model.evaluation import evaluate, sides
from cala.model.prediction import largest, predict
from cala.model.version import plain_name


def predictions(
    snapshot: Snapshot,
    photos: Sequence[Encoded],
    *,
    top: int,
    unknown: str,
    reject: float | None,
    similar: int = 0,
) -> list[dict[str, Any]]:
    """One for each photo, with the closest classes and what the adapter changed.

    similar : how many learned photos to name that look most like it
    """
    features, names = _features(photos), [upload.name for upload, _ in photos]
    found = predict(
        snapshot.model, features, names, top=top, unknown=unknown, reject=reject, why=True
    )
    near = _similar(snapshot, features, similar)
    answers = []
    for answer, (_, photo), alike in zip(found, photos, near, strict=True):
        told = answer.to_json()
        why = told.pop("why")
        told.update(
            id=photo.digest,
            class_id=snapshot.ids[snapshot.column_of[answer.best]],
            top=[_named(snapshot, one) for one in told["top"]],
            closest=[_named(snapshot, one) for one in why["closest"]],
            without_adapter=why["without_adapter"],
            changed=why["changed"],
            similar=alike,
        )
        answers.append(told)
    return answers


def _similar(
    snapshot: Snapshot, features: NDArray[np.float32], count: int
) -> list[list[dict[str, Any]]]:
    """Learned photos with small copies that look most like each of (n, d), best first."""
    if not count or not snapshot.pictures:
        return [[] for _ in features]
    rows, photos = snapshot.kept_unit
    order = largest(unit_rows(snapshot.model, features) @ rows.T, count).tolist()
    return [
        [{"id": photos[row][0], "label": snapshot.names[photos[row][1]]} for row in best]
        for best in order
    ]


def _features(photos: Sequence[Encoded]) -> NDArray[np.float32]:
    return np.stack([photo.features for _, photo in photos])


def _named(snapshot: Snapshot, told: dict[str, Any]) -> dict[str, Any]:
    column = snapshot.column_of[told["label"]]
    return {**told, "class_id": snapshot.ids[column], "thumbnail": snapshot.face(column)}


def evaluation(
    snapshot: Snapshot, photos: Sequence[Encoded], reject: float | None
) -> dict[str, Any]:
    """Accuracies and confusions, and for each photo what every operating point would answer.

    In `trade_off`, photo i goes to `known[i]` unless δ is larger than `switch[i]`, then to
    `new[i]`; `true[i]` is its class, -1 for strangers. All are places in `classes`. `unknown[i]`
    says whether it is called unknown, `label[i]` what it was said to be, `id[i]` is its SHA-256,
    `image[i]` the name of its file.
    """
    model, features = snapshot.model, _features(photos)
    labels = model.current_names([plain_name(upload.label) for upload, _ in photos])
    again = sum(photo.digest in snapshot.digests for _, photo in photos)
    judged = evaluate(model, features, labels, reject=reject, learned_from=again)
    told = judged.to_json()
    del told["confusion"]  # follows from the trade-off, which is smaller with many classes
    told["mistakes"] = [vars(mistake) for mistake in judged.mistakes(50)]
    told["strangers"] = dict(Counter(one for one in labels if one not in snapshot.column_of))
    true = [snapshot.column_of.get(label, -1) for label in labels]
    both = sides(model, features, true)
    strange = np.zeros(len(features), bool)
    if model.classifier.rejection_.is_on:
        strange = model.classifier.familiarity(features) < judged.rejections.rate
    switch = (both.base - both.novel).tolist()
    told["trade_off"] = {
        "classes": snapshot.names,
        "n_known": model.n_known,
        "delta": model.classifier.delta_,
        "true": true,
        "label": labels,
        "unknown": strange.tolist(),
        "known": both.base_column.tolist(),
        "new": both.novel_column.tolist(),
        "id": [photo.digest for _, photo in photos],
        "image": [upload.name for upload, _ in photos],
        "switch": [round(s, 5) if np.isfinite(s) else None for s in switch],
    }
    return told
