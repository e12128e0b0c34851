"""Options that fit the data and the kind of machine, never its speed, each with its reason; what a person set by hand stays."""

import math
from collections.abc import Sequence, Set
from typing import Any

import numpy as np
import torch

from sao.config import Config, build
from sao.config.overrides import current_name, option_names
from sao.core import distributed
from sao.core.random import generator
from sao.data.dataset import Dataset, Images, Samples
from sao.errors import InputError
from sao.methods.encoders import KNOWN, ResNetOptions
from sao.training.cost import StepCost, memory_of, step_cost
from sao.training.device import choose_device
from sao.training.log import clock

NEAR = 9.0  # median distance below which the Lipschitz target grows: 8x8 digits lie this far apart and train with 1
PAIRED = 256  # samples among which distances are taken
BANK_SHARE = 4
PASSES, PASSES_OF_GANS = 100, 40  # of 1,800 clothes, 71 passes of ours gave less than 35 (results/small-scale.md)
IMAGES_SEEN = 128_000  # at most, by a processor that nobody told how long
# Of the encoder's stages on a processor, for images of fewer pixels a side than the first number, and for photographs.
SMALL_WIDTHS = ((16, [32, 64, 128]), (24, [8, 32, 64, 128]), (64, [16, 32, 64, 128]), (math.inf, [8, 16, 32, 64, 128]))
WIDE = [32, 64, 128, 256]
FINE = 24  # pixels a side from which images have details
NORMS = 16  # Jacobian norms of real and of generated samples in a step of the recipe for photographs
WARMUP, WARMUP_SHARE = 300, 0.1  # steps over which neighbours come in, and the share of the run that they take at most
EARLY = 0.05  # of a run: as long as this, layers and queues that are unreliable at first are not used
LONG = 2 * 3600.0  # seconds; what takes longer deserves a word of advice
FLOATS_KEPT = 24  # activations that a step holds for each channel and position of a residual block, all derivatives included


def choose_options_and_time(
    config: Config, dataset: Dataset, given: Set[str], minutes: float | None = None
) -> tuple[Config, list[str], list[str]]:
    """The configuration for a data set and this machine, the reasons of its choices, and how long it will take.

    With `minutes` there are as many steps as fit, by the time of a step on this machine.
    """
    if minutes is not None and not 0 < minutes < math.inf:
        raise InputError(f"--minutes is {minutes:g}: give more than 0")
    if minutes is not None and not {current_name(name) for name in given}.isdisjoint({"train.steps", "train.epochs"}):
        raise InputError("--minutes chooses the number of steps: leave it or train.steps and train.epochs out")
    chosen, reasons = choose_options(config, dataset.train, given)
    if distributed.world_size() > 1:  # a step needs all processes, and only one of them chooses
        if minutes is not None:
            raise InputError("--minutes times a step of one process: give --train.steps to several")
        return chosen, reasons, ["the time left is shown once the processes run"]
    cost = step_cost(chosen, dataset)
    if minutes is not None:
        steps = max(1, round(60 * minutes / cost.seconds))
        values = config.model_dump(mode="json")
        values["train"] |= {"steps": steps, "epochs": None}
        chosen, reasons = choose_options(build(values), dataset.train, given | {"train.steps", "train.epochs"})
        reasons.append(f"auto: {steps} steps, because so many fit into {minutes:g} minutes")
    return chosen, reasons, _time(chosen, dataset, cost)


