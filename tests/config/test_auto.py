"""What --auto chooses: whatever the data, it must train, and each choice must be said and be beaten by a hand."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from tiny import structural_options

from sao.config import Config, load_preset
from sao.config import auto as module
from sao.config.auto import choose_options, choose_options_and_time
from sao.data.dataset import Dataset, Images, Samples, Vectors
from sao.errors import InputError
from sao.methods import Batch
from sao.methods.encoders import ResNetOptions
from sao.training.loop import new_method

DRAWS = np.random.default_rng(0)


def images(n: int = 40, size: int = 8, channels: int = 1, contrast: int = 255) -> Images:
    return Images(DRAWS.integers(0, contrast + 1, (n, size, size, channels), dtype=np.uint8))


def vectors(n: int, d: int, scale: float = 5.0) -> Vectors:
    return Vectors(DRAWS.normal(0, scale, (n, d)).astype(np.float32))


def auto(samples: Samples, **given: str):
    by_hand = {name.replace("__", "."): value for name, value in given.items()}
    return choose_options(load_preset("own", by_hand), samples, by_hand.keys())


def timed(samples: Samples, minutes: float | None = None, **given: str):
    """The same with the time."""
    by_hand = {name.replace("__", "."): value for name, value in given.items()}
    return choose_options_and_time(load_preset("own", by_hand), Dataset("x", samples, samples), by_hand.keys(), minutes)


def make_two_steps(config: Config, samples: Samples) -> None:
    method = new_method(config, Dataset("x", samples, samples), torch.device("cpu"))
    for step in range(2):
        method.step(Batch(samples.inputs(slice(0, config.train.batch)), torch.arange(config.train.batch)), step)


@pytest.mark.parametrize(
    "samples", [vectors(2, 1), vectors(3, 1), vectors(30, 3), vectors(700, 20), images(2), images(20, 28), images(12, 64, 3)]
)
def test_whatever_the_data_a_step_can_be_made(samples):
    config, _ = auto(samples)
    assert config.train.batch <= len(samples)
    assert structural_options(config).bank <= max(1, len(samples) // 2)
    make_two_steps(config, samples)


def test_every_sentence_is_one_line_with_a_reason_and_the_time_is_said():
    config, sentences, times = timed(images())
    assert all(s.startswith("auto: ") and "\n" not in s and ("because" in s or "to fit" in s) for s in sentences)
    assert "on this machine" in times[0]
    train, bank = config.train, structural_options(config).bank
    for value in (f"batch {train.batch}", f"bank {bank}", f"{train.steps} steps", "0.001"):
        assert any(value in sentence for sentence in sentences)


def test_what_a_hand_set_stays_and_is_not_called_a_choice():
    by_hand = {"train__batch": "7", "method__bank": "5", "method__lipschitz": "2", "train__steps": "11"}
    config, sentences = auto(images(), **by_hand)
    method, train = structural_options(config), config.train
    assert (train.batch, method.bank, method.lipschitz, train.steps) == (7, 5, 2, 11)
    said = " ".join(sentences)
    assert not any(word in said for word in ("batch", "bank", "Lipschitz", "11 steps,"))
    assert config.log.checkpoint_every <= 11


def test_of_a_group_that_a_hand_touched_the_sentence_names_what_will_be():
    config, sentences = auto(images(), encoder__widths="[4, 8]")
    assert config.encoder == ResNetOptions(widths=(4, 8), blocks=1)
    assert any("widths 4, 8 " in sentence for sentence in sentences)


def test_epochs_set_by_hand_are_the_length():
    config, sentences = auto(images(), train__epochs="3")
    assert config.train.epochs == 3
    assert not any("steps, because" in sentence for sentence in sentences)
    named, _ = choose_options(load_preset("cifar10", {}), images(), set())
    assert named.train.epochs is None


@pytest.mark.parametrize(
    ("n", "device", "steps", "passes"),
    [(800, "cpu", 500, 40), (5000, "cpu", 2000, 26), (20, "cpu", 80, 40), (10**6, "meta", 50_000, 13)],
)
def test_the_length_is_said_in_the_passes_that_it_really_is(n, device, steps, passes, monkeypatch):
    monkeypatch.setattr(module, "choose_device", lambda name: torch.device(device))
    samples = Images(np.broadcast_to(DRAWS.integers(0, 256, (n, 1, 1, 1), dtype=np.uint8), (n, 8, 8, 1)))
    config, sentences = auto(samples)
    assert config.train.steps == steps
    (said,) = [sentence for sentence in sentences if " steps, because " in sentence]
    assert f"{steps} steps, because that is {passes} passes over the data" in said


def test_a_run_is_evaluated_often_enough_to_see_that_it_has_slowed_down():
    config, _ = auto(images(), train__steps="400")
    assert (config.log.evaluate_every, config.log.checkpoint_every, config.log.sample_every) == (40, 50, 100)


def test_a_dash_in_an_option_is_an_underscore():
    config, _ = choose_options(load_preset("own", {"method.micro-batch": "3"}), images(), {"method.micro-batch"})
    assert structural_options(config).micro_batch == 3


@pytest.mark.parametrize("typed", ["method.ema-decay", "method.average"])
def test_what_was_set_by_hand_stays_by_whatever_name_it_was_typed(typed):
    config, _ = choose_options(load_preset("own", {typed: "0.7"}), images(), {typed})
    assert structural_options(config).ema_decay == 0.7


@pytest.mark.parametrize(("size", "rates"), [(8, (1e-3, 1e-3)), (16, (1e-3, 2e-3)), (32, (1e-3, 2e-3))])
def test_the_generator_of_small_images_learns_faster_than_the_discriminator(size, rates):
    method = structural_options(auto(images(size=size))[0])
    assert (method.discriminator_optimiser.learning_rate, method.generator_optimiser.learning_rate) == rates


def test_faint_images_raise_the_lipschitz_target():
    clear, faint = (auto(images(100, 8, 1, contrast)) for contrast in (255, 25))
    assert structural_options(clear[0]).lipschitz == pytest.approx(1, abs=0.4)
    apart = 6.5 / 10  # noise of full contrast lies 6.5 apart
    assert structural_options(faint[0]).lipschitz == pytest.approx((9 / apart) ** 0.5, rel=0.1)
    assert structural_options(auto(images(100, 32, 3))[0]).lipschitz == 1
    assert any("median distance" in sentence for sentence in faint[1])


def test_samples_that_are_all_alike_are_refused():
    with pytest.raises(InputError, match="all the same"):
        auto(Images(np.zeros((30, 8, 8, 1), np.uint8)))


def test_the_choice_does_not_depend_on_the_clock():
    samples = images()
    assert timed(samples)[0] == timed(samples)[0]


def test_a_processor_gets_what_is_fast_on_it():
    """Small batches and seldom penalties where images are large enough; a method without two players keeps its batch."""
    config, sentences = auto(images(3200, 16))
    method = structural_options(config)
    assert (config.train.batch, config.train.steps, method.one_pass, method.smooth_every) == (64, 2000, True, 2)
    assert (method.embedding_size, method.norm_weight) == (64, 4)
    assert any("every 2 steps" in sentence for sentence in sentences)
    encoders = [auto(images(3200, size))[0].encoder for size in (8, 16, 32)]
    assert [(one.widths, one.patch) for one in encoders if isinstance(one, ResNetOptions)] == [
        ((32, 64, 128), 1),
        ((8, 32, 64, 128), 1),
        ((16, 32, 64, 128), 2),
    ]
    assert structural_options(auto(images(3000, 8))[0]).smooth_every == 1
    assert structural_options(auto(images(3000, 16), method__smooth_every="3")[0]).smooth_every == 3
    views = auto(images(3000, 16), method="simclr")[0]
    assert (views.train.batch, views.train.steps) == (128, 1000)
    assert auto(images(640, 16), method="simclr")[0].train.steps == 500, "a hundred passes"


@pytest.mark.parametrize(("name", "most"), [("mae", 1_000_000), ("ddpm", 3_000_000)])
def test_a_processor_gets_small_networks_of_every_method(name, most, monkeypatch):
    """Those that were published have 47 and 36 million parameters."""
    samples = images(300, 32, 3)
    config, sentences = auto(samples, method=name)
    assert any("because the published one takes" in sentence for sentence in sentences)
    method = new_method(config, Dataset("x", samples, samples), torch.device("cpu"))
    assert sum(weight.numel() for weight in method.parameters() if weight.requires_grad) < most
    monkeypatch.setattr(module, "choose_device", lambda device: torch.device("meta"))
    assert not any("because the published one" in sentence for sentence in auto(samples, method=name)[1])


def test_pictures_are_announced_by_those_who_make_them():
    said = {name: " ".join(auto(images(), method=name)[1]) for name in ("structural", "byol")}
    assert "pictures every" in said["structural"]
    assert "pictures" not in said["byol"]


def test_an_accelerator_gets_the_papers_discriminator(monkeypatch):
    monkeypatch.setattr(module, "choose_device", lambda name: torch.device("meta"))
    config, _ = auto(images(3000, 32, 3))
    assert config.encoder == ResNetOptions(widths=None, blocks=2)
    assert config.train.batch == 256
    assert config.train.steps > 1000


def test_little_memory_means_a_part_of_the_batch_at_a_time(monkeypatch):
    monkeypatch.setattr(module, "memory_of", lambda device: 64 << 20)
    config, sentences = auto(images(300, 32, 3))
    fitting = structural_options(config).micro_batch
    assert fitting is not None
    assert 2 <= fitting < 2 * config.train.batch
    assert any("fill the memory" in sentence for sentence in sentences)


def test_a_long_run_comes_with_advice(monkeypatch):
    monkeypatch.setattr(module, "LONG", 0.0)
    times = timed(images(20, 32), encoder__widths="[4]", method__generator__width="4")[2]
    assert "--data.size 16" in times[-1]


@pytest.mark.parametrize("name", ["simclr", "vicreg", "nnclr", "byol", "swav", "dino"])
@pytest.mark.parametrize("samples", [images(40), images(60, 32, 3)], ids=["8x8", "32x32"])
def test_a_two_view_learner_is_fitted_to_the_data_too(name, samples):
    config, sentences = auto(samples, method=name, train__steps="100")
    method, n = config.method.model_dump(), len(samples)
    assert config.train.schedule == "cosine"
    assert method["projection_size"] == (64 if "hidden_size" in method else 2048)
    assert method.get("queue", 1) <= n // 4
    assert method.get("prototypes", 10) == 10
    assert method.get("outputs", 16) == 16
    assert method.get("momentum", 0.9) == pytest.approx(0.9)
    assert method["view"]["crop"] == (0.2 if samples.shape[1] < 24 else 0.08)
    if method["second_view"] is not None:
        assert method["second_view"]["crop"] == method["view"]["crop"]
    if "frozen_epochs" in method:
        passes = 100 / (n // config.train.batch)
        assert method["frozen_epochs"] == pytest.approx(0.05 * passes)
    assert all(sentence.startswith("auto: ") and ("because" in sentence or "to fit" in sentence) for sentence in sentences)
    make_two_steps(config, samples)


def test_what_a_hand_set_of_a_two_view_learner_stays():
    config, _ = auto(images(), method="swav", method__prototypes="7", method__view__crop="0.5", method__queue="0")
    method = config.method.model_dump()
    assert (method["prototypes"], method["view"]["crop"], method["queue"]) == (7, 0.5, 0)


@pytest.mark.parametrize(("method", "said"), [("structural", "twice the steps"), ("byol", "a step is steadier with more")])
def test_the_reason_for_a_batch_is_one_of_the_method(method, said):
    _, reasons = auto(images(), method=method)
    (reason,) = [line for line in reasons if line.startswith("auto: batch")]
    assert said in reason


def test_minutes_choose_the_number_of_steps_and_what_follows_from_it():
    samples = Images(np.random.default_rng(0).integers(0, 256, (40, 8, 8, 1), np.uint8))
    short, usual = timed(samples, 0.05)[0], timed(samples)[0]
    long, reasons, _ = timed(samples, 5)
    assert short.steps_for(40) < long.steps_for(40) / 20
    assert long.log.checkpoint_every != short.log.checkpoint_every
    differing = {name for name, value in long.method if value != getattr(usual.method, name)}
    assert differing <= {"ema_decay"}
    assert "fit into 5 minutes" in reasons[-1]


@pytest.mark.parametrize(
    ("minutes", "given", "said"),
    [(0.0, {}, "more than 0"), (math.nan, {}, "more than 0"), (5.0, {"train__epochs": "3"}, "leave it or train.steps")],
)
def test_minutes_that_say_nothing_or_contradict_are_refused(minutes, given, said):
    with pytest.raises(InputError, match=said):
        timed(images(), minutes, **given)


def test_minutes_are_divided_by_the_time_of_a_step(monkeypatch):
    samples = images()
    cost = module.step_cost(load_preset("own", {"train.batch": "8"}), Dataset("x", samples, samples))
    monkeypatch.setattr(module, "step_cost", lambda *_: replace(cost, seconds=0.5))
    assert timed(samples, 5)[0].steps_for(len(samples)) == 600


def test_photographs_get_the_recipe_of_their_preset():
    config, sentences = auto(images(30_000, 32, 3), train__steps="3000")
    recipe = load_preset("cifar32", {})
    measured = recipe.method.model_dump() | {"bank": structural_options(config).bank}
    assert (config.method.model_dump(), config.encoder) == (measured, recipe.encoder)
    assert (config.train.batch, config.train.schedule) == (recipe.train.batch, recipe.train.schedule)
    assert sum("the recipe that was found for photographs" in sentence for sentence in sentences) == 6


@pytest.mark.parametrize(("batch", "one_in"), [("8", 1), ("31", 1), ("64", 4), ("128", 8)])
def test_sixteen_photographs_of_a_batch_have_a_jacobian_norm(batch, one_in):
    config, _ = auto(images(3_000, 32, 3), train__steps="30", train__batch=batch)
    assert structural_options(config).smooth_one_in == one_in


@pytest.mark.parametrize(("size", "patch"), [(24, 1), (32, 1), (64, 2), (128, 4)])
def test_larger_photographs_are_seen_by_the_same_network_in_patches(size, patch):
    config, _ = auto(images(20, size, 3))
    assert config.encoder == ResNetOptions(widths=(32, 64, 128, 256), blocks=1, patch=patch, start="patches")


@pytest.mark.parametrize(("size", "channels"), [(32, 1), (16, 3)])
def test_grey_and_tiny_images_are_no_photographs(size, channels):
    config, sentences = auto(images(20, size, channels))
    assert config.train.schedule == "constant"
    assert not any("photographs" in sentence for sentence in sentences)


def test_in_a_short_run_neighbours_come_in_sooner():
    assert structural_options(auto(images(20, 32, 3), train__steps="50")[0]).cluster_warmup == 5
