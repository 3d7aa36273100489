"""Every method with a base session of its own: it trains, is deterministic, and serves its head."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from cala import storage
from cala.data.embeddings import load_embeddings, save_embeddings
from cala.encoders.encode import encode_set
from cala.encoders.weights import load_encoder_file
from cala.heads import HEADS, BaseData, make_head
from cala.systems.cec import draw_rows
from cala.systems.nc_fscil import Blend
from cala.systems.registry import SYSTEMS
from cala.training.images import base_rows, load_base
from cala.training.loop import Trainer
from cala.training.run_dir import CHECKPOINT, load_checkpoint
from cala.training.session import BaseSession, make_model, make_trainer, train_base
from problems import first_of
from refusals import refused
from scans import FIRST, IMAGES, N_BASE
from training import small

pytestmark = pytest.mark.filterwarnings("ignore::cala.errors.BaseQueryWarning")

QUICK = {"episodes": 4, "heldout_episodes": 2, "epochs": 2, "steps": 5}
# The base session of topic is that of icarl.
every_method = pytest.mark.parametrize("name", [name for name in SYSTEMS if name != "topic"])


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("CALA_CACHE", str(tmp_path / "cache"))


@pytest.fixture(scope="session")
def first(tmp_path_factory) -> Path:
    """The encoder of an ordinary base session."""
    out = tmp_path_factory.mktemp("systems") / "first"
    return train_base(BaseSession(IMAGES, FIRST, N_BASE, out, holdout=4))


def session(name: str, out: Path, init: Path, **changes) -> BaseSession:
    method = SYSTEMS[name]
    recipe = FIRST.changed(**{**method.changes, "batch": 32}).lasting(0.5)
    usual = {"holdout": 4, "init": init, "method": name, "objective": method.objective}
    return BaseSession(IMAGES, recipe, N_BASE, out, **{**usual, **changes})


@pytest.fixture(scope="session")
def trained(first, tmp_path_factory):
    made = {}

    def train(name: str) -> Path:
        if name not in made:
            out = tmp_path_factory.mktemp("systems") / name
            made[name] = train_base(session(name, out, first))
        return made[name]

    return train


@every_method
def test_a_method_has_a_head(name):
    assert SYSTEMS["topic"].objective == SYSTEMS["icarl"].objective
    assert name in HEADS
    assert SYSTEMS.summary(name)


@every_method
def test_it_learns_classes_it_never_trained_on(name, trained, tmp_path):
    """From the encoder file by way of an embeddings file to sessions of unequal size."""
    encoder = load_encoder_file(trained(name))
    assert encoder.about["method"] == name
    assert len(encoder.holdout) == 4 * N_BASE
    path = tmp_path / "scans.npz"
    save_embeddings(path, encode_set(IMAGES, encoder, base=range(N_BASE), pairs=10, fake_images=8))
    data = load_embeddings(path)
    assert data.parts.keys() == encoder.parts.keys()
    for shots in (1, 20):
        for method in (name, f"{name}+cala"):
            options = {"adapter": QUICK} if "+" in method else {}
            head = make_head(method, parts=data.parts, **options)
            base = data.y_train < N_BASE
            head.fit_base(BaseData(data.x_train[base], data.y_train[base], fakes=data.fakes))
            for labels in ((6, 7, 8), (9,)):
                rows = first_of(data.y_train, labels, shots)
                head.add(data.x_train[rows], data.y_train[rows])
            logits = head.logits(data.x_test)
            assert logits.shape == (len(data.y_test), 10)
            right = logits.argmax(1) == data.y_test
            chance, novel = 0.1, right[data.y_test >= N_BASE]
            assert right.mean() > 3 * chance, (method, shots)
            assert novel.mean() > 1.5 * chance or method != name, (method, shots)


@every_method
def test_the_loss_falls(name, first, tmp_path):
    """Of one batch, when small steps are taken on that batch alone."""
    job = session(name, tmp_path, first)
    recipe = job.recipe.changed(schedule="cosine", warmup=0.0, lr=job.recipe.lr / 5)
    job = replace(job, recipe=recipe.lasting(3.0))
    data = load_base(IMAGES, base_rows(IMAGES, N_BASE, 4, 0), job.recipe)
    trainer = make_trainer(job, data)
    only = trainer.batch(0)
    trainer.batch = lambda step: only
    losses = []
    trainer.run(after_step=lambda t: losses.append(t.progress.epoch_loss) or len(losses) >= 12)
    model = trainer.model.train()
    images, labels = trainer.batch(0)
    torch.manual_seed(0)
    after = float(model(images, labels)[0].detach())
    fresh = make_trainer(job, data)
    fresh.begin()
    if hasattr(fresh.model, "queue"):  # without keys in it there is nothing to be told apart
        for step in range(12):
            fresh.model.train()(*fresh.batch(step))
    torch.manual_seed(0)
    before = float(fresh.model.train()(images, labels)[0].detach())
    assert after < before, (before, after)


@every_method
def test_a_seed_decides_all_and_an_interruption_changes_nothing(name, first, trained, tmp_path):
    whole = load_checkpoint(trained(name).parent / CHECKPOINT)[0]
    out = tmp_path / "parts"
    calls = iter(range(100))
    job = session(name, out, first)
    assert train_base(job, stop=lambda: next(calls) == 1) is None
    train_base(job, resume=True)
    parts, config, progress = load_checkpoint(out / CHECKPOINT)
    assert config["method"] == name
    assert progress.cpu_seconds > 0
    assert parts.keys() == whole.keys()
    for key, tensor in whole.items():
        assert torch.equal(parts[key], tensor), key
    other = make_model(session(name, tmp_path / "other", first, seed=1))
    same = make_model(session(name, tmp_path / "same", first))
    assert all(map(torch.equal, same.parameters(), make_model(job).parameters()))
    own = [p for n, p in other.named_parameters() if not n.startswith("encoder.")]
    assert name in ("cec",) or any(
        not torch.equal(p, q)
        for p, q in zip(
            own, [p for n, p in same.named_parameters() if "encoder." not in n], strict=True
        )
    )


def test_a_budget_becomes_epochs_and_is_kept(first, tmp_path):
    job = session("fact", tmp_path / "one", first, budget=0.02)
    calls = iter(range(10_000))
    assert train_base(job, stop=lambda: next(calls) == 0) is None
    epochs = load_checkpoint(tmp_path / "one" / CHECKPOINT)[1]["recipe"]["epochs"]
    assert 0 < epochs < 600
    train_base(job, resume=True)
    progress = load_checkpoint(tmp_path / "one" / CHECKPOINT)[2]
    data = load_base(IMAGES, base_rows(IMAGES, N_BASE, 4, 0), job.recipe)
    per_epoch = len(data.train) // job.recipe.batch
    assert progress.step == max(1, round(epochs * per_epoch))
    with refused("budget", 0.02, 0.03, code="another_run"):
        train_base(replace(job, budget=0.03), resume=True)
    with refused(-1, field="budget"):
        replace(job, budget=-1)


@pytest.mark.parametrize("name", [n for n in SYSTEMS if not SYSTEMS[n].objective.divisible])
def test_episodes_are_not_shared_by_devices(name, first, tmp_path):
    class Two:
        rank, world = 0, 2

        def total(self, tensor):
            return 2 * tensor  # both begin at the start

    with refused("episodes", field="devices"):
        train_base(session(name, tmp_path, first, ranks=Two()))


def trainer(name: str, first: Path, tmp_path: Path) -> Trainer:
    job = session(name, tmp_path, first)
    data = load_base(IMAGES, base_rows(IMAGES, N_BASE, 4, 0), job.recipe)
    return Trainer(make_model(job), data, job.recipe)


def test_alice_sees_two_views(first, tmp_path):
    loop = trainer("alice", first, tmp_path)
    images, labels = loop.batch(0)
    assert len(images) == 2 * len(labels) == 64
    assert not torch.equal(images[:32], images[32:])


def test_cec_plays_one_shot_against_queries(first, tmp_path):
    loop = trainer("cec", first, tmp_path)
    _, labels = loop.batch(0)
    way = N_BASE
    assert len(labels) == way * 16
    assert labels[-way:].tolist() == labels[: way * 15 : 15].tolist()
    assert sorted(labels[-way:].tolist()) == list(range(way))
    rows = loop.model.rows(torch.arange(4), loop._labels, torch.Generator().manual_seed(0))
    assert len(rows.unique()) == len(rows)  # no shot is a query
    loop.net.train()
    assert loop.model.attention.training
    assert not loop.model.encoder.training


def test_turned_images():
    from cala.systems.cec import turn

    images = torch.arange(4.0).reshape(1, 1, 2, 2).repeat(4, 1, 1, 1)
    found = turn(images, torch.arange(4))
    assert found[:, 0].flatten(1).tolist() == [
        [0, 1, 2, 3], [1, 3, 0, 2], [3, 2, 1, 0], [2, 0, 3, 1],
    ]  # fmt: skip


def test_limit_never_shows_a_query_as_a_shot(first, tmp_path):
    loop = trainer("limit", first, tmp_path)
    batch = torch.randperm(len(loop._labels))[:32]
    rows = loop.model.rows(batch, loop._labels, torch.Generator().manual_seed(0))
    assert torch.equal(rows[:32], batch)
    assert loop._labels[rows[32:]].tolist() == list(range(N_BASE))
    assert not set(rows[32:].tolist()) & set(batch.tolist())


def test_limit_tasks_do_not_see_each_other(first, tmp_path, monkeypatch):
    """The loss of many tasks is the mean of single ones, each on the queries as they were."""
    loop = trainer("limit", first, tmp_path)
    images, labels = loop.batch(0)
    model = loop.model.eval()
    seen = []
    attend = model.attention.forward

    def watch(rows, queries):
        seen.append(queries.detach().clone())
        return attend(rows, queries)

    monkeypatch.setattr(model.attention, "forward", watch)
    model(images, labels)
    assert len(seen) == 32
    assert all(torch.equal(queries, seen[0]) for queries in seen)


def test_fact_mixes_in_the_middle(first, tmp_path):
    loop = trainer("fact", first, tmp_path)
    model = loop.model.eval()
    images, labels = loop.batch(0)
    torch.testing.assert_close(
        model.encoder.upper(model.encoder.lower(images)), model.encoder(images)
    )
    loss, logits = model(images, labels)
    plain = model.cross_entropy(model.logits(images), labels)
    assert float(loss.detach()) > float(plain.detach())  # three losses come on top
    torch.testing.assert_close(logits, model.logits(images))
    assert model.virtual.shape == (4, 64)
    assert not model.virtual.requires_grad


def test_savcs_slow_copy_starts_at_the_encoder_and_follows(first, tmp_path):
    loop = trainer("savc", first, tmp_path)
    model = loop.model.train()
    images, labels = loop.batch(0)
    assert len(images) == 2 * len(labels)
    slow = dict(model.slow[0].named_parameters())
    weight = model.encoder.conv1.weight
    assert not torch.equal(slow["conv1.weight"], weight)  # made before the start was loaded
    model(images, labels)
    assert torch.equal(slow["conv1.weight"], weight)
    assert model.queue.labels[:64].tolist() == [
        *(2 * labels).tolist(), *(2 * labels + 1).tolist(),
    ]  # fmt: skip
    before = slow["conv1.weight"].clone()
    with torch.no_grad():
        weight += 1.0
    model(images, labels)
    torch.testing.assert_close(slow["conv1.weight"], before + 0.005)
    trained = {id(p) for group in loop.optimiser.param_groups for p in group["params"]}
    assert not trained & {id(p) for p in model.slow.parameters()}
    rest = [p for n, p in model.named_parameters() if not n.startswith("slow.")]
    assert trained == {id(p) for p in rest}
    queue = model.queue.keys.clone()
    model.eval()(images, labels)
    assert torch.equal(model.queue.keys, queue)  # nothing moves outside of training


def test_savcs_small_crops_lie_inside_and_leave_no_statistics(first, tmp_path):
    from cala.systems.savc import deal_views, small_crops, whole_image_statistics

    dealt = deal_views(5, 4).reshape(4, 5)
    assert all(sorted(column) == [0, 1, 2, 3] for column in dealt.T.tolist())
    assert deal_views(5, 1).tolist() == [0] * 20
    places = torch.arange(32.0).expand(1, 1, 32, 32)
    crops = small_crops(torch.cat([places, places.mT, places], 1))
    assert crops.shape == (4, 3, 18, 18)
    assert float(crops.min()) >= 0
    assert float(crops.max()) <= 31
    side = crops[:, 0].amax((1, 2)) - crops[:, 0].amin((1, 2))
    assert len(side.unique()) == 4
    model = trainer("savc", first, tmp_path).model.train()
    before = {k: v.clone() for k, v in model.encoder.state_dict().items() if "running" in k}
    with whole_image_statistics(model.encoder):
        model.encoder(torch.randn(4, 3, 8, 8))
    after = model.encoder.state_dict()
    assert all(torch.equal(after[k], v) for k, v in before.items())
    model.encoder(torch.randn(4, 3, 8, 8))
    assert not torch.equal(model.encoder.bn1.running_mean, before["bn1.running_mean"])


def test_savcs_views_vote_in_validation(first, tmp_path):
    model = trainer("savc", first, tmp_path).model.eval()
    images = torch.randn(5, 3, 8, 8)
    means = torch.randn(N_BASE, 64)
    model.begin(means)
    with torch.no_grad():
        unit = [
            torch.nn.functional.normalize(model.encoder(x), dim=1)
            for x in (images, images.rot90(2, (2, 3)))
        ]
        expected = model.scale * (unit[0] + unit[1]) / 2 @ torch.nn.functional.normalize(means).T
        torch.testing.assert_close(model.logits(images), expected)


@pytest.mark.parametrize("views", [1, 4])
def test_savc_with_other_numbers_of_views(views, first, tmp_path):
    job = session("savc", tmp_path, first)
    job = replace(job, recipe=job.recipe.changed(views=views).lasting(0.3))
    encoder = load_encoder_file(train_base(job))
    assert encoder.dim == 64 * views
    again = session("savc", tmp_path / "again", tmp_path / "encoder.safetensors")
    assert torch.equal(  # its weights start another run, whatever its views
        make_model(again).encoder.conv1.weight,
        load_file(tmp_path / "encoder.safetensors")["conv1.weight"],
    )
    with refused(3, field="views") as caught:
        make_model(replace(job, recipe=job.recipe.changed(views=3)))
    assert "1, 2, 4, 12" in caught.value.fix


def test_what_trained_the_start_is_not_held_out(first, tmp_path):
    """Another seed holds out other images, and some of these trained the weights to start from."""
    held = load_encoder_file(first).holdout
    out = train_base(session("fact", tmp_path / "same", first))
    assert load_encoder_file(out).holdout == held
    with refused("encoder.safetensors", field="holdout", code="holdout_trained") as caught:
        train_base(session("fact", tmp_path / "other", first, seed=3))
    assert "--seed 0 and --holdout 4" in caught.value.fix
    meta, arrays = storage.read(first, "encoder")
    early = tmp_path / "early.safetensors"
    storage.write(early, "encoder", {**meta, "trained": []}, arrays)
    with refused("early.safetensors", field="holdout", code="holdout_trained"):
        train_base(session("fact", tmp_path / "early", early, seed=3))
    again = train_base(session("fact", tmp_path / "none", first, seed=3, holdout=0))
    assert not load_encoder_file(again).holdout
    fresh = train_base(session("fact", tmp_path / "fresh", None, seed=3))
    assert len(load_encoder_file(fresh).holdout) == 4 * N_BASE


@every_method
@pytest.mark.parametrize(
    "dtype", [torch.bfloat16, pytest.param(torch.float16, marks=pytest.mark.long)]
)
def test_half_precision(name, dtype, first, tmp_path):
    job = session(name, tmp_path, first, autocast=dtype)
    loop = make_trainer(job, load_base(IMAGES, base_rows(IMAGES, N_BASE, 4, 0), job.recipe))
    loop.begin()
    loop._step(0)
    loop.check_finite()


def test_few_images_per_class():
    """No query is the shot, however few there are; a single image is too few."""
    labels = torch.tensor([0] * 3 + [1] * 2 + [2])
    for label in (0, 1):
        rows = draw_rows(labels, label, 15, torch.Generator().manual_seed(0))
        assert len(rows) == 16
        assert (labels[rows] == label).all()
        assert rows[0] not in rows[1:]
    with refused("class 2", code="too_few_images"):
        draw_rows(labels, 2, 15, torch.Generator())


def test_limit_takes_a_shot_out_of_a_batch_that_holds_all_images(first, tmp_path):
    model = make_model(session("limit", tmp_path, first))
    labels = torch.arange(N_BASE).repeat(3)
    rows = model.rows(torch.arange(len(labels)), labels, torch.Generator().manual_seed(0))
    assert len(rows.unique()) == len(rows) == len(labels)
    assert labels[rows[-N_BASE:]].tolist() == list(range(N_BASE))


def test_fact_needs_two_halves_and_alice_not_too_many_classes(tmp_path):
    with refused(FIRST.encoder, field="encoder", code="no_halves"):
        SYSTEMS["fact"].objective(small.Small(), N_BASE, FIRST, N_BASE)
    with refused("499,500", field="base", code="too_many_pairs"):
        SYSTEMS["alice"].objective(small.Small(), 1000, FIRST, 1000)


def test_small_images_cost_less_of_a_budget():
    recipe = FIRST.changed(sizes=((0.4, 4), (0.65, 6)))
    assert recipe.spans == [(0.4, 4), (0.25, 6), (pytest.approx(0.35), 8)]
    assert FIRST.spans == [(1.0, 8)]
    short = recipe.lasting(0.5)
    assert [short.size_at(epoch) for epoch in (0.0, 0.19, 0.21, 0.31, 0.33, 0.49)] == [
        4,
        4,
        6,
        6,
        8,
        8,
    ]


def test_a_trained_encoder_waits_for_alices_projector(first, tmp_path):
    """Nothing of the encoder moves at first, statistics neither; without a start it never waits."""
    job = session("alice", tmp_path, first)
    job = replace(job, recipe=job.recipe.lasting(1.0))
    data = load_base(IMAGES, base_rows(IMAGES, N_BASE, 4, 0), job.recipe)
    for warm in (True, False):
        loop = make_trainer(job if warm else replace(job, init=None), data)
        before = {k: v.clone() for k, v in loop.model.encoder.state_dict().items()}
        weight = loop.model.weight.detach().clone()
        loop._step(0)
        assert not torch.equal(loop.model.weight, weight)
        after = loop.model.encoder.state_dict()
        assert all(torch.equal(after[k], v) for k, v in before.items()) == warm
        loop._step(loop.total_steps - 1)
        assert not torch.equal(loop.model.encoder.conv1.weight, before["conv1.weight"])


def test_steps_in_which_the_encoder_waits_are_timed_apart(first, tmp_path, monkeypatch):
    job = session("alice", tmp_path, first)
    job = replace(job, recipe=job.recipe.lasting(4.0))
    loop = make_trainer(job, load_base(IMAGES, base_rows(IMAGES, N_BASE, 4, 0), job.recipe))
    border = math.ceil(0.3 * loop.total_steps)
    done = []

    def timed(work):
        done.append(work.args[0])
        loop.progress.cpu_seconds += 1.0 if work.args[0] < border else 5.0

    monkeypatch.setattr(loop, "_timed", timed)
    assert loop.rehearse(3) == pytest.approx(0.3 * 1 + 0.7 * 5)
    assert done == [0, 1, 2, border, border + 1, border + 2]


def test_savcs_loss_by_hand(first, tmp_path, monkeypatch):
    """Every anchor meets the key of its own image in its own view."""
    from cala.encoders.views import fantasy
    from cala.systems import savc
    from cala.systems.savc import contrast, joint_labels

    loop = trainer("savc", first, tmp_path)
    model = loop.model.train()
    for step in range(3):
        model(*loop.batch(step))
    model.eval()
    images, labels = loop.batch(5)
    n = len(labels)
    query, key = images.chunk(2)
    crops = savc.small_crops(key)
    views = savc.deal_views(n, 2)
    monkeypatch.setattr(savc, "small_crops", lambda given: crops)
    monkeypatch.setattr(savc, "deal_views", lambda n, views_: views)
    unit = torch.nn.functional.normalize
    with torch.no_grad():
        keys = [unit(model.slow(fantasy(key, m)), dim=1) for m in (0, 1)]
        large = [model.encoder(fantasy(query, m)) for m in (0, 1)]
        queue = model.queue.keys, model.queue.labels
        joint = joint_labels(labels, 2)
        expected = torch.nn.functional.cross_entropy(model.classifier(torch.cat(large)), joint)
        anchors = unit(model.projector(torch.cat(large)), dim=1)
        expected += 0.2 * contrast(anchors, torch.cat(keys), joint, *queue)
        each = []
        for place, view in enumerate(views.tolist()):
            crop = fantasy(crops[place : place + 1], view)
            anchor = unit(model.projector(model.encoder(crop)), dim=1)
            row = place % n
            own = labels[row : row + 1] * 2 + view
            each.append(contrast(anchor, keys[view][row : row + 1], own, *queue))
        expected += 0.8 * torch.stack(each).mean()
        torch.testing.assert_close(model(images, labels)[0], expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("n_classes", "room"), [(10, 10), (N_BASE, 2 * N_BASE), (600, 600)])
def test_nc_fscil_keeps_a_vertex_for_every_class_to_come(n_classes, room):
    model = SYSTEMS["nc-fscil"].objective(small.Small(), N_BASE, FIRST, n_classes)
    assert model.vertices.shape == (room, max(512, room))
    assert not model.vertices.requires_grad
    images = torch.randn(3, 3, 8, 8)
    assert model.logits(images).shape == (3, N_BASE)


def test_nc_fscil_turns_blended_images_to_both_vertices(monkeypatch):
    torch.manual_seed(0)
    model = SYSTEMS["nc-fscil"].objective(small.Small(), N_BASE, FIRST, 10).eval()
    images, labels = torch.randn(4, 3, 8, 8), torch.tensor([0, 3, 5, 3])
    other = torch.tensor([1, 0, 3, 2])
    outputs = model.neck(torch.nn.functional.normalize(model.encoder(images), dim=1))
    cosines = torch.nn.functional.normalize(outputs, dim=1) @ model.vertices.T
    each = 5 * (cosines - 1) ** 2
    rows = torch.arange(4)
    for share in (0.3, 1.0):
        blended = Blend(images, other, share)
        monkeypatch.setattr("cala.systems.nc_fscil.blend", lambda images, made=blended: made)
        loss, logits = model(images, labels)
        both = share * each[rows, labels] + (1 - share) * each[rows, labels[other]]
        torch.testing.assert_close(loss, both.mean())
        torch.testing.assert_close(logits, cosines[:, :N_BASE].detach())
