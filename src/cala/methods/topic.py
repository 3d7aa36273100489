"""TOPIC (Tao et al., CVPR 2020): the base session is an ordinary softmax classifier's."""

from __future__ import annotations

from cala.methods.registry import METHODS, Method
from cala.methods.softmax import CHANGES, SoftmaxClassifier
from cala.methods.topic_session import TopicLearner

METHODS.register("topic", "a neural gas keeps the shape of the embeddings while they move")(
    Method(SoftmaxClassifier.make, CHANGES, learner=TopicLearner)
)
