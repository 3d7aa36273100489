"""Engines: what runs the forward pass of an encoder on a processor.

A torch module is exported to ONNX once, into the cache, with torch's embeddings of a check batch.
onnxruntime and OpenVINO are compared with these, run the graph from then on, and torch need not be
imported. Their embeddings differ from torch's in the last digits only, so all engines share one
cache of these. Which engine is the fastest depends on the processor and is measured once.
"""

from __future__ import annotations

import hashlib
import json
import platform
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from cala import storage
from cala.data.cache import cache_folder, remembered
from cala.data.embedding_files import PART
from cala.data.image_scan import worker_count
from cala.encoders.base import Encoder, Float32Array
from cala.encoders.embed import batch_size
from cala.encoders.onnx_loader import Forward, Layout, open_session
from cala.encoders.transform import Transform
from cala.errors import EngineWarning, InputError
from cala.extras import import_extra
from cala.files import first_line, shown
from cala.version import __version__

EXTRAS = {"onnxruntime": "onnx", "openvino": "openvino"}
AGREEMENT = 0.99999  # least cosine to torch's embedding of each image of the check batch
_SIDES = (7, 24, 300)  # of the images of the check batch; exports are traced with two
_MEASURE = 0.3  # seconds in which engines are timed


def import_openvino() -> Any:
    """OpenVINO without its telemetry, which would tell its makers of every import."""
    blocked: dict[str, Any] = dict.fromkeys({"openvino_telemetry"} - sys.modules.keys())
    sys.modules.update(blocked)  # None: not to be found
    try:
        return import_extra("openvino", "openvino")
    finally:
        for name in blocked:
            del sys.modules[name]


class OpenVino:
    """A graph, or its path, in OpenVINO, with `run` as an onnxruntime session has it."""

    def __init__(self, graph: bytes | str) -> None:
        core = import_openvino().Core()
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

    reference : embeddings of the check batch by the encoder that was exported
    failed : why there is no graph, empty if there is one
    """

    card: dict[str, Any]
    graph: Any
    parts: dict[str, Any]
    reference: Float32Array
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
        reference = encoder.encode(check_batch(encoder))
        data = np.frombuffer(graph, np.uint8)
        return cls(_card(encoder), data, encoder.parts, reference, failed)

    @classmethod
    def read(cls, path: Path | None) -> Export | None:
        """What `write` wrote; None if there is nothing, or if it is damaged."""
        if path is None:
            return None
        try:
            meta, arrays = storage.read(path, "export")
            parts = {n.removeprefix(PART): a for n, a in arrays.items() if n.startswith(PART)}
            graph, reference = arrays["graph"], arrays["reference"]
            return cls(meta["card"], graph, parts, reference, meta["failed"])
        except (InputError, KeyError, TypeError, ValueError):
            return None

    def write(self, path: Path) -> None:
        meta = {"card": self.card, "failed": self.failed}
        arrays = {PART + name: array for name, array in self.parts.items()}
        arrays |= {"graph": self.graph, "reference": self.reference}
        storage.write(path, "export", meta, arrays)

    def on(self, engine: str, name: str, load: Callable[[], Any] = lambda: None) -> Encoder:
        """The encoder, running on an engine; `load` makes the one that runs on torch."""
        session = SESSIONS[engine](self.graph.tobytes())
        dim = self.card["dim"]
        forward = Forward(session, Layout("x"), "features", dim, load=lambda: load().module)
        sets = {key: frozenset(self.card[key]) for key in ("holdout", "trained")}
        transform = Transform.from_dict(self.card["transform"])
        given = {**self.card, **sets, "transform": transform, "parts": self.parts}
        return Encoder(name=name, forward=forward, **given)

    def compare(self, engines: Iterable[str]) -> list[list[str]]:
        """Engines that give the reference's embeddings, the fastest first; the others with why."""
        usable, failed = {}, []
        for engine in engines:
            try:
                encoder = self.on(engine, "")
                agrees = agreement(encoder.encode(check_batch(encoder)), self.reference)
                why = "" if agrees >= AGREEMENT else f"cosine {agrees:.6f} to torch's"
            except Exception as error:  # whatever an engine raises on a graph that it cannot run
                why = first_line(error)
            if why:
                failed.append([engine, why])
            else:
                usable[engine] = encoder
        spent = processor_time(usable) if len(usable) > 1 else dict.fromkeys(usable, 0.0)
        fastest = sorted(usable, key=lambda one: spent[one])
        if fastest and failed:  # said once, since the answer is remembered
            said = f"{_listed(failed)}, so {fastest[0]} is used"
            warnings.warn(EngineWarning(said, "engine_disagrees"), stacklevel=6)
        return [[engine, ""] for engine in fastest] + failed


