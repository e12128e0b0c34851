"""Other runs, which are only read: what was trained there, and a warm start with their weights and network options."""

import os
from collections import defaultdict
from collections.abc import Callable, Set
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Size, Tensor

from sao import config as configuration
from sao.config import Config
from sao.config.overrides import current_name
from sao.data.dataset import Images, Samples
from sao.errors import InputError
from sao.methods import Method, OtherRun, generative
from sao.methods.encoders import ResNetOptions
from sao.models import FOLDER, run_folder
from sao.networks.spectral import SpectralNormalisation
from sao.runtime.hub import is_hub_name
from sao.search.suited import suited_model
from sao.training import checkpoint
from sao.training.model import load
from sao.training.partial_method import latest_method
from sao.training.run_folder import Run

# Options of methods that decide the shapes of networks; those of the encoder all do.
OF_NETWORKS = {"generator", "decoder", "spectral_normalisation", "embedding_size", "hidden_size", "projection_size"}
OF_NETWORKS |= {"predictor_size", "prototypes", "outputs", "clusters", "width", "latent_size", "mapping_layers"}
OF_NETWORKS |= {"joint_width", "joint_depth", "head_width", "head_depth", "local_size", "local_stage"}
NONE = "none"  # typed to begin with fresh weights, where those of a model would be taken
GAINS = "in as many minutes features classify photographs better than from fresh weights (results/photographs.md)"
ORIGINAL = ".parametrizations.weight.original"  # of a layer with spectral normalisation


class Begun(NamedTuple):
    """The configuration that a run records, and what there is to say."""

    config: Config
    notes: list[str]


class SuitedStart(NamedTuple):
    """The configuration, the options that stay as they are, and why."""

    config: Config
    given: Set[str]
    notes: list[str]


# --- options -------------------------------------------------------------------------------------------------------------


def with_source_networks(config: Config, given: Set[str]) -> tuple[Config, set[str]]:
    """The configuration with networks and image size of `train.start_from`, unless set by hand, and the options so set."""
    if config.train.start_from == NONE:
        config = configuration.build(config.model_dump(mode="json"), {"train.start_from": ""})
    if not config.train.start_from:
        return config, set()
    run, name = _opened(config.train.start_from)
    source, shape = run.config, run.facts.shape
    given = {key.replace("-", "_").removesuffix(".name") for key in given}
    if not any(key.partition(".")[0] == "method" for key in given):
        config = configuration.build(config.model_dump(mode="json"), {"method": source.method.name})
    same = source.method.name == config.method.name
    encoder = source.encoder or source.usual_encoder(shape)
    if isinstance(encoder, ResNetOptions):  # its first layer is taken, not made again from patches
        encoder = encoder.model_copy(update={"start": ResNetOptions.model_fields["start"].default})
    if not same and (encoder is None or not config.method.can_use(type(encoder))):
        its = f"has encoder {encoder.name}" if encoder is not None else f"is a run of method {source.method.name}"
        raise InputError(f"{name} {its}, which method {config.method.name} cannot start from: name another run or --method")
    there = source.model_copy(update={"encoder": encoder}).by_name()
    values, networks = config.model_dump(mode="json"), source.method.model_dump(mode="json")
    # The generator of a method may also be the folder of a run, which is no network.
    fields = {key for key in OF_NETWORKS & networks.keys() if same and not isinstance(networks[key], str)}
    groups = ("encoder.", *(f"method.{field}." for field in fields))
    taken = {key for key in there if f"{key}.".startswith(groups)}
    here = config.by_name()
    for key in sorted(taken & (given | {f"{key}.name" for key in given})):
        if here.get(key) != there[key]:
            raise InputError(
                f"--{key.removesuffix('.name')} is {_shown(here.get(key))} and {name} has {_shown(there[key])}: "
                "leave it out, or leave out --start-from"
            )
    values["encoder"] = None if encoder is None else encoder.model_dump(mode="json")
    values["method"] |= {key: networks[key] for key in fields}
    values["train"]["start_from"] = name
    if "data.size" not in given and len(shape) == 3:
        values["data"]["size"] = shape[-1]
    return configuration.build(values), taken


def with_suited_start(config: Config, train: Samples, given: Set[str]) -> SuitedStart:
    """The same from the model in the box that suits the data, unless an option set by hand does not fit it."""
    cold = SuitedStart(config, given, [])
    started = any(current_name(name) == "train.start_from" for name in given)
    name = None if started or not isinstance(train, Images) else suited_model(train)
    if name is None:
        return cold
    source = Run.open(run_folder(name))
    if source.facts.shape != train.shape or source.config.method.name != config.method.name:
        return cold
    begun = configuration.build(config.model_dump(mode="json"), {"train.start_from": name})
    try:
        begun, taken = with_source_networks(begun, given)
    except InputError:
        return cold
    return SuitedStart(
        begun, given | taken, [f"auto: the weights of {name} to begin with, because {GAINS} (--start-from none begins afresh)"]
    )


