"""Engines: agreement with torch for everything registered, the export, and when it fails."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from cala.encoders import ENCODERS, LOADERS, engines, load_encoder
from cala.encoders.embed import embed
from cala.encoders.onnx_loader import Forward
from cala.encoders.torch_module import TorchForward
from cala.errors import CacheWarning, EngineWarning, InputError
from conftest import missing
from encoders.tiny import noise_set
from encoders.tiny_models import MODELS, torch_model, trained_model

OWN_GRAPH = ("onnx", "onnx-external")
NAMES = [*ENCODERS, *LOADERS, "file"]
IMAGES = np.random.default_rng(0).integers(0, 256, (5, 40, 50, 3), dtype=np.uint8)
LOADED = "import sys; from cala.encoders import load_encoder; load_encoder(sys.argv[1]); "


@pytest.fixture(params=["onnxruntime", "openvino"])
def engine(request):
    if find_spec(request.param) is None:
        missing(request.param, f"{request.param} is not installed")
    return request.param


@pytest.fixture
def uri_of(tmp_path, monkeypatch):
    """The URI of a registered encoder, or of a tiny model of a loader."""

    def uri(name: str) -> str:
        if name in ENCODERS:
            return name
        folder = tmp_path / name
        folder.mkdir()
        monkeypatch.chdir(folder)
        if name == "file":
            trained_model(folder, 0, scale=7.0, holdout=frozenset({"ab"}), about={"a": [1]})
            return str(folder)
        return f"{name}:{MODELS[name](folder, 0)}"

    return uri


def exports() -> list[Path]:
    return sorted(Path(os.environ["CALA_CACHE"], "exports").glob("*.safetensors"))


def close(found, expected) -> None:
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=2e-5 * np.abs(expected).max())


@pytest.mark.parametrize("name", NAMES)
def test_every_encoder_agrees_with_torch(name, engine, uri_of):
    uri = uri_of(name)
    plain = load_encoder(uri, engine="auto" if name in OWN_GRAPH else "torch")
    found = load_encoder(uri, engine=engine)
    assert isinstance(found.forward, Forward)
    assert (found.key, found.fingerprint) == (plain.key, plain.fingerprint)
    for key in ("name", "dim", "scale", "holdout", "trained", "pretrained", "about", "transform"):
        assert getattr(found, key) == getattr(plain, key)
    close(found(IMAGES), plain(IMAGES))
    close(found(IMAGES[:1]), plain(IMAGES[:1]))
    flipped = [one.encode(one.inputs(IMAGES), "flip") for one in (found, plain)]
    close(*flipped)
    again = load_encoder(uri, engine=engine)
    assert again.key == found.key
    assert again.parts.keys() == plain.parts.keys()
    assert np.array_equal(again(IMAGES), found(IMAGES))
    if name not in OWN_GRAPH:
        assert isinstance(plain.forward, TorchForward)
        assert type(again.module) is type(plain.module)
        assert len(exports()) == 1


@pytest.mark.parametrize("name", ["efficientnet-lite0", "resnet20-cifar100", "file", "size"])
def test_an_export_is_loaded_without_torch(name, uri_of, monkeypatch):
    uri = uri_of(name)
    monkeypatch.setattr("cala.data.cache.FRESH", -1)  # a file that is seconds old may still change
    expected = load_encoder(uri)(IMAGES)
    code = LOADED + "print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code, uri], capture_output=True, text=True)
    assert done.stdout == "False\n", done.stderr
    close(load_encoder(uri)(IMAGES), expected)


@pytest.mark.parametrize("name", ["timm", "hf"])
def test_a_model_of_a_hub_is_known_by_its_fingerprint(name, uri_of, monkeypatch):
    uri = uri_of(name)
    known = load_encoder(uri).fingerprint
    first = load_encoder(uri, fingerprint=known)
    monkeypatch.setattr("cala.encoders.registry.load_plain", lambda *given: pytest.fail("loaded"))
    again = load_encoder(uri, fingerprint=known)
    assert np.array_equal(again(IMAGES), first(IMAGES))


def test_code_of_the_user_is_always_loaded(tmp_path, monkeypatch):
    """Its fingerprint depends on the code."""
    monkeypatch.chdir(tmp_path)
    uri = f"torch:{torch_model(tmp_path, 0)}"
    known = load_encoder(uri).fingerprint
    monkeypatch.setattr("cala.encoders.registry.load_plain", lambda *given: pytest.fail("loaded"))
    with pytest.raises(pytest.fail.Exception):
        load_encoder(uri, fingerprint=known)


def test_other_weights_in_the_same_file_are_noticed(tmp_path, monkeypatch):
    monkeypatch.setattr("cala.data.cache.FRESH", -1)
    trained_model(tmp_path, 0)
    before = load_encoder(tmp_path)
    trained_model(tmp_path, 1)
    after = load_encoder(tmp_path)
    assert after.fingerprint != before.fingerprint
    assert not np.allclose(after(IMAGES), before(IMAGES))


def test_other_facts_about_equal_weights_are_not_mixed_up(tmp_path):
    for number in (1, 2):
        (tmp_path / f"{number}").mkdir()
        trained_model(tmp_path / f"{number}", 0, scale=float(number))
    found = [load_encoder(tmp_path / f"{number}") for number in (1, 2)]
    assert found[0].fingerprint == found[1].fingerprint
    assert [one.scale for one in found] == [1.0, 2.0]


def test_engines_share_the_cache_of_embeddings(tmp_path, engine):
    trained_model(tmp_path, 0)
    images = noise_set([3, 3], [1, 1], side=16).train
    plain, fast = (load_encoder(tmp_path, engine=one) for one in ("torch", engine))
    expected = embed(images, plain)
    broken = replace(fast, forward=lambda inputs: pytest.fail("encoded again"))
    assert np.array_equal(embed(images, broken), expected)


# What can go wrong


def test_an_engine_that_disagrees_is_not_used(tmp_path, monkeypatch):
    trained_model(tmp_path, 0)
    for name, session in engines.SESSIONS.items():
        monkeypatch.setitem(engines.SESSIONS, name, lambda graph, make=session: Wrong(make(graph)))
    for _ in range(2):  # the second time from what is remembered
        with pytest.warns(EngineWarning) as caught:
            found = load_encoder(tmp_path)
        assert [one.message.code for one in caught] == ["engine_disagrees"]
        assert isinstance(found.forward, TorchForward)
    with pytest.raises(InputError) as refused:
        load_encoder(tmp_path, engine="onnxruntime")
    assert (refused.value.code, refused.value.field) == ("engine_disagrees", "engine")


class Wrong:
    """A session whose embeddings are a little off: cosine 0.9999 to the right ones."""

    def __init__(self, session) -> None:
        self.session = session

    def run(self, outputs, feed):
        found = self.session.run(outputs, feed)[0]
        noise = np.random.default_rng(0).standard_normal(found.shape)
        noise *= np.linalg.norm(found, axis=1, keepdims=True) / np.linalg.norm(
            noise, axis=1, keepdims=True
        )
        return [(found + 0.0142 * noise).astype(np.float32)]


@pytest.mark.parametrize("off", ["raises", "other shape", "not finite"])
def test_an_engine_that_fails_is_not_used(tmp_path, monkeypatch, off):
    class Failing:
        def run(self, outputs, feed):
            if off == "raises":
                raise RuntimeError("no such operator")
            return [np.full((1, 2) if off == "other shape" else (3, 64), np.nan, np.float32)]

    for name in engines.SESSIONS:
        monkeypatch.setitem(engines.SESSIONS, name, lambda graph: Failing())
    trained_model(tmp_path, 0)
    with pytest.warns(EngineWarning):
        assert isinstance(load_encoder(tmp_path).forward, TorchForward)


def test_an_encoder_without_a_graph_stays_on_torch(tmp_path, monkeypatch):
    trained_model(tmp_path, 0)
    tried = []

    def give_up(*given):
        tried.append(given)
        raise RuntimeError("an operator without a form in ONNX")

    monkeypatch.setattr("cala.encoders.torch_module.EXPORTERS", (give_up,))
    for _ in range(2):
        with pytest.warns(EngineWarning) as caught:
            found = load_encoder(tmp_path)
        assert caught[0].message.code == "no_onnx_form"
        assert isinstance(found.forward, TorchForward)
    assert len(tried) == 1  # which is remembered too
    with pytest.raises(InputError) as refused:
        load_encoder(tmp_path, engine="onnxruntime")
    assert refused.value.code == "no_onnx_form"


@pytest.fixture
def two_engines(tmp_path, monkeypatch):
    """A trained encoder, and a file of each engine: both are there, and run by onnxruntime."""
    files = {name: tmp_path / name for name in engines.EXTRAS}
    for name, file in files.items():
        file.touch()
        monkeypatch.setitem(engines.SESSIONS, name, lambda graph, name=name: Named(graph, name))
    monkeypatch.setattr(engines, "_installed", lambda engine: files)
    monkeypatch.setattr("cala.data.cache.FRESH", -1)
    folder = tmp_path / "base"
    folder.mkdir()
    trained_model(folder, 0)
    return folder, files


class Named:
    """A session of onnxruntime under the name of an engine; the one in `slow` takes its time."""

    slow = ""

    def __init__(self, graph, name) -> None:
        self.session, self.name = engines.open_session(graph), name

    def run(self, outputs, feed):
        until = time.process_time() + 0.02 * (self.name == self.slow)
        while time.process_time() < until:
            pass
        return self.session.run(outputs, feed)


@pytest.mark.parametrize("slow", ["onnxruntime", "openvino"])
def test_the_fastest_engine_is_measured_once(two_engines, monkeypatch, slow):
    folder, _ = two_engines
    monkeypatch.setattr(Named, "slow", slow)
    first = load_encoder(folder).forward.session
    assert {first.name, slow} == {"onnxruntime", "openvino"}
    monkeypatch.setattr(Named, "slow", first.name)
    assert load_encoder(folder).forward.session.name == first.name
    monkeypatch.setattr("platform.node", lambda: "another machine")
    assert load_encoder(folder).forward.session.name == slow


def test_one_engine_alone_is_not_measured(two_engines, monkeypatch):
    folder, files = two_engines
    files.pop("openvino")
    monkeypatch.setattr(engines, "processor_time", lambda encoders: pytest.fail("measured"))
    assert load_encoder(folder).forward.session.name == "onnxruntime"


def test_another_version_of_an_engine_is_checked_again_without_torch(two_engines, monkeypatch):
    folder, files = two_engines
    load_encoder(folder)
    files["openvino"].write_text("another version")
    monkeypatch.setitem(engines.SESSIONS, "openvino", lambda graph: Wrong(Named(graph, "")))
    monkeypatch.setattr("cala.encoders.registry.load_plain", lambda *given: pytest.fail("loaded"))
    with pytest.warns(EngineWarning) as caught:
        found = load_encoder(folder)
    assert [one.message.code for one in caught] == ["engine_disagrees"]
    assert found.forward.session.name == "onnxruntime"


def test_engines_that_are_missing(tmp_path, monkeypatch):
    trained_model(tmp_path, 0)
    for name in ("onnxruntime", "openvino"):
        monkeypatch.setitem(sys.modules, name, None)
        with pytest.raises(InputError) as refused:
            load_encoder(tmp_path, engine=name)
        assert refused.value.code == "missing_extra"
    assert isinstance(load_encoder(tmp_path).forward, TorchForward)


def test_names_of_engines_are_checked():
    with pytest.raises(InputError) as refused:
        load_encoder("resnet20-cifar100", engine="onnx")
    assert refused.value.code == "unknown_name"


def test_a_file_of_onnx_does_not_run_on_torch(uri_of):
    with pytest.raises(InputError) as refused:
        load_encoder(uri_of("onnx"), engine="torch")
    assert refused.value.field == "engine"


@pytest.mark.parametrize("damage", ["cut", "changed", "empty", "other kind"])
def test_a_damaged_export_is_made_again(tmp_path, damage):
    trained_model(tmp_path, 0)
    expected = load_encoder(tmp_path)(IMAGES)
    [path] = exports()
    whole = path.read_bytes()
    middle = len(whole) // 2
    if damage == "other kind":
        path.write_bytes((tmp_path / "encoder.safetensors").read_bytes())
    else:
        changed = whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :]
        path.write_bytes({"cut": whole[:middle], "changed": changed, "empty": b""}[damage])
    assert np.array_equal(load_encoder(tmp_path)(IMAGES), expected)
    assert len(path.read_bytes()) == len(whole)


def test_without_a_folder_to_write_it_still_works(tmp_path, monkeypatch):
    trained_model(tmp_path, 0)
    (tmp_path / "file").touch()
    monkeypatch.setenv("CALA_CACHE", str(tmp_path / "file"))
    with pytest.warns(CacheWarning):
        found = load_encoder(tmp_path)
    assert isinstance(found.forward, Forward)
    close(found(IMAGES), load_encoder(tmp_path, engine="torch")(IMAGES))


def test_processes_that_export_at_the_same_time(tmp_path):
    trained_model(tmp_path, 0)
    code = LOADED + "print(load_encoder(sys.argv[1]).fingerprint)"
    both = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True
        )
        for _ in range(2)
    ]
    said = {process.communicate()[0].strip() for process in both}
    assert said == {load_encoder(tmp_path).fingerprint}
    assert len(exports()) == 1


@pytest.mark.parametrize("where", ["export", "write"])
def test_killed_in_the_middle(tmp_path, where):
    """The next process exports again, and does not wait for a lock of a dead one."""
    trained_model(tmp_path, 0)
    context = multiprocessing.get_context("fork")
    process = context.Process(target=_stuck, args=(tmp_path, where))
    process.start()
    while not (tmp_path / "reached").exists():
        assert process.is_alive()
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    assert exports() == []
    found = load_encoder(tmp_path)
    assert isinstance(found.forward, Forward)
    assert len(exports()) == 1


def _stuck(folder: Path, where: str) -> None:
    def wait(*given, **more):
        (folder / "reached").touch()
        time.sleep(600)

    if where == "export":
        import cala.encoders.torch_module

        cala.encoders.torch_module.EXPORTERS = (wait,)
    else:
        import safetensors.numpy

        safetensors.numpy.save_file = wait
    load_encoder(folder)
