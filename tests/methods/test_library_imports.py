"""Libraries of the baselines: what is imported before them, and what is taken from them."""

import subprocess
import sys
from collections.abc import Callable

import pytest
import tiny
from torch import nn

from sao.errors import InputError
from sao.methods import third_party
from sao.runtime.torchvision_import import import_torchvision

LIBRARIES: dict[str, Callable[[], object]] = {
    "diffusers": third_party.import_unet,
    "lightly": lambda: third_party.import_lightly("simclr"),
    "timm": third_party.transformer_block,
}


@pytest.mark.parametrize("name", LIBRARIES)
def test_torchvision_is_imported_by_us_before_a_library_does_it(name, monkeypatch):
    """It fails beside a torch of another kind, and ours knows how; here it may be imported already."""
    asked: list[str] = []
    monkeypatch.setattr(third_party, "import_torchvision", lambda: asked.append(name) or import_torchvision())
    assert LIBRARIES[name]() is not None
    assert asked == [name]


@pytest.mark.parametrize(
    ("method", "library", "module", "who"),
    [
        ("ddpm", "diffusers", "models.unets.unet_2d", "encoder unet"),
        ("mae", "timm", "models.vision_transformer", "encoder vit"),
        ("simclr", "lightly", "models.modules", "method simclr"),
    ],
)
def test_without_a_library_the_way_to_install_it_is_said(method, library, module, who, monkeypatch):
    monkeypatch.setitem(sys.modules, library, None)
    monkeypatch.setitem(sys.modules, f"{library}.{module}", None)
    with pytest.raises(InputError, match=rf"{who} needs {library}: pip install 'sao\[baselines\]'"):
        tiny.method(method=method)


def test_a_block_of_the_transformer_is_the_published_one():
    block = third_party.transformer_block()(8, 2)
    layers = dict(block.named_modules())
    assert isinstance(layers["mlp.fc1"], nn.Linear)
    assert layers["mlp.fc1"].out_features == 4 * 8
    assert isinstance(layers["attn.qkv"], nn.Linear)
    assert layers["attn.qkv"].bias is not None
    for norm in (layers["norm1"], layers["norm2"]):
        assert isinstance(norm, nn.LayerNorm)
        assert norm.eps == 1e-6


@pytest.mark.slow
def test_timm_imports_after_one_line():
    """In a process that has imported nothing yet, with whatever torchvision is installed."""
    pytest.importorskip("timm")
    done = subprocess.run(
        [sys.executable, "-c", "import sao.runtime.with_torchvision\nimport timm"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
