"""Every system that trains its encoder in sessions, on a small real set of images."""

from __future__ import annotations

import importlib
import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from cala import CalaClassifier
from cala.benchmark.config import RunConfig
from cala.benchmark.encoder_sessions import SessionPlayer, check_images
from cala.benchmark.execute import execute
from cala.benchmark.runner import fit_method
from cala.benchmark.scoring import run_draw
from cala.benchmark.sources import Source
from cala.benchmark.tables import session_notes
from cala.benchmark.task import BenchTask, make_draw, split_runnable
from cala.core.cala import normalise
from cala.data.protocol import make_protocol
from cala.encoders import Transform
from cala.encoders.encode import encode_set
from cala.encoders.weights import load_encoder_file
from cala.errors import InputError
from cala.heads import HEADS, method_names
from cala.reports.phrases import over_draws
from cala.reports.run_tables import costs_table
from cala.reports.runs import load_run
from cala.reports.study import make_studies
from cala.results import Results
from cala.systems.common import learner as learning
from cala.systems.registry import SYSTEMS
from cala.training.session import BaseSession, train_base
from refusals import refused
from scans import FIRST, IMAGES, N_BASE

pytestmark = pytest.mark.filterwarnings("ignore::cala.errors.BaseQueryWarning")

LEARNERS = [name for name in SYSTEMS if SYSTEMS[name].learner is not None]
PROTOCOL = make_protocol(10, base=N_BASE, way=2, shot=5, sessions=2, name="scans")
every_learner = pytest.mark.parametrize("name", LEARNERS)
QUICK = {"episodes": 4, "heldout_episodes": 2, "epochs": 2, "steps": 5}


LENGTHS = {"bidist": 10, "icarl": 2, "topic": 8}


@pytest.fixture(scope="module", autouse=True)
def _shorter():
    with pytest.MonkeyPatch.context() as patch:
        for name, length in LENGTHS.items():
            patch.setattr(SYSTEMS[name].learner, "short", length)
        yield


@pytest.fixture(scope="module")
def source(tmp_path_factory) -> Source:
    """Embeddings of the digits, their images, and an encoder that was trained a little."""
    folder = tmp_path_factory.mktemp("learners")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CALA_CACHE", str(folder / "cache"))
        recipe = replace(FIRST, transform=Transform(8, 10), store=10).lasting(6)
        file = train_base(BaseSession(IMAGES, recipe, N_BASE, folder / "first", holdout=4))
        encoder = load_encoder_file(file)
        data = encode_set(IMAGES, encoder, base=range(N_BASE), pairs=12, fake_images=10)
    return Source(data.relabelled(PROTOCOL), "scans", IMAGES, encoder)


@pytest.fixture(scope="module")
def draw(source):
    return make_draw("random:0", PROTOCOL, source.data)


def room(name: str, source: Source, seed: int = 0, full: bool = False) -> SessionPlayer:
    head = fit_method(name, source.data, PROTOCOL)
    return SessionPlayer(name, head, source, PROTOCOL, seed, full)


@pytest.fixture(scope="module")
def played(source, draw):
    made = {}

    def play(name: str):
        if name not in made:
            made[name] = room(name, source).play(draw)
        return made[name]

    return play


def test_heads_and_learners_belong_together():
    assert LEARNERS
    assert sorted(LEARNERS) == sorted(name for name in HEADS if HEADS[name].traits.changes_encoder)


@every_learner
def test_it_learns_in_sessions(name, source, draw, played):
    course = played(name)
    data = source.data
    assert [z.shape[1] for z in course.logits] == [6, 8, 10]
    assert [len(z) for z in course.logits] == [int((data.y_test < c).sum()) for c in (6, 8, 10)]
    head = fit_method(name, data, PROTOCOL)
    base = data.y_test < N_BASE
    assert all(isinstance(z, np.ndarray) and z.dtype == np.float32 for z in course.logits)
    np.testing.assert_allclose(
        course.logits[0], head.logits(data.x_test[base]), rtol=1.3e-6, atol=1e-5
    )
    right = course.logits[-1].argmax(1) == data.y_test
    assert float(right.mean()) > 0.35, float(right.mean())  # chance: 0.1
    assert float(right[data.y_test >= N_BASE].mean()) > 0.2
    metrics = run_draw(head, data, PROTOCOL, draw, sessions=course)
    assert metrics[-1].accuracy == pytest.approx(float(right.mean()))
    assert len(course.seconds) == 2
    assert course.encoded == sum(int((data.y_test < c).sum()) for c in (8, 10))


