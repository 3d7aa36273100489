"""`cala run` and `cala ablate` with embeddings of their own for the methods of a host."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from safetensors import safe_open

from cala.data.embeddings import Embeddings, save_embeddings
from cala.encoders.encode import encode_set
from cli.inside import refusal
from problems import blobs
from refusals import assert_names

QUICK = ["--base", "8", "--way", "2", "--shot", "3", "--sessions", "2", "--draws", "random:2"]
QUICK += ["--no-report"]
METHODS = "nearest-mean,la,teen,teen+la"


def write(path: Path, seed: int, dim: int, **more) -> Path:
    x, y = blobs(12, 30, dim, seed=seed)
    x, train = x.astype(np.float32), np.arange(len(y)) % 2 == 0
    rows = Embeddings(x[train], y[train], x[~train], y[~train], **more)
    return save_embeddings(path, rows)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """base.npz and teen.npz are of the same rows, other.npz is not."""
    root = tmp_path_factory.mktemp("data")
    write(root / "base.npz", 0, 12, scale=16.0)
    write(root / "teen.npz", 1, 6, scale=8.0)
    x, y = blobs(12, 20, 6)
    save_embeddings(root / "other.npz", Embeddings(x, y, x, y))
    return root


@pytest.fixture
def here(folder, tmp_path, monkeypatch) -> Path:
    for file in folder.iterdir():
        shutil.copy(file, tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def lines(run: Path, *methods: str) -> list[str]:
    found = (run / "records.jsonl").read_text().splitlines()
    return [line for line in found if not methods or json.loads(line)["method"] in methods]


def both(*more: object) -> list[object]:
    files = ["--embeddings", "base.npz", "--embeddings", "teen=teen.npz"]
    return ["run", "small", *files, *QUICK, "--methods", METHODS, *more]


def test_own_embeddings_are_those_that_the_methods_use(here, inside):
    code, _, error = inside(*both("--out", "both"))
    assert code == 0, error
    for file in ("base.npz", "teen.npz"):
        assert error.count(f"note: {file} marks no held-out rows") == 1
        arguments = ["--embeddings", file, *QUICK, "--methods", METHODS, "--out", Path(file).stem]
        assert inside("run", "small", *arguments)[0] == 0
    teen, base = ("teen", "teen+la"), ("nearest-mean", "la")
    assert lines(here / "both", *teen) == lines(here / "teen", *teen)
    assert lines(here / "both", *base) == lines(here / "base", *base)
    assert lines(here / "both", *teen) != lines(here / "base", *teen)
    for method, dim in (("la", 12), ("teen+la", 6)):
        with safe_open(here / "both" / "artifacts" / f"{method}.safetensors", "np") as file:
            assert file.get_tensor("prototypes").shape == (12, dim)
    config = json.loads((here / "both" / "config.json").read_text())
    alone = json.loads((here / "teen" / "config.json").read_text())
    assert config["embeddings"]["source"] == "base.npz"
    assert config["own_embeddings"] == {"teen": alone["embeddings"]}
    assert "own_embeddings" not in alone
    costs = json.loads((here / "both" / "costs.json").read_text())["cost"]
    assert set(costs) == set(METHODS.split(","))
    assert costs["teen"]["head_bytes"] < costs["nearest-mean"]["head_bytes"]


def test_a_stopped_run_goes_on(here, inside):
    assert inside(*both("--out", "whole", "-q"))[0] == 0
    assert inside(*both("--out", "torn", "-q"))[0] == 0
    whole = lines(here / "whole")
    (here / "torn" / "records.jsonl").write_text("\n".join(whole[:14]) + whole[14][:30])
    code, _, error = inside(*both("--out", "torn"))
    assert code == 0, error
    assert "base.npz" not in error, "what is finished asks for no note"
    assert lines(here / "torn") == whole
    for name in ("summary.json", "table.md", "table.csv"):
        assert (here / "torn" / name).read_bytes() == (here / "whole" / name).read_bytes()


def test_a_host_may_join_a_run_and_no_host_may_change_its_embeddings(here, inside):
    base = ["run", "small", "--embeddings", "base.npz", *QUICK, "--out", "run", "-q"]
    assert inside(*base, "--methods", "nearest-mean")[0] == 0
    assert inside(*both("--out", "run", "-q"))[0] == 0
    before = lines(here / "run")
    found = refusal(*base, "--methods", "teen")
    assert_names(found, "embeddings of teen", "'teen.npz'", code="another_run")
    assert inside(*base, "--methods", "nearest-mean")[0] == 0
    assert lines(here / "run") == before
    config = json.loads((here / "run" / "config.json").read_text())
    assert config["own_embeddings"]["teen"]["source"] == "teen.npz"
    write(here / "teen.npz", 2, 6)
    found = refusal(*both("--out", "run"))
    assert_names(found, "embeddings of teen", code="another_run")


def test_the_folder_is_named_after_own_embeddings_too(here, inside):
    for seed in (1, 2):
        write(here / "teen.npz", seed, 6)
        assert inside(*both("-q"))[0] == 0
    assert inside(*both("-q"))[0] == 0
    assert len(list((here / "runs").iterdir())) == 2


def test_a_report_says_which_embeddings_a_host_has(here, inside, undrawn_figures):
    arguments = both("--out", "run", "-q")
    arguments[arguments.index("--no-report")] = "--report"
    code, _, error = inside(*arguments)
    assert code == 0, error
    table = (here / "run" / "report" / "tables" / "protocol.md").read_text()
    assert "embeddings of teen" in table
    assert "teen.npz, SHA-256" in table


def test_ablate_takes_both_forms(here, inside):
    common = ["ablate", "metric", "small", "--values", "cosine", "--method", "teen", *QUICK[:-1]]
    found = []
    for out, value in (("a", "teen.npz"), ("b", "teen=teen.npz")):
        code, printed, error = inside(*common, "--embeddings", value, "--json", "--out", out)
        assert code == 0, error
        found.append(json.loads(printed))
    assert found[0] == found[1]
    found = refusal(*common, "--embeddings", "base.npz", "--embeddings", "gkeal=x.npz")
    assert_names(found, "gkeal", field="embeddings", code="unused_host")


E = "--embeddings"


@pytest.mark.parametrize(
    ("arguments", "told", "named"),
    [
        ([E, "base.npz", E, "teen=other.npz"], {"code": "other_rows"}, "other.npz, for teen"),
        ([E, "base.npz", E, "gkeal=teen.npz"], {"code": "unused_host"}, "gkeal"),
        ([E, "base.npz", E, "alicia=teen.npz"], {"code": "not_a_host"}, "alicia=teen.npz"),
        ([E, "base.npz", E, "teen=a.npz", E, "teen=b.npz"], {"code": "repeated"}, "teen=…"),
        ([E, "base.npz", E, "teen.npz"], {"code": "repeated"}, "base.npz and teen.npz"),
        (["--encoder", "a", "--encoder", "b"], {"code": "repeated"}, "--encoder a and b"),
        ([E, "base.npz", E, "teen=no.npz"], {"code": "missing_file"}, "no.npz"),
        ([E, "teen=teen.npz", "--encoder", "teen=x"], {"field": "encoder"}, "teen=…"),
        ([E, "teen=teen.npz"], {"code": "no_embeddings"}, "small"),
        ([E, "teen=teen.npz", "--methods", "teen", "--data", "."], {"field": "data"}, "--data"),
        ([E, "base.npz", "--data", "."], {"code": "two_sources"}, ""),
    ],
)
@pytest.mark.usefixtures("here")
def test_bad_calls_are_one_line(arguments, told, named):
    found = refusal("run", "small", *QUICK, "--methods", METHODS, *arguments)
    assert_names(found, named, **told)


def test_a_file_with_an_equals_sign(here, inside):
    (here / "base.npz").rename("lr=1.npz")
    common = ["run", "small", *QUICK, "--methods", "nearest-mean,teen", "-q", "--out", "run"]
    code, _, error = inside(*common, E, "lr=1.npz", E, "teen=teen.npz")
    assert code == 0, error
    config = json.loads((here / "run" / "config.json").read_text())
    assert config["embeddings"]["source"] == "lr=1.npz"


def test_help_teaches_the_form(inside):
    for command in ("run", "ablate"):
        words = " ".join(inside(command, "--help")[1].split())
        assert "alice=alice.npz for alice and alice+cala" in words


@pytest.fixture
def photos(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("CALA_CACHE", str(tmp_path / "cache"))
    draw = np.random.default_rng(0)
    for part, count in (("train", 6), ("test", 3)):
        for label in range(5):
            folder = tmp_path / "birds" / part / f"class {label}"
            folder.mkdir(parents=True)
            for number in range(count):
                pixels = draw.integers(0, 256, (32, 32, 3)).astype(np.uint8)
                Image.fromarray(pixels).save(folder / f"{number}.png")
    monkeypatch.chdir(tmp_path)
    return tmp_path / "birds"


def test_encoders_of_their_own(photos, inside, monkeypatch):
    """A file for all and an encoder for one host, and the other way round."""
    common = ["--base", 3, "--way", 1, "--shot", 2, "--draws", "random:1", "--no-report", "-q"]
    common += ["--methods", "nearest-mean,teen", "--fakes", 0]
    code, _, error = inside(
        "encode", photos, "--encoder", "resnet20-cifar100", "--fakes", 0, "-o", "e.npz", "-q"
    )
    assert code == 0, error
    encoded = []

    def spy(images, encoder, **options):
        encoded.append(encoder.name)
        return encode_set(images, encoder, **options)

    monkeypatch.setattr("cala.encoders.encode.encode_set", spy)
    shipped = "resnet20-cifar100"
    for number, arguments in enumerate(
        (
            ["features:e.npz", "--data", photos, "--encoder", f"teen={shipped}"],
            [photos, "--encoder", shipped, "--encoder", f"teen={shipped}"],
            [photos, "--encoder", shipped, "--embeddings", "teen=e.npz"],
        )
    ):
        code, _, error = inside("run", *arguments, *common, "--out", number)
        assert code == 0, error
    assert encoded == [shipped] * 4
    runs = [lines(Path(str(number))) for number in range(3)]
    assert runs[0] == runs[1] == runs[2]
    own = json.loads(Path("0/config.json").read_text())["own_embeddings"]
    assert own["teen"]["source"] == "birds encoded by resnet20-cifar100"

    encoded.clear()
    (photos / "train" / "class 0" / "0.png").rename(photos / "train" / "class 1" / "7.png")
    found = refusal(
        "run", "features:e.npz", "--data", photos, "--encoder", f"teen={shipped}", *common
    )
    assert_names(found, "--encoder teen=…", "resnet20-cifar100", code="other_rows")
    assert not encoded, "it is said before anything is encoded"


def test_shipped_embeddings_serve_those_without_their_own(tmp_path, inside, monkeypatch):
    from cala.data.embeddings import load_embeddings
    from cala.shipped import shipped

    monkeypatch.chdir(tmp_path)
    shutil.copy(shipped("cifar100/embeddings.npz"), "mine.npz")
    common = ["run", "cifar100", "--draws", "random:1", "--no-report", "-q", E, "teen=mine.npz"]
    code, _, error = inside(*common, "--methods", "nearest-mean,teen", "--out", "a")
    assert code == 0, error
    config = json.loads(Path("a/config.json").read_text())
    assert config["embeddings"]["source"] == "embeddings.npz"
    assert config["own_embeddings"]["teen"]["source"] == "mine.npz"

    def refuse(path):
        assert Path(path).name == "mine.npz", "no other file is read where nobody needs it"
        return load_embeddings(path)

    monkeypatch.setattr("cala.benchmark.task.load_embeddings", refuse)
    code, _, error = inside(*common, "--methods", "teen", "--out", "b")
    assert code == 0, error
    assert json.loads(Path("b/config.json").read_text())["embeddings"]["source"] == "mine.npz"
