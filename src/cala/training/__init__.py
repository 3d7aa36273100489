"""The base session: batched augmentation on whole-set tensors, objectives, one loop."""