def _opened(name: str) -> tuple[Run, str]:
    """A run, and what it is called: the name of a model in the package or on the Hub, or the path of a folder from anywhere."""
    folder = run_folder(name)
    return Run.open(folder), name if folder == FOLDER / name or is_hub_name(name) else os.path.abspath(folder)


def _shown(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else "null" if value is None else str(value)


# --- weights -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Source:
    """What a checkpoint of another run holds."""

    name: str
    method: Method  # without values
    kind: str
    shape: tuple[int, ...]
    tensors: dict[str, Tensor]
    step: int
    recorded: str


def take_weights(method: Method, config: Config, shape: tuple[int, ...]) -> Begun:
    """Load the networks of `train.start_from`, not its optimisers and banks; what does not fit is said, or an error."""
    if not config.train.start_from:
        return Begun(config, [])
    notes: list[str] = []
    source = _read(config.train.start_from, notes.append)
    expected = config.train.start_weights
    if expected and expected != source.recorded:
        raise InputError(f"{source.name} holds {source.recorded} by now, not {expected}: leave out --train.start_weights")
    same_kind = source.kind == config.method.name
    _check_shapes(source, shape)
    loaded, changed, fresh = _matched(source, method, shape, same_kind)
    notes.append(f"the weights are those of {source.name}, step {source.step}{_adapted(source, shape)}")
    if not same_kind:
        notes.append(f"{source.name} is a run of method {source.kind}: of its networks only the encoder is taken")
    elif fresh:
        notes += [f"{part} starts fresh: {reason}" for part, reason in fresh.items()]
    method.load_state_dict(loaded, strict=False)
    _settle_spectral_norms(method, changed & loaded.keys())
    train = config.train.model_copy(update={"start_from": source.name, "start_weights": source.recorded})
    return Begun(config.model_copy(update={"train": train}), notes)


def _read(name: str, report: Callable[[str], None]) -> Source:
    run, name = _opened(name)
    config, facts = run.config, run.facts
    parts, step = latest_method(config, facts, run.checkpoints, torch.device("cpu"), False, report)
    tensors = checkpoint.some_tensors(parts.path, list(checkpoint.tensor_shapes(parts.path)))
    parts.check_finite(tensors)
    method = parts.whole if parts.outline is None else parts.outline
    recorded = f"step {step}, blake2b {checkpoint.weights_checksum(parts.path)[:32]}"
    return Source(name, method, config.method.name, facts.shape, tensors, step, recorded)


def _check_shapes(source: Source, shape: tuple[int, ...]) -> None:
    there, here = ("x".join(map(str, one)) for one in (source.shape, shape))
    if len(source.shape) != len(shape) or (len(shape) == 1 and source.shape != shape):
        raise InputError(f"{source.name} learnt from samples of {there} and this data has {here}: start from another run")
    if source.shape[0] != shape[0] and {source.shape[0], shape[0]} != {1, 3}:
        raise InputError(
            f"{source.name} learnt from images of {source.shape[0]} channels and this data has {shape[0]}: only grey and "
            "colour can be exchanged; start from another run"
        )


def _matched(
    source: Source, method: Method, shape: tuple[int, ...], same_kind: bool
) -> tuple[dict[str, Tensor], set[str], dict[str, str]]:
    """The tensors to load, the names of those that were adapted, and why each part that starts fresh does so."""
    theirs, ours = _Names(source.method), _Names(method)
    stored = theirs.by_original(source.tensors)
    if not same_kind:
        stored = {
            ours.encoder + key.removeprefix(theirs.encoder): names for key, names in stored.items() if theirs.of_encoder(key)
        }
    _check_reduction(source, theirs, method, ours)
    remade = ours.generators if source.shape[1:] != shape[1:] else set()
    loaded: dict[str, Tensor] = {}
    changed: set[str] = set()
    parts: dict[str, list[str]] = defaultdict(list)
    fresh: dict[str, str] = {}
    for name, value in ours.networks(method).items():
        original = ours.original(name)
        part = ours.part(original)
        parts[part].append(name)
        names = stored.get(original, [])
        if name.endswith(("._u", "._v")) and (not names or source.tensors[names[0]].shape != value.shape):
            continue  # estimates, which are made again
        if part in remade:
            fresh.setdefault(part, f"{source.name} is for images of {_sides(source.shape)}, and this data has {_sides(shape)}")
        elif not names:
            fresh.setdefault(part, f"{source.name} does not hold it")
        else:
            there = source.tensors[name if name in names else names[0]]
            fitted = adapted(there, value.shape, source.shape[0], shape[0]) if len(shape) == 3 else there
            if fitted is None or fitted.shape != value.shape:
                differ = f"{_sides(there.shape)} in {source.name} and {_sides(value.shape)} here"
                fresh.setdefault(part, f"{original} is {differ}")
            else:
                loaded[name] = fitted.to(value.dtype)
                if fitted is not there:
                    changed.add(name)
    if ours.encoder in fresh:
        raise InputError(
            f"the encoder of {source.name} does not fit: {fresh[ours.encoder]}; leave out options of the encoder and "
            "--data.size, or leave out --start-from"
        )
    left = {name for part in fresh for name in parts[part]}
    return {name: value for name, value in loaded.items() if name not in left}, changed, fresh


def adapted(stored: Tensor, shape: Size, there: int, here: int) -> Tensor | None:
    """A weight for images of `here` channels, from one for images of `there`; None where it does not fit.

    The first convolution sums or shares its colours; the last one of a generator gives their mean, or three times the same.
    """
    if stored.shape == shape:
        return stored
    if {there, here} != {1, 3} or stored.ndim != len(shape):
        return None
    if stored.ndim == 4 and stored.shape[1] * here == shape[1] * there and stored.shape[2:] == shape[2:]:
        colours = stored.unflatten(1, (there, -1))  # pixels of a patch are beside each other, colour by colour
        colours = colours.sum(1, keepdim=True) if here == 1 else colours.expand(-1, here, *[-1] * 3) / here
        return colours.flatten(1, 2) if colours.shape[0] == shape[0] else None
    if (stored.shape[0], shape[0]) == (there, here) and stored.shape[1:] == shape[1:]:
        return stored.mean(0, keepdim=True) if here == 1 else stored.expand(shape).contiguous()
    return None


class _Names:
    """How a method calls its tensors: which networks follow others, and which of them is the encoder."""

    def __init__(self, method: Method) -> None:
        self._follows = method.followers()
        maker = generative(method)
        decodes = () if maker is None else maker.decodes_with
        self._used = {name.partition(".")[0] for name in (*method.features_with, *decodes)}
        self.encoder = self._network(method.features_with[0])
        self.generators = {self._network(name) for name in decodes} - {self.encoder}

    def original(self, name: str) -> str:
        """The name of the tensor that this one follows, or its own."""
        for copy, followed in self._follows.items():
            if name.startswith(copy):
                return followed + name.removeprefix(copy)
        return name

    def _network(self, name: str) -> str:
        """The same for a network: an EMA, ema_X, holds its copy of X as ema_X.network."""
        return self.original(f"{name}.network.").removesuffix(".network.").removesuffix(".")

    def of_encoder(self, original: str) -> bool:
        return original.startswith(f"{self.encoder}.")

    def part(self, original: str) -> str:
        """The part of the method that starts fresh as a whole: the encoder, its head, or another network."""
        if self.of_encoder(original):
            return self.encoder
        first, second = original.split(".")[:2]
        return f"{first}.{second}" if self.encoder.startswith(f"{first}.") else first

    def networks(self, method: Method) -> dict[str, Tensor]:
        """The tensors of networks: not those of banks and counters, nor of another run's method."""
        children = {name for name, child in method.named_children() if any(True for _ in child.parameters())}
        children -= {name for name, child in method.named_children() if isinstance(child, Method)}
        return {name: value for name, value in method.state_dict().items() if name.partition(".")[0] in children}

    def by_original(self, names: dict[str, Tensor]) -> dict[str, list[str]]:
        """The names of tensors that are of one weight, first those that features and samples come from."""
        found: dict[str, list[str]] = defaultdict(list)
        for name in sorted(names, key=lambda name: (name.partition(".")[0] not in self._used, self.original(name) != name)):
            found[self.original(name)].append(name)
        return found


def _check_reduction(source: Source, theirs: _Names, method: Method, ours: _Names) -> None:
    """Stages that keep the resolution in one network and halve it in the other may have weights of the same shapes."""
    there, here = (
        getattr(one.get_submodule(names.encoder), "reduction", None) for one, names in ((source.method, theirs), (method, ours))
    )
    if there != here:
        raise InputError(
            f"the encoder of {source.name} reduces images {there}-fold, and for this image size it would be {here}-fold: "
            f"set --data.size {source.shape[-1]}, or start from another run"
        )


def _settle_spectral_norms(method: Method, changed: Set[str]) -> None:
    """Estimate anew the norms of weights that were adapted."""
    for name in changed:
        if name.endswith(ORIGINAL):
            estimate = method.get_submodule(f"{name.removesuffix('.original')}.0")
            assert isinstance(estimate, SpectralNormalisation)
            estimate.settle(method.get_parameter(name))


def _adapted(source: Source, shape: tuple[int, ...]) -> str:
    if len(shape) == 1 or source.shape[0] == shape[0]:
        return ""
    return ", adapted from grey to colour" if shape[0] == 3 else ", adapted from colour to grey"


def _sides(shape: tuple[int, ...] | Size) -> str:
    return "x".join(map(str, shape)) or "a number"


def with_other_runs(config: Config) -> Config:
    """The configuration with what is in the runs that it names."""
    return config.model_copy(update={"method": config.method.with_runs(_described)})


def begin(method: Method, config: Config, shape: tuple[int, ...]) -> Begun:
    """Before the first step of a run on samples of a shape."""
    method.begin(_method_of)
    return take_weights(method, config, shape)


def _described(folder: str) -> OtherRun:
    config = Run.open(Path(folder)).config
    return OtherRun(os.path.abspath(folder), config.method, config.encoder, config.seed)


def _method_of(folder: str) -> tuple[Method, int]:
    model = load(folder, device="cpu")
    return model.method, model.step
