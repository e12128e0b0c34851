"""What suits each learner of Table 1, at the scale of the paper and at that of a processor, as options.

The paper's are solo-learn's for CIFAR; for ImageNet-10 it takes solo-learn's for ImageNet-100, with 1000 epochs.
"""

from collections.abc import Mapping

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
    return {**SOLO, **{f"method.optimiser.{key}": value for key, value in optimiser.items()}, **_method(own)}


def _method(own: Mapping[str, str]) -> Recipe:
    return {f"method.{key}": value for key, value in own.items()}


_OF_IMAGENET_SIMCLR = {"hidden_size": "4096", "projection_size": "512"}
_WARM_UP = {"method.warm_up.temperature": "0.04", "method.warm_up.epochs": "50"}

# ViT-small with patches of 4x4, at 128x128 of 8x8; the paper says no more of it.
_MAE = {
    **SOLO,
    "method.optimiser.learning_rate": "2e-4",
    "encoder": "vit",
}
# "Default hyper-parameters", says the paper: those of the first publication. Of ImageNet-10 it has no number.
_DDPM = {
    "train.epochs": "2000",
    "train.batch": "128",
    "train.warmup_epochs": "13",
    "method.optimiser.learning_rate": "2e-4",
    "encoder": "unet",
}

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

# At the scale of a processor: narrow heads, AdamW, and crops that leave something to be seen of 16x16 pixels. Each makes as
# many steps as take about three minutes of one core.
RATES = ("3e-4", "1e-3", "3e-3")
_SELDOM = {"log.evaluate_every": "500"}  # a look at a run takes as long as 40 steps of these learners
_CPU = {"train.batch": "128", "train.schedule": "cosine", **_SELDOM}
_HEADS = _method({"hidden_size": "256", "projection_size": "64", "view.crop": "0.2"})
_STRONG = {"view.jitter": "[0.4, 0.4, 0.4, 0.1]", "view.blur": "0"}
_BOTH = {"second_view.crop": "0.2", "predictor_size": "256"}
_VIT = {"encoder": "vit", "encoder.width": "96", "encoder.depth": "4", "encoder.heads": "3"}
_UNET = {"encoder": "unet", "encoder.channels": "32", "encoder.blocks": "1"}


def _cpu(steps: int, **own: str) -> Recipe:
    return {**_CPU, **_HEADS, "train.steps": str(steps), **_method(own)}


CPU_SCALE: Mapping[str, Recipe] = {
    "simclr": _cpu(1500, **_STRONG),
    "nnclr": _cpu(1500, **_BOTH, queue="4096"),
    "nnclr-same": {**_cpu(3000, predictor_size="256", queue="4096"), **PLAIN, "method.view.crop": "null"},
    "byol": _cpu(1100, **_BOTH, momentum="0.98"),
    "swav": _cpu(1500, **_STRONG, prototypes="200", queue="0", frozen_epochs="0.25"),
    "dino": _cpu(
        1100,
        **{"second_view.crop": "0.2"},
        outputs="256",
        momentum="0.99",
        partner_temperature="0.04",
        frozen_epochs="0.25",
    ),
    "mae": {
        **_CPU,
        **_VIT,
        "train.steps": "500",
        **_method({"decoder.width": "64", "decoder.depth": "2", "decoder.heads": "4"}),
    },
    "ddpm": {**_CPU, **_UNET, "train.batch": "64", "train.steps": "250"},
    "ours": {"train.schedule": "cosine", "train.steps": "600", **_SELDOM},
    "supervised": {**_CPU, "train.steps": "3000"},
}
