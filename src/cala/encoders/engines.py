"""Engines: what runs the forward pass of an encoder on a processor.

A torch module is exported to ONNX once, into the cache, and compared there with torch on a check
batch. onnxruntime and OpenVINO run that graph from then on, and torch need not be imported. Their
embeddings differ from torch's in the last digits only, so all engines share one cache of these.
"""

from __future__ import annotations

import hashlib
import json
import threading
import warnings
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from cala import storage
from cala.data.cache import cache_folder, remembered
from cala.data.embedding_files import PART
from cala.data.image_scan import worker_count
from cala.encoders.base import Encoder, Float32Array
from cala.encoders.onnx_loader import Forward, Layout, open_session
from cala.encoders.transform import Transform
from cala.errors import EngineWarning, InputError
from cala.extras import import_extra
from cala.files import shown
from cala.version import __version__

FASTEST = ("openvino", "onnxruntime")
EXTRAS = {"openvino": "openvino", "onnxruntime": "onnx"}
AGREEMENT = 0.99999  # least cosine to torch's embedding of each image of the check batch
_SIDES = (7, 24, 300)  # of the images of the check batch; exports are traced with two


class OpenVino:
    """A graph, or its path, in OpenVINO, with `run` as an onnxruntime session has it."""

    def __init__(self, graph: bytes | str) -> None:
        core = import_extra("openvino", "openvino").Core()
        count = worker_count()  # that many passes at once, each in one thread
        hints: dict[str, Any] = {"NUM_STREAMS": count, "INFERENCE_NUM_THREADS": count}
        hints |= {"INFERENCE_PRECISION_HINT": "f32", "ENABLE_CPU_PINNING": False}
        self.compiled = core.compile_model(core.read_model(graph), "CPU", hints)
        self.own = threading.local()

    def run(self, outputs: Sequence[str], feed: dict[str, Any]) -> list[Any]:
        if not hasattr(self.own, "request"):
            self.own.request = self.compiled.create_infer_request()
        self.own.request.infer(feed)
        return [np.array(self.own.request.get_tensor(name).data) for name in outputs]


SESSIONS: dict[str, Callable[[Any], Any]] = {"onnxruntime": open_session, "openvino": OpenVino}


@dataclass
class Export:
    """An encoder in the cache: all but its name, and its graph.

    checks : for each engine its version and how far it agrees with torch, 0 where it fails
    failed : why there is no graph, empty if there is one
    """

    card: dict[str, Any]
    graph: Any
    parts: dict[str, Any]
    checks: dict[str, tuple[str, float]] = field(default_factory=dict)
    failed: str = ""

    @classmethod
    def of(cls, encoder: Encoder) -> Export:
        """Trace a torch encoder, or take the graph that an encoder has."""
        graph, failed = getattr(encoder.forward, "graph", b""), ""
        if not graph:
            from cala.encoders.torch_module import encoder_onnx

            try:
                graph = encoder_onnx(encoder)
            except InputError as error:
                failed = str(error)
        return cls(_card(encoder), np.frombuffer(graph, np.uint8), encoder.parts, failed=failed)

    @classmethod
    def read(cls, path: Path | None) -> Export | None:
        """What `write` wrote; None if there is nothing, or if it is damaged."""
        if path is None:
            return None
        try:
            meta, arrays = storage.read(path, "export")
            checks = {name: (str(v), float(a)) for name, (v, a) in meta["checks"].items()}
            parts = {n.removeprefix(PART): a for n, a in arrays.items() if n.startswith(PART)}
            return cls(meta["card"], arrays["graph"], parts, checks, meta["failed"])
        except (InputError, KeyError, TypeError, ValueError):
            return None

    def write(self, path: Path) -> None:
        meta = {"card": self.card, "checks": self.checks, "failed": self.failed}
        parts = {PART + name: array for name, array in self.parts.items()}
        storage.write(path, "export", meta, {"graph": self.graph, **parts})

    def on(self, engine: str, name: str, load: Callable[[], Any] = lambda: None) -> Encoder:
        """The encoder, running on an engine; `load` makes the one that runs on torch."""
        session = SESSIONS[engine](self.graph.tobytes())
        dim = self.card["dim"]
        forward = Forward(session, Layout("x"), "features", dim, load=lambda: load().module)
        sets = {key: frozenset(self.card[key]) for key in ("holdout", "trained")}
        transform = Transform.from_dict(self.card["transform"])
        given = {**self.card, **sets, "transform": transform, "parts": self.parts}
        return Encoder(name=name, forward=forward, **given)

    def why(self, versions: dict[str, str]) -> str:
        """Why no engine can be used."""
        each = (f"{engine}: cosine {self.checks[engine][1]:.6f} to torch's" for engine in versions)
        return self.failed or ", ".join(each)

    def known(self, engine: str, version: str) -> float | None:
        """How far this version of an engine agrees with torch; None if that was not checked."""
        checked, agrees = self.checks.get(engine, ("", 0.0))
        return agrees if checked == version else None

    def encode(self, engine: str, inputs: Float32Array) -> Float32Array:
        return self.on(engine, "").encode(inputs)

    def best(self, versions: dict[str, str]) -> str | None:
        """The first engine that agrees, "" if none does; None if one has to be checked first."""
        for engine, version in versions.items():
            agrees = self.known(engine, version)
            if agrees is None or agrees >= AGREEMENT:
                return None if agrees is None else engine
        return ""

    def check(self, versions: dict[str, str], reference: Encoder) -> None:
        """Compare engines with torch, up to the first that agrees."""
        for engine, version in versions.items():
            if self.known(engine, version) is None:
                agrees = 0.0
                if not self.failed:
                    agrees = agreement(partial(self.encode, engine), reference)
                self.checks[engine] = (version, agrees)
            if self.best(versions) is not None:
                return


