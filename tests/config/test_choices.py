"""The numbers that are chosen for data, at the boundaries of each rule, and the words that go with them."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from sao.config import auto, load_preset
from sao.config.auto import choose_options
from sao.config.overrides import current_name, nearest, suggestion
from sao.config.schema import Config, build
from sao.data.dataset import Dataset, Images, Samples, Vectors
from sao.errors import InputError


def images(n: int, size: int = 8, channels: int = 1) -> Images:
    """Noise, of which as many rows are in memory as distances are taken of."""
    few = np.random.default_rng(0).integers(0, 256, (min(n, 64), size, size, channels), dtype=np.uint8)
    return Images(few[np.arange(n) % len(few)] if n < 3000 else np.broadcast_to(few[:1], (n, size, size, channels)))


def vectors(n: int) -> Vectors:
    return Vectors(np.random.default_rng(0).normal(0, 9, (n, 12)).astype(np.float32))


@pytest.fixture(autouse=True)
def distance(monkeypatch):
    """All samples lie far apart, and the machine has as much memory as any."""
    monkeypatch.setattr(auto, "_median_distance", lambda samples, seed: 9.0)
    monkeypatch.setattr(auto, "memory_of", lambda device: 10**12)


def chosen(samples: Samples, *names: str, **given: str) -> list[Any]:
    by_hand = {name.replace("__", "."): value for name, value in given.items()}
    options = choose_options(load_preset("own", by_hand), samples, by_hand.keys())[0].by_name()
    return [options[name] for name in names]


def reasons(samples: Samples, **given: str) -> str:
    by_hand = {name.replace("__", "."): value for name, value in given.items()}
    return "\n".join(choose_options(load_preset("own", by_hand), samples, by_hand.keys())[1])


@pytest.fixture
def accelerator(monkeypatch):
    monkeypatch.setattr(auto, "choose_device", lambda name: torch.device("meta"))


@pytest.mark.parametrize(("n", "width", "batch", "steps", "bank"), [
    (500, 128, 128, 1000, 125), (499, 64, 128, 998, 124), (256, 64, 128, 512, 64), (255, 64, 127, 510, 63),
    (100, 64, 50, 200, 25), (99, 32, 49, 198, 24), (20, 32, 10, 40, 5), (19, 32, 9, 40, 4), (501, 128, 128, 1000, 125),
])  # fmt: skip
def test_sizes_for_so_many_vectors(n, width, batch, steps, bank):
    names = ("encoder.width", "encoder.depth", "method.embedding_size", "method.generator.width", "train.batch", "train.steps")
    found = chosen(vectors(n), *names, "method.bank", "method.generator.latent_size", "method.generator.depth")
    assert found == [width, 2, width, width, batch, steps, bank, width, 2]
    rates = chosen(vectors(n), "method.discriminator_optimiser.learning_rate", "method.generator_optimiser.learning_rate")
    assert rates == [5e-4, 2e-3]


def test_vectors_in_words():
    said = reasons(vectors(150))
    for line in (
        "auto: a perceptron of width 64 and depth 2, because a larger one gains nothing on 150 vectors",
        "auto: batch 75, because the covariances are taken over a batch, which can hold half of the samples at most",
        "auto: bank 37 of 150 training samples, because in a bank near their number a sample finds its own older copy",
        "auto: 300 steps, because two for each vector, within 40 to 1000, were enough in trials on tables",
        "auto: Lipschitz target 1.0, because the median distance between training scaled vectors is 9, far enough for it",
        "auto: EMA with decay 0.9833, to fit the length",
        "auto: evaluation every 30 steps, a checkpoint every 37, pictures every 75, to fit the length",
    ):
        assert line in said.splitlines(), line


@pytest.mark.parametrize(("size", "widths", "generator", "patch", "smooth"), [
    (8, [32, 64, 128], 64, 1, 1), (12, [32, 64, 128], 64, 1, 1), (16, [8, 32, 64, 128], 32, 1, 2),
    (20, [8, 32, 64, 128], 32, 1, 2), (24, [16, 32, 64, 128], 32, 2, 2), (32, [16, 32, 64, 128], 32, 2, 2),
    (64, [8, 16, 32, 64, 128], 16, 2, 2),
])  # fmt: skip
def test_networks_for_grey_images_of_a_size(size, widths, generator, patch, smooth):
    names = ("encoder.widths", "encoder.blocks", "method.generator.width", "method.generator.depth", "encoder.patch")
    found = chosen(images(200, size), *names, "method.smooth_every", "train.batch", "method.embedding_size")
    assert found == [widths, 1, generator, 1, patch, smooth, 64, 64]
    assert chosen(images(200, size), "method.generator.falling", "method.one_pass") == [True, True]


@pytest.mark.parametrize(("size", "patch", "generator"), [(24, 1, 32), (32, 1, 32), (64, 2, 32), (96, 3, 32), (100, 2, 32)])
def test_networks_for_photographs(size, patch, generator):
    names = ("encoder.widths", "encoder.patch", "method.generator.width", "train.batch", "method.embedding_size")
    assert chosen(images(300, size, 3), *names) == [[32, 64, 128, 256], patch, generator, 128, 128]
    recipe = ("method.smooth_every", "method.keys_from", "train.schedule", "encoder.start", "method.augmentation.crop")
    assert chosen(images(300, size, 3), *recipe, "method.augmentation.flip") == [4, "own", "cosine", "patches", 0.5, True]
    said = "single pixels (1)" if patch == 1 else f"patches of {patch} pixels"
    assert f"the encoder takes {said}" in reasons(images(300, size, 3))


def test_batch_and_bank_for_so_many_images():
    found = {127: [63, 31], 128: [64, 32], 1000: [64, 250], 40_960: [64, 10_240], 50_000: [64, 10_240], 3: [2, 1]}
    assert {n: chosen(images(n, 16), "train.batch", "method.bank") for n in found} == found


@pytest.mark.parametrize(
    ("n", "steps", "passes", "more"),
    [(320, 200, 40, False), (3200, 2000, 40, False), (3201, 2000, 40, False), (3300, 2000, 39, True), (60_000, 2000, 2, True)],
)
def test_a_processor_makes_forty_passes_or_128_000_images(n, steps, passes, more):
    said = reasons(images(n, 16))
    assert f"auto: {steps} steps, because that is {passes} passes over the data" in said
    assert ("what a processor does in reasonable time; more steps help" in said) == more
    assert chosen(images(n, 16), "train.steps") == [steps]


@pytest.mark.parametrize(("n", "steps"), [(640, 500), (1280, 1000), (5000, 1000)])
def test_methods_of_views_make_a_hundred_passes_in_batches_of_128(n, steps):
    assert chosen(images(n, 16), "train.batch", "train.steps", method="simclr") == [128, steps]


@pytest.mark.parametrize(
    ("size", "batch", "rates", "steps"),
    [(32, 256, [2e-4, 2e-4], 1953), (64, 128, [2e-4, 2e-4], 3906), (63, 256, [2e-4, 2e-4], 1953)],
)
def test_an_accelerator_takes_the_papers_settings(accelerator, size, batch, rates, steps):
    names = ("train.batch", "encoder.widths", "encoder.blocks", "method.generator.width", "method.generator.depth")
    assert chosen(images(1000, size), *names) == [batch, None, 2, 64, 2]
    assert chosen(images(1000, size), "train.steps") == [steps]  # 500 passes
    names = ("method.discriminator_optimiser.learning_rate", "method.generator_optimiser.learning_rate", "method.one_pass")
    assert chosen(images(1000, size), *names) == [*rates, False]
    assert "fits an accelerator" in reasons(images(1000, size))


@pytest.mark.parametrize(("steps", "ema", "evaluate", "checkpoint", "sample", "every"), [
    (1000, 0.99, 100, 125, 250, 10), (500, 0.99, 50, 62, 125, 10), (400, 0.9875, 40, 50, 100, 10), (100, 0.95, 10, 12, 25, 5),
    (19, 0.7368, 1, 2, 4, 1), (5, 0.0, 1, 1, 1, 1), (3, 0.0, 1, 1, 1, 1), (8000, 0.99, 800, 500, 2000, 10),
])  # fmt: skip
def test_the_rhythm_of_a_run_fits_its_length(steps, ema, evaluate, checkpoint, sample, every):
    names = ("method.ema_decay", "log.evaluate_every", "log.checkpoint_every", "log.sample_every", "log.every")
    assert chosen(images(200, 8), *names, train__steps=str(steps)) == [ema, evaluate, checkpoint, sample, every]


@pytest.mark.parametrize(
    ("steps", "ema", "warmup"), [(5000, 0.995, 300), (3000, 0.995, 300), (1000, 0.995, 100), (50, 0.9, 5), (24, 0.7917, 2)]
)
def test_photographs_remember_longer_and_warm_up(steps, ema, warmup):
    assert chosen(images(300, 32, 3), "method.ema_decay", "method.cluster_warmup", train__steps=str(steps)) == [ema, warmup]


@pytest.mark.parametrize(("apart", "target", "why"), [
    (9.0, 1.0, "is 9, far enough for it"), (8.99, 1.0, "is 8.99, and samples nearer than 9 need more than 1"),
    (4.0, 1.5, "is 4, and samples nearer than 9 need more than 1"),
    (1.0, 3.0, "is 1, and samples nearer than 9 need more than 1"),
    (0.123, 8.55, "is 0.123, and samples nearer than 9 need more than 1"), (123.4, 1.0, "is 123, far enough for it"),
])  # fmt: skip
def test_the_lipschitz_target_grows_with_the_root_of_how_near_samples_are(monkeypatch, apart, target, why):
    monkeypatch.setattr(auto, "_median_distance", lambda samples, seed: apart)
    assert chosen(images(40), "method.lipschitz") == [target]
    said = f"auto: Lipschitz target {target}, because the median distance between training images in [-1, 1] {why}"
    assert said in reasons(images(40)).splitlines()


@pytest.mark.parametrize(
    ("memory", "fitting"),
    [
        # 24 numbers of 4 bytes for each channel and position: 32 x 64 + 64 x 16 + 128 x 4 of them
        (4 * 4 * 24 * (32 * 64 + 64 * 16 + 128 * 4) * 128, None),
        (4 * 4 * 24 * (32 * 64 + 64 * 16 + 128 * 4) * 128 - 1, 127),
        (4 * 4 * 24 * (32 * 64 + 64 * 16 + 128 * 4) * 20, 20),
        (1, 2),
    ],
)
def test_a_batch_that_fills_more_than_a_quarter_of_the_memory_is_worked_on_in_parts(monkeypatch, memory, fitting):
    monkeypatch.setattr(auto, "memory_of", lambda device: memory)
    assert chosen(images(200, 8), "method.micro_batch", train__batch="64") == [fitting]


def test_heads_of_methods_that_compare_views():
    names = ("method.hidden_size", "method.projection_size", "method.predictor_size", "method.momentum", "train.schedule")
    assert chosen(images(400, 16), *names, method="byol", train__steps="400") == [256, 64, 256, 0.975, "cosine"]
    assert chosen(images(400, 16), "method.momentum", method="byol", train__steps="50") == [0.9]
    usual = load_preset("own", {"method": "byol"}).by_name()["method.momentum"]
    assert chosen(images(400, 16), "method.momentum", method="byol", train__steps="1000000") == [usual]
    assert chosen(images(400, 16), "method.queue", method="nnclr") == [100]
    assert chosen(images(400, 16), "method.prototypes", method="swav") == [20]
    assert chosen(images(400, 16), "method.outputs", method="dino") == [50]
    assert chosen(images(100, 16), "method.prototypes", method="swav") == [10]
    assert chosen(images(2900, 16), "method.prototypes", method="swav") == [145]
    assert chosen(images(50_000, 16), "method.prototypes", "method.queue", method="swav")[0] == 300
    assert chosen(images(50_000, 16), "method.outputs", method="dino") == [512]
    assert chosen(images(400, 23), "method.view.crop", method="simclr") == [0.2]
    assert chosen(images(400, 24), "method.view.crop", method="simclr") == [0.08]


@pytest.mark.parametrize(("steps", "frozen"), [(300, 5.0), (60, 1.0), (7, 0.1167)])
def test_the_last_layer_is_frozen_for_a_twentieth_of_the_run(steps, frozen):
    assert chosen(images(400, 16), "method.frozen_epochs", method="dino", train__steps=str(steps)) == [frozen]  # 3 steps a pass
    said = reasons(images(400, 16), method="dino", train__steps=str(steps))
    assert f"the last layer learns after {frozen} passes over the data, because that is 5% of the run" in said


def test_small_networks_of_other_methods():
    names = (
        "encoder.width", "encoder.depth", "encoder.heads", "method.decoder.width", "method.decoder.depth",
        "method.decoder.heads",
    )  # fmt: skip
    assert chosen(images(200, 32), *names, method="mae") == [96, 4, 3, 64, 2, 4]
    assert chosen(images(200, 32), "encoder.channels", "encoder.blocks", method="ddpm") == [32, 1]


def timed(monkeypatch, seconds: float, steps: int, size: int, minutes: float | None = None) -> tuple[list[str], list[str], int]:
    monkeypatch.setattr(auto, "step_cost", lambda config, dataset: SimpleNamespace(seconds=seconds))
    samples = images(40, size)
    given = {} if minutes else {"train.steps": str(steps)}
    data = Dataset("d", samples, samples)
    config, why, times = auto.choose_options_and_time(load_preset("own", given), data, set(given), minutes)
    return why, times, config.train.steps


@pytest.mark.parametrize(("seconds", "steps", "size", "said"), [
    (1.0, 7200, 32, ["about 2h 00m on this machine (1 s a step)"]),
    (1.0, 7201, 32,
     ["about 2h 00m on this machine (1 s a step)", "--data.size 16 would be faster, and --dry-run says by how much"]),
    (1.0, 7201, 16, ["about 2h 00m on this machine (1 s a step)"]),
    (0.1234, 1000, 32, ["about 2m 03s on this machine (0.12 s a step)"]),
])  # fmt: skip
def test_how_long_it_takes_and_what_would_be_faster(monkeypatch, seconds, steps, size, said):
    assert timed(monkeypatch, seconds, steps, size)[1] == said


@pytest.mark.parametrize(("minutes", "seconds", "steps"), [(5, 0.5, 600), (0.5, 0.4, 75), (0.001, 3.0, 1), (2.5, 0.7, 214)])
def test_as_many_steps_as_fit_into_the_minutes(monkeypatch, minutes, seconds, steps):
    why, _, found = timed(monkeypatch, seconds, 0, 16, minutes)
    assert found == steps
    assert why[-1] == f"auto: {steps} steps, because so many fit into {minutes:g} minutes"


def test_the_distance_between_samples_is_the_median_of_those_that_differ(monkeypatch):
    monkeypatch.undo()
    rows = np.array([[0.0], [0], [1], [5]], np.float32)  # 0, 1, 1, 4, 5, 5 apart
    assert auto._median_distance(Vectors(rows), 0) == 4
    with pytest.raises(InputError, match="all the same"):
        auto._median_distance(Vectors(rows[:2]), 0)


@pytest.mark.parametrize(("options", "said"), [
    ({"train.batch": "1"}, "config: train.batch: Input should be greater than or equal to 2, got 1"),
    ({"data.size": "257"}, "config: data.size: Input should be less than or equal to 256, got 257"),
    ({"data.held_out": "1"}, "config: data.held_out: Input should be less than 1, got 1"),
    ({"seed": "true"}, "config: seed: Input should be a number, got True"),
    ({"data.fit": "crob"}, "config: data.fit: Input should be 'crop', 'pad' or 'centre', got 'crob' (did you mean crop?)"),
    ({"data.axes": "NHWX"},
     "config: data.axes: give the axes of the array in their order, such as NHWC, NCHW, NDHW or DHW, got 'NHWX'"),
    ({"method": "structurl"}, "there is no method 'structurl' (did you mean structural?); there are structural, "),
    ({"train": "3"}, "--train is a group of options: set one of them, for example --train.steps"),
    ({"train.bach": "3"}, "there is no option --train.bach (did you mean --train.batch?)"),
    ({"train.lr": "3"},
     "there is no option --train.lr (did you mean --method.discriminator_optimiser.learning_rate or --method.gen"),
    ({"method.queue": "3"}, "method structural has no option queue (nnclr and swav have it)"),
    ({"method": "mae", "encoder": "resnet"}, "method mae cannot use encoder resnet: set --encoder vit, or leave it out"),
])  # fmt: skip
def test_a_wrong_option_is_a_line_with_the_way_out(options, said):
    with pytest.raises(InputError) as error:
        build({}, options)
    assert said in str(error.value)


def test_words_of_other_programs_are_known():
    assert suggestion(Config, "--lr").startswith(" (did you mean --method.")
    assert suggestion(Config, "--batch-size") == " (did you mean --train.batch?)"
    assert suggestion(Config, "--output_dir") == " (did you mean --out?)"
    assert suggestion(Config, "--qqqq") == ""
    assert current_name("method.gradient-limit") == "method.clip_grad_norm"
    assert nearest("tran", ["train", "eval"]) == " (did you mean train?)"
    assert nearest("xyz", ["train", "eval"]) == ""


def test_steps_by_hand_take_the_place_of_epochs():
    before = {"train": {"epochs": 7}}
    assert build(before, {"train.steps": "30"}).train.epochs is None
    assert build(before, {"train.batch": "30"}).train.epochs == 7
    assert build(before, {"train.steps": "30", "train.epochs": "2"}).train.epochs == 2
    assert build({}, {"data.source": "2024", "train.batch": "010"}).train.batch == 10
    assert build({}, {"data.source": "2024"}).data.source == "2024"
    rate = "method.generator_optimiser.learning_rate"
    assert build({}, {rate: "1e-3"}).by_name()[rate] == 0.001
