"""The interface of a method: it makes one training step on a batch, and turns samples into features."""

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar, Literal, Self

import torch
from torch import Tensor, nn
from torch.autograd.profiler import record_function
from torch.nn import functional as F
from torch.optim import Optimizer

from sao.config.types import Strict
from sao.core import distributed
from sao.core import random as randomness
from sao.core.finite import Health
from sao.core.precision import Compiled, Function, autocast, identity
from sao.errors import InputError
from sao.methods.encoders import AnyEncoderOptions, EncoderOptions, TrainingData, start_from_patches
from sao.networks import EMA, Encoder
from sao.networks.cpu import portable

Scalars = dict[str, Tensor]
FeatureName = Literal["backbone", "embedding", "layers"]
SMALLEST_PHOTOGRAPH = 32  # pixels a side of colour images; below it trials were made with the backbone's features alone
Use = FeatureName | Literal["decode"]


@dataclass(frozen=True)
class Context:
    """What a method is told about the run that it is built for."""

    shape: tuple[int, ...]  # of a sample: (c, h, w) or (d,)
    samples: int  # in the training set
    batch: int  # global, over all processes
    steps: int  # of the whole run
    seed: int
    classes: int | None = None
    encoder: EncoderOptions | None = None  # None: what is usual for the method and the shape

    @property
    def steps_per_epoch(self) -> int:
        return max(1, self.samples // self.batch)


@dataclass(frozen=True)
class Batch:
    """What a step gets: this process's rows of the global batch."""

    inputs: Tensor
    rows: Tensor  # their places in the training set
    labels: Tensor | None = None  # only for a method that needs them


class MethodOptions(Strict, ABC):
    """The options of one method, which know how to build it."""

    name: str
    encoders: ClassVar[tuple[str, ...] | None] = None  # encoders that it can use; None: every general one; empty: only its own
    generates: ClassVar[bool] = False  # whether it builds a Generative method

    @classmethod
    def can_use(cls, encoder: type[AnyEncoderOptions]) -> bool:
        return encoder.general if cls.encoders is None else encoder.model_fields["name"].default in cls.encoders

    def with_runs(self, read: "Callable[[str], OtherRun]") -> Self:
        """The options, completed from the folders of other runs that they name; `read` opens one."""
        return self

    @abstractmethod
    def build(self, context: Context) -> "Method":
        """The method at step 0; its weights are drawn from torch's default generator, which is seeded."""


@dataclass(frozen=True)
class OtherRun:
    """What a method may know of another run."""

    folder: str
    method: MethodOptions
    encoder: EncoderOptions | None
    seed: int


class Method(nn.Module, ABC):
    """Networks and optimisers; their state is the whole state of a run."""

    needs_labels = False
    seed = 0  # of all draws; the run's
    optimisers: dict[str, Optimizer]
    autocast_bfloat16 = autocast_tf32 = compiled = False  # set by the engine, for the device
    max_grad_norm: float | None = None  # to which the gradient of each optimiser is clipped; None: no clipping
    headline: tuple[str, ...] = ()  # the logged scalars that the progress line shows
    cycle = 1  # steps after which the kind of work repeats, where not all steps do the same
    may_collapse: ClassVar[bool] = False  # whether a run says so where its network answers everything alike
    uniform_losses: Mapping[str, float] | None = None  # values at which a logged loss means: all outputs are alike
    # Names of the networks and buffers that `features` and `embeddings` need; others are not loaded. "": all.
    features_with: tuple[str, ...] = ("",)
    embeddings_with: tuple[str, ...] | None = None  # None: the same as for the features
    flipped = False  # whether training mirrors half of the images, so that an image and its mirror image mean the same
    own_clusters: int | None = None  # number of clusters, where the method makes clusters of its own

    def __init__(self) -> None:
        super().__init__()
        self.health = Health()
        self._compiled = Compiled()

    @contextmanager
    def autocast(self, like: Tensor, allowed: bool = True, compiled: bool = True) -> "Iterator[Callable[[Function], Function]]":
        """Around a forward pass of training: in bfloat16 or TF32 where the run asks for it. The caller casts results back.

        It yields a function that makes a network the compiled one, or leaves it; two backward passes need `compiled=False`.
        """
        with ExitStack() as stack:
            if allowed and (self.autocast_bfloat16 or self.autocast_tf32):
                stack.enter_context(autocast(self.autocast_bfloat16, self.autocast_tf32, like.device))
            if allowed and compiled and self.compiled:
                stack.enter_context(portable())  # torch's own operators are what its compiler knows how to join
                stack.enter_context(warnings.catch_warnings())
                warnings.filterwarnings("ignore", "The .grad attribute of a Tensor")  # the compiler looks at that of G's images
                yield self._compiled
            else:
                yield identity

    def compile_networks(self) -> None:
        """From now on, let torch compile the networks that run inside `autocast`."""
        self.compiled = True

    def begin(self, method_of: "Callable[[str], tuple[Method, int]]") -> None:
        """Before the first step of a run: take over weights of other runs. `method_of` opens one and returns its step."""

    def refresh(self, data: TrainingData, step: int) -> None:
        """Before each step: work on more data than a batch, a function of state and step; by default a start from patches."""
        if step == 0:
            start_from_patches(self, data, self.seed)

    def training_step(self, batch: Batch, step: int) -> Scalars:
        """One training step; no optimiser uses what is not finite, and `check_finite`, which waits for the device, tells."""
        self.health.step = step
        return self.step(batch, step)

    @abstractmethod
    def step(self, batch: Batch, step: int) -> Scalars:
        """Train on this process's rows of the global batch; return detached scalars to log. Nothing is read from the device."""

    def check_finite(self) -> None:
        """Raise NonFiniteError if a step so far had a loss or a gradient that was not finite."""
        self.health.check()

    @torch.no_grad()
    def features(self, inputs: Tensor) -> Tensor:
        """Backbone features (n, b) for evaluation, without a graph."""
        return self.encoded(inputs)

    def encoded(self, inputs: Tensor) -> Tensor:
        """The same with a graph; by default of the encoder whose name is the first in `features_with`."""
        with evaluating(self.get_submodule(self.features_with[0])) as encoder:
            return encoder(inputs)

    def embeddings(self, inputs: Tensor) -> Tensor:
        """What the objective sees, (n, p); the features themselves where a method has no head."""
        return self.features(inputs)

    @torch.no_grad()
    def layers(self, inputs: Tensor) -> Tensor:
        """The features and, pooled to 4x4 or 2x2, the maps of every stage that led to them; where `flipped`, the mean over the
        image and its mirror image: SVM and k-means of photographs gain by it (results/photographs.md)."""
        found = with_stages(self, self.features, inputs)
        return (found + with_stages(self, self.features, inputs.flip(-1))) / 2 if self.flipped else found

    def tensors_for(self, use: Use) -> dict[str, Tensor]:
        """The parameters and buffers that this use needs, as the method declares them."""
        declared = self.features_with
        if use == "decode":
            maker = generative(self)
            assert maker is not None
            declared = maker.decodes_with
        elif use == "embedding" and self.embeddings_with is not None:
            declared = self.embeddings_with
        tensors = dict(self.named_parameters()) | dict(self.named_buffers())
        return {name: value for name, value in tensors.items() if _is_of(declared, name)}

    @property
    def has_layers(self) -> bool:
        """Whether the features come from an encoder that makes maps of an image in stages."""
        used = (part for name, part in self.named_modules() if _is_of(self.features_with, name))
        return any(True for part in used if isinstance(part, Encoder) for _ in part.blocks_of_maps())

    def representation(self, name: FeatureName) -> Callable[[Tensor], Tensor]:
        return {"backbone": self.features, "embedding": self.embeddings, "layers": self.layers}[name]

    def usual_feature(self, shape: tuple[int, ...]) -> FeatureName:
        """What a person gets who does not say: all layers of photographs, better in every trial, else the backbone."""
        photographs = len(shape) == 3 and shape[0] == 3 and min(shape[1:]) >= SMALLEST_PHOTOGRAPH
        return "layers" if photographs and self.has_layers else "backbone"

    def clusters_of(self, inputs: Tensor) -> Tensor:
        """The number (n,) of each sample's cluster, for a method that has clusters of its own."""
        raise NotImplementedError

    def smooth_function(self, inputs: Tensor) -> Tensor:
        """The function whose Jacobian is logged, with a graph; by default the features, also where a method has its own."""
        return self.encoded(inputs) if type(self).features is Method.features else self.features(inputs)

    @property
    def has_ema(self) -> bool:
        """Whether features come from an EMA of the trained network."""
        return any(isinstance(child, EMA) for child in self.children())

    def followers(self) -> dict[str, str]:
        """The networks that follow another: how names of their tensors begin → how those of what they follow begin."""
        averages = [name for name, child in self.named_children() if isinstance(child, EMA)]
        return {f"{name}.network.": f"{name.removeprefix('ema_')}." for name in averages}

    def use_raw_weights(self) -> None:
        """Let features and samples come from the trained networks themselves instead of their EMAs."""
        for name, child in self.named_children():
            if isinstance(child, EMA):  # ema_X follows X
                child.network.load_state_dict(getattr(self, name.removeprefix("ema_")).state_dict())

    def update(self, name: str, losses: Scalars, diagnostics: Scalars) -> Scalars:
        """Step an optimiser with the gradients of all processes, unless `found_inf` is 1; return the scalars to log."""
        optimiser = self.optimisers[name]
        parameters = [parameter for group in optimiser.param_groups for parameter in group["params"]]
        scalars = {f"{name}/{term}": value.detach() for term, value in (losses | diagnostics).items()}
        scalars[f"{name}/gradient_norm"] = gradient_norm(parameters)
        optimiser.found_inf = self.health.found_inf(scalars)  # pyright: ignore[reportAttributeAccessIssue]
        with record_function("phase/optimiser"):
            if self.max_grad_norm is not None:
                clip_grad_norm(parameters, scalars[f"{name}/gradient_norm"], self.max_grad_norm)
            optimiser.step()
        return scalars

    def backward_and_update(self, name: str, losses: Scalars, diagnostics: Scalars) -> Scalars:
        """One update with the gradient of the sum of the losses, which are those of the global batch."""
        optimiser = self.optimisers[name]
        optimiser.zero_grad()
        total(losses).backward()
        distributed.sum_gradients(parameter for group in optimiser.param_groups for parameter in group["params"])
        return self.update(name, losses, diagnostics)


class Generative(Method):
    """A method that also makes samples: `decode` turns normal draws into inputs."""

    latent_shape: tuple[int, ...]
    decodes_with: ClassVar[tuple[str, ...]] = ("ema_generator",)  # names of the networks and buffers for `decode`, each whole

    @torch.no_grad()
    def decode(self, latents: Tensor) -> Tensor:
        """Inputs (n, …) from latents (n, *latent_shape), without a graph; the same latents always give the same inputs."""
        return self.get_submodule("ema_generator.network")(latents)


def _is_of(declared: Sequence[str], name: str) -> bool:
    return any(one == "" or f"{name}.".startswith(f"{one}.") for one in declared)


def generative(method: Method) -> Generative | None:
    """The method itself if it can make samples."""
    return method if isinstance(method, Generative) else None


@contextmanager
def evaluating(network: nn.Module) -> Iterator[nn.Module]:
    """The network in evaluation mode, then in the mode it was in."""
    training = network.training
    network.eval()
    try:
        yield network
    finally:
        network.train(training)


def total(losses: Scalars) -> Tensor:
    return torch.stack(list(losses.values())).sum()


def clip_grad_norm(parameters: Sequence[nn.Parameter], norm: Tensor, limit: float) -> None:
    """Scale the gradients, which together have this norm, so that it is at most the limit."""
    gradients = [p.grad for p in parameters if p.grad is not None]
    torch._foreach_mul_(gradients, (limit / norm).clamp(max=1))  # pyright: ignore[reportPrivateImportUsage]


def gradient_norm(parameters: Sequence[nn.Parameter]) -> Tensor:
    gradients = [p.grad for p in parameters if p.grad is not None]
    return torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients)))  # pyright: ignore[reportPrivateImportUsage]


