"""LIMIT (Zhou et al., TPAMI 2022): a set of classifiers that calibrates itself to the query."""

from __future__ import annotations

from cala.heads.cec import Cec
from cala.heads.registry import HEADS


@HEADS.register("limit", "classifiers calibrated to the query by attention (own base session)")
class Limit(Cec):
    """Inference is CEC's; what differs is how encoder and attention were trained."""

    name = "limit"
