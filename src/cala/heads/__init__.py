"""Growing classifiers over embeddings, one per file, and the adapter wrapper (LA, CALA)."""

from cala.heads import (  # noqa: F401  (register themselves)
    alice,
    bidist,
    calibrated_mean,
    cec,
    fact,
    gkeal,
    icarl,
    icarl_star,
    limit,
    nc_fscil,
    nearest_mean,
    recipe,
    savc,
    teen,
    topic,
)
from cala.heads.adapted import AdaptedHead
from cala.heads.base import Head
from cala.heads.factory import default_metric, make_head, method_names, restore_head
from cala.heads.recipe import AdapterRecipe
from cala.heads.registry import ADAPTERS, HEADS

__all__ = [
    "ADAPTERS",
    "HEADS",
    "AdaptedHead",
    "AdapterRecipe",
    "Head",
    "default_metric",
    "make_head",
    "method_names",
    "restore_head",
]
