"""Libraries of the baselines: torchvision is imported first, which they do too, and which can go wrong."""

from functools import partial
from types import ModuleType

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
