"""Libraries of the baselines: torchvision is imported first, which they do too, and which can go wrong."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from types import ModuleType
from typing import Any

from torch import nn

from sao.errors import InputError
from sao.networks.vit import EPSILON, MakeBlock
from sao.runtime.torchvision_import import import_torchvision


@contextmanager
def _import_of(library: str, who: str) -> Iterator[None]:
    """Around the import of a library that someone needs."""
    try:
        import_torchvision()
        yield
    except ImportError:
        raise InputError(f"{who} needs {library}: pip install 'sao[baselines]'") from None


def import_lightly(method: str) -> ModuleType:
    """lightly's modules of networks, where a method uses one of its heads."""
    with _import_of("lightly", f"method {method}"):
        import lightly.models.modules
    return lightly.models.modules


def import_unet() -> type:
    """diffusers' UNet2DModel. The import takes longer than torch's: it is made where the network is built, and nowhere else."""
    with _import_of("diffusers", "encoder unet"):
        from diffusers.models.unets.unet_2d import UNet2DModel
    return UNet2DModel


def transformer_block() -> MakeBlock:
    """(width, heads) → timm's block: attention, then a perceptron four times as wide, each behind a norm and around a sum."""
    with _import_of("timm", "encoder vit"):
        from timm.models.vision_transformer import Block
    norm = partial(nn.LayerNorm, eps=EPSILON)
    return partial(Block, mlp_ratio=4, qkv_bias=True, norm_layer=norm)  # pyright: ignore[reportArgumentType]


def timm_network(name: str, channels: int, size: int) -> nn.Module:
    """A network of timm without its classifier and with fresh weights; nothing is downloaded."""
    with _import_of("timm", f"encoder timm:{name}"):
        import timm
        from timm.models import get_pretrained_cfg
    if not timm.is_model(name.partition(".")[0]):
        raise InputError(f"timm {timm.__version__} has no network {name!r}: see timm.list_models()")
    about = get_pretrained_cfg(name)
    sized: dict[str, Any] = {"img_size": size} if about is not None and about.fixed_input_size else {}
    try:
        return timm.create_model(name, pretrained=False, num_classes=0, in_chans=channels, **sized)
    except (TypeError, ValueError, AssertionError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(f"timm cannot make {name} for images of {size}x{size} with {channels} channels: {reason}") from None