@contextmanager
def frozen(*networks: nn.Module) -> Iterator[None]:
    """Gradients pass through the networks, but their parameters take none."""
    for network in networks:
        network.requires_grad_(False)
    try:
        yield
    finally:
        for network in networks:
            network.requires_grad_(True)


def normal_rows(shape: tuple[int, ...], batch: int, seed: int, purpose: str, step: int, like: Tensor) -> Tensor:
    """This process's rows (n, *shape) of the standard normal draws of a global batch."""
    rows = distributed.local_slice(batch)
    return randomness.normal(seed, purpose, step, rows, shape, like.device).to(like.dtype)


def uniform_rows(shape: tuple[int, ...], batch: int, seed: int, purpose: str, step: int, like: Tensor) -> Tensor:
    """The same for draws in [0, 1)."""
    rows = distributed.local_slice(batch)
    return randomness.uniform(seed, purpose, step, rows, shape, like.device).to(like.dtype)


def images_only(shape: tuple[int, ...], name: str) -> None:
    if len(shape) == 1:
        raise InputError(f"method {name} is for images, and this data is vectors: choose another --method")


def with_stages(network: nn.Module, features: Callable[[Tensor], Tensor], inputs: Tensor) -> Tensor:
    """(n, b + cells · widths of the stages): the features, and the last map of every stage averaged to 4x4 or 2x2."""
    maps: list[Tensor] = []
    blocks = [block for part in network.modules() if isinstance(part, Encoder) for block in part.blocks_of_maps()]

    def keep(_block: nn.Module, _inputs: tuple[Tensor, ...], output: Tensor) -> None:
        maps.append(output)

    hooks = [block.register_forward_hook(keep) for block in blocks]
    try:
        last = features(inputs)
    finally:
        for hook in hooks:
            hook.remove()
    if not maps:
        raise InputError("feature layers is for encoders that make maps of an image in stages: use backbone or embedding")
    ends = [earlier for earlier, later in pairwise(maps) if earlier.shape != later.shape] + maps[-1:]
    return torch.cat([last, *(F.adaptive_avg_pool2d(stage, cells(stage)).flatten(1).to(last) for stage in ends)], dim=1)


def cells(stage: Tensor) -> int:
    """Cells a side that a map (n, c, h, w) is averaged to: 4 for maps of at least 8x8, else 2, and 1 for a map of one pixel."""
    side = min(stage.shape[2:])
    return 4 if side >= 8 else min(2, side)
