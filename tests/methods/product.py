"""The one place where the whole-step tests know how the package builds a method, what its parts are called and how it draws."""

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import reference_baselines
import reference_step
import torch
from reference_losses import Settings
from torch import Tensor, nn

from sao.config import build
from sao.data.augmentation import Augmentation
from sao.methods import Batch, Method
from sao.methods.gan import Adversarial
from sao.methods.supervised import Supervised
from sao.methods.two_view import TwoViews
from sao.networks import Generator
from sao.networks.cpu import portable

SAMPLES = 1000
# No weight is 1 and no two are alike, so that no factor can hide.
SETTINGS = Settings(epsilon=0.3, cluster_weight=0.7, neighbours=2, smoothness_weight=1.3, lipschitz=0.6, norm_weight=2.1)


@dataclass(frozen=True)
class Optimiser:
    learning_rate: float
    betas: tuple[float, float]
    weight_decay: float


@dataclass(frozen=True)
class Options:
    """A method in plain words."""

    settings: Settings = SETTINGS
    shape: tuple[int, ...] = (1, 8, 8)
    batch: int = 6
    bank: int = 15  # three steps are more than it holds
    power_steps: int = 1
    smooth_every: int = 1
    smooth_one_in: int = 1
    micro_batch: int | None = None
    one_pass: bool = False
    own_keys: bool = False
    spectral_normalisation: bool = False
    kind: str = "resnet"
    flip: bool = False
    augment_generated: bool = False
    cluster_warmup: int = 0
    lazy: bool = False
    local_weight: float = 0.0
    local_cluster_weight: float = 0.0
    local_stage: int = 0
    ema: float = 0.8
    discriminator: Optimiser = Optimiser(3e-3, (0.4, 0.9), 0.2)
    generator: Optimiser = Optimiser(2e-3, (0.6, 0.95), 0.1)


def built(options: Options) -> Adversarial:
    """The product, in float64."""
    settings = options.settings
    encoder: dict[str, Any] = {"name": "resnet", "widths": [4, 8], "blocks": 1}
    if options.kind == "biggan":
        encoder = {"name": "biggan", "width": 8}
    if len(options.shape) == 1:
        encoder = {"name": "perceptron", "width": 8, "depth": 1}
    shared = {
        "augmentation": {"flip": options.flip},
        "augment_generated": options.augment_generated,
        "generator": {"width": 4, "depth": 1},
        "micro_batch": options.micro_batch,
        "one_pass": options.one_pass,
        "ema_decay": options.ema,
        "discriminator_optimiser": vars(options.discriminator),
        "generator_optimiser": vars(options.generator),
    }
    smoothness = {
        "spectral_normalisation": options.spectral_normalisation,
        "smoothness_weight": settings.smoothness_weight,
        "lipschitz": settings.lipschitz,
        "smooth_every": options.smooth_every,
    }
    match settings.distance, options.kind:
        case "hinge", "biggan":
            own: dict[str, Any] = {"name": "biggan"}
        case "hinge", _:
            own = {"name": "hinge", **smoothness}
        case _:
            own = {"name": "structural", "embedding_size": 5, "bank": options.bank, "power_steps": options.power_steps}
            own["keys_from"] = "own" if options.own_keys else "ema"
            own |= {name: getattr(settings, name) for name in Settings.__dataclass_fields__} | smoothness
            shared_names = ("cluster_warmup", "lazy", "smooth_one_in", "local_weight", "local_cluster_weight", "local_stage")
            own |= {"local_size": 3, **{name: getattr(options, name) for name in shared_names}}
    config = build({"method": shared | own, "encoder": encoder, "train": {"batch": options.batch}})
    method = config.build_method(options.shape, SAMPLES, None).double()
    assert isinstance(method, Adversarial)
    unsettle(method)
    if not options.spectral_normalisation and options.kind == "resnet":
        lengthen(method.discriminator, batches(options, 1)[0])
    return method


