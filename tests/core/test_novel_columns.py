"""Novel columns in two forms that say the same."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cala.core import novel_columns as module
from cala.core.losses import Scores
from cala.core.novel_columns import NovelLogits, NovelPowers, novel_columns, powers


def both(size: float, dtype: torch.dtype, seed: int = 0):
    generator = torch.Generator().manual_seed(seed)
    logits = size * torch.randn(30, 7, generator=generator, dtype=dtype)
    top = logits.amax(1)
    shift = torch.randn(7, generator=generator, dtype=dtype).mul(3).requires_grad_()
    return NovelLogits(logits), NovelPowers(powers(logits, top), top), shift


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@given(st.sampled_from([0.1, 5.0, 20.0]), st.integers(0, 999))
def test_both_forms_agree(dtype, size, seed):
    plain, fast, shift = both(size, dtype, seed)
    assert len(plain) == len(fast) == 7
    sums = [form.log_sum_exp(shift) for form in (plain, fast)]
    torch.testing.assert_close(sums[1], sums[0])
    gradients = [torch.autograd.grad(total.sum(), shift)[0] for total in sums]
    torch.testing.assert_close(gradients[1], gradients[0], rtol=1e-4, atol=1e-5)
    (best, column), (fast_best, fast_column) = (form.best(shift) for form in (plain, fast))
    torch.testing.assert_close(fast_best, best)
    assert torch.equal(fast_column, column)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_logits_and_shifts_far_apart_stay_finite(dtype):
    _, fast, _ = both(500.0, dtype)
    shift = torch.tensor([-4e3, 0, 0, 0, 0, 0, 4e3], dtype=dtype, requires_grad=True)
    total = fast.log_sum_exp(shift)
    assert total.isfinite().all()
    assert torch.autograd.grad(total.sum(), shift)[0].isfinite().all()


def test_many_logits_are_kept_as_powers_and_give_the_same_loss(monkeypatch):
    generator = torch.Generator().manual_seed(0)
    logits = 5 * torch.randn(60, 12, generator=generator, dtype=torch.float64)
    columns = torch.randint(12, (60,), generator=generator)
    shift = torch.randn(7, generator=generator, dtype=torch.float64)
    adjusted = logits.clone()
    adjusted[:, 5:] += shift
    expected = torch.nn.functional.cross_entropy(adjusted, columns, reduction="none")
    for limit, form in ((2**19, NovelLogits), (1, NovelPowers)):
        monkeypatch.setattr(module, "MANY", limit)
        scores = Scores.of(logits, columns, 5)
        assert type(scores.novel) is form
        torch.testing.assert_close(scores.cross_entropy(shift), expected)
        torch.testing.assert_close(scores.base_lse, logits[:, :5].logsumexp(1))


def test_the_papers_protocols_are_many_and_a_handful_of_photos_is_not():
    assert isinstance(novel_columns(torch.zeros(1500, 40)), NovelPowers)
    assert isinstance(novel_columns(torch.zeros(200, 10)), NovelLogits)