@every_learner
def test_a_course_is_decided_by_its_seed_and_changes_nothing(name, source, draw, played):
    classroom = room(name, source)
    before = {k: v.clone() for k, v in source.encoder.module.state_dict().items()}
    first = classroom.play(draw)
    for a, b in zip(first.logits, played(name).logits, strict=True):
        np.testing.assert_array_equal(a, b)
    for key, value in source.encoder.module.state_dict().items():
        assert torch.equal(value, before[key]), key
    other = room(name, source, seed=1).play(draw)
    assert not np.array_equal(other.logits[-1], first.logits[-1])


@every_learner
def test_a_session_changes_the_encoder_and_no_more_than_it_says(name, source, draw):
    classroom = room(name, source)
    learner = classroom.learner.fork()
    rows = draw.rows[0]
    data = source.data
    learner.add(classroom._pictures(rows), data.x_train[rows], data.y_train[rows])
    before, now = classroom.learner.encoder.state_dict(), learner.encoder.state_dict()
    moved = {key for key in before if not torch.equal(before[key], now[key])}
    assert moved
    if learner.upper_only:
        assert all(key.startswith("layer3.") for key in moved)
        assert not any("running" in key for key in moved)
    assert learner.bytes > 0
    assert not any(p.requires_grad for p in learner.encoder.parameters())
    seen = data.y_test < 8
    numbers = data.image_test[seen]
    unit = classroom._encoded(learner, seen)
    direct = learner.encode(classroom._pictures(numbers)).numpy()
    np.testing.assert_allclose(unit, direct, rtol=1e-4, atol=1e-5)


@every_learner
def test_the_published_length_is_one_flag_away(name, source):
    short, full = room(name, source), room(name, source, full=True)
    assert full.learner.length > short.learner.length


def configured(methods, **options) -> RunConfig:
    return RunConfig("scans", tuple(methods), ("random:0", "random:1"), adapter=QUICK, **options)


def test_adapters_share_a_course_and_a_run_goes_on_from_it(source, tmp_path, monkeypatch):
    host = LEARNERS[0]
    plays = []
    play = SessionPlayer.play

    def watched(self, draw, progress=lambda session: None):
        plays.append(draw.name)
        return play(self, draw, progress)

    monkeypatch.setattr(SessionPlayer, "play", watched)
    out = tmp_path / "run"
    config = configured([host, f"{host}+la"], few_draws=("random:0",))
    results = execute(config, BenchTask(source, PROTOCOL), out=out).results
    assert plays == ["random:0"]
    assert {(r.method, r.draw) for r in results.records} == {
        (host, "random:0"),
        (f"{host}+la", "random:0"),
    }
    cost = json.loads((out / "costs.json").read_text())["cost"][host]
    assert cost["session_encoded"] > 0
    assert cost["session_encode_seconds"] > 0
    assert (out / "artifacts" / f"{host}.safetensors").exists()

    execute(
        configured([host, f"{host}+cala"], few_draws=("random:0",)),
        BenchTask(source, PROTOCOL),
        out=out,
    )
    assert plays == ["random:0"]
    (file,) = (out / "courses").iterdir()
    file.write_bytes(file.read_bytes()[:100])
    execute(
        configured([f"{host}+cala-plus"], few_draws=("random:0",)),
        BenchTask(source, PROTOCOL),
        out=out,
    )
    assert plays == ["random:0", "random:0"]  # a damaged course is played again
    with refused("full_sessions", False, True, field="out", code="another_run"):
        execute(configured([host], full_sessions=True), BenchTask(source, PROTOCOL), out=out)


def test_an_adapter_adds_its_shift_to_the_course(source, draw, played):
    host = LEARNERS[0]
    head = fit_method(f"{host}+la", source.data, PROTOCOL, adapter=QUICK)
    course = played(host)
    plain = run_draw(head.host, source.data, PROTOCOL, draw, sessions=course)
    head.gamma = 0.0
    same = run_draw(head, source.data, PROTOCOL, draw, sessions=course)
    assert repr(same) == repr(plain)  # NaN is not equal to itself
    head.delta = 1e6
    always_novel = run_draw(head, source.data, PROTOCOL, draw, sessions=course)
    assert always_novel[-1].base == 0.0


