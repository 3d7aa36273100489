"""Searching among many classes: the exact logits of nearly always the right class."""

from __future__ import annotations

import builtins
import importlib
import importlib.util

import pytest
import torch

from cala.errors import InputError
from cala.heads import AdaptedHead, Head, approximate, make_head
from cala.heads.approximate import ApproximateHead
from cala.heads.top import top
from conftest import missing
from problems import blobs

pytestmark = pytest.mark.filterwarnings("ignore::cala.errors.BaseQueryWarning")
QUICK = {"episodes": 4, "heldout_episodes": 2, "epochs": 2, "steps": 5}
N_BASE, N_ALL, DIM = 300, 600, 24


@pytest.fixture(autouse=True)
def _search_among_few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(approximate, "FEW", 100)


@pytest.fixture(scope="module")
def rows() -> tuple[torch.Tensor, torch.Tensor]:
    x, y = blobs(N_ALL, 6, DIM, spread=0.3)
    return x.float(), y


@pytest.fixture(scope="module", params=["nearest-mean", "cala", "cala-plus"])
def grown(request: pytest.FixtureRequest, rows: tuple[torch.Tensor, torch.Tensor]) -> Head:
    x, y = rows
    head = make_head(request.param, adapter=QUICK)
    head.fit_base(x[y < N_BASE], y[y < N_BASE])
    head.add(x[y >= N_BASE], y[y >= N_BASE])
    if isinstance(head, AdaptedHead):  # a shift of its own for every class, and not a small one
        head.beta = head.beta.clone()
        generator = torch.Generator().manual_seed(0)
        head.beta[N_BASE:] = torch.randn(N_ALL - N_BASE, generator=generator) / head.gamma
        head.delta = 0.7
    return head


def queries(rows: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    return rows[0] + 0.5 * torch.randn(rows[0].shape, generator=generator)


def test_exact_top_is_that_of_the_logits(grown: Head, rows: tuple[torch.Tensor, ...]) -> None:
    x = queries(rows)
    want = grown.logits(x).topk(5)
    for scores in (2**24, 2**10):  # whole rows, and parts of the columns
        found = _top_with(scores, grown, x)
        assert torch.allclose(found.logits, want.values, atol=1e-4)
        assert (found.columns == want.indices).float().mean() > 0.999
        one = _top_with(scores, grown, x[:1])
        assert torch.equal(one.columns, want.indices[:1])


def need_faiss() -> None:
    if importlib.util.find_spec("faiss") is None:
        missing("faiss", "pip install faiss-cpu")


def _top_with(scores: int, head: Head, x: torch.Tensor):
    module = importlib.import_module("cala.heads.top")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "SCORES", scores)
        return top(head, x, 5)


def test_logits_are_exact_and_the_best_class_is_found(
    grown: Head, rows: tuple[torch.Tensor, ...]
) -> None:
    need_faiss()
    x = queries(rows)
    logits = grown.logits(x)
    found = ApproximateHead(grown, cells=12, probes=4, candidates=20).top(x, k=3)
    assert torch.allclose(found.logits, logits.gather(1, found.columns), atol=1e-4)
    recall = (found.columns[:, 0] == logits.argmax(1)).float().mean()
    assert recall > 0.95
    everywhere = ApproximateHead(grown, cells=12, probes=12, candidates=20).top(x)
    assert (everywhere.columns[:, 0] == logits.argmax(1)).float().mean() > 0.999


@pytest.mark.parametrize("grown", ["cala", "cala-plus"], indirect=True)  # those with a bias
def test_the_bias_takes_part_in_the_search(
    grown: AdaptedHead, rows: tuple[torch.Tensor, ...]
) -> None:
    """A class that wins by its bias alone, at a right angle to the image, is found."""
    need_faiss()
    head = grown.fork()
    head.beta = head.beta.clone()
    head.beta[N_ALL - 1] = 500.0 / head.gamma
    wide = ApproximateHead(head, cells=12, probes=12, candidates=1)
    found = wide.top(queries(rows))
    assert (found.columns == N_ALL - 1).all()
    assert torch.allclose(found.logits[:, 0], head.logits(queries(rows))[:, -1], atol=1e-3)


