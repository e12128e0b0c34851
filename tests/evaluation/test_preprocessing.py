"""Constants of others: what enters a foreign network is what its own library would let in, on a real photograph."""

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.datasets import load_sample_image

from sao.data.dataset import pixels_to_inputs
from sao.evaluation.extractors import efficientnet_lite0, inception
from sao.training.pictures import pixels_of

GREY_LEVEL = 1 / 127.5


@pytest.fixture(scope="module")
def flower() -> np.ndarray:
    return np.ascontiguousarray(load_sample_image("flower.jpg")[100:324, 200:424])  # 224x224


def entering(monkeypatch, owner, name: str) -> list[torch.Tensor]:
    """What the method of a network is given from now on."""
    seen, original = [], getattr(owner, name)

    def recording(self, x, *arguments):
        seen.append(x.clone())
        return original(self, x, *arguments)

    monkeypatch.setattr(owner, name, recording)
    return seen


def test_inception_sees_what_torch_fidelity_shows_it(flower, random_inception, tmp_path, monkeypatch):
    """From pixels through ours, and from a file through torch-fidelity's own reader."""
    from torch_fidelity.datasets import ImagesPathDataset, TransformPILtoRGBTensor
    from torch_fidelity.feature_extractor_inceptionv3 import BasicConv2d
    from torch_fidelity.interpolate_compat_tensorflow import interpolate_bilinear_2d_like_tensorflow1x

    theirs, weights = random_inception
    Image.fromarray(flower).save(tmp_path / "flower.png")
    read = ImagesPathDataset([str(tmp_path / "flower.png")], TransformPILtoRGBTensor())[0]
    ours = inception(weights)
    seen = entering(monkeypatch, BasicConv2d, "forward")
    with torch.inference_mode():
        theirs(read[None])
    expected, first = seen[0], len(seen)
    ours(flower[None])
    assert torch.equal(seen[first], expected)
    resized = interpolate_bilinear_2d_like_tensorflow1x(read[None].float(), size=(299, 299), align_corners=False)
    torch.testing.assert_close(expected, (resized - 128) / 128)  # TensorFlow's graph of 2015


def test_efficientnet_sees_what_it_was_trained_with(flower, monkeypatch):
    """Mean 127 and deviation 128, as TensorFlow trained it; timm writes 0.5 and 0.5, which is the same to a grey level."""
    import timm
    from efficientnet_lite_pytorch import EfficientNet
    from timm.data.config import resolve_data_config
    from torchvision.transforms import functional

    seen = entering(monkeypatch, EfficientNet, "extract_features")
    network = efficientnet_lite0(size=224)
    network(flower[None])
    config = resolve_data_config(model=timm.create_model("tf_efficientnet_lite0"))
    assert config["input_size"] == (3, 224, 224)
    expected = functional.normalize(functional.to_tensor(flower), config["mean"], config["std"])
    torch.testing.assert_close(seen[0][0], expected, atol=GREY_LEVEL, rtol=0)
    torch.testing.assert_close(seen[0][0], (torch.from_numpy(flower).permute(2, 0, 1).float() - 127) / 128)


def test_efficientnet_sees_images_resized_as_its_package_resizes_them(flower, monkeypatch):
    """Bilinear and antialiased, as torchvision resizes a picture of Pillow's."""
    from efficientnet_lite_pytorch import EfficientNet
    from torchvision import transforms

    seen = entering(monkeypatch, EfficientNet, "extract_features")
    efficientnet_lite0(size=64)(flower[None])
    resized = np.asarray(transforms.Resize(64)(Image.fromarray(flower)))
    expected = (torch.from_numpy(resized.copy()).permute(2, 0, 1).float() - 127) / 128
    torch.testing.assert_close(seen[0][0], expected, atol=1.01 / 128, rtol=0)


def test_inputs_are_those_that_diffusers_trains_with_and_pictures_those_it_draws(flower):
    from diffusers.image_processor import VaeImageProcessor

    processor = VaeImageProcessor(vae_scale_factor=1)
    inputs = pixels_to_inputs(torch.from_numpy(flower)[None])
    torch.testing.assert_close(inputs, processor.preprocess(Image.fromarray(flower)), atol=1e-6, rtol=0)
    drawn = (np.asarray(processor.postprocess(inputs, output_type="np")) * 255).round().astype(np.uint8)
    np.testing.assert_array_equal(pixels_of(inputs).numpy(), drawn)


def test_inputs_are_those_that_timms_vision_transformers_are_trained_with(flower):
    import timm
    from timm.data.config import resolve_data_config
    from timm.data.transforms_factory import create_transform

    config = resolve_data_config(model=timm.create_model("vit_tiny_patch16_224"))
    transform = create_transform(**{**config, "crop_pct": 1.0})
    assert callable(transform)
    expected = transform(Image.fromarray(flower))
    torch.testing.assert_close(pixels_to_inputs(torch.from_numpy(flower)[None])[0], expected, atol=1e-6, rtol=0)
