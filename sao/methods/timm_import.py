"""timm, whose blocks the vision transformer is made of."""

from functools import partial

from torch import nn

from sao.errors import InputError
from sao.networks.vit import EPSILON, MakeBlock
from sao.torchvision_import import import_torchvision


def transformer_block() -> MakeBlock:
    """(width, heads) → timm's block: attention, then a perceptron four times as wide, each behind a norm and around a sum."""
    try:
        import_torchvision()  # timm imports it; see there what can go wrong
        from timm.models.vision_transformer import Block
    except ImportError:
        raise InputError("encoder vit needs timm: pip install 'sao[baselines]'") from None
    norm = partial(nn.LayerNorm, eps=EPSILON)
    return partial(Block, mlp_ratio=4, qkv_bias=True, norm_layer=norm)  # pyright: ignore[reportArgumentType]
