"""What people use on their own photos: a model in a folder, its encoder, and its classes."""

from cala.model.fitting import fit
from cala.model.model import Model, load

__all__ = ["Model", "fit", "load"]
