"""The registry: names, summaries, and what is said about unknown ones."""

from __future__ import annotations

import os
import subprocess
import sys
from textwrap import dedent

import pytest

from cala.errors import UnknownNameError
from cala.heads import ADAPTERS, HEADS
from cala.registry import Registry
from refusals import assert_names, refused


def test_a_name_is_entered_once():
    things = Registry("thing")
    things.register("a", "first")(1)
    with refused("thing 'a'", kind=UnknownNameError, code="registered_twice"):
        things.register("a", "second")(2)
    assert things["a"] == 1


def test_unknown_names_are_lookup_and_value_errors():
    for kind in (LookupError, ValueError):
        with pytest.raises(kind) as caught:
            HEADS["nearest-man"]
        assert_names(caught.value, "'nearest-man'", field="head", code="unknown_name")
        assert "'nearest-mean'?" in caught.value.fix
    with refused("['x']", kind=UnknownNameError, field="head", code="unknown_name"):
        HEADS[["x"]]


@pytest.mark.parametrize("registry", [HEADS, ADAPTERS], ids=lambda r: r.kind)
def test_everything_has_a_one_line_summary(registry):
    assert len(registry) > 0
    for name in registry:
        summary = registry.summary(name)
        assert 10 < len(summary) <= 80
        assert "\n" not in summary


def test_lazy_entries_are_imported_when_they_are_asked_for(tmp_path, monkeypatch):
    (tmp_path / "lazy_colours.py").write_text("RED = ['red']\n")
    monkeypatch.syspath_prepend(tmp_path)
    colours = Registry("colour")
    colours.add("red", "lazy_colours:RED", "like a rose")
    colours.add("lost", "no_such_module:RED", "never asked for")
    assert list(colours) == ["red", "lost"]
    assert colours.summary("red") == "like a rose"
    assert "red" in colours
    assert "lazy_colours" not in sys.modules
    assert colours["red"] == ["red"]
    assert colours["red"] is sys.modules.pop("lazy_colours").RED
    with pytest.raises(ModuleNotFoundError, match="no_such_module"):
        colours["lost"]


def python(*arguments, path=None) -> str:
    """What a process of its own prints, with a folder of packages on its path."""
    environment = {**os.environ, **({"PYTHONPATH": str(path)} if path else {})}
    done = subprocess.run(
        [sys.executable, *arguments], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_listing_imports_no_head_and_no_torch():
    code = """
        import sys
        from cala.heads import ADAPTERS, HEADS
        for registry in (HEADS, ADAPTERS):
            for name in registry:
                registry.summary(name)
        print([m for m in sys.modules if m == "torch" or m.startswith("cala.systems")])
    """
    assert python("-c", dedent(code)).strip() == "[]"


@pytest.mark.parametrize("method", ["nearest-mean", "calibrated-mean", "cala", "cala-plus", "auto"])
def test_a_method_of_the_core_imports_no_torch(method):
    code = f"""
        import sys, warnings
        import numpy as np
        from cala.heads import BaseData, make_head
        warnings.simplefilter("ignore")
        rng = np.random.default_rng(0)
        x, y = rng.normal(size=(60, 4)) + 1, np.arange(60) % 6
        head = make_head({method!r}).fit_base(BaseData(x, y))
        head.add(x[:5], np.full(5, 9)).logits(x)
        print("torch" in sys.modules)
    """
    assert python("-c", dedent(code)).strip() == "False"


@pytest.fixture
def package(tmp_path):
    """An installed package with a head and an adapter: a module, and what pip writes beside it."""
    module = '''
        from dataclasses import replace

        from cala.heads.nearest_mean import NearestMean
        from cala.heads.adapter_training import LA


        class Flipped(NearestMean):
            """Nearest mean of the embeddings turned round: the same cosines."""

            name = "flipped"

            def embed(self, features):
                return super().embed(-features)

            def _fit_table(self, data, rows=None):
                super()._fit_table(data, rows)
                self.table = type(self.table)(-self.table.sums, self.table.counts)


        SMALL = replace(LA, episodes=3, heldout_episodes=2, host="flipped")
    '''
    (tmp_path / "cala_flipped.py").write_text(dedent(module))
    info = tmp_path / "cala_flipped-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: cala-flipped\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[cala.heads]\nflipped = cala_flipped:Flipped\n"
        "[cala.adapters]\nsmall = cala_flipped:SMALL\n"
    )
    return tmp_path


def test_an_installed_package_adds_methods(package):
    listed = python("-m", "cala", "methods", path=package)
    assert "flipped" in listed
    assert "small" in listed
    assert "from cala-flipped" in listed
    assert "flipped" not in python("-m", "cala", "methods")
    code = """
        import json, sys
        import numpy as np
        from cala.heads import HEADS, BaseData, make_head, restore_head
        print(HEADS.summary("flipped"), "cala_flipped" in sys.modules)
        rng = np.random.default_rng(0)
        y = np.arange(60) % 6
        x = rng.normal(size=(6, 8))[y] + 0.3 * rng.normal(size=(60, 8))
        data = BaseData(x, y, holdout=np.ones(60, dtype=bool))
        plain = make_head("nearest-mean").fit_base(data)
        for method in ("flipped", "flipped+la", "small", "nearest-mean+small"):
            head = make_head(method).fit_base(data)
            assert np.allclose(head.logits(x), plain.logits(x)), method
            head.add(x[:5], np.full(5, 9))
            assert np.array_equal(restore_head(head.state()).logits(x), head.logits(x))
            print(method, head.host.name, len(head.classes))
    """
    assert python("-c", dedent(code), path=package).split("\n")[:-1] == [
        "from cala-flipped False",
        "flipped flipped 7",
        "flipped+la flipped 7",
        "small flipped 7",
        "nearest-mean+small nearest-mean 7",
    ]


def test_a_package_does_not_replace_what_is_there(package):
    entries = package / "cala_flipped-1.0.dist-info" / "entry_points.txt"
    entries.write_text("[cala.heads]\nnearest-mean = cala_flipped:Flipped\n")
    code = "from cala.heads import HEADS; print(HEADS['nearest-mean'].__module__)"
    assert python("-c", code, path=package).strip() == "cala.heads.nearest_mean"
