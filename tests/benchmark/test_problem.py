"""From what a user names to embeddings, protocol and draws."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from cala.benchmark.draws import make_draw
from cala.benchmark.problem import Numbers, load_problem, split_dataset
from cala.data.embeddings import Embeddings, load_embeddings, save_embeddings
from cala.data.protocol import load_protocol
from cala.errors import InputError


def benchmark_file(path: Path, name: str, *, named: bool = True, lost: int = 0) -> Path:
    """Random embeddings of a benchmark: its published shots by name, and a few other rows.

    lost : how many of the shots, from the first on, are not there
    """
    protocol = load_protocol(name)
    names, labels = [], []
    for label, called in enumerate(protocol.expected.classes):
        for number in range(6):
            names.append(f"images/{called}/other_{number}.jpg")
            labels.append(label)
    shots = [shot for session in protocol.canonical for shot in session]
    for shot in shots[lost:]:
        names.append(f"images/{shot}")
        called = shot.split("/")[0] if "/" in shot else shot[:9]
        labels.append(protocol.expected.classes.index(called))
    order = np.random.default_rng(0).permutation(len(names))
    y = torch.tensor(labels)[order]
    torch.manual_seed(0)
    data = Embeddings(
        x_train=torch.randn(len(y), 4),
        y_train=y,
        x_test=torch.randn(400, 4),
        y_test=torch.arange(400) % len(protocol.expected.classes),
        names_train=tuple(names[i] for i in order) if named else None,
    )
    return save_embeddings(path, data)


@pytest.mark.parametrize("name", ["mini_imagenet", "cub200"])
def test_published_names_are_found_in_the_file(tmp_path, name):
    path = benchmark_file(tmp_path / "e.npz", name)
    problem = load_problem(name, path, draws="canonical,random:2")
    assert problem.draws == ("canonical", "random:0", "random:1")
    draw = make_draw("canonical", problem.protocol, problem.data.y_train, problem.data.learnable())
    published = load_protocol(name)
    for session, rows in enumerate(draw.rows, start=1):
        found = [problem.data.names_train[row] for row in rows.tolist()]
        assert found == [f"images/{shot}" for shot in published.canonical[session - 1]]
        labels = set(problem.data.y_train[rows].tolist())
        assert labels == set(published.session_labels(session))
    assert load_problem(name, path).draws[0] == "canonical"


def test_missing_shots_are_counted_and_the_first_is_named(tmp_path):
    path = benchmark_file(tmp_path / "e.npz", "cub200", lost=3)
    first = load_protocol("cub200").canonical[0][0]
    with pytest.raises(
        InputError, match=r"3 of 500 published shots of cub200 are not in e\.npz"
    ) as e:
        load_problem("cub200", path, draws="canonical")
    assert f"such as {first}" in str(e.value)
    usual = load_problem("cub200", path)
    assert usual.draws == tuple(f"random:{i}" for i in range(20))
    assert usual.notes[0].startswith("note: no canonical draw: 3 of 500")
    assert load_problem("cub200", path, draws="random:1").notes == ()


def test_a_file_without_names(tmp_path):
    path = benchmark_file(tmp_path / "e.npz", "mini_imagenet", named=False)
    with pytest.raises(InputError, match=r"are file names, and e\.npz has no names_train"):
        load_problem("mini_imagenet", path, draws="canonical")
    assert "canonical" not in load_problem("mini_imagenet", path).draws


def test_rows_of_another_order_are_noticed(tmp_path):
    """CIFAR-100's shots are row numbers: in a file that is sorted otherwise they are others."""
    y = torch.arange(50_000) % 100
    data = Embeddings(torch.ones(50_000, 1), y, torch.ones(100, 1), torch.arange(100))
    path = save_embeddings(tmp_path / "e.npz", data)
    with pytest.raises(InputError, match=r"shot \d+ of session 1 has another class in e\.npz"):
        load_problem("cifar100", path, draws="canonical")


def test_dev_keeps_the_published_shots_out_of_the_queries(tmp_path):
    path = benchmark_file(tmp_path / "e.npz", "cub200", lost=3)
    problem = load_problem("cub200", path, draws="random:1", split="dev")
    shots = {f"images/{s}" for session in load_protocol("cub200").canonical for s in session}
    queries = set(problem.data.names_test)
    assert queries
    assert not queries & shots
    assert queries <= set(load_embeddings(path).names_train)


def test_features_is_short_for_a_name_and_a_file(tmp_path):
    assert split_dataset("features:some/my.npz", None) == ("my", Path("some/my.npz"))
    assert split_dataset("my", Path("x.npz")) == ("my", Path("x.npz"))
    for dataset, file in (("features:", None), ("features:a.npz", Path("b.npz"))):
        with pytest.raises(InputError, match="give one embeddings file"):
            split_dataset(dataset, file)
    with pytest.raises(InputError, match=r"did you mean features:my\.npz\?"):
        split_dataset("my.npz", None)


def test_a_benchmark_with_other_numbers_keeps_the_rest(tmp_path):
    path = benchmark_file(tmp_path / "e.npz", "cub200")

    def numbers(**given):
        p = load_problem("cub200", path, numbers=Numbers(**given)).protocol
        return p.base, p.way, p.shot, p.sessions

    assert numbers(shot=1) == (100, 10, 1, 10)
    assert numbers(base=150) == (150, 10, 5, 5)
    assert numbers(way=5) == (100, 5, 5, 20)
    assert numbers(order_seed=1) == (100, 10, 5, 10)
    shuffled = load_problem("cub200", path, numbers=Numbers(order_seed=1))
    assert "canonical" not in shuffled.draws
    with pytest.raises(InputError, match="are more than the 200 classes"):
        numbers(base=100, way=10, sessions=11)


def test_no_test_rows(tmp_path):
    y = torch.arange(30) % 3
    data = Embeddings(torch.randn(30, 2), y, torch.zeros(0, 2), y[:0])
    path = save_embeddings(tmp_path / "my.npz", data)
    own = Numbers(base=2, way=1, shot=2)
    with pytest.raises(InputError, match="no test row of these classes: add some, or score train"):
        load_problem(f"features:{path}", numbers=own)
    assert len(load_problem(f"features:{path}", numbers=own, split="dev").data.y_test) == 30