def agreement(encode: Callable[[Float32Array], Float32Array], reference: Encoder) -> float:
    """The least cosine to a reference's embedding of an image; less if the lengths differ."""
    draw = np.random.default_rng(0)
    images = [draw.integers(0, 256, (side, side, 3)).astype(np.uint8) for side in _SIDES]
    inputs = reference.inputs(images)
    expected = reference.encode(inputs)
    try:
        found = encode(inputs)
    except Exception:  # whatever an engine raises on a graph that it cannot run
        return 0.0
    if found.shape != expected.shape:
        return 0.0
    length = np.linalg.norm(expected, axis=1).clip(1e-12)
    apart = np.linalg.norm(found - expected, axis=1) / length
    return float(1 - (apart**2).max() / 2)


def load_on(
    engine: str, load: Callable[[], Encoder], memo: tuple[str, Sequence[Path]] | None
) -> Encoder:
    """An encoder on an engine; `auto` takes the fastest that agrees with torch.

    load : makes the encoder that runs on torch; called only if it is needed
    memo : a name and the files that the encoder depends on, to know it again without loading it
    """
    loaded: list[Encoder] = []

    def original() -> Encoder:
        loaded.extend([] if loaded else [load()])
        return loaded[0]

    def identify() -> list[Any]:
        found = original()
        exported = getattr(found.forward, "graph", b"") or found.module is not None
        return [found.name, export_key(found) if exported else None]

    name, key = identify() if memo is None else remembered(*memo, identify)
    if key is None:
        return _without_module(engine, original())
    versions = _installed(engine)
    if not versions:
        return original()
    path = None
    with suppress(InputError):  # without a cache it is exported every time
        path = cache_folder("exports") / f"{key}.safetensors"
    export = Export.read(path)
    chosen = None if export is None else export.best(versions)
    if chosen is None:
        with ExitStack() as held:
            if path is not None:
                with suppress(InputError):
                    held.enter_context(storage.locked(path.with_suffix(".lock"), shown(path)))
            export = Export.read(path) or Export.of(original())  # others may have made it by now
            export.check(versions, original())
            if path is not None:
                with suppress(InputError):
                    export.write(path)
        chosen = export.best(versions)
    assert export is not None
    if chosen:
        return export.on(chosen, name, original)
    detail = f"{shown(name)} does not run on {' or '.join(versions)} ({export.why(versions)})"
    code = "no_onnx_form" if export.failed else "engine_disagrees"
    if engine != "auto":
        raise InputError(detail, "use --engine torch", field="engine", code=code)
    warnings.warn(EngineWarning(f"{detail}, so it runs on torch", code), stacklevel=4)
    return original()


def _installed(engine: str) -> dict[str, str]:
    """Versions of the engines to choose from, the fastest first."""
    found = {}
    for one in FASTEST if engine == "auto" else (engine,):
        if engine != "auto" or find_spec(one) is not None:
            try:
                found[one] = str(import_extra(one, EXTRAS[one]).__version__)
            except InputError as error:
                if engine != "auto":
                    raise
                warnings.warn(EngineWarning(str(error), "engine_broken"), stacklevel=5)
    return found


def _without_module(engine: str, encoder: Encoder) -> Encoder:
    """An `onnx:` file on an engine, as it is."""
    forward = encoder.forward
    if engine == "openvino" and isinstance(forward, Forward) and forward.path is not None:
        return replace(encoder, forward=replace(forward, session=OpenVino(str(forward.path))))
    if engine in ("torch", "openvino"):
        raise InputError(
            f"{shown(encoder.name)} does not run on {engine}", "use --engine auto", field="engine"
        )
    return encoder


def _card(encoder: Encoder) -> dict[str, Any]:
    """What there is to know about an encoder besides its name and arrays, as JSON has it."""
    keys = ("dim", "fingerprint", "scale", "pretrained", "about")
    card = {key: getattr(encoder, key) for key in keys}
    card |= {key: sorted(getattr(encoder, key)) for key in ("holdout", "trained")}
    return {**card, "transform": encoder.transform.as_dict()}


def export_key(encoder: Encoder) -> str:
    """SHA-256 of all that an export holds, and of the program that writes it."""
    digest = hashlib.sha256(json.dumps([__version__, _card(encoder)], sort_keys=True).encode())
    for name, array in sorted(encoder.parts.items()):
        digest.update(f"{name} {array.shape}".encode() + np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()
