"""`onnx:FILE`: a network in ONNX format, run by onnxruntime.

The graph takes (n, 3, h, w) or (n, h, w, 3) images; n may be fixed. The embedding is its first
output with two axes, else the mean over places of a map (n, d, h, w) or over tokens (n, t, d).
The preprocessing is read from the file's metadata: `mean`, `std`, `size`, `resize`, `fit` and
`filter` as in `cala.encoders.Transform`, each as JSON; missing values are those of ImageNet.

`onnx:` refuses graphs that read further files; `onnx-external:FILE` allows weights in files beside
the graph.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cala.encoders.base import Encoder, Float32Array, wrap_errors
from cala.encoders.transform import Transform
from cala.errors import InputError
from cala.extras import import_extra
from cala.files import file_chunks, sha256_of, shown

# onnxruntime would send what it runs to its makers, and keep a number of the device on the disk.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

_KEYS = ("mean", "std", "size", "resize", "fit", "filter")
TYPES = {"tensor(float)": np.float32, "tensor(float16)": np.float16}
_MAX_BYTES = 2**31  # of a graph: protobuf's own limit
ENGINE_PIXELS = 224 * 224  # per pass: one thread is faster with one image of this size than with 4


def open_session(graph: bytes | str, device: str = "cpu") -> Any:
    """An onnxruntime session of a graph, or of its path, that several threads may run at once.

    Each run takes one thread. Several threads that wait for each other within one run would stand
    still whenever another program has one of their processors.
    """
    runtime = import_extra("onnxruntime", "onnx")
    options = runtime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = 1
    providers = ["CPUExecutionProvider"]
    if device.startswith("cuda"):
        providers.insert(0, "CUDAExecutionProvider")
    return runtime.InferenceSession(graph, options, providers=providers)


def load_onnx(file: str, device: str = "cpu", external: bool = False) -> Encoder:
    """Load `onnx:FILE`; `external` allows weights in other files beside it."""
    onnx = import_extra("onnx", "onnx")
    path = Path(file)
    name = shown(path)
    if not path.is_file():
        raise InputError(f"there is no file {name}", field="encoder", code="no_file")
    if path.stat().st_size > _MAX_BYTES:
        fix = "store the weights in a file beside it and load it as onnx-external:"
        raise InputError(f"{name} has more than 2 GiB", fix, field="encoder", code="too_large")
    with wrap_errors(f"{name} cannot be read as ONNX", code="unreadable_file"):
        others = external_files(onnx.load(path, load_external_data=False))
        if others and not external:
            raise InputError(
                f"{name} reads other files ({shown(others[0])})",
                f"load it as onnx-external:{name} if you trust it",
                field="encoder",
                code="external_data",
            )
        session = open_session(str(path), str(device))
    layout = read_layout(session, name)
    metadata = session.get_modelmeta().custom_metadata_map
    transform, stated = read_metadata(metadata, layout.size, name)
    forward = probe_graph(session, layout, path, transform.size)
    files = [path, *(path.parent / other for other in others)]
    return Encoder(
        name=f"onnx-external:{file}" if external else f"onnx:{file}",
        dim=forward.dim,
        transform=transform,
        forward=forward,
        fingerprint=sha256_of(piece for part in files for piece in file_chunks(part)),
        pretrained=True,
        about={"preprocessing": "from the file" if stated else "ImageNet's; the file states none"},
    )


load_external = partial(load_onnx, external=True)


def external_files(message: Any) -> list[str]:
    """Return the names of the files that tensors anywhere in an ONNX message are stored in."""
    found = {e.value for e in getattr(message, "external_data", ()) if e.key == "location"}
    for field, value in message.ListFields():
        if field.message_type is not None:
            for part in [value] if hasattr(value, "ListFields") else value:
                found.update(external_files(part))
    return sorted(found)


@dataclass(frozen=True)
class Layout:
    """The graph's input: its name and type, the channel axis, its batch size and side if fixed."""

    input: str
    dtype: Any = np.float32
    channels_last: bool = False
    batch: int | None = None
    size: int | None = None