def _listed(failed: Sequence[Sequence[str]]) -> str:
    """Engines, each with why it cannot be used."""
    return ", ".join(f"{engine}: {why}" for engine, why in failed)


def check_batch(encoder: Encoder) -> Float32Array:
    """Inputs of an encoder, made of three generated images."""
    draw = np.random.default_rng(0)
    return encoder.inputs(
        [draw.integers(0, 256, (side, side, 3)).astype(np.uint8) for side in _SIDES]
    )


def agreement(found: Float32Array, expected: Float32Array) -> float:
    """The least cosine of two embeddings of an image; less if their lengths differ."""
    if found.shape != expected.shape:
        return 0.0
    length = np.linalg.norm(expected, axis=1).clip(1e-12)
    apart = np.linalg.norm(found - expected, axis=1) / length
    return float(1 - (apart**2).max() / 2)


def processor_time(encoders: dict[str, Encoder]) -> dict[str, float]:
    """Seconds that equally many passes take on each engine, in turns.

    Of processor time, which other programs disturb less, and which is what counts where as many
    passes run at once as there are processors.
    """
    spent = dict.fromkeys(encoders, 0.0)
    one = next(iter(encoders.values()))
    inputs = check_batch(one)
    batch = np.resize(inputs, (batch_size(one), *inputs.shape[1:]))
    until = time.perf_counter() + _MEASURE
    while time.perf_counter() < until or not all(spent.values()):  # a clock may be coarse
        for engine, encoder in encoders.items():
            start = time.process_time()
            encoder.encode(batch)
            spent[engine] += time.process_time() - start
    return spent


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
    installed = _installed(engine)
    if not installed:
        return original()
    export = _exported(key, original)
    results = []
    if not export.failed:
        # Machines may share a cache. An engine's file changes when another version is installed.
        kind, files = f"engines {platform.node()} {key}", list(installed.values())
        results = remembered(kind, files, lambda: export.compare(installed))
    if results and not results[0][1]:
        return export.on(results[0][0], name, original)
    problem = export.failed or _listed(results)
    detail = f"{shown(name)} does not run on {' or '.join(installed)} ({problem})"
    code = "no_onnx_form" if export.failed else "engine_disagrees"
    if engine != "auto":
        raise InputError(detail, "use --engine torch", field="engine", code=code)
    warnings.warn(EngineWarning(f"{detail}, so it runs on torch", code), stacklevel=4)
    return original()


def _exported(key: str, original: Callable[[], Encoder]) -> Export:
    """The export from the cache, made there by one process while others wait."""
    path = None
    with suppress(InputError):  # without a cache it is exported every time
        path = cache_folder("exports") / f"{key}.safetensors"
    export = Export.read(path)
    if export is not None:
        return export
    with ExitStack() as held:
        if path is not None:
            with suppress(InputError):
                held.enter_context(storage.locked(path.with_suffix(".lock"), shown(path)))
        export = Export.read(path) or Export.of(original())  # others may have made it by now
        if path is not None:
            with suppress(InputError):
                export.write(path)
    return export


def _installed(engine: str) -> dict[str, Path]:
    """The engines to choose from, each with a file of its own; none is imported for `auto`."""
    if engine != "auto" and find_spec(engine) is None:
        import_extra(engine, EXTRAS[engine])  # says how to install it
    specs = {one: find_spec(one) for one in (EXTRAS if engine == "auto" else (engine,))}
    return {one: Path(spec.origin or "") for one, spec in specs.items() if spec is not None}


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
