"""Commands for modern encoders, gone through with small random models of their architectures."""

from __future__ import annotations

import json
import runpy
import shlex
import sys
from pathlib import Path

import torch
from typer.main import get_command

from benchmark.test_full_length import small_cifar
from cala.cli import app
from cala.encoders import load_encoder
from encoders.test_loaders import VIT, hf_folder
from encoders.tiny_models import need

SCRIPT = Path(__file__).parent.parent.parent / "benchmarks" / "modern_encoders.py"


def random_models(root: Path) -> dict[str, str]:
    """The architectures of the script, small: name -> URI."""
    need("transformers", "timm")
    import timm
    import transformers as t
    from timm.models import save_for_hf

    torch.manual_seed(0)
    tower = {**VIT, "num_attention_heads": 2}
    kinds = {
        "dinov2-s": (t.Dinov2Model, t.Dinov2Config(**{**VIT, "mlp_ratio": 1})),
        "siglip-b16": (
            t.SiglipModel,
            t.SiglipConfig(
                vision_config=tower,
                text_config={k: v for k, v in VIT.items() if k[-5:] != "_size"}
                | {"hidden_size": 16, "intermediate_size": 16, "vocab_size": 20},
            ),
        ),
    }
    found = {}
    for name, (kind, config) in kinds.items():
        (root / name).mkdir(parents=True)
        found[name] = hf_folder(root / name, kind, config)
    sizes = {"img_size": 32, "patch_size": 16, "embed_dim": 16, "depth": 1, "num_heads": 2}
    model = timm.create_model("vit_base_patch16_224", pretrained=False, **sizes)
    save_for_hf(model, root / "vit-b16", model_args=sizes, safe_serialization=True)
    return {**found, "vit-b16": f"timm:local-dir:{root / 'vit-b16'}"}


def printed(capsys, monkeypatch, *words: str) -> list[list[str]]:
    monkeypatch.setattr(sys, "argv", [str(SCRIPT), *words])
    runpy.run_path(str(SCRIPT), run_name="__main__")
    lines = capsys.readouterr().out.splitlines()
    return [shlex.split(line) for line in lines if not line.startswith("#")]


def test_commands_of_all_sets(capsys, monkeypatch):
    sets = ("cub200", "cifar100", "mini_imagenet")
    given = [word for name in sets for word in ("--data", f"{name}=DIR")]
    found = printed(capsys, monkeypatch, *given)
    assert len(found) == 3 * (4 + 1)
    runs = [words for words in found if words[1] == "run"]
    encoders = {words[words.index("--encoder") + 1] for words in runs}
    assert len(encoders) == 4
    assert {(words[2], words[words.index("--encoder") + 1]) for words in runs} == {
        (dataset, uri) for dataset in sets for uri in encoders
    }
    known = {o for option in get_command(app).commands["run"].params for o in option.opts}
    assert {word for words in runs for word in words if word.startswith("-")} <= known


def test_every_architecture_goes_through(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("CALA_CACHE", str(tmp_path / "cache"))
    data, models = small_cifar(tmp_path / "cifar"), random_models(tmp_path / "models")
    given = [word for item in models.items() for word in ("--encoder", "=".join(item))]
    options = "--shot-views 1 --fakes 12 --draws random:1 --no-report --quiet --device cpu"
    found = printed(
        capsys, monkeypatch, "--data", f"cifar100={data}", "--out", str(tmp_path / "runs"),
        "--methods", "nearest-mean,cala-plus", "--options", options, *given,
    )  # fmt: skip
    for words in found:
        assert app(words[1:], standalone_mode=False) in (None, 0)
    for name, uri in models.items():
        folder = tmp_path / "runs" / f"cifar100-{name}"
        summary = json.loads((folder / "summary.json").read_text())
        assert set(summary["random"]) == {"nearest-mean", "cala-plus"}
        assert summary["random"]["nearest-mean"]["summary"]["last"]["mean"] > 1.0  # chance: 1 %
        assert load_encoder(uri).dim == 16
