"""`onnx:FILE`: a network in ONNX format, run by onnxruntime.

The graph takes (n, 3, h, w) or (n, h, w, 3) images; n may be fixed. The embedding is its first
output with two axes, else the mean over places of a map (n, d, h, w) or over tokens (n, t, d).
The preprocessing is read from the file's metadata: `mean`, `std`, `size`, `resize`, `fit` and
`filter` as in `cala.encoders.Transform`, each as JSON; whatever is missing is as for ImageNet.

`onnx:` refuses graphs that read further files; `onnx-external:FILE` allows weights in files beside
the graph.
"""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cala.encoders.base import Encoder, import_extra, pooled, wrap_errors
from cala.encoders.transform import Transform
from cala.errors import InputError
from cala.files import chunks, sha256_of, shown

KEYS = ("mean", "std", "size", "resize", "fit", "filter")
TYPES = {"tensor(float)": np.float32, "tensor(float16)": np.float16}
MAX_BYTES = 2**31  # of a graph: protobuf's own limit


def load_onnx(file: str, device: torch.device | str = "cpu", external: bool = False) -> Encoder:
    """Load `onnx:FILE`; `external` allows weights in other files beside it."""
    onnx, runtime = import_extra("onnx", "onnx"), import_extra("onnxruntime", "onnx")
    path = Path(file)
    name = shown(path)
    if not path.is_file():
        raise InputError(f"there is no file {name}", field="encoder", code="no_file")
    if path.stat().st_size > MAX_BYTES:
        fix = "store the weights in a file beside it and load it as onnx-external:"
        raise InputError(f"{name} has more than 2 GiB", fix, field="encoder", code="too_large")
    options = runtime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = torch.get_num_threads()
    providers = ["CPUExecutionProvider"]
    if torch.device(device).type == "cuda":
        providers.insert(0, "CUDAExecutionProvider")
    with wrap_errors(f"{name} cannot be read as ONNX"):
        others = external_files(onnx.load(path, load_external_data=False))
        if others and not external:
            raise InputError(
                f"{name} reads other files ({shown(others[0])})",
                f"load it as onnx-external:{name} if you trust it",
                field="encoder",
                code="external_data",
            )
        session = runtime.InferenceSession(str(path), options, providers=providers)
    layout = Layout(session, name)
    metadata = session.get_modelmeta().custom_metadata_map
    transform, stated = read_metadata(metadata, layout.size, name)
    forward = Forward(session, layout, path, transform.size)
    files = [path, *(path.parent / other for other in others)]
    return Encoder(
        name=f"onnx-external:{file}" if external else f"onnx:{file}",
        dim=forward.dim,
        transform=transform,
        forward=forward,
        fingerprint=sha256_of(piece for part in files for piece in chunks(part)),
        pretrained=True,
        device=torch.device("cpu"),  # tensors go in and out through the CPU
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


class Layout:
    """The graph's input: its type, its batch size and side if fixed, and the channel axis."""

    def __init__(self, session: Any, name: str) -> None:
        inputs = session.get_inputs()
        if len(inputs) != 1 or len(inputs[0].shape) != 4:
            shapes = ", ".join(str(i.shape) for i in inputs)
            raise InputError(f"{name} takes {shapes or 'nothing'}, not one batch of images")
        if inputs[0].type not in TYPES:
            raise InputError(f"{name} takes {inputs[0].type}; float and float16 are supported")
        self.input, self.dtype = inputs[0].name, TYPES[inputs[0].type]
        shape = [n if isinstance(n, int) and n > 0 else None for n in inputs[0].shape]
        self.channels_last = shape[3] == 3 and shape[1] != 3
        batch, *rest = shape
        channels, *sides = (rest[2], *rest[:2]) if self.channels_last else rest
        if channels not in (3, None) or (None not in sides and sides[0] != sides[1]):
            raise InputError(f"{name} takes {inputs[0].shape}, not square RGB images")
        self.batch: int | None = batch
        self.size: int | None = sides[0] or sides[1]


class Forward:
    """(n, 3, size, size) -> (n, d), whatever batch the graph was made for.

    path : of the file; output : the one that is the embedding; axes : how many that has
    """

    def __init__(self, session: Any, layout: Layout, path: Path, size: int) -> None:
        self.session, self.layout, self.path = session, layout, path.absolute()
        name = shown(path)
        blank = torch.zeros(1, 3, size, size)
        fix = "state `size` in its metadata"
        with wrap_errors(f"{name} does not take {size}×{size} images", fix):
            outputs = session.run(None, {layout.input: self._array(blank)})
        order = [i for axes in (2, 4, 3) for i, out in enumerate(outputs) if np.ndim(out) == axes]
        if not order:
            raise InputError(f"{name} has no output with two to four axes")
        self.output = session.get_outputs()[order[0]].name
        self.axes = int(np.ndim(outputs[order[0]]))
        self.dim = int(_pooled_array(outputs[order[0]]).shape[1])

    def __call__(self, images: Tensor) -> Tensor:
        step = self.layout.batch or max(len(images), 1)
        parts = [self._run(images[i : i + step]) for i in range(0, len(images), step)]
        return torch.cat(parts) if parts else torch.empty(0, self.dim)

    def _run(self, images: Tensor) -> Tensor:
        found = self.session.run([self.output], {self.layout.input: self._array(images)})[0]
        return _pooled_array(found)[: len(images)]

    def _array(self, images: Tensor) -> NDArray[Any]:
        values = images.detach().cpu()
        if self.layout.batch is not None and len(values) < self.layout.batch:
            blank = values.new_zeros(self.layout.batch - len(values), *values.shape[1:])
            values = torch.cat([values, blank])
        if self.layout.channels_last:
            values = values.permute(0, 2, 3, 1)
        return np.ascontiguousarray(values.numpy().astype(self.layout.dtype, copy=False))


def _pooled_array(found: NDArray[Any]) -> Tensor:
    return pooled(torch.from_numpy(np.asarray(found, dtype=np.float32)))


def read_metadata(meta: dict[str, str], side: int | None, name: str) -> tuple[Transform, bool]:
    """Return the transform, and whether the file states any of it."""
    with wrap_errors(f"{name} has metadata that cannot be read"):
        fields = {key: _value(meta[key]) for key in KEYS if key in meta}
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
