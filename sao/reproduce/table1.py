"""Table 1: the representation that each self-supervised system learns, by a linear SVM and by k-means."""

from collections.abc import Mapping
from dataclasses import replace

from sao.reproduce.rows import CPU_PRESETS, OF_IMAGENETTE, PAPER_PRESETS, SELDOM, WIRING, Row, Scale, Table, controls, of_method
from sao.reproduce.study import HELD, SHORTER

# --- what suits each method, as options -----------------------------------------------------------------------------------

# The paper's are solo-learn's for CIFAR; for ImageNet-10 it takes solo-learn's for ImageNet-100, with 1000 epochs.
Recipe = Mapping[str, str]

CIFAR, IMAGENET = "cifar", "imagenet"
SOLO = {"train.epochs": "1000", "train.batch": "256", "train.schedule": "cosine", "train.warmup_epochs": "10"}
# Of ImageNet the preset crops whole images. Two views must not be parts of one crop: they are made of the square in the middle.
WHOLE = {"data.crop": "null"}
# They are blurred too, the first of two different ones always.
BLURRED = {**WHOLE, "method.view.blur": "1.0", "method.second_view.blur": "0.1"}
PLAIN = {"method.view.jitter": "null", "method.view.grey": "0"}


def _lars(rate: str, decay: str, **own: str) -> Recipe:
    optimiser = {"kind": "lars", "learning_rate": rate, "weight_decay": decay}
    return {**SOLO, **{f"method.optimiser.{key}": value for key, value in optimiser.items()}, **of_method(own)}


_OF_IMAGENET_SIMCLR = {"hidden_size": "4096", "projection_size": "512"}
_WARM_UP = {"method.warm_up.temperature": "0.04", "method.warm_up.epochs": "50"}

# ViT-small with patches of 4x4, at 128x128 of 8x8; the paper says no more of it.
_MAE = {**SOLO, "method.optimiser.learning_rate": "2e-4", "encoder": "vit"}
# "Default hyper-parameters", says the paper: those of the first publication. Of ImageNet-10 it has no number.
_DDPM = {"train.epochs": "2000", "train.batch": "128", "train.warmup_epochs": "13", "encoder": "unet"}
_DDPM |= of_method({"optimiser.learning_rate": "2e-4"})

PAPER_SCALE: Mapping[str, Mapping[str, Recipe]] = {
    "simclr": {CIFAR: _lars("0.4", "1e-4"), IMAGENET: {**_lars("0.3", "1e-4", **_OF_IMAGENET_SIMCLR), **WHOLE}},
    "nnclr": {CIFAR: _lars("0.4", "1e-5"), IMAGENET: {**_lars("0.4", "1e-5"), **BLURRED}},
    # Augmented as ours is: the paper does not say how.
    "nnclr-same": {
        CIFAR: {**_lars("0.4", "1e-5"), **PLAIN, "method.view.crop": "0.5"},
        IMAGENET: {**_lars("0.4", "1e-5"), **PLAIN, "method.view.crop": "null", "data.crop": "0.5"},
    },
    "byol": {CIFAR: _lars("1.0", "1e-5"), IMAGENET: {**_lars("0.5", "1e-6", predictor_size="8192"), **BLURRED}},
    "swav": {CIFAR: _lars("0.6", "1e-6"), IMAGENET: {**_lars("0.6", "1e-6"), **WHOLE}},
    "dino": {CIFAR: _lars("0.3", "1e-6"), IMAGENET: {**_lars("0.3", "1e-6"), **BLURRED, **_WARM_UP}},
    "mae": {CIFAR: _MAE, IMAGENET: {**_MAE, "data.crop": "0.08", "method.augmentation.crop": "null"}},
    "ddpm": {CIFAR: _DDPM},
}

# At the scale of a processor: AdamW, and the published views and heads but for blur. Each makes as many steps at 32x32 as take
# about eight minutes of one core.
RATES = ("3e-4", "1e-3", "3e-3")
_CPU = {"train.batch": "128", "train.schedule": "cosine", **SELDOM}
_VIT = {"encoder": "vit", "encoder.width": "96", "encoder.depth": "4", "encoder.heads": "3"}
_VIT |= of_method({"decoder.width": "64", "decoder.depth": "2", "decoder.heads": "4"})
_UNET = {"encoder": "unet", "encoder.channels": "32", "encoder.blocks": "1"}


def _cpu(steps: int, **own: str) -> Recipe:
    return {**_CPU, "train.steps": str(steps), **of_method(own)}


CPU_SCALE: Mapping[str, Recipe] = {
    "simclr": _cpu(1250, **{"view.blur": "0"}),
    "nnclr": _cpu(1150, queue="4096"),
    "nnclr-same": {**_cpu(2300, queue="4096"), **PLAIN, "method.view.crop": "null"},
    "byol": _cpu(850, momentum="0.98"),
    "swav": _cpu(1150, **{"view.blur": "0"}, prototypes="200", queue="0", frozen_epochs="0.25"),
    "dino": _cpu(800, outputs="256", momentum="0.99", teacher_temperature="0.04", frozen_epochs="0.25"),
    "mae": {**_CPU, **_VIT, "train.steps": "500"},
    "ddpm": {**_CPU, **_UNET, "train.batch": "64", "train.steps": "250"},
    "ours": {"train.steps": "680", **SELDOM},
}


# --- the table ------------------------------------------------------------------------------------------------------------

