"""Encoders that a model may name only if the user has allowed them.

A model's folder may come from anyone, `torch:module:factory` runs whatever `module` is, and
`onnx-external:FILE` opens whatever files the graph names. So the user allows such an encoder by
name once; the name and the fingerprint are then remembered.
"""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from pathlib import Path

import platformdirs

from cala.errors import InputError
from cala.files import shown
from cala.model.version import EncoderCard

RISKS = {
    "torch": "is Python code of your machine that would run now",
    "onnx-external": "opens the files that its graph names",
}


def check_trusted(card: EncoderCard, model: Path, allowed: str | None) -> None:
    """Raise if loading a model's encoder would do what the user has not allowed."""
    risk = _risk(card.uri)
    if risk is None or card.uri == allowed or _entry(card).exists():
        return
    raise InputError(
        f"{shown(model)} names the encoder {shown(card.uri)}, which {risk}",
        "if you trust the model and that encoder, allow it with --trust-encoder "
        f"{shown(card.uri)} (trust_encoder= in Python)",
        field="trust_encoder",
        code="untrusted_encoder",
    )


def remember_trusted(card: EncoderCard) -> None:
    """Remember an encoder that the user named and whose fingerprint fits."""
    if _risk(card.uri) is not None:
        with suppress(OSError):  # then it has to be named again the next time
            _entry(card).parent.mkdir(parents=True, exist_ok=True)
            _entry(card).write_text(card.uri, "utf-8", "surrogateescape")


def _risk(uri: str) -> str | None:
    """What a loader would do with it that the user has to allow; None for all others."""
    words = uri.split(":")  # also behind `views:1:`
    return next((risk for name, risk in RISKS.items() if name in words), None)


def _entry(card: EncoderCard) -> Path:
    given = os.environ.get("CALA_CONFIG")
    folder = Path(given) if given else Path(platformdirs.user_config_dir("cala"))
    name = f"{card.uri}\0{card.fingerprint}".encode("utf-8", "surrogateescape")
    return folder / "trusted_encoders" / hashlib.sha256(name).hexdigest()
