"""Options: strict, overridable, and the paper's own numbers in the presets."""

import pytest
import yaml

from sao.config import Config, build, load, load_preset, overrides, save
from sao.config.overrides import option_names
from sao.config.presets import preset_names, preset_text
from sao.data.augmentation import Augmentation
from sao.errors import InputError
from sao.methods import ENCODERS, METHODS, structural
from sao.methods.encoders import ResNetOptions
from sao.methods.optimisers import AdamW

OPTIMISERS = [
    (name, field)
    for name, options in METHODS.items()
    for field, described in options.model_fields.items()
    if isinstance(described.default, AdamW)
]
HINGE, RATES = {"name": "hinge"}, "method.generator_optimiser"
PAPER = {"cifar10": (1000, 500), "cifar100": (1000, 500), "imagenet10": (500, 320), "imagenet100": (1000, 320)}


@pytest.mark.parametrize(("name", "epochs", "batch"), [(name, *numbers) for name, numbers in PAPER.items()])
def test_the_papers_runs_are_complete(name, epochs, batch):
    config = load_preset(name)
    method, encoder = config.method, config.encoder
    assert isinstance(method, structural.Options)
    assert isinstance(encoder, ResNetOptions)
    assert config.data.source == name
    if "imagenet" in name:  # crops of the whole image, before it is 128x128
        assert (config.data.size, config.data.fit, config.data.crop) == (128, "centre", 0.5)
        assert method.augmentation == Augmentation(flip=True)
    else:
        assert (config.data.size, config.data.crop) == (None, None)
        assert method.augmentation == Augmentation(flip=True, crop=0.5)
    assert (config.train.epochs, config.train.batch) == (epochs, batch)
    for player, decay in ((method.discriminator_optimiser, 0.1), (method.generator_optimiser, 0.0)):
        assert (player.learning_rate, player.betas, player.weight_decay) == (2e-4, (0.5, 0.999), decay)
    assert method.ema_decay == 0.99
    assert (method.norm_weight, method.cluster_weight, method.smoothness_weight) == (4, 3, 5)
    assert (method.bank, method.neighbours, method.lipschitz, method.power_steps) == (10240, 1, 1, 1)
    assert (method.distance, method.smooth_every) == ("jensen_shannon", 1)
    widths = (64, 64, 128, 256, 512) if "imagenet" in name else (64, 128, 256, 512)
    assert (encoder.widths, encoder.blocks) == (widths, 2)
    assert (method.embedding_size, method.generator.latent_size) == (128, 128)
    assert config.steps_for(50_000) == epochs * (50_000 // batch)


@pytest.mark.parametrize("name", preset_names())
def test_every_preset_loads_and_opens_with_its_command(name):
    lines = preset_text(name).splitlines()
    assert lines[0].startswith("# ")
    assert any(line.startswith("# command: sao train") for line in lines)
    assert isinstance(load_preset(name), Config)
    if name in PAPER:
        assert {"# time:", "# result:"} <= {line[:7] if line.startswith("# time") else line[:9] for line in lines}


@pytest.mark.parametrize("name", preset_names())
def test_saving_and_loading_changes_nothing(name, tmp_path):
    config = load_preset(name, {"seed": "7", "log.keep": "9", "data.source": "a: b #c"})
    save(config, tmp_path / "config.yaml")
    assert load(tmp_path / "config.yaml") == config


@pytest.mark.parametrize(
    ("key", "text", "value"),
    [
        ("train.batch", "64", 64),
        ("train.batch", "010", 10),
        ("train.steps", "1e3", 1000),
        ("method.discriminator_optimiser.learning_rate", "5e-4", 5e-4),
        ("method.skip-first-fake", "true", True),
        ("encoder.widths", "[8,16]", (8, 16)),
        ("encoder.widths", "null", None),
        ("method.augmentation.crop", "null", None),
        ("data.source", "2024", "2024"),
        ("data.source", "yes", "yes"),
        ("data.source", "[a]: {b}", "[a]: {b}"),
        ("method.norm_side", "ceiling", "ceiling"),
    ],
)
def test_an_option_is_taken_as_a_person_means_it(key, text, value):
    found = load_preset("cifar10", {key: text})
    for part in key.replace("-", "_").split("."):
        found = getattr(found, part)
    assert found == value
    assert type(found) is type(value)


def test_every_option_can_be_given_by_its_dotted_name():
    config = Config(encoder=ResNetOptions())
    values = config.by_name()
    assert list(values) == option_names(Config, config.model_dump(mode="json"))
    texts = {name: "null" if value is None else str(value) for name, value in values.items() if name != "train.steps"}
    assert build({}, texts) == config


@pytest.mark.parametrize("preset", ["digits", "cifar10", "mae", "spirals"])
@pytest.mark.parametrize("kind", ["method", "encoder"])
def test_a_member_is_chosen_by_its_group_or_by_the_name_in_it(preset, kind):
    for name in {"method": METHODS, "encoder": ENCODERS}[kind]:
        found = []
        for key in (kind, f"{kind}.name"):
            try:
                found.append(load_preset(preset, {key: name}))
            except InputError as error:
                found.append(str(error))
        assert found[0] == found[1]


def test_steps_by_name_replace_the_epochs_of_a_preset():
    assert load_preset("cifar10", {"train.steps": "7"}).steps_for(50_000) == 7
    assert load_preset("cifar10", {"train.epochs": "2"}).steps_for(50_000) == 200
    assert load_preset("digits", {"train.steps": "7"}).steps_for(10) == 7


def test_a_run_has_at_least_one_step_an_epoch():
    assert build({"train": {"epochs": 3, "batch": 10}}).steps_for(11) == 3


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"trian": {}}, ["there is no option trian"]),
        ({"train": {"bacth": 3}}, ["train.bacth", "did you mean --train.batch?"]),
        ({"method": HINGE | {"generator_optimiser": {"learning_rat": 1}}}, ["generator_optimiser.learning_rate?"]),
        ({"train": 3}, ["train: ", "got 3"]),
        ({"method": {"name": "structural", "ema_decay": 1}}, ["method.ema_decay", "less than 1", "got 1"]),
        ({"train": {"batch": True}}, ["train.batch", "number", "got True"]),
        ({"train": {"batch": 2.5}}, ["train.batch", "2.5"]),
        ({"method": HINGE | {"generator_optimiser": {"learning_rate": float("nan")}}}, [f"{RATES}.learning_rate", "finite"]),
        ({"method": HINGE | {"generator_optimiser": {"betas": [0.5, 1.0]}}}, [f"{RATES}.betas", "less than 1"]),
        ({"data": {"held_out": 0}}, ["data.held_out", "greater than 0"]),
        ({"data": {"size": 4}}, ["data.size", "greater than or equal to 8"]),
        ({"method": {"name": "structural", "cluster_weight": -1}}, ["method.cluster_weight", "got -1"]),
        ({"method": {"name": "structural", "centre": "spheer"}}, ["method.centre", "did you mean sphere?"]),
        ({"method": {"name": "hinge", "bank": 8}}, ["method hinge has no option bank", "structural has it"]),
        ({"method": {"name": "structral"}}, ["there is no method 'structral'", "did you mean structural?"]),
        ({"method": {"bank": 8}}, ["there is no method"]),
        ({"encoder": {"name": "resnet", "width": 8}}, ["resnet has no option width", "perceptron, biggan and vit have it"]),
        ({"method": {"name": "biggan"}, "encoder": {"name": "resnet"}}, ["biggan cannot use encoder resnet"]),
        ({"seed": 2**32}, ["seed", "4294967296"]),
    ],
)
def test_refuses_and_names_the_key(values, words):
    with pytest.raises(InputError) as refusal:
        build(values)
    assert "\n" not in str(refusal.value)
    for word in words:
        assert word in str(refusal.value)


