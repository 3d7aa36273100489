"""Fantasy views (SAVC): an image turned, and its colours exchanged, is another, virtual class.

Which view is which does not depend on how many there are: the first V of M are the V views.
"""

from __future__ import annotations

import torch
from torch import Tensor

from cala.core.prototypes import normalise
from cala.errors import InputError

TURNS = (0, 2, 1, 3)  # in quarters: where there are only two views, the second is half a turn
COLOURS = ((0, 1, 2), (1, 2, 0), (2, 0, 1))
VIEWS = "views"  # name of the part of an encoder file that tells how many there are
MOST = len(TURNS) * len(COLOURS)


def fantasy(images: Tensor, view: int) -> Tensor:
    """One view of all images: (n, 3, s, s) -> (n, 3, s, s); view 0 is the image itself.

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


def fantasies(images: Tensor, views: int) -> Tensor:
    """The first views, one after the other: (n, 3, s, s) -> (views · n, 3, s, s)."""
    return torch.cat([fantasy(images, view) for view in range(views)])


def fantasy_of_each(images: Tensor, views: Tensor) -> Tensor:
    """Each image in a view of its own: (n, 3, s, s) and (n,) -> (n, 3, s, s)."""
    out = torch.empty_like(images)
    for view in views.unique().tolist():
        chosen = views == view
        out[chosen] = fantasy(images[chosen], view)
    return out


def joint_labels(labels: Tensor, views: int) -> Tensor:
    """Labels y·M + m of what `fantasies` gives: (n,) -> (M · n,).

    >>> joint_labels(torch.tensor([0, 5]), 2)
    tensor([ 0, 10,  1, 11])
    """
    each = torch.arange(views, device=labels.device)[:, None]
    return (labels * views + each).flatten()


def normalise_views(x: Tensor, views: int) -> Tensor:
    """Each view of a row by itself to length 1/√V, so that the row has length 1.

    The dot product of two such rows is the mean cosine over the views. A zero view stays zero.

    x : (n, V · d) -> (n, V · d)

    >>> normalise_views(torch.tensor([[3.0, 4.0, 0.0, 2.0]]), 2).square()
    tensor([[0.1800, 0.3200, 0.0000, 0.5000]])
    """
    if views == 1:
        return normalise(x)
    apart = normalise(x.reshape(-1, views, x.shape[-1] // views))
    return apart.flatten(1) / views**0.5


def over_views(joint: Tensor, views: int) -> Tensor:
    """Joint logits of all views -> logits of the classes: (M · n, C · M) -> (n, C).

    Each view is asked for its own virtual class, and the views vote.
    """
    apart = joint.unflatten(0, (views, -1)).unflatten(2, (-1, views))  # (M, n, C, M)
    return apart.diagonal(dim1=0, dim2=3).mean(-1)
