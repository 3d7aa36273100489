"""iCaRL (Rebuffi et al., CVPR 2017): the base session is an ordinary softmax classifier's."""

from __future__ import annotations

from cala.methods.icarl_session import IcarlLearner
from cala.methods.registry import METHODS, Method
from cala.methods.softmax import CHANGES, SoftmaxClassifier

METHODS.register("icarl", "herded exemplars, distillation, nearest mean of exemplars")(
    Method(SoftmaxClassifier.make, CHANGES, learner=IcarlLearner)
)
