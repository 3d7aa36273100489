"""Image sets, embeddings files and protocols: who is base, who is novel, what the shots are."""

# Importing a set enters it in the registry.
from cala.data import cifar100, cub200, folder, mini_imagenet

__all__ = ["cifar100", "cub200", "folder", "mini_imagenet"]
