"""What is exported: the network that a run uses, in torch's own operators, with what comes before and after it.

The operators of `sao.networks.cpu` cannot be exported: some are traced without an error and give wrong values.
"""

import copy
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn
from torch.nn.utils import parametrize

from sao.data.dataset import PixelRange, Scaling, Standardiser, pixels_to_inputs
from sao.data.files.decode import Recipe, fit
from sao.errors import InputError
from sao.export.any_size import OfAnySize, preparation
from sao.methods import FeatureName, Method, Use, generative
from sao.networks.cpu import portable
from sao.training.model import Model
from sao.training.pictures import pixels_of

UNLIKE = (41, 53)  # height and width of an example of images of any size
EXAMPLES = 3  # in the batch with which the network is traced; another number than any size in it


@dataclass(frozen=True)
class Whole:
    """A module from what a person has to what a person wants, and how `sao` itself computes the same."""

    module: nn.Module  # in evaluation mode, with the weights that are used and no others
    example: Tensor  # a batch that it takes
    expected: Callable[[np.ndarray], np.ndarray]
    input_name: str
    output_name: str
    kind: str  # "encoder" or "generator"
    free_axes: tuple[int, ...] = (0,)  # of the example: those of any length
    preparation: str = ""  # how an image file becomes what the network sees

    @property
    def network(self) -> nn.Module:
        """What is between the first step and the last: floating-point inputs in the network's own scale."""
        return self.module.network  # pyright: ignore[reportReturnType]


def whole_encoder(model: Model, feature: FeatureName = "backbone", any_size: bool = False) -> Whole:
    """uint8 images (n, h, w, c), or rows (n, d) as float64 in their original units → features (n, b).

    Images of 16 bits are float32 in the units of the data. With `any_size` images of any height and width: they are prepared
    inside the graph.
    """
    network, shape = _portable_network(model.method_for(feature), feature), model.facts.shape
    if any_size:
        return _of_any_size(model, network, feature)
    if len(shape) == 3:
        channels, height, width = shape
        kind = torch.uint8 if model.pixel_range is None else torch.float32
        module, example = OfImages(network, model.pixel_range), torch.zeros(EXAMPLES, height, width, channels, dtype=kind)
        inputs, said = "images", preparation(model.config, shape, model.pixel_range)
    else:
        standardiser = _standardiser(model)
        columns = shape[0] if standardiser is None else standardiser.width
        module, example = OfRows(network, standardiser), torch.zeros(EXAMPLES, columns, dtype=torch.float64)
        inputs, said = "rows", ""
    return Whole(module.eval(), example, _expected(model, feature), inputs, "features", "encoder", preparation=said)


def _expected(model: Model, feature: FeatureName) -> Callable[[np.ndarray], np.ndarray]:
    if model.pixel_range is None:
        return lambda x: model.embed(x, feature)
    function, scaling = model.method_for(feature).representation(feature), model.pixel_range.scaling(model.device)

    @torch.no_grad()
    def expected(images: np.ndarray) -> np.ndarray:
        """Not by way of 16 bits, to which `embed` rounds floating-point numbers."""
        return function(pixels_to_inputs(torch.from_numpy(images).to(model.device), scaling)).float().cpu().numpy()

    return expected


def _of_any_size(model: Model, network: nn.Module, feature: FeatureName) -> Whole:
    if len(model.facts.shape) != 3:
        raise InputError("this run was trained on rows, which have no size: leave out --any-size")
    channels, size, _ = model.facts.shape
    if channels not in (1, 3) or model.pixel_range is not None:
        raise InputError("--any-size is for grey and colour images of 8 bits: leave it out")
    recipe = Recipe(size, channels, model.config.data.fit)
    example = torch.zeros(EXAMPLES, *UNLIKE, channels, dtype=torch.uint8)

    def expected(images: np.ndarray) -> np.ndarray:
        pictures = (Image.fromarray(image[..., 0] if channels == 1 else image) for image in images)
        return model.embed(np.stack([fit(picture, recipe) for picture in pictures]), feature)

    module, said = OfAnySize(network, recipe).eval(), preparation(model.config, model.facts.shape)
    return Whole(module, example, expected, "images", "features", "encoder", (0, 1, 2), said)


def whole_generator(model: Model) -> Whole:
    """Latents (n, *latent_shape) as float32 → uint8 images (n, h, w, c), or rows in their original units."""
    example = torch.zeros(EXAMPLES, *model.latent_shape)
    network = _portable_network(model.method_for("decode"), "decode")
    if len(model.facts.shape) == 3:
        module, output = ToImages(network, model.pixel_range), "images"
    else:
        module, output = ToRows(network, _standardiser(model)), "rows"
    return Whole(module.eval(), example, lambda z: model.decode(torch.from_numpy(z)), "latents", output, "generator")


def _standardiser(model: Model) -> Standardiser | None:
    return None if model.facts.standardiser is None else Standardiser.from_dict(model.facts.standardiser)


