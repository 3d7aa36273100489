"""Whatever is in a file or on the command line: an answer or an error that names it, no traceback.

A few examples in `make test`, many in `make test-all`. `reports/test_fuzz.py` does it to runs,
`app/test_fuzz.py` to requests.
"""

from __future__ import annotations

import contextlib
import copy
import io
import json
import math
import shutil
import zipfile
from pathlib import Path

import numpy as np
import pytest
import typer
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import cala
from app.clients import client_of, png
from cala import storage
from cala.cli import app
from cala.data.embeddings import load_embeddings
from cala.data.shard_rows import open_shards
from cala.data.shard_writer import ShardWriter
from cala.encoders.onnx_loader import read_metadata
from cala.encoders.registry import check_nesting, located
from cala.encoders.transform import Transform
from cala.encoders.weights import load_encoder_file, save_encoder
from cala.errors import CalaError, InputError
from cala.model.overview import overview
from cala.model.sorting import MANIFEST, sort_photos, unsort_photos
from cala.model.trust import check_trusted
from cala.model.version import LONGEST_CLASS, EncoderCard, check_name
from cala.store import Content, JournalEntry, Store
from cala.store.files import read_document, write_document
from cli.inside import within
from model.photos import ENCODER, photo, write_photos

FUZZ = settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
ODD = st.sampled_from([
    None, True, False, 0, -1, 1, 2**31, 2**63, 10**30, 0.5, -0.0, 1e308, math.inf, -math.inf,
    math.nan, "", "x", "0", "../../x", "/", "a\0b", "\ud800", "é", "x" * 3000, "torch:os:getcwd",
    [], [[]], {}, {"a": 1}, [None], ["x"], [1, "x"], {"": {}}, "[" * 500,
])  # fmt: skip


@st.composite
def edits(draw) -> list[tuple[list[int], object, bool]]:
    """Where to go in a JSON value (a number for each level), what to put there, or to delete it."""
    one = st.tuples(st.lists(st.integers(0, 40), min_size=1, max_size=7), ODD, st.booleans())
    return draw(st.lists(one, min_size=1, max_size=3))


def edited(value, changes):
    """A copy of a JSON value with some places changed."""
    found = copy.deepcopy(value)
    for path, new, delete in changes:
        here = found
        for depth, number in enumerate(path):
            if not isinstance(here, dict | list) or not here:
                break
            places = list(here) if isinstance(here, dict) else range(len(here))
            place = list(places)[number % len(places)]
            if depth == len(path) - 1 or not isinstance(here[place], dict | list):
                if delete:
                    del here[place]
                else:
                    here[place] = copy.deepcopy(new)
                break
            here = here[place]
    return found


@st.composite
def damages(draw) -> list[tuple[int, int, bytes]]:
    """Bytes to put in, and how many to take out; half of them near the beginning of the file."""
    place = st.one_of(st.integers(0, 600), st.integers(0, 10**6))
    return draw(
        st.lists(st.tuples(place, st.integers(0, 8), st.binary(max_size=8)), min_size=1, max_size=4)
    )


def damaged(data: bytes, changes: list[tuple[int, int, bytes]]) -> bytes:
    for place, cut, new in changes:
        at = place % (len(data) + 1)
        data = data[:at] + new + data[at + cut :]
    return data


def used(read, *given) -> None:
    """It works, or it is refused with an error of ours."""
    with contextlib.suppress(CalaError):
        read(*given)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A model, embeddings in three formats and an encoder's file; no test may change them."""
    root = tmp_path_factory.mktemp("fuzz")
    photos = write_photos(root / "photos", range(4), range(4))
    model = cala.fit(photos, root / "model", encoder=ENCODER, fakes="feature")
    model.add([photo(30, n) for n in range(3)], "new")
    model.rename("class 1", "one").tune(reject=0.1).undo()
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(12, 4)).astype(np.float32), np.repeat(np.arange(3), 4)
    arrays = {"x_train": x, "y_train": y, "x_test": x[::2], "y_test": y[::2]}
    np.savez(root / "x.npz", **arrays, class_names=["a", "b", "c"], provenance='{"a": 1}')
    storage.write(root / "x.safetensors", "embeddings", {"class_names": ["a", "b", "c"]}, arrays)
    with ShardWriter(root / "x.shards", dim=4, classes="abc", keys=["u", "v"]) as writer:
        writer.write("u", x, y, names=[f"{n}.jpg" for n in range(12)])
        writer.write("v", x, y, "test")
        writer.finish()
    from cala.encoders import ARCHITECTURES

    module = ARCHITECTURES["resnet20"]()
    transform = Transform(size=32, resize=32)
    save_encoder(root / "e.safetensors", module, architecture="resnet20", transform=transform)
    return root


