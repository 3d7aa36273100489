"""The scikit-learn face of cala: a classifier whose classes may grow after `fit`."""

from cala.estimator.classifier import CalaClassifier

__all__ = ["CalaClassifier"]