# --- the network ---------------------------------------------------------------------------------------------------------


class Function(nn.Module):
    """One function of a method, which keeps the parts of it that the function needs."""

    def __init__(self, method: Method, name: Use) -> None:
        super().__init__()
        self.method = method
        self.name: Use = name

    def forward(self, inputs: Tensor) -> Tensor:
        if self.name != "decode":
            return self.method.representation(self.name)(inputs)
        maker = generative(self.method)
        assert maker is not None
        return maker.decode(inputs)


def _portable_network(method: Method, name: Use) -> Function:
    """A copy of the method on the CPU, in torch's layout, with only the weights that this use needs."""
    method = copy.deepcopy(method)
    method.optimisers = {}
    with portable():
        function = Function(method.requires_grad_(False).eval(), name)
        function._apply(lambda tensor: tensor if tensor.is_meta else tensor.cpu())
        _fix_parametrised(function)
        _keep(function, {f"method.{known}" for known, value in method.tensors_for(name).items() if not value.is_meta})
    return function


def _fix_parametrised(network: nn.Module) -> None:
    """Weights that are computed from others (spectral normalisation) become plain weights.

    Not by torch's own function: it changes the class, which the copied module shares with the one of the run.
    """
    for module in network.modules():
        if parametrize.is_parametrized(module):
            names = [name for name, _ in module.parametrizations.named_children()]  # pyright: ignore[reportCallIssue, reportAttributeAccessIssue]
            values = {name: getattr(module, name).detach() for name in names}
            del module.parametrizations
            module.__class__ = type(module).__bases__[0]
            for name, value in values.items():
                module.register_parameter(name, nn.Parameter(value, requires_grad=False))


def _keep(network: nn.Module, needed: set[str]) -> None:
    """Drop all other tensors, and modules of which none is needed; modules without any tensor stay."""
    for name, module in list(network.named_modules(remove_duplicate=False)):
        prefix = f"{name}." if name else ""
        for child, inner in list(module.named_children()):
            held = [*inner.parameters(), *inner.buffers()]
            if held and not any(known.startswith(f"{prefix}{child}.") for known in needed):
                setattr(module, child, None)
        for tensors in (module._parameters, module._buffers):
            for own in [own for own, tensor in tensors.items() if tensor is not None and f"{prefix}{own}" not in needed]:
                tensors[own] = None


# --- before and after it -------------------------------------------------------------------------------------------------


class OfImages(nn.Module):
    def __init__(self, network: nn.Module, pixel_range: PixelRange | None = None) -> None:
        super().__init__()
        self.network, self.pixel_range = network, pixel_range
        if pixel_range is not None:
            low, factor = pixel_range.scaling()
            self.register_buffer("low", low)
            self.register_buffer("factor", factor)

    def forward(self, images: Tensor) -> Tensor:
        scaling = None if self.pixel_range is None else Scaling(self.low, self.factor)  # pyright: ignore
        return self.network(pixels_to_inputs(images, scaling))


class OfRows(nn.Module):
    """In double precision up to the network: a column may have a mean that is large against its deviation."""

    def __init__(self, network: nn.Module, standardiser: Standardiser | None) -> None:
        super().__init__()
        self.network = network
        self.scale = None if standardiser is None else Scale(standardiser)

    def forward(self, rows: Tensor) -> Tensor:
        return self.network((rows if self.scale is None else self.scale(rows)).to(torch.float32))


class ToImages(nn.Module):
    def __init__(self, network: nn.Module, pixel_range: PixelRange | None = None) -> None:
        super().__init__()
        self.network, self.pixel_range = network, pixel_range

    def forward(self, latents: Tensor) -> Tensor:
        images = self.network(latents)
        return pixels_of(images) if self.pixel_range is None else self.pixel_range.values(images)


class ToRows(nn.Module):
    def __init__(self, network: nn.Module, standardiser: Standardiser | None) -> None:
        super().__init__()
        self.network = network
        self.scale = None if standardiser is None else Scale(standardiser)

    def forward(self, latents: Tensor) -> Tensor:
        rows = self.network(latents)
        return rows if self.scale is None else self.scale.invert(rows)


class Scale(nn.Module):
    """The standardiser of a run as tensors."""

    kept: Tensor
    mean: Tensor
    std: Tensor

    def __init__(self, standardiser: Standardiser) -> None:
        super().__init__()
        self.factor = standardiser.factor
        self.register_buffer("kept", torch.tensor(standardiser.kept))
        self.register_buffer("mean", torch.tensor(standardiser.mean, dtype=torch.float64))
        self.register_buffer("std", torch.tensor(standardiser.std, dtype=torch.float64))

    def forward(self, rows: Tensor) -> Tensor:
        return (rows.to(torch.float64).index_select(1, self.kept) - self.mean) / self.std * self.factor

    def invert(self, rows: Tensor) -> Tensor:
        return rows.to(torch.float64) / self.factor * self.std + self.mean