def batches(options: "Options | BaselineOptions", steps: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(7)
    return [2 * torch.rand(options.batch, *options.shape, generator=generator, dtype=torch.float64) - 1 for _ in range(steps)]


@torch.no_grad()
def unsettle(method: nn.Module) -> None:
    """Away from where weights begin: no gain is 1, no bias 0, and no EMA equals what it follows."""
    generator = torch.Generator().manual_seed(1)
    for parameter in method.parameters():
        parameter += 0.3 * torch.randn(parameter.shape, generator=generator)


def reference(options: Options, method: Adversarial) -> reference_step.Structural:
    """The oracle, with copies of the product's networks made of torch's own operators."""
    local = options.local_weight, options.local_cluster_weight
    return reference_step.Structural(
        options.settings,
        stock(method.discriminator),
        stock(method.generator),
        reference_step.EMA(stock(method.ema_discriminator.network), options.ema),
        reference_step.EMA(stock(method.ema_generator.network), options.ema),
        reference_step.AdamW(**vars(options.discriminator)),
        reference_step.AdamW(**vars(options.generator)),
        reference_step.Bank(options.bank) if options.settings.cluster_weight > 0 else None,
        options.power_steps,
        options.smooth_every,
        options.one_pass,
        options.own_keys,
        reference_step.Local(options.local_stage, *local) if any(local) else None,
        options.cluster_warmup,
        options.lazy,
        options.smooth_one_in,
    )


def stock(network: nn.Module) -> nn.Module:
    """A copy in the usual layout, to be run without the operators written for speed; it has the same parameters and buffers."""
    network = copy.deepcopy(network)
    if isinstance(network, Generator):
        network.recompute = False
    with portable():
        return network.to("cpu")


@torch.no_grad()
def lengthen(discriminator: nn.Module, inputs: Tensor) -> None:
    """Embeddings about as long as 1, so that some are shorter than the hinge of their norms asks for and some longer."""
    length = torch.linalg.vector_norm(discriminator(inputs)[1], dim=1).mean()
    for parameter in discriminator.get_submodule("head.output").parameters():
        parameter /= length


@dataclass
class Recorded:
    """What one step of the product was seen to draw and to do."""

    scalars: dict[str, Tensor]
    real: Tensor  # the batch after augmentation
    draws: reference_step.Draws
    gradients: dict[str, Tensor] = field(default_factory=dict)  # discriminator.NAME and generator.NAME


def step(method: Adversarial, inputs: Tensor, number: int) -> Recorded:
    real: list[Tensor] = []
    mirrored: list[Tensor] = []
    latents: list[Tensor] = []
    directions: list[Tensor] = []
    positions: dict[str, list[Tensor]] = {"real": [], "generated": []}
    augmentation, start = method.augmentation, method._jacobian_directions

    def augmented(images: Tensor, *arguments: Any) -> Tensor:
        if not real:
            real.append(augmentation(images, *arguments))
            return real[0]
        ramp = torch.linspace(-1, 1, images.shape[-1], dtype=images.dtype).expand_as(images)
        mirrored.append((augmentation(ramp, *arguments) - ramp).flatten(1).abs().amax(1) > 0.5)
        return augmentation(images, *arguments)

    def drawn(*arguments: Any) -> Tensor | None:
        if (found := start(*arguments)) is not None:
            directions.append(found)
        return found

    def placed(side: str, *arguments: Any) -> Tensor:
        positions[side].append(type(method)._local_positions(method, side, *arguments))  # pyright: ignore[reportAttributeAccessIssue]
        return positions[side][-1]

    method.augmentation, method._jacobian_directions = augmented, drawn  # pyright: ignore[reportAttributeAccessIssue]
    method._local_positions = placed  # pyright: ignore[reportArgumentType]
    hook = method.generator.register_forward_pre_hook(lambda module, arguments: latents.append(arguments[0]))
    players = {"discriminator.": method.discriminator, "generator.": method.generator}
    try:
        with gradients_before_updates(method, players) as gradients:
            scalars = method.step(Batch(inputs, torch.arange(len(inputs))), number)
    finally:
        hook.remove()
        method.augmentation = augmentation
        del method._jacobian_directions, method._local_positions
    assert len(mirrored) in (0, len(latents)), "both players see one real batch, and generated ones of their own"
    assert len(directions) <= 1
    of_discriminator, of_generator = latents if len(latents) == 2 else latents * 2  # one batch for both where it is so
    used = directions[0] if directions else None
    mirrors = mirrored if len(mirrored) == 2 else (mirrored or [torch.zeros(len(inputs), dtype=torch.bool)]) * 2
    assert all(torch.equal(found[0], again) for found in positions.values() for again in found), "one draw a step"
    places = [found[0] if found else None for found in positions.values()]
    draws = reference_step.Draws(of_discriminator, of_generator, used, *mirrors, *places)
    return Recorded(scalars, real[0], draws, gradients)


@contextmanager
def gradients_before_updates(method: Method, networks: dict[str, nn.Module]) -> Iterator[dict[str, Tensor]]:
    """With what gradients the optimisers are asked to move; some change them."""
    names = {p: f"{owner}{name}" for owner, network in networks.items() for name, p in network.named_parameters()}
    found: dict[str, Tensor] = {}

    def note(optimiser: torch.optim.Optimizer, *_: Any) -> None:
        for parameter in (p for group in optimiser.param_groups for p in group["params"] if p.grad is not None):
            found.setdefault(names[parameter], parameter.grad.clone())

    hooks = [optimiser.register_step_pre_hook(note) for optimiser in method.optimisers.values()]
    try:
        yield found
    finally:
        for hook in hooks:
            hook.remove()


def state(method: Adversarial | reference_step.Structural) -> dict[str, Tensor]:
    """Parameters and buffers of both networks and of their EMAs."""
    networks = {
        "discriminator": method.discriminator,
        "generator": method.generator,
        "ema discriminator": method.ema_discriminator.network,
        "ema generator": method.ema_generator.network,
    }
    return {f"{owner}: {name}": value for owner, network in networks.items() for name, value in network.state_dict().items()}


def bank(method: Adversarial) -> tuple[Tensor, Tensor] | None:
    """Embeddings and keys, the oldest first."""
    held = getattr(method, "bank", None)
    if held is None:
        return None
    filled, cursor = len(held), int(held.cursor)
    order = (torch.arange(filled) + (cursor if filled == held.capacity else 0)) % held.capacity
    return held.embeddings[order], held.keys[order]


# --- the baselines: one network that learns, and its EMA ------------------------------------------------------------------


@dataclass(frozen=True)
class BaselineOptions:
    shape: tuple[int, ...] = (1, 8, 8)
    batch: int = 6
    augmented: bool = True
    temperature: float = 0.3
    kind: str = "adamw"
    optimiser: Optimiser = Optimiser(3e-3, (0.4, 0.9), 0.2)
    ema: float | None = 0.8


def baseline(name: str, options: BaselineOptions, own: dict[str, Any], classes: int | None = None) -> Method:
    encoder: dict[str, Any] = {"name": "resnet", "widths": [4, 8], "blocks": 1}
    if len(options.shape) == 1:
        encoder = {"name": "perceptron", "width": 8, "depth": 2}
    values = {"name": name, "ema_decay": options.ema, "optimiser": vars(options.optimiser)} | own
    config = build({"method": values, "encoder": encoder, "train": {"batch": options.batch}})
    method = config.build_method(options.shape, SAMPLES, classes).double()
    unsettle(method)
    return method


def augmentation(options: BaselineOptions) -> dict[str, Any]:
    return {"flip": True, "crop": 0.5} if options.augmented else {}


def simclr(options: BaselineOptions, **own: Any) -> tuple[TwoViews, reference_baselines.TwoViews]:
    own |= {"hidden_size": 16, "projection_size": 8, "temperature": options.temperature}
    return two_views("simclr", options, own, lambda a, b: {"nt_xent": reference_baselines.nt_xent(a, b, options.temperature)})


def vicreg(options: BaselineOptions, **own: Any) -> tuple[TwoViews, reference_baselines.TwoViews]:
    weights = {"invariance": 3.0, "variance": 5.0, "covariance": 0.7}
    own |= {"projection_size": 8, **weights}
    return two_views("vicreg", options, own, lambda a, b: {"vicreg": reference_baselines.vicreg(a, b, **weights)})


def two_views(
    name: str, options: BaselineOptions, own: dict[str, Any], losses: Callable[[Tensor, Tensor], dict[str, Tensor]]
) -> tuple[TwoViews, reference_baselines.TwoViews]:
    """A two-view method and its reference, which differs from others in its losses alone."""
    optimiser = {**vars(options.optimiser), "kind": options.kind}
    method = baseline(name, options, {"view": augmentation(options), "optimiser": optimiser, **own})
    assert isinstance(method, TwoViews)
    ema = None
    if options.ema is not None:
        assert method.ema_network is not None
        ema = reference_baselines.EMA(stock(method.ema_network.network), options.ema)
    rate, decay = options.optimiser.learning_rate, options.optimiser.weight_decay
    lars = reference_baselines.LARS(rate, decay)
    moved_by = lars if options.kind == "lars" else reference_step.AdamW(**vars(options.optimiser))
    return method, reference_baselines.TwoViews(stock(method.network), ema, moved_by, losses)


def supervised(options: BaselineOptions, labels: Tensor) -> tuple[Supervised, reference_baselines.Supervised]:
    method = baseline("supervised", options, {"augmentation": augmentation(options)}, int(labels.max()) + 1)
    assert isinstance(method, Supervised)
    assert options.ema is not None
    ema = reference_baselines.EMA(stock(method.ema_classifier.network), options.ema)
    optimiser = reference_step.AdamW(**vars(options.optimiser))
    return method, reference_baselines.Supervised(stock(method.classifier), ema, optimiser)


@dataclass
class RecordedBaseline:
    scalars: dict[str, Tensor]
    views: list[Tensor]  # what the augmentation made of the batch, each time that it was asked
    gradients: dict[str, Tensor]


def baseline_step(method: TwoViews | Supervised, inputs: Tensor, number: int, labels: Tensor | None = None) -> RecordedBaseline:
    made: list[Tensor] = []

    def noting(view: Augmentation) -> Any:
        def augmented(*arguments: Any) -> Tensor:
            made.append(view(*arguments))
            return made[-1]

        return augmented

    before = method.views if isinstance(method, TwoViews) else method.augmentation
    if isinstance(method, TwoViews):
        method.views = [noting(view) for view in method.views]
    else:
        method.augmentation = noting(method.augmentation)
    try:
        with gradients_before_updates(method, trained(method)) as gradients:
            scalars = method.step(Batch(inputs, torch.arange(len(inputs)), labels), number)
    finally:
        setattr(method, "views" if isinstance(method, TwoViews) else "augmentation", before)
    return RecordedBaseline(scalars, made, gradients)


def trained(method: TwoViews | Supervised) -> dict[str, nn.Module]:
    if isinstance(method, TwoViews):
        return {"": method.network, "predictor.": method.predictor}
    return {"": method.classifier}


def baseline_state(method: TwoViews | Supervised) -> dict[str, Tensor]:
    """Parameters and buffers, of the EMA too where there is one."""
    ema = method.ema_network if isinstance(method, TwoViews) else method.ema_classifier
    networks = {**trained(method), **({} if ema is None else {"ema ": ema.network})}
    return {f"{owner}{name}": value for owner, network in networks.items() for name, value in network.state_dict().items()}
