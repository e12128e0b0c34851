"""Table 2: what is left of a representation when augmentations are taken away, for SimCLR and for the paper's method."""

from sao.reproduce.rows import CPU_PRESETS, PAPER_PRESETS, Row, Scale, Table, controls

NOTHING = {"crop": "null", "jitter": "null", "grey": "0", "blur": "0", "solarise": "0", "flip": "false"}
FLIP = {**NOTHING, "flip": "true"}
# solo-learn's defaults for CIFAR, which the paper takes for its baselines.
SIMCLR_PAPER = {
    "train.batch": "256",
    "method.optimiser.kind": "lars",
    "method.optimiser.learning_rate": "0.4",
    "method.optimiser.weight_decay": "1e-5",
    "method.ema_decay": "0.99",
    "train.schedule": "cosine",
    "train.warmup_epochs": "10",
    "method.temperature": "0.2",
    "method.hidden_size": "2048",
    "method.projection_size": "256",
}
# Its steps cost a quarter of ours, or less: these are about as long as ours, not as many.
SIMCLR_CPU = {
    "train.steps": "1500",
    "train.batch": "128",
    "method.optimiser.learning_rate": "1e-3",
    "method.optimiser.betas": "[0.9, 0.999]",
    "method.optimiser.weight_decay": "1e-4",
    "method.ema_decay": "0.99",
    "train.schedule": "cosine",
    "method.hidden_size": "256",
    "method.projection_size": "64",
}
# VICReg has SimCLR's recipe, but for its loss and head, and at the scale of the paper solo-learn's learning rate for it.
SIMCLR_ALONE = ("method.temperature", "method.hidden_size", "method.projection_size")
VICREG_PAPER = {"method.optimiser.learning_rate": "0.3", "method.optimiser.weight_decay": "1e-4"}
VICREG_CPU = {"method.projection_size": "256"}
METRICS = ("kmeans", "svm", "probe", "knn1", "knn5")  # the columns of each data set, in percent
PAPER = {
    "simclr": ((14.2, 21.8, 21.8, 14.7, 15.1), (2.1, 4.5, 5.4, 2.7, 2.5)),
    "ours": ((76.5, 84.5, 83.2, 79.7, 82.2), (22.5, 52.2, 51.6, 37.5, 37.4)),
    "simclr-f": ((17.5, 32.8, 32.1, 23.3, 25.5), (4.1, 10.3, 10.9, 6.0, 5.5)),
    "ours-f": ((76.2, 85.7, 85.8, 80.9, 84.5), (30.8, 52.0, 56.5, 41.0, 42.9)),
    "simclr-fc": ((27.8, 72.7, 72.2, 64.9, 67.2), (12.2, 35.1, 34.3, 30.8, 29.1)),
    "ours-fc": ((80.0, 89.3, 88.4, 87.7, 89.2), (37.4, 63.2, 62.0, 55.0, 56.1)),
    "simclr-fcj": ((78.0, 90.7, 90.2, 88.1, 89.5), (41.7, 65.2, 65.2, 59.2, 61.4)),
}


def table2(scale: Scale) -> Table:
    # Ours crops as the authors' code does. SimCLR needs harder crops, and colours changed by twice as much on 32x32 images.
    ours_crop = {**FLIP, "crop": "0.5"}
    crop = {**FLIP, "crop": {"cpu": "0.2", "paper": "0.08"}[scale]}
    strength = {"cpu": "[0.4, 0.4, 0.4, 0.1]", "paper": "[0.8, 0.8, 0.8, 0.2]"}[scale]
    jitter = {**crop, "jitter": strength, "grey": "0.2"}
    rows = (
        _simclr("simclr", "none", NOTHING, scale),
        _ours("ours", "none", NOTHING),
        _simclr("simclr-f", "F", FLIP, scale),
        _ours("ours-f", "F", FLIP),
        _simclr("simclr-fc", "F+C", crop, scale),
        _ours("ours-fc", "F+C", ours_crop),
        _simclr("simclr-fcj", "F+C+J", jitter, scale),
        _vicreg("vicreg", "none", NOTHING, scale),
        _vicreg("vicreg-fcj", "F+C+J", jitter, scale),
        *controls(scale),
    )
    title = "Table 2: dependence on augmentation"
    notes = (
        "F, C, J: random flips, crops, colour jitter. For SimCLR they make the two views; for ours, more images.",
        "J has random grey with it (a fifth of the views), as SimCLR's.",
        "VICReg, which the paper does not have, learns from the views that SimCLR has.",
        "All have the same backbone, the discriminator of the preset, and are scored with the EMA of its weights.",
    )
    if scale == "paper":
        return Table("table2", scale, title, rows, PAPER_PRESETS, ("cifar10", "cifar100"), notes)
    steps, batch = SIMCLR_CPU["train.steps"], SIMCLR_CPU["train.batch"]
    equal = (
        f"About equal time, not equal steps: SimCLR and VICReg make {steps} steps of {batch} images, unless --steps says else. "
        f"Their crops keep {crop['crop']} of an image or more, ours {ours_crop['crop']}; their learning rate falls along "
        "a cosine, ours is constant; their AdamW has the usual betas and a decay of 1e-4. Their settings were not searched for."
    )
    return Table("table2", scale, title, rows, CPU_PRESETS, ("fashion_mnist", "cifar10"), (*notes, equal))


def _simclr(name: str, views: str, augmentation: dict[str, str], scale: Scale) -> Row:
    recipe = SIMCLR_PAPER if scale == "paper" else SIMCLR_CPU
    view = {f"method.view.{key}": value for key, value in augmentation.items()}
    return Row(name, f"SimCLR, {views}", {"method": "simclr", **view}, recipe, _paper(name))


def _vicreg(name: str, views: str, augmentation: dict[str, str], scale: Scale) -> Row:
    beside = _simclr(name, views, augmentation, scale)
    recipe = {key: value for key, value in beside.recipe.items() if key not in SIMCLR_ALONE}
    own = VICREG_PAPER if scale == "paper" else VICREG_CPU
    return Row(name, f"VICReg, {views}", {**beside.changes, "method": "vicreg"}, {**recipe, **own})


def _ours(name: str, augmented: str, augmentation: dict[str, str]) -> Row:
    return Row(name, f"ours, {augmented}", {f"method.augmentation.{k}": v for k, v in augmentation.items()}, paper=_paper(name))


def _paper(name: str) -> dict[str, dict[str, float]]:
    shares = [{metric: value / 100 for metric, value in zip(METRICS, values, strict=True)} for values in PAPER.get(name, ())]
    return dict(zip(("cifar10", "cifar100"), shares, strict=False))
