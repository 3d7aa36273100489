"""AUROC and FPR at 95 % TPR against scikit-learn."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score, roc_curve

from cala.metrics import auroc, fpr_at_tpr

SCORES = st.lists(st.integers(0, 12).map(lambda i: i / 4), min_size=1, max_size=40)


@given(SCORES, SCORES)
def test_auroc_is_scikit_learns(known, unknown):
    truth = [1] * len(known) + [0] * len(unknown)
    assert auroc(known, unknown) == pytest.approx(roc_auc_score(truth, known + unknown))


@given(SCORES, SCORES, st.sampled_from([0.5, 0.8, 0.95, 1.0]))
def test_fpr_is_the_first_of_scikit_learns_curve_to_reach_the_tpr(known, unknown, tpr):
    truth = [1] * len(known) + [0] * len(unknown)
    fpr, reached, _ = roc_curve(truth, known + unknown, drop_intermediate=False)
    assert fpr_at_tpr(known, unknown, tpr) == pytest.approx(fpr[reached >= tpr - 1e-9][0])


def test_perfect_and_hopeless():
    assert auroc([2, 3], [0, 1]) == 1
    assert fpr_at_tpr([2, 3], [0, 1]) == 0
    assert auroc([0, 1], [2, 3]) == 0
    assert fpr_at_tpr([0, 1], [2, 3]) == 1


def test_nothing_to_compare_is_nan():
    assert math.isnan(auroc([], [1.0]))
    assert math.isnan(fpr_at_tpr(np.ones(2), []))
