"""A linear softmax classifier that grows: logits W f + b."""

from __future__ import annotations

WEIGHT, BIAS = "softmax.weight", "softmax.bias"
"""Names of the classifier's parts in an encoder file."""