def test_without_images_it_is_refused_by_name(source, tmp_path):
    host = LEARNERS[0]
    bare = replace(source, images=None, encoder=None)
    with refused(host, code="needs_images"):
        check_images(host, bare)
    with refused(host, code="needs_images") as caught:
        execute(configured([host]), BenchTask(bare, PROTOCOL), out=tmp_path / "run")
    assert "--data DIR" in caught.value.fix
    assert not (tmp_path / "run").exists()
    other = replace(source.encoder, about={})
    with refused(host, source.encoder.name, field="encoder"):
        check_images(host, replace(source, encoder=other))
    with refused(host, field="method", code="trains_encoder"):
        CalaClassifier(method=host).fit([[1.0, 0.0], [0.0, 1.0]], ["a", "b"])
    kept, notes = split_runnable(BenchTask(bare, PROTOCOL), method_names())
    assert host not in kept
    assert "nearest-mean" in kept
    assert {note.code for note in notes} == {"left_out"}
    assert {host, "cec"} <= {note.method for note in notes}
    with_images, _ = split_runnable(BenchTask(source, PROTOCOL), method_names())
    assert set(LEARNERS) <= set(with_images)


def test_dev_queries_are_images_of_the_training_set(source):
    data = source.data
    dev = replace(data, usable=None).dev(5, seed=0, keep=[])
    np.testing.assert_array_equal(data.y_train[dev.image_test], dev.y_test)
    assert int(dev.image_test.max()) < len(IMAGES.train)
    assert int(data.image_test.min()) >= len(IMAGES.train)


@pytest.mark.parametrize("split", ["test", "dev"])
def test_rows_are_found_among_the_images_whatever_the_protocol(source, split, tmp_path):
    """Classes in another order, some of which never arrive; stored images are larger than seen."""
    protocol = make_protocol(10, base=N_BASE, way=1, shot=1, sessions=2, order_seed=5, name="scans")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CALA_CACHE", str(tmp_path))
        whole = encode_set(IMAGES, source.encoder, base=range(N_BASE), novel=(), pairs=0)
    data = whole.relabelled(protocol)
    data = data if split == "test" else data.dev(5, seed=0, keep=[])
    assert len(data.y_test) < len(IMAGES.test)
    head = fit_method("bidist", data, protocol)
    found = SessionPlayer("bidist", head, replace(source, data=data), protocol, 0, False)
    pictures = found._pictures(data.image_test)
    expected = normalise(data.x_test)
    direct = found.learner.encode(pictures).numpy()
    np.testing.assert_allclose(direct, expected, rtol=1e-3, atol=1e-4)
    again = found._encoded(found.learner, np.ones(len(data.y_test), dtype=bool))
    np.testing.assert_allclose(again, expected, rtol=1e-3, atol=1e-4)
    draw = make_draw("random:0", protocol, data)
    course = found.play(draw)
    assert [z.shape[1] for z in course.logits] == [6, 7, 8]
    assert all(np.isfinite(z).all() for z in course.logits)


def test_large_test_sets_are_encoded_from_images(source, draw, monkeypatch):
    usual = room("bidist", source).play(draw)
    monkeypatch.setattr(learning, "HIDDEN_MOST", 10)
    classroom = room("bidist", source)
    assert classroom.views.dtype == torch.uint8
    for a, b in zip(classroom.play(draw).logits, usual.logits, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-3)


TERMS = [
    *(("bidist", name) for name in ("KD", "MEMORY", "AGGREGATED", "BINARY", "SHARE", "LR_SMALL")),
    *(("topic", name) for name in ("ANCHOR", "MIN", "FROZEN", "CENTRE_LR")),
    ("topic", "MAX"),
    ("icarl", "_TEMPERATURE"),
    ("icarl", "DECAY"),
]


@pytest.mark.parametrize(("name", "constant"), TERMS)
def test_every_term_of_the_loss_takes_part(name, constant, source, draw, monkeypatch):
    """Without it the same session ends otherwise."""
    module = importlib.import_module(f"cala.systems.{name}")
    data, rows = source.data, draw.rows[0]
    if constant == "MAX":  # so small that it is lost in rounding: look at it enlarged
        monkeypatch.setattr(module, "_MARGIN", 3.0)
        monkeypatch.setattr(module, "MAX", 1.0)

    def after() -> np.ndarray:
        classroom = room(name, source)
        learner = classroom.learner.fork()
        learner.add(classroom._pictures(rows), data.x_train[rows], data.y_train[rows])
        seen = data.y_test < len(learner.head.classes)
        return learner.logits(
            classroom._encoded(learner, seen), learner.head.embed(data.x_test[seen])
        )

    usual = after()
    monkeypatch.setattr(module, constant, 1.0 if constant in ("_TEMPERATURE", "FROZEN") else 0.0)
    assert not np.array_equal(after(), usual)


