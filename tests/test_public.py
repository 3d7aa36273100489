"""The public face: names that tab completion shows, loaded on first use."""

from __future__ import annotations

import subprocess
import sys
from importlib.resources import files

import cala


def test_every_public_name_is_there():
    assert set(dir(cala)) == set(cala.__all__)
    for name in cala.__all__:
        assert getattr(cala, name) is not None
    assert cala.make_head("nearest-mean").name == "nearest-mean"
    assert issubclass(cala.errors.InputError, ValueError)


def test_types_are_shipped():
    assert files("cala").joinpath("py.typed").is_file()


def test_importing_cala_imports_nothing_large():
    code = (
        "import sys, cala; dir(cala); "
        "print([m for m in ('numpy', 'scipy', 'sklearn', 'torch', 'PIL') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_public_things_have_parameters_and_an_example():
    from cala.model.evaluation import Evaluation
    from cala.model.prediction import Prediction

    for thing in (cala.Model, cala.fit, cala.load, Prediction, Evaluation, cala.CalaClassifier):
        assert "Parameters\n" in thing.__doc__
        assert ">>> " in thing.__doc__
