"""Fantasy views (SAVC): an image turned, and its colours exchanged.

Which view is which does not depend on how many there are: the first V of M are the V views.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cala.errors import InputError

if TYPE_CHECKING:
    from torch import Tensor

TURNS = (0, 2, 1, 3)  # in quarters: where there are only two views, the second is half a turn
COLOURS = ((0, 1, 2), (1, 2, 0), (2, 0, 1))
VIEWS = "views"  # name of the part of an encoder file that tells how many there are
MOST = len(TURNS) * len(COLOURS)


def fantasy(images: Tensor, view: int) -> Tensor:
    """One view of all images: (n, 3, s, s) -> (n, 3, s, s); view 0 is the image itself.

    >>> import torch
    >>> fantasy(torch.arange(12).reshape(1, 3, 2, 2), 1)[0, 0]
    tensor([[3, 2],
            [1, 0]])
    """
    if not 0 <= view < MOST:
        raise InputError(f"fantasy view {view}: there are {MOST}, 0 to {MOST - 1}")
    colour, turn = divmod(view, len(TURNS))
    if colour:
        images = images[:, list(COLOURS[colour])]
    return turned(images, TURNS[turn])


def turned(images: Tensor, quarters: int) -> Tensor:
    """`rot90` of the last two axes, in operations that ONNX knows: (…, s, s) -> (…, s, s)."""
    if quarters % 2:
        images = images.transpose(-2, -1)
    axes = ([], [-2], [-2, -1], [-1])[quarters]
    return images.flip(axes) if axes else images