@pytest.fixture
def hints(capsys):
    """What is said on stderr, as if it had not been said yet."""
    overrides._hint.cache_clear()
    return lambda: capsys.readouterr().err


@pytest.mark.parametrize(
    ("method", "old", "text", "new", "value"),
    [
        ("structural", "method.average", "0.5", "method.ema_decay", 0.5),
        ("ddpm", "method.gradient_limit", "0.5", "method.clip_grad_norm", 0.5),
        ("dino", "method.partner_temperature", "0.5", "method.teacher_temperature", 0.5),
        ("structural", "method.keys_from", "average", "method.keys_from", "ema"),
    ],
)
def test_a_name_of_version_0_2_is_accepted_with_one_line(method, old, text, new, value, hints):
    """On the command line and in a preset of one's own; a run's own configuration is read without a word."""
    last = new.rpartition(".")[2]
    typed = build({"method": {"name": method}}, {old: text})
    assert getattr(typed.method, last) == value
    said = hints()
    assert said.count("\n") == 1
    assert "is now called " + new in said
    assert build({"method": {"name": method, old.rpartition(".")[2]: yaml.safe_load(text)}}) == typed
    assert hints() == ""  # once is enough


def test_a_configuration_of_version_0_2_is_read_without_a_word(tmp_path, hints):
    old = {"format": 2, "method": {"name": "structural", "average": 0.5, "keys_from": "average"}}
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(old))
    method = load(tmp_path / "config.yaml").method
    assert isinstance(method, structural.Options)
    assert (method.ema_decay, method.keys_from, hints()) == (0.5, "ema", "")


def test_an_old_name_beside_the_new_one_is_refused():
    with pytest.raises(InputError, match="has no option average"):
        build({"method": {"name": "structural", "average": 0.5, "ema_decay": 0.5}})


def test_overrides_do_not_change_what_was_given():
    values = {"train": {"batch": 5}}
    assert build(values, {"train.batch": "6"}).train.batch == 6
    assert values == {"train": {"batch": 5}}
    assert build({}).train.batch == Config().train.batch == 256


@pytest.mark.parametrize("name", METHODS)
def test_the_defaults_of_every_method_are_what_it_would_accept(name, tmp_path):
    """Defaults are not validated when a configuration is built, but they are when a run is opened again."""
    config = build({"method": {"name": name}})
    save(config, tmp_path / "config.yaml")
    assert load(tmp_path / "config.yaml") == config


@pytest.mark.parametrize(("name", "field"), OPTIMISERS)
def test_a_file_that_names_one_number_of_an_optimiser_leaves_the_others_as_they_are(name, field):
    """Each method's own, for example StyleGAN2's learning rate, and not those of optimisers in general."""
    plain = build({"method": {"name": name}}).method
    changed = build({"method": {"name": name, field: {"weight_decay": 0.123}}}).method
    assert getattr(changed, field) == getattr(plain, field).model_copy(update={"weight_decay": 0.123})


def test_how_often_a_run_is_looked_at_does_not_change_what_it_learns():
    config = load_preset("digits")
    assert load_preset("digits", {"log.evaluate_every": "7", "log.keep": "9"}).learns_as(config)
    assert not load_preset("digits", {"train.steps": "7"}).learns_as(config)
    assert not load_preset("digits", {"seed": "7"}).learns_as(config)


def test_axes_that_are_none_are_told_what_axes_look_like():
    with pytest.raises(InputError, match="give the axes of the array in their order, such as NHWC"):
        load_preset("own", {"data.axes": "XYZ"})
    assert load_preset("own", {"data.axes": "nchw"}).data.axes == "NCHW"
