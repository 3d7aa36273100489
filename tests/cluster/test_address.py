"""`--on`: what it may say, and what is said when it cannot be done."""

from __future__ import annotations

import importlib.util
import socket
import sys
import threading

import pytest

from cala.cluster import ClusterAddress, parse_target
from cala.cluster.ray_cluster import connected
from cala.errors import InputError
from cala.extras import install
from cli.inside import refusal
from conftest import missing
from refusals import assert_names, refused


def test_places():
    assert parse_target("here") is None
    assert parse_target("ray") == parse_target("ray:auto") == ClusterAddress()
    assert parse_target("ray:node-1.lan:6379").address == "node-1.lan:6379"
    assert parse_target("ray:[::1]:6379").address == "[::1]:6379"


@pytest.mark.parametrize("text", ["", "spark", "ray:", "ray:host", "ray:a b:1", "here:1", "RAY"])
def test_other_places_are_refused_with_those_that_there_are(text):
    with refused(f"--on {text}", field="on") as caught:
        parse_target(text)
    assert "HOST:PORT" in caught.value.fix


@pytest.mark.parametrize(
    "command",
    [("run",), ("ablate", "gamma", "--values", "1"), ("encode", "x", "-o", "x.shards"),
     ("train", "x", "-o", "y")],
)  # fmt: skip
def test_commands_refuse_them_first(command):
    assert_names(refusal(*command, "--on", "spark"), "--on spark", field="on")


def test_only_shards_are_encoded_elsewhere():
    found = refusal("encode", "x", "-o", "x.npz", "--on", "ray")
    assert_names(found, field="out")
    assert "NAME.shards" in found.fix


def test_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with refused(field="on", code="missing_extra") as caught, connected(ClusterAddress()):
        pass
    assert caught.value.fix.startswith(install("ray"))


def test_somebody_else_answers():
    if importlib.util.find_spec("ray") is None:
        missing("ray", "ray is not installed")
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = f"127.0.0.1:{other.getsockname()[1]}"

        def answer():
            line, _ = other.accept()
            line.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            line.close()

        threading.Thread(target=answer, daemon=True).start()
        with pytest.raises(InputError) as error, connected(ClusterAddress(address)):
            pass
    assert (error.value.code, error.value.field) == ("not_a_cluster", "on")


def test_no_such_port():
    with refused("127.0.0.1:99999", field="on", code="bad_port"):
        parse_target("ray:127.0.0.1:99999")


def test_nobody_answers():
    if importlib.util.find_spec("ray") is None:
        missing("ray", "ray is not installed")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    with pytest.raises(InputError) as error, connected(ClusterAddress(address)):
        pass
    assert (error.value.code, error.value.field) == ("no_cluster", "on")