DATA = {"cifar10": CIFAR, "cifar100": CIFAR, "imagenet10": IMAGENET}  # of the paper, and whose recipes hold for them
TWO_VIEWS = {
    "dino": "DINO",
    "nnclr": "NNCLR",
    "nnclr-same": "NNCLR, same views",
    "simclr": "SimCLR",
    "byol": "BYOL",
    "swav": "SwAV",
}
AUTOENCODERS = {"mae": "MAE", "ddpm": "DDPM"}
TITLES = {**TWO_VIEWS, **AUTOENCODERS}
FIGURE1 = ("byol", "nnclr-same", "simclr", "ours")  # the rows whose features the paper draws
# Percent by SVM and by k-means on each of the data sets, and millions of parameters.
PAPER = {
    "dino": ((89.7, 63.9), (65.6, 36.7), (87.8, 68.0), 11.5),
    "nnclr": ((91.7, 69.3), (69.7, 40.4), (91.4, 66.8), 11.5),
    "simclr": ((90.6, 75.3), (65.6, 41.3), (89.0, 65.7), 11.5),
    "byol": ((93.1, 75.0), (70.6, 42.8), (90.4, 67.3), 11.5),
    "swav": ((89.1, 64.5), (65.0, 35.2), (90.0, 61.9), 11.5),
    "mae": ((82.3, 37.0), (57.1, 17.9), (88.4, 45.8), 20.4),
    "ddpm": ((91.1, 78.0), (62.5, 36.3), None, 41.8),
    "ours": ((89.8, 80.1), (63.3, 38.2), (91.2, 75.4), 11.5),
    "supervised": ((95.1, 95.1), (75.9, 73.6), (96.4, 96.3), 11.5),
    "untrained": ((42.9, 22.0), (18.3, 8.9), (48.2, 28.3), 11.5),
}


def table1(scale: Scale) -> Table:
    trained = [_method_row(name, scale) for name in TITLES]
    rows = (
        *trained,
        ours() if scale == "paper" else ours(CPU_SCALE["ours"]),
        *(replace(row, paper=_paper(row.name)) for row in controls(scale)),
        *(_on_batchnorm(row, scale) for row in trained if row.name in TWO_VIEWS),
    )
    title = "Table 1: representations of self-supervised systems"
    notes = (
        "Every row but MAE and DDPM has the backbone of the preset (GroupNorm, ELU). Parameters are those of the backbone, "
        "without heads.",
        "Rows whose names end in -bn are made where they are asked for: the same method on a ResNet-18 with BatchNorm and "
        "ReLU. The paper's numbers of the two-view methods are close to those published for that network.",
        "Features are those of the trained network itself; of ours, DDPM and the row with labels, of its EMA.",
        "NNCLR, same views: one view, which is compared with its own neighbour; in the paper's Figure 1, without a number.",
        "MAE: the class token of the whole image. DDPM: the second block upwards, averaged, of an image noised to t = 11.",
    )
    if scale == "paper":
        presets = {**PAPER_PRESETS, "imagenet10": "imagenet10"}
        own = "imagenet10 is read from a folder of that name (train/CLASS/*, val/CLASS/*) where the command is given."
        return Table("table1", scale, title, rows, presets, tuple(DATA), (*notes, own))
    equal = (
        "About equal time, not equal steps. AdamW instead of LARS, and no blur.",
        f"The learning rate of every row that learns from views is the best of {', '.join(RATES)}, by an SVM on "
        f"{HELD:.0%} of the training set (seed 0, one step in {SHORTER}). Ours has those of its preset.",
        "MAE and DDPM are made where they are asked for: in this time, with networks this small, they only check that "
        "the code runs.",
    )
    return Table("table1", scale, title, rows, CPU_PRESETS, ("cifar10",), (*notes, *equal, OF_IMAGENETTE))


def ours(recipe: Recipe | None = None) -> Row:
    return Row("ours", "ours", recipe=recipe or {}, paper=_paper("ours"), samples=False)


def two_view_methods() -> list[Row]:
    """As they are, without a recipe."""
    return [Row(name, title, _changes(name)) for name, title in TWO_VIEWS.items()]


def _changes(name: str) -> dict[str, str]:
    same = {"method.same_views": "true"} if name.endswith("-same") else {}
    return {"method": name.removesuffix("-same"), **same}


def _method_row(name: str, scale: Scale) -> Row:
    row = Row(name, TITLES[name], _changes(name), paper=_paper(name), samples=False)
    if scale == "cpu":
        small = name in AUTOENCODERS
        title = f"{row.title}{WIRING}" if small else row.title
        return replace(row, title=title, recipe=CPU_SCALE[name], rates=RATES, on_request=small)
    recipes = {data: PAPER_SCALE[name][family] for data, family in DATA.items() if family in PAPER_SCALE[name]}
    return replace(row, recipes=recipes, without=tuple(DATA.keys() - recipes.keys()))


def _on_batchnorm(row: Row, scale: Scale) -> Row:
    """The same on the ResNet-18 that these methods are usually trained with."""
    encoder = {"encoder.norm": "batch"} | ({"encoder.widths": "null"} if scale == "paper" else {})
    title = f"{row.title}, BatchNorm"
    return replace(row, name=f"{row.name}-bn", title=title, changes={**row.changes, **encoder}, on_request=True)


def _paper(name: str) -> dict[str, dict[str, float]]:
    if name not in PAPER:
        return {}
    *pairs, parameters = PAPER[name]
    return {
        data: {"svm": pair[0] / 100, "kmeans": pair[1] / 100, "parameters_encoder": 1e6 * parameters}
        for data, pair in zip(DATA, pairs, strict=True)
        if pair is not None
    }
