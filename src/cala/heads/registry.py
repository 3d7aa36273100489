"""Where heads and adapter recipes are entered; whatever is here is tested without a new test."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cala.registry import Registry

if TYPE_CHECKING:
    from cala.heads.recipe import AdapterRecipe
    from cala.heads.table import TableHead

HEADS: Registry[type[TableHead]] = Registry("head")
ADAPTERS: Registry[AdapterRecipe] = Registry("adapter")