def test_new_and_changed_classes_are_found_at_once(
    grown: Head, rows: tuple[torch.Tensor, ...]
) -> None:
    need_faiss()
    head = ApproximateHead(grown.fork(), cells=12, probes=12, candidates=20)
    head.top(rows[0][:1])
    index = head._index
    x, y = blobs(3, 5, DIM, seed=7, spread=0.1)
    head.add(x.float(), y + N_ALL)
    found = head.top(x.float())
    assert torch.equal(found.columns[:, 0], head.logits(x.float()).argmax(1))
    assert head._index is index  # they are compared one by one
    head.add(-rows[0][rows[1] == 2].repeat(5, 1), torch.full((30,), 2))  # moves class 2
    query = -rows[0][rows[1] == 2]
    assert torch.equal(head.top(query).columns[:, 0], head.logits(query).argmax(1))
    assert head._index is index
    if isinstance(head.host, AdaptedHead):
        head.host.delta = 5.0  # moves all novel columns: more than are compared one by one
        found = head.top(rows[0])
        assert torch.equal(found.columns[:, 0], head.logits(rows[0]).argmax(1))
        assert head._index is not index


def test_what_somebody_else_does_to_the_head_is_noticed(
    grown: Head, rows: tuple[torch.Tensor, ...]
) -> None:
    need_faiss()
    head, x = ApproximateHead(grown.fork(), cells=12, probes=4, candidates=20), queries(rows)
    head.top(x[:1])
    if isinstance(head.host, AdaptedHead):
        beta = head.host.beta.clone()
        beta[-50:] += 300 / head.host.gamma
        head.host.beta = beta
        assert torch.equal(head.top(x).columns[:, 0], head.logits(x).argmax(1))
    for change in (lambda: head.host.forget(3), lambda: head.host.add(x[:5], torch.arange(5))):
        change()
        found = head.top(x)
        assert torch.allclose(found.logits, head.logits(x).gather(1, found.columns), atol=1e-3)
        recall = (found.columns[:, 0] == head.logits(x).argmax(1)).float().mean()
        assert recall > 0.95


def test_forgetting_and_forks(grown: Head, rows: tuple[torch.Tensor, ...]) -> None:
    need_faiss()
    head = ApproximateHead(grown.fork(), cells=12, probes=12, candidates=20)
    before = head.top(rows[0][:50])
    fork = head.fork().forget(N_ALL - 1)
    assert len(fork.classes) == N_ALL - 1
    assert int(fork.top(rows[0]).columns.max()) <= N_ALL - 2
    assert torch.equal(head.top(rows[0][:50]).columns, before.columns)
    again = ApproximateHead.from_state(head.state())
    assert again.classes == head.classes


def test_what_cannot_be_searched_says_so(grown: Head, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match=r"not linear"):
        ApproximateHead(make_head("gkeal"))
    with pytest.raises(InputError, match=r"probes is 0"):
        ApproximateHead(grown, probes=0)
    with pytest.raises(InputError, match=r"k is 601.*600 known"):
        top(grown, torch.ones(1, DIM), 601)
    usual = builtins.__import__
    monkeypatch.setattr(approximate, "import_module", lambda name: usual("no_such_library_" + name))
    with pytest.raises(InputError, match=r"\.\[ann\]"):
        ApproximateHead(grown).top(torch.ones(1, DIM))


def test_cells_with_too_few_columns_are_no_answer(
    grown: Head, rows: tuple[torch.Tensor, ...]
) -> None:
    need_faiss()
    x = queries(rows)[:20]
    found = ApproximateHead(grown, cells=12, probes=1, candidates=20).top(x, k=200)
    assert int(found.columns.min()) >= 0
    assert torch.allclose(found.logits, grown.logits(x).gather(1, found.columns), atol=1e-4)
