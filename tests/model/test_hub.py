"""Models on the Hugging Face hub, through huggingface_hub itself, against a double on loopback.

It reads its settings when it is imported, so whatever asks the double is a process of its own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import numpy as np
import pytest
import yaml

import cala
from cala.model import hub as hub_module
from cala.store import Store
from model.hub_double import TOKEN, hub_double
from model.photos import ENCODER
from refusals import refused

TESTS = Path(__file__).parents[1]
BEGIN = """
import json, sys, cala
from cala.errors import CalaError

def code(ask):
    try:
        ask()
    except CalaError as error:
        return error.code, error.field
"""


@pytest.fixture
def hub():
    with hub_double() as double:
        yield double


def ask(hub, folder: Path, code: str, *arguments: object, **env: str) -> object:
    """What a process prints as JSON that knows the double as the hub."""
    settings = {
        **{"HF_ENDPOINT": hub.url, "HF_HOME": str(folder / "hf"), "HF_HUB_OFFLINE": "0"},
        **{"HF_TOKEN": TOKEN, "HF_HUB_DISABLE_XET": "1", "HF_HUB_DISABLE_TELEMETRY": "1"},
        "PYTHONPATH": f"{TESTS}:{os.environ.get('PYTHONPATH', '')}",
    }
    done = subprocess.run(
        [sys.executable, "-c", BEGIN + dedent(code), *map(str, arguments)],
        env={**os.environ, **settings, **env},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def written(files: dict[str, bytes], folder: Path) -> Path:
    """Files of a repository, as a folder."""
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    return folder


def test_a_model_is_pushed_and_loaded(hub, model, photos, tmp_path):
    model.add(photos / "new" / "class 12", "heron | <b>", keep_thumbnails=True)
    model.rename("class 3", "wren").forget("class 5")
    push = """
        model = cala.load(sys.argv[1])
        url = model.push_to_hub("user/birds", private=True)
        print(json.dumps(url))
    """
    url = ask(hub, tmp_path, push, model.path)
    sha = hub.repos["user/birds"]["main"]
    assert url == f"{hub.url}/user/birds/commit/{sha}"
    files = hub.files("user/birds")
    endings = {Path(name).suffix for name in files if name != ".gitattributes"}
    assert endings == {".safetensors", ".json", ".md"}

    _, front, text = files["README.md"].decode().split("---\n", 2)
    assert yaml.safe_load(front) == {
        **{"library_name": "cala", "pipeline_tag": "image-classification", "tags": ["cala"]}
    }
    assert r"| heron \| \<b\> | 5 |" in text
    assert "hf://user/birds" in text

    copy = cala.load(written(files, tmp_path / "copy"))
    assert copy.classes == model.classes
    assert len(copy.history()) == 1  # what was renamed and forgotten is nobody's business
    assert all(len(name) == 12 for name in copy.current.kept.names)  # and so are names of files
    told = files["model.json"].decode()
    assert '"class 4"' in told
    assert '"class 3"' not in told
    assert '"class 5"' not in told

    load = """
        model = cala.load(sys.argv[1])
        labels = model.predict(sys.argv[2])
        refused = [
            code(lambda: model.forget("wren")), code(lambda: model.add(sys.argv[2], "more")),
            code(model.undo), code(lambda: model.rename("wren", "x")),
        ]
        import pathlib
        left = sorted(p.relative_to(model.path).as_posix() for p in model.path.rglob("*"))
        print(json.dumps([labels, model.version, refused, left]))
    """
    labels, version, refusals, left = ask(
        hub, tmp_path, load, "hf://user/birds", photos / "test" / "class 12"
    )
    assert labels == model.predict(photos / "test" / "class 12")
    assert version == 1
    assert refusals == [["read_only", None]] * 4
    assert left == sorted(["blobs", *(f for f in files if f.startswith(("blobs/", "model")))])


def test_the_next_push_keeps_what_its_author_wrote(hub, model, photos, tmp_path):
    """Licence and words of the card stay; files of the version before go; all in one commit."""
    push = """
        cala.load(sys.argv[1]).push_to_hub("user/birds", thumbnails=True)
        print(0)
    """
    ask(hub, tmp_path, push, model.path)
    first = dict(hub.files("user/birds"))
    card = first["README.md"].decode().replace("library_name", "license: mit\nlibrary_name")
    edited = {**first, "README.md": f"{card}\nMine.\n".encode(), "more.md": b"x"}
    hub.commit("user/birds", edited)
    model.add(photos / "new" / "class 12", "heron", keep_thumbnails=True)
    commits = len(hub.commits)
    ask(hub, tmp_path, push, model.path)
    assert len(hub.commits) == commits + 1
    files = hub.files("user/birds")
    _, front, text = files["README.md"].decode().split("---\n", 2)
    assert yaml.safe_load(front)["license"] == "mit"
    assert text.count("| heron | 5 |") == text.count("Mine.") == text.count("import cala") == 1
    assert files["more.md"] == b"x"
    blobs = {name for name in files if name.startswith("blobs/")}
    assert len(blobs) == len(json.loads(files["model.json"])["blobs"])
    copy = cala.load(written(files, tmp_path / "copy"))
    assert copy.current.kept.names == model.current.kept.names  # as its photos are shown too
    small = {name for name in files if name.startswith("thumbnails/")}
    assert small == {f"thumbnails/{p.name}" for p in (model.path / "thumbnails").iterdir()}
    assert len(small) == 5


def test_revisions_and_refusals(hub, model, tmp_path):
    code = """
        model = cala.load(sys.argv[1])
        model.push_to_hub("user/birds")
        model.forget("class 5").push_to_hub("user/birds", revision="few")
        counts = [len(cala.load(f"hf://user/birds{at}").classes) for at in ("", "@few", "@main")]
        print(json.dumps([counts, [
            code(lambda: cala.load("hf://user/birds@gone")),
            code(lambda: cala.load("hf://user/gone")),
            code(lambda: model.push_to_hub("user/birds", token="hf_of_another_person")),
            code(lambda: model.push_to_hub("no such / name")),
        ]]))
    """
    counts, refusals = ask(hub, tmp_path, code, model.path)
    assert counts == [12, 11, 12]
    assert refusals == [
        *(["not_loaded", "path"], ["not_loaded", "path"]),
        *(["not_pushed", "repo_id"], ["not_pushed", "repo_id"]),
    ]
    commit = hub.repos["user/birds"]["few"]
    told = ask(
        *(hub, tmp_path, "print(json.dumps(len(cala.load(sys.argv[1]).classes)))"),
        f"hf://user/birds@{commit}",
        HF_HUB_OFFLINE="1",
    )
    assert told == 11  # from the cache, without the hub


def test_what_comes_from_the_hub_is_checked_like_any_model(hub, model, photos, tmp_path):
    """Damaged files and encoders that are code are refused; no other file is even downloaded."""
    files = {
        path.relative_to(model.path).as_posix(): path.read_bytes()
        for path in model.path.rglob("*")
        if path.is_file() and path.name != ".lock"
    }
    more = {"pytorch_model.bin": b"x", "cala.py": b"x", "blobs/x.pkl": b"x", "setup.json": b"{}"}
    hub.commit("user/code", {**files, **more})
    blob = next(name for name in files if name.startswith("blobs/"))
    hub.commit("user/damaged", {**files, blob: files[blob][:-1] + b"\0"})
    hub.commit("user/other", {"config.json": b"{}"})
    code = """
        import pathlib
        model = cala.load("hf://user/code")
        print(json.dumps([
            code(lambda: model.predict(sys.argv[1])),
            [m for m in ("model.photos", "cala_photos") if m in sys.modules],
            sorted(p.name for p in pathlib.Path(sys.argv[2]).rglob("*") if p.is_file()
                   and "snapshots" in str(p) and p.suffix not in (".safetensors",)),
            code(lambda: cala.load("hf://user/damaged")), code(lambda: cala.load("hf://user/other")),
        ]))
    """
    arguments = photos / "test" / "class 3", tmp_path / "hf"
    told = ask(hub, tmp_path, code, *arguments, CALA_CONFIG=str(tmp_path / "config"))
    untrusted, imported, downloads, damaged, other = told
    assert untrusted == ["untrusted_encoder", "trust_encoder"]
    assert imported == []
    assert downloads == ["model.json"]
    assert damaged[0] == "damaged_file"
    assert other[0] == "no_model"


def test_commands_ask_models_of_the_hub(hub, model, photos, tmp_path):
    files = {
        path.relative_to(model.path).as_posix(): path.read_bytes()
        for path in (model.path / "model.json", *(model.path / "blobs").iterdir())
    }
    hub.commit("user/birds", files)
    code = """
        from typer.testing import CliRunner
        from cala.cli import app
        def run(*given):
            done = CliRunner().invoke(app, list(given))
            return done.exit_code, done.stdout
        photo = sys.argv[1]
        shown = run("show", "hf://user/birds", "--json")
        found = run("predict", "hf://user/birds@main", photo, "--json")
        print(json.dumps([shown, found, run("forget", "hf://user/birds", "class 3")[0]]))
    """
    photo = sorted((photos / "test" / "class 3").iterdir())[0]
    (shown, text), (found, answer), refused_code = ask(hub, tmp_path, code, photo)
    assert (shown, found) == (0, 0)
    assert len(json.loads(text)["classes"]) == 12
    assert json.loads(answer)["predictions"][0]["label"] == "class 3"
    assert refused_code != 0


# Without any hub


@pytest.mark.parametrize(
    "address",
    [
        "hf://birds",
        "hf://user/birds/more",
        "hf://user/birds@",
        "hf://../..@a",
        "hf://a/b@../c",
    ],
)
def test_an_address_is_checked(address):
    with refused(field="path"):
        cala.load(address)


def test_a_copy_is_one_version_without_paths(model, tmp_path):
    (tmp_path / "own encoder.safetensors").touch()
    content = model.store.read()
    content.meta.update(notes=["left out IMG_3.jpg"], note_codes=["skipped"])
    content.meta["encoder"]["uri"] = f"onnx:{tmp_path / 'own encoder.safetensors'}"
    hub_module._copy(model.store, content, tmp_path / "copy", thumbnails=False)
    found = Store(tmp_path / "copy").read()
    assert found.meta["encoder"]["uri"] == "onnx:own encoder.safetensors"
    for name, group in content.groups.items():
        for key, array in group.items():
            if key != "names":
                np.testing.assert_array_equal(found.groups[name][key], array)
    written = (tmp_path / "copy" / "model.json").read_text()
    assert str(tmp_path) not in written
    assert "IMG_3" not in written
    assert hub_module._portable("/gone/encoder.safetensors") == "encoder.safetensors"
    assert hub_module._portable(ENCODER) == ENCODER


def test_without_the_library_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with refused(code="missing_extra"):
        cala.load("hf://user/birds")
