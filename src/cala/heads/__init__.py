"""Growing classifiers over embeddings, and the adapter wrapper (LA, CALA)."""

from cala.heads.adapted import AdaptedHead
from cala.heads.adapter_training import AdapterRecipe
from cala.heads.base import Head
from cala.heads.base_data import BaseData
from cala.heads.factory import default_metric, make_head, method_names, restore_head
from cala.heads.registry import ADAPTERS, HEADS

__all__ = [
    "ADAPTERS",
    "HEADS",
    "AdaptedHead",
    "AdapterRecipe",
    "BaseData",
    "Head",
    "default_metric",
    "make_head",
    "method_names",
    "restore_head",
]
