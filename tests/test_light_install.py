"""An install without extras: what works in it, and what is said where an extra is needed.

A process in which the libraries of the extras cannot be imported stands for a second venv.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from textwrap import dedent

import pytest

from cala import extras
from cala.extras import install
from model.photos import write_photos

OPTIONAL = [
    *("torch", "torchvision", "matplotlib", "jinja2", "ray", "onnx", "onnxscript", "timm"),
    *("transformers", "lightning_fabric", "tensorboard", "openvino", "pandas", "faiss"),
    "huggingface_hub",
    "paho",
]
HIDDEN = f"""
import sys

class Hiding:
    def __init__(self, finder):
        self.finder = finder

    def __getattr__(self, name):
        return getattr(self.finder, name)

    def find_spec(self, name, *given):
        if name.partition(".")[0] not in {OPTIONAL}:
            return self.finder.find_spec(name, *given)

sys.meta_path[:] = map(Hiding, sys.meta_path)
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    root = tmp_path_factory.mktemp("light")
    write_photos(root / "known", range(3), range(6))
    write_photos(root / "new", [3], range(5))
    write_photos(root / "others", [4], range(5))
    return root


def light(code: str, folder, *arguments: str) -> list[str]:
    """The lines that Python prints where no optional library can be imported."""
    done = subprocess.run(
        [sys.executable, "-c", HIDDEN + dedent(code), *arguments],
        env={**os.environ, "CALA_CACHE": str(folder / "cache")},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_photos_from_fit_to_serve(place):
    code = """
        import cala
        from cala.app.factory import create_app

        model = cala.fit("known", "birds", fakes="feature")
        model.add("new/class 3", "class 3")
        classes = model.classes
        answers = set(model.predict("new", unknown="off"))
        version = model.undo().version
        model.redo()
        model.reject("others")
        app = create_app(cala.load("birds"))
        app.state.service.close()
        print(len(classes), answers, version, "torch" in sys.modules)
    """
    assert light(code, place) == ["4 {'class 3'} 3 False"]


def test_the_estimator(place):
    code = """
        import numpy as np
        from cala import CalaClassifier

        X = np.random.default_rng(0).normal(size=(30, 8)) + np.repeat(np.eye(8)[:3] * 9, 10, 0)
        y = np.repeat(list("abc"), 10)
        model = CalaClassifier().fit(X[:20], y[:20], holdout="all")
        print(model.partial_fit(X[20:25], y[20:25]).predict(X[25:]))
    """
    assert light(code, place) == ["['c' 'c' 'c' 'c' 'c']"]


COMMANDS = """
    import json, shlex
    from cala.cli import app
    from cala.errors import CalaError

    for command in sys.argv[1:]:
        try:
            app(shlex.split(command), standalone_mode=False)
        except CalaError as error:
            print(json.dumps([error.code, error.fix]))
"""
NEEDS = {
    "train known -o base": "train",
    "train known -o base --method cec": "train",
    "run --methods cec": "bench",
    "fit known -o x --method limit": "bench",
    "fit known -o x --encoder timm:resnet18": "timm",
    "fit known -o x --encoder hf:some/model": "hf",
    "fit known -o x --encoder torch:json:loads": "train",
    "fit known -o x --encoder onnx:x.onnx": "onnx",
    "fit known -o x --encoder resnet20-cifar100": "train",
    "fit known -o x --engine torch": "train",
    "fit known -o x --engine openvino": "openvino",
    "fit known -o x --device cuda": "train",
    "predict robins new --engine torch": "train",
    "export robins --onnx x.onnx": "export",
    "report bench": "report",
    "run --methods nearest-mean --on ray": "ray",
    "frigate robins --mqtt localhost --frigate http://localhost:5000 --labels bird": "frigate",
}


def test_what_needs_an_extra_names_it(place):
    first = "fit known -o robins --fakes feature -q"
    run = "run --methods nearest-mean --draws random:1 --sessions 1 -q --out bench"
    lines = light(COMMANDS, place, first, run, *NEEDS)
    without, *found = lines[-len(NEEDS) - 1 :]
    assert install("report") in without  # the run ends well, and says how to get its report
    assert "`cala report bench`" in without
    assert (place / "bench" / "summary.json").is_file()
    for (command, extra), line in zip(NEEDS.items(), found, strict=True):
        code, fix = json.loads(line)
        assert (command, code) == (command, "missing_extra")
        assert fix.startswith(install(extra)), command
    assert not (place / "x").exists()
    assert not (place / "bench" / "report").exists()


def test_all_methods_that_can_run(place):
    code = """
        from cala.benchmark.task import load_task, split_runnable
        from cala.heads import method_names

        for name in split_runnable(load_task("cifar100", draws="random:1"), method_names())[0]:
            print(name)
    """
    found = set(light(code, place))
    assert {"nearest-mean", "cala-plus", "teen", "gkeal"} <= found
    assert not {"cec", "limit", "bidist"} & found


@pytest.mark.parametrize(
    ("source", "command"),
    [
        (None, "pip install 'cala-learn[serve]'"),
        ("{}", "pip install 'cala-learn[serve]'"),
        (
            '{"url": "file:///tmp/cala_learn-1-py3-none-any.whl", "archive_info": {}}',
            "pip install 'cala-learn[serve] @ file:///tmp/cala_learn-1-py3-none-any.whl'",
        ),
    ],
)
def test_an_extra_comes_from_where_cala_came_from(tmp_path, monkeypatch, source, command):
    from importlib import metadata

    info = tmp_path / "cala_learn-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Name: cala-learn\nVersion: 1\n")
    if source is not None:
        (info / "direct_url.json").write_text(source)
    monkeypatch.setattr(extras, "__file__", str(tmp_path / "a" / "b" / "cala" / "extras.py"))
    monkeypatch.setattr(metadata, "distribution", lambda name: metadata.PathDistribution(info))
    assert install("serve") == command