def read_layout(session: Any, name: str) -> Layout:
    """Return what a graph takes; one that takes no images is refused."""
    inputs = session.get_inputs()
    if len(inputs) != 1 or len(inputs[0].shape) != 4:
        shapes = ", ".join(str(i.shape) for i in inputs)
        raise InputError(f"{name} takes {shapes or 'nothing'}, not one batch of images")
    if inputs[0].type not in TYPES:
        raise InputError(f"{name} takes {inputs[0].type}; float and float16 are supported")
    shape = [n if isinstance(n, int) and n > 0 else None for n in inputs[0].shape]
    last = shape[3] == 3 and shape[1] != 3
    batch, *rest = shape
    channels, *sides = (rest[2], *rest[:2]) if last else rest
    if channels not in (3, None) or (None not in sides and sides[0] != sides[1]):
        detail = f"{name} takes {inputs[0].shape}, not square RGB images"
        raise InputError(detail, code="wrong_input")
    return Layout(inputs[0].name, TYPES[inputs[0].type], last, batch, sides[0] or sides[1])


@dataclass(frozen=True, eq=False)
class Forward:
    """(n, 3, size, size) -> (n, d), whatever batch the graph was made for.

    session : has `run` of onnxruntime; output : the one that is the embedding; axes : how many that
    has; path : of the file, None for a module that was exported; graph : its export, if it is at
    hand; load : makes that module
    """

    session: Any
    layout: Layout
    output: str
    dim: int
    axes: int = 2
    path: Path | None = None
    load: Callable[[], Any] = lambda: None
    graph: bytes = b""
    pixels = ENGINE_PIXELS

    @cached_property
    def module(self) -> Any:
        """The torch module that the graph was exported from, None for a file."""
        return self.load()

    def __call__(self, images: Float32Array) -> Float32Array:
        step = self.layout.batch or max(len(images), 1)
        parts = [self._run(images[i : i + step]) for i in range(0, len(images), step)]
        return np.concatenate(parts) if parts else np.empty((0, self.dim), np.float32)

    def _run(self, images: Float32Array) -> Float32Array:
        feed = {self.layout.input: in_layout(images, self.layout)}
        return pooled_array(self.session.run([self.output], feed)[0])[: len(images)]


def in_layout(images: Float32Array, layout: Layout) -> NDArray[Any]:
    """(n, 3, size, size) as a graph takes them."""
    if layout.batch is not None and len(images) < layout.batch:
        blank = np.zeros((layout.batch - len(images), *images.shape[1:]), images.dtype)
        images = np.concatenate([images, blank])
    if layout.channels_last:
        images = images.transpose(0, 2, 3, 1)
    return np.ascontiguousarray(images, layout.dtype)


def probe_graph(session: Any, layout: Layout, path: Path, size: int) -> Forward:
    """Find the output of a graph that is the embedding, from one pass over a black image."""
    name = shown(path)
    blank = in_layout(np.zeros((1, 3, size, size), np.float32), layout)
    fix = "state `size` in its metadata"
    with wrap_errors(f"{name} does not take {size}×{size} images", fix):
        outputs = session.run(None, {layout.input: blank})
    order = [i for axes in (2, 4, 3) for i, out in enumerate(outputs) if np.ndim(out) == axes]
    if not order:
        raise InputError(f"{name} has no output with two to four axes")
    output, found = session.get_outputs()[order[0]].name, outputs[order[0]]
    dim = int(pooled_array(found).shape[1])
    return Forward(session, layout, output, dim, int(np.ndim(found)), path.absolute())


def pooled_array(found: NDArray[Any]) -> Float32Array:
    """(n, d) as it is; a map (n, d, h, w) or tokens (n, t, d) -> their mean (n, d)."""
    values = np.asarray(found, dtype=np.float32)
    return values.mean({2: (), 3: (1,), 4: (2, 3)}[values.ndim]) if values.ndim > 2 else values


def read_metadata(meta: dict[str, str], side: int | None, name: str) -> tuple[Transform, bool]:
    """Return the transform, and whether the file states any of it."""
    with wrap_errors(f"{name} has metadata that cannot be read"):
        fields = {key: _value(meta[key]) for key in _KEYS if key in meta}
        stated = bool(fields)
        size = int(fields.pop("size", side or 224))
        resize = int(fields.pop("resize", max(size, round(size / 0.875))))
        for key in fields.keys() & {"mean", "std"}:
            fields[key] = fields[key] if isinstance(fields[key], list) else [fields[key]] * 3
        transform = Transform.from_dict({**fields, "size": size, "resize": resize})
    if side not in (None, size):
        raise InputError(f"{name} states a size of {size}, but its graph takes {side}")
    return transform, stated


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return json.loads(f"[{text}]") if "," in text else text
