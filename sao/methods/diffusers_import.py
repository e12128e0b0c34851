"""diffusers, whose UNet the diffusion model is."""

from sao.errors import InputError
from sao.torchvision_import import import_torchvision


def import_unet() -> type:
    """UNet2DModel. The import takes longer than torch's: it is made where the network is built, and nowhere else."""
    try:
        import_torchvision()  # diffusers imports it; see there what can go wrong
        from diffusers.models.unets.unet_2d import UNet2DModel
    except ImportError:
        raise InputError("encoder unet needs diffusers: pip install 'sao[baselines]'") from None
    return UNet2DModel