def choose_options(config: Config, samples: Samples, given: Set[str]) -> tuple[Config, list[str]]:
    """The same without the time, which has to be measured."""
    given = {current_name(name) for name in given}
    device = choose_device(config.train.device).type
    values = config.model_dump(mode="json")
    if values["encoder"] is None and (encoder := config.usual_encoder(samples.shape)) is not None:
        values["encoder"] = encoder.model_dump(mode="json")  # to choose its sizes it must have a name
    known = set(option_names(Config, values))
    if config.encoder is not None and not isinstance(config.encoder, KNOWN):  # the sizes below are of encoders of the package
        known = {name for name in known if not name.startswith("encoder.")}
    reasons: list[str] = []

    def choose(reason: str, options: dict[str, Any]) -> None:
        """Take over options that nobody set, if the method has all of them; `reason` is a template for their values."""
        if not options.keys() <= known:
            return
        free = options.keys() - given
        for name in free:
            group, key = _place(values, name)
            group[key] = options[name]
        if free:
            now = [_place(values, name) for name in options]
            reasons.append("auto: " + reason.format(*(_shown(group[key]) for group, key in now)))

    n = len(samples)
    if len(samples.shape) == 1:
        _choose_for_vectors(choose, n)
    else:
        _choose_for_images(choose, n, samples.shape, device, adversarial="one_pass" in values["method"])
    choose(
        f"bank {{}} of {n} training samples, because in a bank near their number a sample finds its own older copy",
        {"method.bank": max(1, min(10_240, n // BANK_SHARE))},
    )
    if given.isdisjoint({"train.steps", "train.epochs"}):
        passes = PASSES_OF_GANS if "one_pass" in values["method"] else PASSES
        steps, reason = _length(n, values["train"]["batch"], device, passes if len(samples.shape) == 3 else None)
        choose("{} steps, because " + reason, {"train.steps": steps, "train.epochs": None})
    if "view" in values["method"]:
        steps = build(values).steps_for(n)
        _choose_for_views(choose, values["method"], samples, steps, steps / max(1, n // values["train"]["batch"]), device)
    _choose_learning_rates(choose, samples, device)
    _choose_lipschitz(choose, samples, config.seed)
    _choose_rhythm(choose, build(values).steps_for(n), config.method.generates, _photographs(samples.shape))
    _choose_micro_batch(choose, build(values), samples, device)
    if device == "cpu" and len(samples.shape) == 3:
        choose("both players learn from one pass ({}), because that saves a sixth of a step", {"method.one_pass": True})
        if _photographs(samples.shape):
            _choose_recipe_of_photographs(choose, build(values).steps_for(n), values["train"]["batch"])
        elif samples.shape[1] >= 16:  # on 8x8 digits fewer penalties cost two points of k-means
            choose(
                "the Jacobian is penalised every {} steps, because that saves a fifth of a step and cost nothing in trials",
                {"method.smooth_every": 2},
            )
    return build(values), reasons


# --- the rules ---------------------------------------------------------------------------------------------------------


def _choose_for_vectors(choose, n: int) -> None:
    width = 128 if n >= 500 else 64 if n >= 100 else 32
    choose(
        f"a perceptron of width {{}} and depth {{}}, because a larger one gains nothing on {n} vectors",
        {"encoder.width": width, "encoder.depth": 2},
    )
    choose("embeddings of {} numbers, as wide as the perceptron", {"method.embedding_size": width})
    choose(
        "a generator of width {} and depth {} with latents of {} numbers, because it has no more to make than the vectors",
        {"method.generator.width": width, "method.generator.depth": 2, "method.generator.latent_size": width},
    )
    choose(
        "batch {}, because the covariances are taken over a batch, which can hold half of the samples at most",
        {"train.batch": _batch(n, 128)},
    )


def _choose_for_images(choose, n: int, shape: Sequence[int], device: str, adversarial: bool) -> None:
    size, photographs = shape[1], _photographs(shape)
    why_batch = "a step is steadier with more samples and its time grows with each"
    if device == "cpu":
        widths = WIDE if photographs else next(chosen for below, chosen in SMALL_WIDTHS if size < below)
        blocks, width, depth = 1, 64 if size < 16 else 32 if size < 64 or photographs else 16, 1
        reason = f"networks this small are what a processor can train on {size}x{size} images"
        largest = 128 if photographs or (size < 64 and not adversarial) else 64
        if adversarial:
            if not photographs:
                why_batch = "of as many images, twice the steps of half the batch taught more in trials"
            choose(
                "embeddings of {} numbers, because a covariance of more directions than a step has samples is uncertain",
                {"method.embedding_size": largest},
            )
        if photographs and size < 64:
            choose("the encoder takes single pixels ({}), because patches of 2x2 hide details", {"encoder.patch": 1})
        elif size >= FINE and size % 2 == 0:  # at 16x16 groups of MNIST were found worse with them (results/small-scale.md)
            patch = size // 32 if photographs and size % 32 == 0 else 2
            choose(
                "the encoder takes patches of {} pixels a side as positions, because that costs a third, "
                "and an SVM on the features hardly notices",
                {"encoder.patch": patch},
            )
        _choose_small_networks(choose, size)
        choose(
            "a generator whose channels fall as the image grows ({}), because its largest maps cost most",
            {"method.generator.falling": True},
        )
    else:
        widths, blocks, width, depth = None, 2, 64, 2
        reason = f"the paper's network for {size}x{size} images fits an accelerator"
        largest = 256 if size < 64 else 128
    encoder = {"encoder.widths": widths, "encoder.blocks": blocks}
    choose(f"encoder widths {{}} (blocks a stage: {{}}), because {reason}", encoder)
    generator = {"method.generator.width": width, "method.generator.depth": depth}
    choose(f"generator width {{}} (depth {{}}), because {reason}", generator)
    choose(f"batch {{}}, because {why_batch}", {"train.batch": _batch(n, largest)})


def _photographs(shape: Sequence[int]) -> bool:
    """Colour images with details, whatever they show."""
    return len(shape) == 3 and shape[0] == 3 and shape[1] >= FINE


def _choose_recipe_of_photographs(choose, steps: int, batch: int) -> None:
    """That of the preset cifar32, which results/photographs.md measures."""
    recipe = "because that is the recipe that was found for photographs"
    choose(f"the Jacobian is penalised every {{}} steps, {recipe}", {"method.smooth_every": 4})
    choose(f"and there one sample in {{}} has a Jacobian norm, {recipe}", {"method.smooth_one_in": max(1, batch // NORMS)})
    choose(f"neighbours are found by {{}} features, {recipe}", {"method.keys_from": "own"})
    warmup = min(WARMUP, round(WARMUP_SHARE * steps))
    choose(f"the pull to neighbours grows over {{}} steps, {recipe}", {"method.cluster_warmup": warmup})
    choose(f"learning rates fall along a {{}}, {recipe}", {"train.schedule": "cosine"})
    choose(f"the first layer starts from {{}} of the images, {recipe}", {"encoder.start": "patches"})
    choose(
        "training sees crops that keep {} of an image and mirrored copies ({}), because they are photographs too "
        "(--method.augmentation.flip false where left and right matter)",
        {"method.augmentation.crop": 0.5, "method.augmentation.flip": True},
    )


def _choose_small_networks(choose, size: int) -> None:
    """Of MAE and DDPM, whose published networks take seconds or minutes a step on a processor."""
    reason = f"the published one takes a processor many seconds a step on {size}x{size} images"
    choose(
        f"a transformer of width {{}} with {{}} blocks of {{}} heads, because {reason}",
        {"encoder.width": 96, "encoder.depth": 4, "encoder.heads": 3},
    )
    choose(
        f"a decoder of width {{}} with {{}} blocks of {{}} heads, because {reason}",
        {"method.decoder.width": 64, "method.decoder.depth": 2, "method.decoder.heads": 4},
    )
    choose(f"a U-Net of {{}} channels with {{}} block a level, because {reason}", {"encoder.channels": 32, "encoder.blocks": 1})


def _choose_for_views(choose, method: dict[str, Any], samples: Samples, steps: int, passes: float, device: str) -> None:
    """For methods that compare views: what is published of them is for wide networks, many samples and long runs."""
    n, published = len(samples), {name: value for name, value in method.items() if isinstance(value, int | float)}
    narrow = device == "cpu"
    if narrow:
        wide = "the published ones are for networks many times as wide"
        choose(
            f"heads of {{}} units that end in {{}} numbers, because {wide}",
            {"method.hidden_size": 256, "method.projection_size": 64},
        )
        choose(f"predictors of {{}} units, because {wide}", {"method.predictor_size": 256})
    if len(samples.shape) == 3 and samples.shape[1] < 24:
        for view in [view for view in ("view", "second_view") if method[view] is not None]:
            choose(
                f"crops that keep {{}} of an image or more ({view.replace('_', ' ')}), because less shows nothing",
                {f"method.{view}.crop": 0.2},
            )
    most = {"queue": 4096, "prototypes": 300, "outputs": 512} if narrow else published
    fitting = {"queue": max(1, n // BANK_SHARE), "prototypes": max(10, n // 20), "outputs": max(16, n // 8)}
    called = {"queue": "a queue of {} projections", "prototypes": "{} prototypes", "outputs": "outputs of {} numbers"}
    for name in [name for name in called if name in published]:
        size = min(published[name], most[name], fitting[name])
        choose(f"{called[name]}, because more would be too many for {n} training samples", {f"method.{name}": size})
    early = round(EARLY * passes, 4)
    share = f"after {{}} passes over the data, because that is {EARLY:.0%} of the run"
    choose(f"the last layer learns {share}", {"method.frozen_epochs": early})
    choose(f"the queue is used {share}", {"method.queue_epochs": early})
    follows = round(min(published.get("momentum", 0.0), max(0.9, 1 - 10 / steps)), 4)
    choose("a teacher with decay {}, because it must follow the network within the run", {"method.momentum": follows})
    choose("learning rates fall along a {}, because that is how these methods are published", {"train.schedule": "cosine"})


def _batch(n: int, largest: int) -> int:
    return max(2, min(largest, n // 2))


def _length(n: int, batch: int, device: str, passes: int | None) -> tuple[int, str]:
    """Steps, and why so many; `passes` over images on a processor at most, None for vectors."""
    if passes is None:
        return min(1000, max(40, 2 * n)), "two for each vector, within 40 to 1000, were enough in trials on tables"
    passes, most = (passes, max(1, IMAGES_SEEN // batch)) if device == "cpu" else (500, 50_000)
    wanted = passes * n // batch
    steps = min(most, wanted)
    made = f"that is {round(steps * batch / n)} passes over the data"
    if wanted > most:
        limit = "what a processor does in reasonable time" if device == "cpu" else "what is made without being asked"
        return steps, f"{made} and {limit}; more steps help"
    return steps, made


def _choose_learning_rates(choose, samples: Samples, device: str) -> None:
    if len(samples.shape) == 1:
        # Its spectral normalisation lets the generator grow to the vectors' scale through a few gains alone: with the
        # discriminator's rate it had a third of the digits' spread after 300 steps and lost touch.
        rates, reason = (5e-4, 2e-3), "the generator, which starts small, must keep up"
    elif device == "cpu" and samples.shape[1] >= 16:
        rates, reason = (1e-3, 2e-3), "a small generator that learns faster than the discriminator taught it more in trials"
    elif device == "cpu":
        rates, reason = (1e-3, 1e-3), "small networks learn steadily with more than the paper's 0.0002"
    else:
        rates, reason = (2e-4, 2e-4), "it is the paper's"
    names = [f"method.{player}_optimiser.learning_rate" for player in ("discriminator", "generator")]
    choose(f"learning rates {{}} and {{}}, because {reason}", dict(zip(names, rates, strict=True)))


def _choose_lipschitz(choose, samples: Samples, seed: int) -> None:
    """The target is a length scale; it grows with the root only: on digits 1 apart, 3 did better than 1 and than the full 9."""
    distance = _median_distance(samples, seed)
    target = 1.0 if distance >= NEAR else float(f"{math.sqrt(NEAR / distance):.3g}")
    kind = "images in [-1, 1]" if isinstance(samples, Images) else "scaled vectors"
    why = "far enough for it" if distance >= NEAR else f"and samples nearer than {NEAR:g} need more than 1"
    choose(
        f"Lipschitz target {{}}, because the median distance between training {kind} is {distance:.3g}, {why}",
        {"method.lipschitz": target},
    )


def _choose_rhythm(choose, steps: int, generates: bool, photographs: bool) -> None:
    longest = 0.995 if photographs else 0.99
    choose("EMA with decay {}, to fit the length", {"method.ema_decay": round(min(longest, max(0.0, 1 - 5 / steps)), 4)})
    pictures = {"log.sample_every": max(1, steps // 4)} if generates else {}
    # Often enough to see that learning has slowed down, and for the time left to count evaluations after a tenth of the run.
    often = {"log.evaluate_every": max(1, steps // 10), "log.checkpoint_every": max(1, min(500, steps // 8)), **pictures}
    said = "evaluation every {} steps, a checkpoint every {}" + (", pictures every {}" if generates else "")
    choose(f"{said}, to fit the length", often | {"log.every": max(1, min(10, steps // 20))})


def _choose_micro_batch(choose, config: Config, samples: Samples, device: str) -> None:
    """Only where the discriminator's activations for the whole batch would take more than a quarter of the memory."""
    if not isinstance(config.encoder, ResNetOptions) or len(samples.shape) != 3:
        return
    size, widths = samples.shape[1], config.encoder.widths or (64, 128, 256, 512)
    floats = sum(FLOATS_KEPT * config.encoder.blocks * width * (size >> stage) ** 2 for stage, width in enumerate(widths))
    fitting = max(2, memory_of(torch.device(device)) // 4 // (4 * floats))
    if fitting < 2 * config.train.batch:
        choose(
            "the discriminator works on {} samples at a time and the generator keeps less, because the whole batch could fill "
            "the memory",
            {"method.micro_batch": fitting},
        )


# --- measures ----------------------------------------------------------------------------------------------------------


def _median_distance(samples: Samples, seed: int) -> float:
    rows = torch.randperm(len(samples), generator=generator(seed, "automatic"))[:PAIRED]
    inputs = samples.inputs(np.sort(rows.numpy())).flatten(1)
    distances = torch.nn.functional.pdist(inputs)
    apart = distances[distances > 0]
    if len(apart) == 0:
        raise InputError("the training samples are all the same: give data in which something varies")
    return float(apart.median())


def _time(config: Config, dataset: Dataset, cost: StepCost) -> list[str]:
    whole = cost.seconds * config.steps_for(len(dataset.train))
    sentences = [f"about {clock(whole)} on this machine ({cost.seconds:.2g} s a step)"]
    size = dataset.train.shape[-1]
    if whole > LONG and len(dataset.train.shape) == 3 and size > 16:
        sentences.append(f"--data.size {size // 2} would be faster, and --dry-run says by how much")
    return sentences


def _place(values: dict[str, Any], name: str) -> tuple[dict[str, Any], str]:
    *groups, key = name.split(".")
    for group in groups:
        values = values[group]
    return values, key


def _shown(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
