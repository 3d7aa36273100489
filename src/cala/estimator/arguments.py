"""What the user passes besides y: forms that arrays, seeds and hold-outs may have."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cala.core.fakes import FakePool
from cala.errors import InputError
from cala.heads import HEADS, Head
from cala.heads.checks import check_number
from cala.heads.factory import split_name
from cala.registry import check_choice


def whole_number(name: str, value: Any) -> int | None:
    """A whole number from 1 on, or None."""
    return None if value is None else int(check_number(name, value, 1, whole=True))


def shot_numbers(shots: Any) -> tuple[int | None, ...]:
    """One number of shots or several, as a tuple."""
    several = shots if isinstance(shots, tuple | list) else (shots,)
    return tuple(whole_number("shots", k) for k in several)


def seed_of(random_state: Any) -> int:
    """The seed itself, or one drawn from a RandomState."""
    if random_state is None or isinstance(random_state, np.random.RandomState):
        from sklearn.utils import check_random_state

        return int(check_random_state(random_state).randint(2**31 - 1))
    if not isinstance(random_state, int | np.integer) or not 0 <= random_state < 2**64:
        raise InputError(
            f"random_state is {random_state!r}",
            "give a whole number from 0 to 2**64 - 1, a RandomState or None",
            field="random_state",
        )
    return int(random_state)


def check_frozen(method: str) -> None:
    """Raise for a method that would have to train an encoder."""
    if HEADS[split_name(method)[0]].traits.changes_encoder:
        raise InputError(
            f"{method} trains its encoder on images in every session",
            "run it on the bench (`cala run`), or choose a method over embeddings, such as "
            "cala-plus",
            field="method",
            code="trains_encoder",
        )


def check_adapted(method: str, head: Head) -> None:
    """Without an adapter there is no trade-off to move along."""
    if not head.adapted:
        raise InputError(
            f"{method} has no adapter and no operating point",
            'use "la", "cala" or "cala-plus"',
            field="method",
            code="no_adapter",
        )


def array(name: str, values: Any) -> NDArray[Any]:
    """Values as an array, those of a torch tensor too."""
    try:
        return np.asarray(untracked(values))
    except ValueError as error:  # lists of unequal length
        detail = f"{name} is not an array ({error})"
        fix = "give rows of equal length"
        raise InputError(detail, fix, field=name, code="not_an_array") from None


def untracked(X: Any) -> Any:
    """A tensor of torch as an array; anything else as it is."""
    if not any((kind.__module__, kind.__name__) == ("torch", "Tensor") for kind in type(X).__mro__):
        return X
    X = X.detach().cpu()
    return (X.float() if str(X.dtype) == "torch.bfloat16" else X).numpy()


def fake_pool(
    fake: ArrayLike | None, pairs: ArrayLike | None, shots: ArrayLike | None = None
) -> FakePool | None:
    """Fake classes (P, M, d) and their parents (P, 2); without `pairs` no two share a parent.

    shots : (P, M, d), the same images as they are embedded when they are shots; `BaseData` checks
        all three
    """
    if fake is None:
        if pairs is not None or shots is not None:
            detail, fix = "pairs or fake_shots without fake", "give the fake classes too"
            raise InputError(detail, fix, field="pairs", code="no_fakes")
        return None
    given = array("fake", fake)
    apart = np.arange(2 * given.shape[0] if given.ndim else 0).reshape(-1, 2)
    return FakePool(
        given,
        apart if pairs is None else array("pairs", pairs),
        None if shots is None else array("fake_shots", shots),
    )


def holdout_mask(holdout: ArrayLike | str | None, rows: int) -> NDArray[Any] | None:
    """One bool per row, "all" or None. `BaseData` checks it."""
    if holdout is None:
        return None
    if isinstance(holdout, str):
        check_choice("holdout", holdout, ("all",))
        return np.ones(rows, dtype=bool)
    given = array("holdout", holdout)
    if given.dtype == object and all(isinstance(x, bool | np.bool_) for x in given.ravel()):
        given = given.astype(bool)  # pandas' own boolean type arrives as objects
    return given
