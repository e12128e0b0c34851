"""Libraries of the baselines: torchvision is imported first, which they do too, and which can go wrong."""

from functools import partial
from types import ModuleType
from typing import Any

from torch import nn

from sao.errors import InputError
from sao.networks.vit import EPSILON, MakeBlock
from sao.runtime.torchvision_import import import_torchvision


def import_lightly(method: str) -> ModuleType:
    """lightly's modules of networks, where a method uses one of its heads."""
    try:
        import_torchvision()
        import lightly.models.modules
    except ImportError:
        raise InputError(f"method {method} needs lightly: pip install 'sao[baselines]'") from None
    return lightly.models.modules


def import_unet() -> type:
    """diffusers' UNet2DModel. The import takes longer than torch's: it is made where the network is built, and nowhere else."""
    try:
        import_torchvision()
        from diffusers.models.unets.unet_2d import UNet2DModel
    except ImportError:
        raise InputError("encoder unet needs diffusers: pip install 'sao[baselines]'") from None
    return UNet2DModel


def transformer_block() -> MakeBlock:
    """(width, heads) → timm's block: attention, then a perceptron four times as wide, each behind a norm and around a sum."""
    try:
        import_torchvision()
        from timm.models.vision_transformer import Block
    except ImportError:
        raise InputError("encoder vit needs timm: pip install 'sao[baselines]'") from None
    norm = partial(nn.LayerNorm, eps=EPSILON)
    return partial(Block, mlp_ratio=4, qkv_bias=True, norm_layer=norm)  # pyright: ignore[reportArgumentType]


def timm_network(name: str, channels: int, size: int) -> nn.Module:
    """A network of timm without its classifier and with fresh weights; nothing is downloaded."""
    try:
        import_torchvision()
        import timm
        from timm.models import get_pretrained_cfg
    except ImportError:
        raise InputError(f"encoder timm:{name} needs timm: pip install 'sao[baselines]'") from None
    if not timm.is_model(name.partition(".")[0]):
        raise InputError(f"timm {timm.__version__} has no network {name!r}: see timm.list_models()")
    about = get_pretrained_cfg(name)
    sized: dict[str, Any] = {"img_size": size} if about is not None and about.fixed_input_size else {}
    try:
        return timm.create_model(name, pretrained=False, num_classes=0, in_chans=channels, **sized)
    except (TypeError, ValueError, AssertionError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(f"timm cannot make {name} for images of {size}x{size} with {channels} channels: {reason}") from None
