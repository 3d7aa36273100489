"""Where heads and adapter recipes are entered; whatever is here is tested without a new test.

Heads are named by module, so that listing them imports none of them. A package can add its own
through an entry point of the group `cala.heads`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cala.registry import Registry

if TYPE_CHECKING:
    from cala.heads.adapter_training import AdapterRecipe
    from cala.heads.table import TableHead

HEADS: Registry[type[TableHead]] = Registry("head", group="cala.heads")
ADAPTERS: Registry[AdapterRecipe] = Registry("adapter", group="cala.adapters")

_SUMMARIES = {
    "systems.alice:Alice": "nearest mean; base prototypes of 5 images each (own base session)",
    "systems.bidist:BidistBase": "BiDist's base branch alone: nearest mean (own base session)",
    "systems.bidist:Bidist": "base branch, and one that sessions fine-tune (images, own base)",
    "heads.calibrated_mean:CalibratedMean": "nearest mean; a tight base class has a steeper slope",
    "systems.cec:Cec": "prototypes and query attend to each other (own base session)",
    "systems.fact:Fact": "nearest mean fused with virtual prototypes (own base session)",
    "systems.gkeal:Gkeal": "Gaussian kernel to base images, ridge regression by least squares",
    "systems.icarl:Icarl": "exemplars, distillation, nearest mean of exemplars (images, own base)",
    "systems.icarl_star:IcarlStar": "softmax rows tuned on the shots, distilled on anchors",
    "systems.limit:Limit": "classifiers calibrated to the query by attention (own base session)",
    "systems.nc_fscil:NcFscil": "a neck turns embeddings to fixed vertices (own base, or none)",
    "heads.nearest_mean:NearestMean": "cosine to the class means (Eq. 2-4), nothing else learned",
    "systems.savc:Savc": "nearest mean per view of an image, the views vote (own base session)",
    "systems.teen:Teen": "nearest mean; novel prototypes lean towards base ones they resemble",
    "systems.topic:Topic": "a neural gas holds embeddings that sessions train (images, own base)",
}
for _where, _summary in _SUMMARIES.items():
    _class = _where.partition(":")[2]  # NcFscil is nc-fscil
    _name = "".join(f"-{c.lower()}" if c.isupper() else c for c in _class).removeprefix("-")
    HEADS.add(_name, f"cala.{_where}", _summary, extra="bench")