@FUZZ
@given(changes=damages())
def test_storage_files(folder, tmp_path, changes):
    """A byte that is changed is noticed, or the content is what it was."""
    path, data = tmp_path / "x.safetensors", (folder / "x.safetensors").read_bytes()
    path.write_bytes(damaged(data, changes))
    wanted = storage.read(folder / "x.safetensors", "embeddings")
    for mapped in (False, True):
        try:
            meta, arrays = storage.read(path, "embeddings", mapped=mapped)
        except CalaError:
            continue
        assert meta == wanted[0]
        assert all(np.array_equal(arrays[name], wanted[1][name]) for name in wanted[1])
    for read in (load_embeddings, load_encoder_file, storage.StoredTensors):
        used(read, path)


@FUZZ
@given(header=st.dictionaries(st.text(max_size=5), st.text(max_size=40), max_size=3), word=ODD)
def test_headers_of_storage_files(folder, tmp_path, header, word):
    """Files of others, with any text where a header of ours would be."""
    from safetensors.numpy import save_file

    path = tmp_path / "x.safetensors"
    header = {name: text for name, text in header.items() if "\0" not in name + text}
    for text in (json.dumps(word), f'{{"kind": {json.dumps(word)}}}', '{"format": 1}'):
        save_file({"x": np.zeros(3)}, path, {**header, "cala": text, "provenance": text})
        for kind in storage.FILE_KINDS:
            with pytest.raises(InputError):
                storage.read(path, kind)
        for read in (load_embeddings, load_encoder_file):
            with pytest.raises(InputError):
                read(path)


@pytest.mark.parametrize("name", ["x.npz", "e.safetensors"])
@FUZZ
@given(changes=damages())
def test_embeddings_and_encoders(folder, tmp_path, name, changes):
    path = tmp_path / name
    path.write_bytes(damaged((folder / name).read_bytes(), changes))
    used(load_embeddings if name == "x.npz" else load_encoder_file, path)


@pytest.mark.parametrize("name", ["manifest.json", "classes.json"])
@FUZZ
@given(changes=edits())
def test_manifests_of_shards(folder, tmp_path, name, changes):
    target = tmp_path / "x.shards"
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(folder / "x.shards", target)
    content = edited(json.loads((target / name).read_text()), changes)
    (target / name).write_text(json.dumps(content))
    for read in (open_shards, load_embeddings):
        used(read, target)


@FUZZ
@given(changes=edits(), part=st.sampled_from(["model.json", "history/000003.json"]))
def test_documents_of_a_model(folder, tmp_path, monkeypatch, changes, part):
    """With a checksum that fits: whoever writes a model can compute one."""
    monkeypatch.setenv("CALA_CONFIG", str(tmp_path / "config"))
    target = tmp_path / "model"
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(folder / "model", target)
    path = target / part
    try:
        write_document(path, edited(read_document(path), changes))
    except ValueError:
        return  # what JSON cannot hold
    uses = [
        lambda: overview(cala.load(target)),
        lambda: cala.load(target, encoder=ENCODER).predict(photo(1, 1)),
        lambda: check_trusted(cala.load(target).current.encoder, target, None),
        lambda: cala.load(target).estimate(quick=True),
        lambda: cala.load(target).rename("new", "newer"),
        lambda: Store(target).undo(),
        lambda: cala.load(target).undo(),
        lambda: cala.load(target).redo(),
    ]
    for use in uses:
        used(use)


