"""`refit`: what `fit` learns, learned again from the embeddings that a model keeps."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from cala.errors import InputError
from cala.estimator.growing import GrowingClassifier
from cala.model.fitting import PLAIN, SPREADS, about_base, fit_classifier
from cala.model.version import ModelVersion, PhotoIndex

if TYPE_CHECKING:
    from cala.encoders.base import Encoder


def refitted(current: ModelVersion, encoder: Encoder) -> ModelVersion:
    """A version in which all classes are known, as if `fit` had been given all photos.

    New classes are rehearsed with mixed embeddings, since the photos are not there. Rejected
    photos, former names and settings stay; `tune --delta` is undone.
    """
    if not current.keeps_all():
        raise InputError(
            "the model has more photos than it can learn from again without the files",
            "make it again with `cala fit`",
            code="not_kept",
        )
    if current.encoder.shot_views:
        raise InputError(
            "a model that was made with --shot-views cannot learn again without the photos",
            "make it again with `cala fit`",
            code="shot_views",
        )
    before = current.classifier
    columns, digests = current.columns_kept(), current.kept.digests()
    names = np.array(current.names, dtype=str)[columns]
    classifier = GrowingClassifier(**{name: getattr(before, name) for name in before.options()})
    held: np.ndarray | None = np.ones(len(digests), dtype=bool)
    if not encoder.pretrained:
        held = np.array([digest.hex() in encoder.holdout for digest in digests], dtype=bool)
        held = held if held.any() else None
    learned = fit_classifier(classifier, current.kept.rows, names, None, held)
    classifier.expect_spread(SPREADS.get(encoder.name, 0.0))
    classifier.keep_rejected(before)
    ids = dict(zip(classifier.classes_.tolist(), classifier.head_.classes, strict=True))
    photos = PhotoIndex.empty().with_photos(digests, [ids[name] for name in names.tolist()])
    stale = {*PLAIN, "few_photos"}
    notes = [note for note in current.notes if note.code not in stale]
    notes += learned + about_base(np.unique(names, return_counts=True)[1])
    return replace(
        current,
        classifier=classifier,
        photos=photos,
        fakes="feature",
        notes=tuple(notes),
        fitted=len(digests),
    )