def test_terms_by_hand():
    """What TOPIC keeps apart and weighs, and the rate of iCaRL."""
    from cala.systems.icarl import IcarlLearner
    from cala.systems.topic import importance, too_near

    unit, nodes = torch.tensor([[1.0, 0.0]]), torch.tensor([[1.0, 0.0], [0.8, 0.0], [0.0, 1.0]])
    near = too_near(unit, torch.tensor([7]), nodes, torch.tensor([7, 3, 4]))
    assert float(near) == pytest.approx(0.3)  # 0.5 - 0.2; its own node does not count
    assert importance(torch.tensor([[0.3, 0.2]])).tolist() == [[pytest.approx(0.9), 1.0]]
    learner = IcarlLearner.__new__(IcarlLearner)
    for steps, rates in (
        (170, {0: 0.1, 79: 0.1, 80: 0.01, 119: 0.01, 120: 0.001}),
        (None, {0: 0.01}),
    ):
        learner.start = SimpleNamespace(steps=steps)
        for epoch, rate in rates.items():
            assert learner.rate(epoch) == pytest.approx(rate)


def test_bidist_moves_the_last_stage_alone():
    from cala.encoders import ARCHITECTURES
    from cala.systems.bidist import last_stage

    for name, last in (("resnet20", "layer3"), ("resnet18", "layer4"), ("resnet12", "layer4")):
        module = ARCHITECTURES[name]()
        own = dict(module.named_parameters())
        found = {id(p) for p in last_stage(module)}
        assert {k for k, p in own.items() if id(p) in found} == {
            k for k in own if k.startswith(f"{last}.")
        }


def test_tta_is_refused(source):
    flipped = replace(source.data, provenance={**source.data.provenance, "tta": "flip"})
    with refused("bidist", field="tta"):
        check_images("bidist", replace(source, data=flipped))


def test_a_run_says_what_was_short(source, tmp_path):
    """In the notes below tables, in config.json, and in the report."""
    out = tmp_path / "run"
    config = configured(["nearest-mean", "bidist"], few_draws=("random:0",))
    results = execute(config, BenchTask(source, PROTOCOL), out=out).results
    notes = session_notes(results, ["random:0", "random:1"], full=False)
    assert notes == [
        "sessions that train an encoder (short; --full-sessions: published length): bidist",
        "1 of these draws: bidist",
    ]
    assert session_notes(Results([replace(r, method=f"0: {r.method}") for r in results.records]),
                         ["random:0"], None)[0].endswith("encoder: 0: bidist")  # fmt: skip
    ablated = Results([replace(r, method="gamma=1") for r in results.records])
    assert session_notes(ablated, ["random:0"], None) == []
    assert session_notes(ablated, ["random:0", "random:9"], None) == ["1 of these draws: gamma=1"]
    stated = json.loads((out / "config.json").read_text())
    assert stated["trained_in_sessions"] == ["bidist"]
    assert stated["full_sessions"] is False
    assert "short" in (out / "table.md").read_text()
    run = load_run(out)
    assert run.notes == []  # few draws are no missing cells
    study = make_studies([run])[0]
    table = costs_table(study)
    assert [row.cells[0].text for row in table.rows] == ["nearest-mean", "bidist"]
    assert table.rows[0].cells[4].value is None
    assert table.rows[1].cells[4].value > 0
    assert "short" in " ".join(table.notes)
    assert "a short length" in over_draws(study)

    execute(configured(["la"]), BenchTask(source, PROTOCOL), out=out)  # what it does not need stays
    again = json.loads((out / "config.json").read_text())
    assert again["trained_in_sessions"] == ["bidist"]
    assert again["few_draws"] == ["random:0"]
    assert load_run(out).notes == []


def test_another_size_than_the_sessions_have_is_refused(source):
    from cala.encoders.resolution import at_size

    larger = replace(source, encoder=at_size(source.encoder, source.encoder.transform.size + 8))
    with pytest.raises(InputError) as error:
        check_images("bidist", larger)
    assert error.value.field == "encoder"
