"""Work on a real two-node Ray cluster: the same results, also when a node is killed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image
from safetensors.numpy import load_file

from cala.benchmark.config import RunConfig
from cala.benchmark.execute import execute
from cala.benchmark.notes import Watch
from cala.benchmark.ray_cells import RayCells
from cala.benchmark.runner import fit_configured
from cala.benchmark.sources import Source
from cala.benchmark.task import BenchTask, parse_draws
from cala.cluster.ray_cluster import RayCluster, run_task
from cala.data.embeddings import Embeddings
from cala.data.protocol import Protocol, make_protocol
from cala.data.shard_rows import open_shards
from cala.data.shard_writer import ShardWriter
from cala.encoders import Transform
from cala.encoders.encode import encode_set
from cala.encoders.weights import load_encoder_file
from cala.errors import InputError
from cala.training.session import BaseSession, train_base
from cli.inside import inside
from cluster.nodes import TwoNodes
from problems import blobs
from refusals import refused
from scans import FIRST, IMAGES, N_BASE
from waiting import GENEROUS, wait_for

__all__ = ["inside"]
pytestmark = [
    pytest.mark.system,
    pytest.mark.filterwarnings("ignore::cala.errors.BaseQueryWarning"),
]
PROTOCOL = Protocol(name="small", base=8, way=2, shot=3, sessions=2)
QUICK = {"episodes": 4, "heldout_episodes": 2, "epochs": 2, "steps": 5}
TWO = ("nearest-mean", "la")


@pytest.fixture(scope="module")
def nodes():
    found = TwoNodes()
    yield found
    found.close()


@pytest.fixture
def cells(nodes):
    return RayCells(RayCluster(nodes.ray))


def source() -> Source:
    x, y = blobs(12, 30, 12)
    x, train = x.astype(np.float32), np.arange(len(y)) % 2 == 0
    return Source(Embeddings(x[train], y[train], x[~train], y[~train]), "small")


def task() -> BenchTask:
    return BenchTask(source(), PROTOCOL)


def config(methods=TWO, draws="random:3", seeds=(0, 1)) -> RunConfig:
    return RunConfig("small", methods, tuple(parse_draws(draws)), seeds=seeds, adapter=QUICK)


def slowly(marks, seconds):
    """A fit whose heads leave a mark and take their time when a cell begins on a node."""
    here = os.getpid()

    def fit(config, method, seed, data, protocol):
        head = fit_configured(config, method, seed, data, protocol)
        plain = type(head)

        class Slow(plain):
            def fork(self):
                if os.getpid() != here:
                    import ray

                    node = ray.get_runtime_context().get_node_id()
                    for what in ("begins", "ends"):
                        with marks.open("a") as file:
                            file.write(f"{what} {node}\n")
                        time.sleep(seconds if what == "begins" else 0)
                self.__class__ = plain
                try:
                    return plain.fork(self)
                finally:
                    self.__class__ = Slow

        head.__class__ = Slow
        return head

    return fit


def test_the_folder_is_that_of_one_process(cells, tmp_path):
    job = config(("nearest-mean", "cala-plus"))
    said, counted = [], []
    execute(job, task(), out=tmp_path / "here")
    execute(
        job, task(), out=tmp_path / "ray", cells=cells,
        watch=Watch(status=said.append, advance=lambda done, total: counted.append((done, total))),
    )  # fmt: skip
    for name in ("records.jsonl", "table.md", "table.csv"):
        assert (tmp_path / "ray" / name).read_bytes() == (tmp_path / "here" / name).read_bytes()
    for path in sorted((tmp_path / "here" / "artifacts").iterdir()):
        ours, theirs = load_file(tmp_path / "ray" / "artifacts" / path.name), load_file(path)
        assert all(np.array_equal(ours[key], theirs[key], equal_nan=True) for key in theirs)
    assert counted[-1] == (12, 12)
    assert "cala-plus, seed 1: fitting" in said
    costs = [json.loads(line) for line in (tmp_path / "ray/costs.jsonl").read_text().splitlines()]
    assert len({(c["method"], c["draw"], c["seed"]) for c in costs}) == 12


def test_a_stopped_run_goes_on(cells, tmp_path):
    class Stop(BaseException):
        pass

    def stop(done, total):
        if done == 4:
            raise Stop

    with pytest.raises(Stop):
        execute(config(), task(), out=tmp_path / "a", cells=cells, watch=Watch(advance=stop))
    assert len((tmp_path / "a/records.jsonl").read_text().splitlines()) == 4 * 3
    more = RayCells(RayCluster(cells.cluster.ray))
    execute(config(), task(), out=tmp_path / "a", cells=more)
    execute(config(), task(), out=tmp_path / "b")
    assert (tmp_path / "a/records.jsonl").read_text() == (tmp_path / "b/records.jsonl").read_text()


def test_an_error_on_a_node_is_said_as_here(cells, tmp_path):
    lacking = replace(source().data, y_train=source().data.y_train.clip(min=1))
    with refused("class 0", field="y_train", code="empty_base_class"):
        execute(config(), BenchTask(Source(lacking, "x"), PROTOCOL), out=tmp_path, cells=cells)


def photos(folder, per_class=6):
    generator = np.random.default_rng(0)
    for name in ("ash", "elm", "oak"):
        (folder / name).mkdir(parents=True)
        for number in range(per_class):
            pixels = generator.integers(0, 255, (16, 16, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(folder / name / f"{number}.png")
    return folder


ENCODE = ("--encoder", "resnet20-cifar100", "--fakes", 0, "--shard-rows", 4, "--threads", 1, "-q")


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name[0] != "."}


def test_shards_are_those_of_one_process(nodes, inside, tmp_path):
    nodes.mend()
    images = photos(tmp_path / "photos")
    here, there = tmp_path / "here.shards", tmp_path / "there.shards"
    assert inside("encode", images, "-o", here, "--test", 0.3, *ENCODE)[0] == 0
    code, said, err = inside("encode", images, "-o", there, "--test", 0.3, *ENCODE, "--on", "ray")
    assert code == 0, err
    assert "12 training and 6 test images" in said
    assert contents(here) == contents(there)
    (there / "shard-00001.safetensors").unlink()  # only that is made again, and anywhere
    assert inside("encode", images, "-o", there, "--test", 0.3, *ENCODE)[0] == 0
    assert contents(here) == contents(there)


@pytest.mark.long
def test_trainings_of_a_grid_end_with_the_same_weights(nodes, inside, tmp_path):
    nodes.mend()
    images = photos(tmp_path / "photos", 12)
    options = ("--epochs", 2, "--encoder", "resnet20", "--method", "alice,fact", "--seeds", 2,
               "--threads", 1, "-q", "--recipe", "fast-cifar100", "--batch", 8)  # fmt: skip
    assert inside("train", images, "-o", tmp_path / "here", *options)[0] == 0
    code, said, err = inside("train", images, "-o", tmp_path / "ray", *options, "--on", "ray")
    assert code == 0, err
    assert said.count("encoder: ") == 4
    for one in ("alice/seed-0", "alice/seed-1", "fact/seed-0", "fact/seed-1"):
        ours, theirs = (
            load_file(tmp_path / place / one / "encoder.safetensors") for place in ("ray", "here")
        )
        assert all(np.array_equal(ours[key], theirs[key]) for key in theirs)
    code, _, err = inside("train", images, "-o", tmp_path / "ray", *options, "--on", "ray")
    assert code == 2
    assert "add --resume" in err


def test_the_command_joins_a_cluster_by_its_address(nodes, inside, tmp_path):
    """A process of its own, which reads shards on the nodes; asked to end, it goes on later."""
    nodes.mend()
    data, shards = source().data, tmp_path / "small.shards"
    classes = tuple(f"class {label}" for label in range(12))
    parts = {"train": (data.x_train, data.y_train), "test": (data.x_test, data.y_test)}
    with ShardWriter(shards, dim=12, classes=classes, dtype="float32", keys=[*parts]) as writer:
        for split, (x, y) in parts.items():
            writer.write(split, x, y, split)
        writer.finish()
    options = ("run", f"features:{shards}", "--base", 8, "--way", 2, "--shot", 3, "--sessions", 2,
               "--methods", "nearest-mean", "--draws", "random:40", "--no-report",
               "-q")  # fmt: skip
    code, _, err = inside(*options, "--out", tmp_path / "here")
    assert code == 0, err
    there = ("--out", tmp_path / "ray", "--on", f"ray:{nodes.cluster.address}")
    command = [sys.executable, "-m", "cala", *map(str, (*options, *there))]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as first:
        records = tmp_path / "ray" / "records.jsonl"
        wait_for(lambda: first.poll() is not None or records.exists())
        first.terminate()
        _, err = first.communicate(timeout=GENEROUS)
    assert first.returncode == 130, err
    # Ray's core writes to the same stream when it likes; our line is among its.
    assert "interrupted; rerun the same command to resume" in err.splitlines()
    assert 0 < len(records.read_text().splitlines()) < 40 * 3
    done = subprocess.run(command, capture_output=True, text=True, timeout=GENEROUS, check=False)
    assert done.returncode == 0, done.stderr
    records = [(tmp_path / place / "records.jsonl").read_text() for place in ("here", "ray")]
    assert records[0] == records[1]


def test_another_cala_on_a_node_is_said():
    with pytest.raises(InputError) as error:
        run_task("99.9", print)
    assert error.value.code == "node_version"


def test_a_photo_that_cannot_be_read_is_named(nodes, inside, tmp_path):
    nodes.mend()
    images = photos(tmp_path / "photos")
    (images / "elm" / "3.png").write_bytes(b"broken")
    for where in ((), ("--on", "ray")):
        code, _, err = inside("encode", images, "-o", tmp_path / "x.shards", *ENCODE, *where)
        assert code == 2
        assert "3.png: " in err
        assert "--skip-bad" in err


def test_each_image_once_though_a_node_is_killed(nodes, inside, tmp_path, monkeypatch):
    from cala.data import shard_writer

    nodes.mend()
    killed = []
    images, out = photos(tmp_path / "photos", 40), tmp_path / "all.shards"
    written = []
    write = shard_writer.ShardWriter.write

    def restarts():
        return sum(one["NumRestarts"] for one in nodes.ray._private.state.actors().values())

    def watched(self, key, *arguments, **options):
        write(self, key, *arguments, **options)
        written.append(key)
        if not killed and len(written) >= 3:
            # Both nodes are at work when none has a processor left.
            wait_for(lambda: not nodes.ray.available_resources().get("CPU"))
            killed.append(restarts())
            nodes.kill_one()

    monkeypatch.setattr(shard_writer.ShardWriter, "write", watched)
    code, _, err = inside("encode", images, "-o", out, *ENCODE, "--on", "ray")
    assert code == 0, err
    assert len(written) == len(set(written)) == 30
    assert killed
    assert restarts() > killed[0]  # the node had a worker, which another node took over
    shards = open_shards(out)
    names = list(shards.names("train"))
    assert (
        sorted(names)
        == sorted(set(names))
        == sorted(path.relative_to(images).as_posix() for path in images.glob("*/*.png"))
    )
    shards.verify()


def test_a_killed_node_loses_nothing_and_nothing_is_written_twice(nodes, cells, tmp_path):
    """Cells run in the middle of it: more begin than there are, and each is recorded once."""
    nodes.mend()
    job, marks, out = config(draws="random:6", seeds=(0,)), tmp_path / "marks", tmp_path / "ray"
    finished = []

    def busy():
        """Nodes with a cell under way."""
        found = set()
        for what, node in map(str.split, marks.read_text().splitlines()):
            (found.add if what == "begins" else found.discard)(node)
        return found

    def kill_in_the_middle(done, total):
        finished.append(done)
        if done == 3:
            wait_for(lambda: nodes.last in busy())
            nodes.kill_one()

    fit = slowly(marks, 1.0)
    execute(job, task(), out=out, cells=cells, fit=fit, watch=Watch(advance=kill_in_the_middle))
    execute(job, task(), out=tmp_path / "here")
    assert (out / "records.jsonl").read_text() == (tmp_path / "here/records.jsonl").read_text()
    assert finished == list(range(13))
    assert marks.read_text().count("begins") > 12


@pytest.mark.long
def test_courses_are_played_on_nodes_once_per_host(nodes, cells, tmp_path, monkeypatch):
    """Systems that train their encoder in sessions: images and encoder travel, courses return."""
    monkeypatch.setenv("CALA_CACHE", str(tmp_path / "cache"))
    nodes.mend()
    protocol = make_protocol(10, base=N_BASE, way=2, shot=5, sessions=2, name="scans")
    recipe = replace(FIRST, encoder="resnet20", transform=Transform(8, 10), store=10).lasting(2)
    file = train_base(BaseSession(IMAGES, recipe, N_BASE, tmp_path / "first", holdout=4))
    encoder = load_encoder_file(file)
    data = encode_set(IMAGES, encoder, base=range(N_BASE), pairs=12, fake_images=10)
    scans = Source(data.relabelled(protocol), "scans", IMAGES, encoder)
    job = RunConfig("scans", ("bidist", "bidist+la", "nearest-mean"), ("random:0", "random:1"),
                    adapter=QUICK)  # fmt: skip
    execute(job, BenchTask(scans, protocol), out=tmp_path / "here")
    execute(job, BenchTask(scans, protocol), out=tmp_path / "ray", cells=cells)
    records = [(tmp_path / place / "records.jsonl").read_text() for place in ("here", "ray")]
    assert records[0] == records[1]
    for path in sorted((tmp_path / "here" / "courses").glob("*.safetensors")):
        ours, theirs = load_file(tmp_path / "ray" / "courses" / path.name), load_file(path)
        assert all(np.array_equal(ours[key], theirs[key]) for key in theirs)
    assert len(list((tmp_path / "ray" / "artifacts").iterdir())) == 3


def elsewhere():
    """Nodes do not have the module of this test."""


def test_workers_that_cannot_be_made_say_why(nodes):
    def no_worker(reason: str):
        raise InputError(f"cannot be made: {reason}", code="of_this_test")

    with pytest.raises(InputError) as error:
        list(RayCluster(nodes.ray).map([("a", 1)], elsewhere, count=1))
    assert error.value.code == "node_cannot_load"
    pieces = [("a", 1), ("b", 2)]
    with refused("another file", code="of_this_test"):
        list(RayCluster(nodes.ray).map(pieces, no_worker, "another file", count=2))
