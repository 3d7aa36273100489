"""Image sets, embeddings files, and protocols: base classes, novel classes and their shots."""

# Importing a set enters it in the registry.
from cala.data import cifar100, cub200, folder, mini_imagenet

__all__ = ["cifar100", "cub200", "folder", "mini_imagenet"]
