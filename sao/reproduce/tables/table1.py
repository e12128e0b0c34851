"""Table 1: the representation that each self-supervised system learns, by a linear SVM and by k-means."""

from dataclasses import replace

from sao.reproduce.tables.cells import CPU_PRESETS, PAPER_PRESETS, Row, Scale, Table, controls
from sao.reproduce.tables.recipes import CIFAR, CPU_SCALE, IMAGENET, PAPER_SCALE

DATA = {"cifar10": CIFAR, "cifar100": CIFAR, "imagenet10": IMAGENET}  # of the paper, and whose recipes hold for them
TITLES = {
    "dino": "DINO",
    "nnclr": "NNCLR",
    "nnclr-same": "NNCLR, same views",
    "simclr": "SimCLR",
    "byol": "BYOL",
    "swav": "SwAV",
}
# Percent by SVM and by k-means on each of the data sets, and millions of parameters.
PAPER = {
    "dino": ((89.7, 63.9), (65.6, 36.7), (87.8, 68.0), 11.5),
    "nnclr": ((91.7, 69.3), (69.7, 40.4), (91.4, 66.8), 11.5),
    "simclr": ((90.6, 75.3), (65.6, 41.3), (89.0, 65.7), 11.5),
    "byol": ((93.1, 75.0), (70.6, 42.8), (90.4, 67.3), 11.5),
    "swav": ((89.1, 64.5), (65.0, 35.2), (90.0, 61.9), 11.5),
    "ours": ((89.8, 80.1), (63.3, 38.2), (91.2, 75.4), 11.5),
    "supervised": ((95.1, 95.1), (75.9, 73.6), (96.4, 96.3), 11.5),
    "untrained": ((42.9, 22.0), (18.3, 8.9), (48.2, 28.3), 11.5),
}


def table1(scale: Scale) -> Table:
    learners = [_learner(name, scale) for name in TITLES]
    rows = (
        *learners,
        Row("ours", "ours", paper=_paper("ours"), samples=False),
        *(replace(row, paper=_paper(row.name)) for row in controls(scale)),
        *(_on_batchnorm(row, scale) for row in learners),
    )
    title = "Table 1: representations of self-supervised systems"
    notes = (
        "Every row has the backbone of the preset (GroupNorm, ELU), of which the parameters are counted; heads are not.",
        "Rows whose names end in -bn are made where they are asked for: the same learner on a ResNet-18 with BatchNorm and "
        "ReLU. The paper's numbers of the two-view learners are close to those published for that network.",
        "Features are those of the trained network itself; ours, and the row with labels, are scored with its moving average.",
        "NNCLR, same views: one view, which is compared with its own neighbour; in the paper's Figure 1, without a number.",
    )
    if scale == "paper":
        presets = {**PAPER_PRESETS, "imagenet10": "imagenet10"}
        own = "imagenet10 is read from a folder of that name (train/CLASS/*, val/CLASS/*) where the command is given."
        return Table("table1", scale, title, rows, presets, tuple(DATA), (*notes, own))
    equal = (
        "About equal time, not equal steps. AdamW instead of LARS, narrow heads, crops that keep 0.2 of an image or more. "
        "Learning rates were not searched for."
    )
    return Table("table1", scale, title, rows, CPU_PRESETS, ("fashion_mnist", "cifar10"), (*notes, equal))


def _learner(name: str, scale: Scale) -> Row:
    changes = {"method": name.removesuffix("-same")} | ({"method.same_views": "true"} if name.endswith("-same") else {})
    if scale == "cpu":
        return Row(name, TITLES[name], changes, CPU_SCALE[name], _paper(name))
    recipes = {data: PAPER_SCALE[name][family] for data, family in DATA.items()}
    return Row(name, TITLES[name], changes, recipes=recipes, paper=_paper(name))


def _on_batchnorm(row: Row, scale: Scale) -> Row:
    """The same on the ResNet-18 that these learners are usually trained with."""
    encoder = {"encoder.norm": "batch"} | ({"encoder.widths": "null"} if scale == "paper" else {})
    title = f"{row.title}, BatchNorm"
    return replace(row, name=f"{row.name}-bn", title=title, changes={**row.changes, **encoder}, on_request=True)


def _paper(name: str) -> dict[str, dict[str, float]]:
    if name not in PAPER:
        return {}
    *pairs, parameters = PAPER[name]
    return {
        data: {"svm": svm / 100, "kmeans": kmeans / 100, "parameters_encoder": 1e6 * parameters}
        for data, (svm, kmeans) in zip(DATA, pairs, strict=True)
    }
