"""The field's ResNets: parameter counts and shapes as published, torchvision's weight files."""

from __future__ import annotations

import pytest
import torch

from cala.encoders import ARCHITECTURES
from cala.encoders.weights import load_weights, read_weights
from cala.errors import InputError
from refusals import refused

FC = 512 * 1000 + 1000


def count(name):
    return sum(p.numel() for p in ARCHITECTURES[name]().parameters())


def test_parameter_counts():
    # 0.27 M with a classifier of 10 classes and shortcuts without weights (He et al., table 6);
    # two 1×1 shortcuts with their normalisation are 2,752 more.
    shortcuts = 16 * 32 + 2 * 32 + 32 * 64 + 2 * 64
    assert count("resnet20") + 64 * 10 + 10 - shortcuts == 269_722
    assert count("resnet18") + FC == 11_689_512  # torchvision's
    assert count("resnet18") == 11_176_512
    assert count("resnet18-small") == 11_176_512 - 64 * 3 * (49 - 9)
    assert round(count("resnet12") / 1e6, 1) == 12.4


FOR_SMALL_IMAGES = ("resnet18-small", "resnet12")  # and slow on large ones
SHAPES = [
    (name, side)
    for name in ARCHITECTURES
    for side in (32, 84, 224)
    if side < 224 or name not in FOR_SMALL_IMAGES
]


@pytest.mark.parametrize(("name", "side"), SHAPES)
def test_shapes(name, side):
    module = ARCHITECTURES[name]().eval()
    with torch.no_grad():
        found = module(torch.randn(2, 3, side, side))
    assert found.shape == (2, module.dim)
    assert found.isfinite().all()


@pytest.mark.parametrize(
    ("name", "side", "places"), [("resnet20", 32, 8), ("resnet18", 224, 7), ("resnet18", 84, 3)]
)
def test_places_before_pooling(name, side, places):
    module = ARCHITECTURES[name]().eval()
    seen = []
    last = getattr(module, f"layer{module.stages}")
    last.register_forward_hook(lambda _module, _inputs, out: seen.append(out.shape))
    with torch.no_grad():
        module(torch.zeros(1, 3, side, side))
    assert seen == [(1, module.dim, places, places)]


def torchvision_resnet18():
    """Names and shapes of torchvision's resnet18, written down by its rules."""
    shapes = {"conv1.weight": (64, 3, 7, 7)}

    def norm(name, width):
        for part in ("weight", "bias", "running_mean", "running_var"):
            shapes[f"{name}.{part}"] = (width,)
        shapes[f"{name}.num_batches_tracked"] = ()

    norm("bn1", 64)
    before = 64
    for stage, width in enumerate((64, 128, 256, 512), start=1):
        for block in (0, 1):
            at = f"layer{stage}.{block}"
            shapes[f"{at}.conv1.weight"] = (width, before, 3, 3)
            norm(f"{at}.bn1", width)
            shapes[f"{at}.conv2.weight"] = (width, width, 3, 3)
            norm(f"{at}.bn2", width)
            if block == 0 and stage > 1:
                shapes[f"{at}.downsample.0.weight"] = (width, before, 1, 1)
                norm(f"{at}.downsample.1", width)
            before = width
    shapes |= {"fc.weight": (1000, 512), "fc.bias": (1000,)}
    generator = torch.Generator().manual_seed(0)
    return {
        name: torch.rand(shape, generator=generator) if shape else torch.tensor(7)
        for name, shape in shapes.items()
    }


@pytest.fixture(scope="module")
def tensors():
    return torchvision_resnet18()


@pytest.mark.parametrize("wrapped", ["plain", "state_dict", "module."])
def test_torchvision_file_loads_by_name(tensors, tmp_path, wrapped):
    path = tmp_path / "resnet18.pth"
    inner = {f"module.{n}": t for n, t in tensors.items()} if wrapped == "module." else tensors
    torch.save({"state_dict": inner, "epoch": 3} if wrapped == "state_dict" else inner, path)
    module = ARCHITECTURES["resnet18"]()
    load_weights(module, read_weights(path), path.name, "resnet18")
    for name, tensor in module.state_dict().items():
        assert torch.equal(tensor, tensors[name]), name


def test_other_weights_are_refused(tensors):
    module = ARCHITECTURES["resnet18"]()
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    lacking = {n: t for n, t in tensors.items() if n != "layer2.0.conv1.weight"}
    more = {**tensors, "layer5.weight": torch.zeros(1)}
    other = {**tensors, "conv1.weight": torch.zeros(64, 3, 3, 3)}
    for given, named in [
        (lacking, "lacks layer2.0.conv1.weight"),
        (more, "has layer5.weight"),
        (other, "conv1.weight has another shape"),
        ({}, "lacks bn1.bias"),
    ]:
        with refused("f ", "resnet18", named, code="other_weights"):
            load_weights(module, given, "f", "resnet18")
    for name, tensor in module.state_dict().items():
        assert torch.equal(tensor, before[name])


def test_damaged_files(tmp_path):
    path = tmp_path / "w.pth"
    torch.save({"a": torch.arange(1000.0)}, path)
    content = path.read_bytes()
    for piece in (b"", content[: len(content) // 2], b"no weights at all"):
        for name in ("w.pth", "w.safetensors"):
            (tmp_path / name).write_bytes(piece)
            with refused(tmp_path / name, field="path", code="unreadable_file"):
                read_weights(tmp_path / name)
    with refused("gone.pth", field="path", code="unreadable_file"):
        read_weights(tmp_path / "gone.pth")


class Code:
    def __reduce__(self):
        return (exec, ("raise SystemExit",))


@pytest.mark.parametrize("thing", [Code(), {"a": Code()}, [1, 2], {"a": 1}, torch.zeros(2)])
def test_files_that_hold_something_else(tmp_path, thing):
    torch.save(thing, tmp_path / "w.pth")
    with pytest.raises(InputError):
        read_weights(tmp_path / "w.pth")