@FUZZ
@given(
    place=st.integers(0, 40),
    change=st.sampled_from(["drop", "flat", "short", "float64", "int8", "value", "empty", "name"]),
    value=st.sampled_from([0, -1, 1e30, math.nan, math.inf, 300]),
    at=st.integers(0, 10**6),
)
def test_arrays_of_a_model(folder, tmp_path, place, change, value, at):
    """Whole by their checksums, and not what a model has: refused, or the answers are numbers."""
    target = tmp_path / "model"
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(folder / "model", target)

    def changed(content: Content) -> tuple[Content, JournalEntry]:
        places = [(g, n) for g, arrays in sorted(content.groups.items()) for n in sorted(arrays)]
        group, name = places[place % len(places)]
        array = content.groups[group].pop(name)
        if change == "value" and array.size:
            array = array.copy()
            with np.errstate(all="ignore"):
                array.flat[at % array.size] = np.array(value).astype(array.dtype)
        new = {
            "flat": array.reshape(-1), "short": array[: len(array) // 2],
            "float64": array.astype(np.float64), "int8": array.astype(np.int8),
            "value": array, "empty": array[:0], "name": array,
        }  # fmt: skip
        if change != "drop":
            content.groups[group][f"{name}x" if change == "name" else name] = new[change]
        return content, JournalEntry("tune")

    Store(target).change(changed)
    try:
        answers = cala.load(target, encoder=ENCODER).explain([photo(1, 1), photo(30, 9)], why=True)
    except CalaError:
        return
    for answer in answers:
        assert 0 <= answer.probability <= 1 + 1e-6
        json.dumps(answer.to_json(), allow_nan=True)


@FUZZ
@given(changes=edits())
def test_manifests_of_sorted_photos(tmp_path, changes):
    from cala.model.prediction import Prediction

    shutil.rmtree(tmp_path)
    (tmp_path / "trip").mkdir(parents=True)
    (tmp_path / "trip" / "a.jpg").write_bytes(b"a photo")
    answer = Prediction(str(tmp_path / "trip/a.jpg"), "x", "x", "known", 0.9, 0.5, False, ())
    out = tmp_path / "out"
    sort_photos([answer], out, "move")
    found = edited(json.loads((out / MANIFEST).read_text()), changes)
    (out / MANIFEST).write_text(json.dumps(found))
    used(sort_photos, [answer], out, "copy")
    used(unsort_photos, out)
    assert any(path.read_bytes() == b"a photo" for path in tmp_path.rglob("*.jpg"))


@FUZZ
@given(name=st.one_of(st.text(max_size=40), st.text(min_size=190, max_size=210), ODD))
def test_names_of_classes(name):
    try:
        found = check_name(name)
    except InputError:
        return
    assert check_name(found) == found
    assert 0 < len(found) <= LONGEST_CLASS
    json.loads(json.dumps(found)).encode("utf-8", "surrogateescape")


WORDS = ["torch", "views", "size", "onnx", "onnx-external", "timm", "1", "x", "", "9" * 5000, "²"]


@FUZZ
@given(words=st.lists(st.sampled_from(WORDS), max_size=9))
def test_names_of_encoders(words):
    """What comes before anything is loaded."""
    uri = ":".join(words)
    card = EncoderCard(uri, "0" * 64, 4)
    used(check_nesting, uri)
    used(located, uri)
    used(check_trusted, card, Path("m"), None)
    if "torch" in words:
        with pytest.raises(InputError):
            check_trusted(card, Path("m"), None)


@FUZZ
@given(
    meta=st.dictionaries(
        st.sampled_from(["mean", "std", "size", "resize", "fit", "filter"]),
        st.one_of(ODD.map(json.dumps), st.text(max_size=20), st.just("[" * 100_000)),
    ),
    side=st.sampled_from([None, 16, 224]),
)
def test_metadata_of_graphs(meta, side):
    try:
        transform, _ = read_metadata(meta, side, "x.onnx")
    except InputError:
        return
    assert transform.size >= 1


@pytest.fixture(scope="module")
def client(folder, tmp_path_factory):
    target = tmp_path_factory.mktemp("served") / "model"
    shutil.copytree(folder / "model", target)
    with client_of(target) as opened:
        yield opened


def archive() -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as writer:
        for label in range(2):
            writer.writestr(f"class {label}/a.png", png(label, 1))
    return out.getvalue()


ARCHIVE = archive()


@FUZZ
@given(changes=damages())
def test_archives(client, changes):
    data = damaged(ARCHIVE, changes)
    answer = client.post("/v1/evaluate", files={"archive": ("x.zip", data, "application/zip")})
    assert answer.status_code < 500, answer.text


COMMANDS = {
    name: command
    for name, command in typer.main.get_command(app).commands.items()
    if not hasattr(command, "commands") and name not in ("serve", "train")
}
VALUES = [
    "", "x", "-1", "0", "1e999", "nan", "0x10", "²", "9" * 400, "a,b", ",", ":", "random:", "=",
    "random:-1", "random:9999999999999", "canonical,canonical", "🐦", "../..", "/dev/null", "--",
    "\x1b[2J", "x" * 5000, "ray:", "size:1:x", "views:1:views:1:x", "features:", "\udcff",
]  # fmt: skip


@FUZZ
@given(data=st.data(), name=st.sampled_from(sorted(COMMANDS)))
def test_values_on_the_command_line(tmp_path, data, name):
    """One option of one command; files that it is given do not exist, so it ends early."""
    parameters = COMMANDS[name].params
    options = [p for p in parameters if p.param_type_name == "option"]
    needed = [p for p in parameters if p.param_type_name == "argument"]
    words = [name, *(data.draw(st.sampled_from(["missing", *VALUES])) for _ in needed)]
    for option in data.draw(st.lists(st.sampled_from(options), max_size=3)):
        words.append(option.opts[0])
        if not getattr(option, "is_flag", False):
            words.append(data.draw(st.sampled_from(VALUES)))
    shutil.rmtree(tmp_path / "here", ignore_errors=True)
    (tmp_path / "here").mkdir()
    ended = within(*words, cwd=tmp_path / "here")
    assert ended.returncode in (0, 1, 2), words
    assert "Traceback" not in ended.stderr, words
