"""Where heads and adapter recipes are entered; whatever is here is tested without a new test.

Heads are named by module, so that listing them imports none of them. A package can add its own
through an entry point of the group `cala.heads`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cala.registry import Registry

if TYPE_CHECKING:
    from cala.heads.recipe import AdapterRecipe
    from cala.heads.table import TableHead

HEADS: Registry[type[TableHead]] = Registry("head", group="cala.heads")
ADAPTERS: Registry[AdapterRecipe] = Registry("adapter", group="cala.adapters")

for _name, _where, _summary in (
    (
        "alice",
        "systems.alice:Alice",
        "nearest mean; base prototypes of 5 images each (own base session)",
    ),
    (
        "bidist-base",
        "systems.bidist:BidistBase",
        "BiDist's base branch alone: nearest mean (BiDist's base session)",
    ),
    (
        "bidist",
        "systems.bidist:Bidist",
        "base branch, and one that sessions fine-tune (images, own base)",
    ),
    (
        "calibrated-mean",
        "heads.calibrated_mean:CalibratedMean",
        "nearest mean; each base class's slope follows its tightness",
    ),
    ("cec", "systems.cec:Cec", "prototypes and query attend to each other (own base session)"),
    ("fact", "systems.fact:Fact", "nearest mean fused with virtual prototypes (own base session)"),
    (
        "gkeal",
        "systems.gkeal:Gkeal",
        "Gaussian kernel to base images, ridge regression by least squares",
    ),
    (
        "icarl",
        "systems.icarl:Icarl",
        "exemplars, distillation, nearest mean of exemplars (images, own base)",
    ),
    (
        "icarl-star",
        "systems.icarl_star:IcarlStar",
        "softmax rows tuned on the shots, distilled on anchors",
    ),
    (
        "limit",
        "systems.limit:Limit",
        "classifiers calibrated to the query by attention (own base session)",
    ),
    (
        "nc-fscil",
        "systems.nc_fscil:NcFscil",
        "a neck turns embeddings to fixed vertices (own base, or none)",
    ),
    (
        "nearest-mean",
        "heads.nearest_mean:NearestMean",
        "cosine to the class means (Eq. 2-4), nothing learned after them",
    ),
    (
        "savc",
        "systems.savc:Savc",
        "nearest mean per view of an image, the views vote (own base session)",
    ),
    (
        "teen",
        "systems.teen:Teen",
        "nearest mean; novel prototypes lean towards base ones they resemble",
    ),
    (
        "topic",
        "systems.topic:Topic",
        "a neural gas holds embeddings that sessions train (images, own base)",
    ),
):
    HEADS.add(_name, f"cala.{_where}", _summary)
