from cli.inside import inside
from model.conftest import _own_cache, fitted, model, photos

__all__ = ["_own_cache", "fitted", "inside", "model", "photos"]
