"""Which rows and data sets the benchmark of clusterings has, and what was published elsewhere."""

import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass, replace

from sao.errors import InputError
from sao.evaluation.manifold import check_algorithm
from sao.reproduce.rows import CPU_PRESETS, Row, Table, controls, of_method

OURS = "ours"
COMPONENTS = 32  # of PCA
LAYERS = ", features of all layers"
TWICE = "ours, twice as wide"
RIVALS = {
    "dec": "DEC, autoencoder of ClustPy",
    "idec": "IDEC, autoencoder of ClustPy",
    "dcn": "DCN, autoencoder of ClustPy",
    "vade": "VaDE, variational autoencoder of ClustPy",
    "n2d": "N2D, autoencoder of ClustPy + UMAP",
}
# Longer than the presets, whose lengths are for tables of many rows, and nearer to the paper's step than they are.
_LONG = {"train.schedule": "cosine", "log.evaluate_every": "500", "log.checkpoint_every": "500"}
_LONG |= of_method({"keys_from": "ema", "smooth_every": "2"})
RECIPES = {
    "mnist": {**_LONG, "train.steps": "3000"},
    "fashion_mnist": {**_LONG, "train.steps": "2000"},
    "cifar10": {**_LONG, "train.steps": "1000"},
}
# Twice the width, for about three times the minutes. So wide a D runs away with some seeds: its embeddings grow until nothing
# is told apart, which a weak ceiling on their length prevents.
WIDE = {"encoder.widths": "[16, 64, 128, 256]"}
WIDE |= of_method({"generator_optimiser.learning_rate": "1e-3", "norm_side": "ceiling", "norm_weight": "0.02"})
NOT_WIDE = ("digits", "cifar10")  # their own presets have other networks; it was not tried there
NOTES = (
    "Data: digits 8x8 as they are, a fifth held out by the seed. MNIST, Fashion-MNIST (60,000 / 10,000) and CIFAR-10 (50,000 / "
    "10,000) with their own training and test parts, resized to 16x16 (bilinear, with antialiasing). Every row learns from the "
    "training part without labels. It is judged on the test part, in which clusters are found and matched one to one with "
    "the classes.",
    "Each number: matched accuracy ± its sample standard deviation over the seeds / NMI / ARI. k-means: spherical, mean of 20 "
    "starts. best of 20: that with the best objective. UMAP: 10 dimensions, 20 neighbours, min_dist 0, by cosine, then the "
    "best of 20 k-means. UMAP, all images: the same of the training and the test part together, of which the test part is "
    "scored; more samples show more of the manifold. spectral: the leading eigenvectors of the graph of 10 neighbours, then "
    "the best of 20. own: what the row's own rule says, which is the nearest centre (VaDE: the likeliest component) found in "
    "the training part; of N2D it is UMAP and a mixture of Gaussians on the test part.",
    "ours and the untrained network are judged by their backbone features, as in the paper; features of all layers: the same "
    "networks with `--feature layers`, which adds the maps of every stage, averaged to 2x2. On MNIST, Fashion-MNIST and "
    "CIFAR-10 ours is the preset with a cosine, more steps, keys of the EMA discriminator and a penalty in every other "
    "step.",
    "ours, twice as wide: an encoder of widths 16, 64, 128 and 256 instead of 8, 32, 64 and 128, the generator's learning rate "
    "halved, and a weak ceiling on the lengths of embeddings; as many steps, each about three times as long.",
    "minutes: of training, on as many threads as train.threads says (1 unless told otherwise); of ClustPy's rows those of the "
    "processor. DEC, IDEC, DCN, VaDE and N2D have ClustPy's defaults, inputs scaled to 0…1, and as many epochs as fit into the "
    "time that ours took on the same data "
    "with the same seed, at most ClustPy's own 100 + 150; the JSON file says how many. ClustPy's own default for the manifold "
    "of N2D (t-SNE to ten dimensions) is refused by scikit-learn, so it has the UMAP of its paper.",
    "published: numbers from papers, of 28x28 images, other networks and other lengths of training. N2D's on MNIST is of the "
    "test part.",
)


@dataclass(frozen=True)
class Published:
    """A number from a paper; `row` is the row that runs the same method, None where none does."""

    data: str
    title: str
    row: str | None
    said: str
    source: str


PUBLISHED = (
    Published("mnist", "ClusterGAN", None, "0.910 ± 0.040", "Mukherjee et al. 2019"),
    Published("mnist", "VaDE", "vade", "0.945", "Jiang et al. 2017"),
    Published("mnist", "N2D", "n2d", "0.948", "McConville et al. 2021"),
    Published("fashion_mnist", "ClusterGAN", None, "0.612 ± 0.023", "Mukherjee et al. 2019"),
    Published("fashion_mnist", "DEC-DA", None, "0.586", "Guo et al. 2018"),
    Published("fashion_mnist", "N2D", "n2d", "0.672 / NMI 0.684", "McConville et al. 2021"),
)


def benchmark() -> Table:
    untrained = [row for row in controls("cpu") if row.kind == "untrained"]
    rows = (
        Row(OURS, "ours", recipes=RECIPES, samples=False),
        Row("layers", f"ours{LAYERS}", kind="same_run", needs=OURS, feature="layers"),
        Row("wide", TWICE, WIDE, recipes=RECIPES, samples=False, without=NOT_WIDE),
        Row("wide_layers", f"{TWICE}{LAYERS}", kind="same_run", needs="wide", feature="layers", without=NOT_WIDE),
        Row("raw", "raw pixels", kind="raw"),
        Row("pca", f"PCA, {COMPONENTS} dimensions", kind="pca"),
        Row("patches", "k-means patches", kind="patches"),
        *untrained,
        *(replace(row, name=f"{row.name}_layers", title=f"{row.title}{LAYERS}", feature="layers") for row in untrained),
        *(Row(name, title, kind="rival", needs=OURS) for name, title in RIVALS.items()),
    )
    data = ("digits", "mnist", "fashion_mnist", "cifar10")
    return Table("clustering", "cpu", "Clusters without labels", rows, {**CPU_PRESETS, "cifar10": "cifar16"}, data, NOTES)


def check_installed(rows: Sequence[Row]) -> None:
    """Before hours of work: what judges every row, and what some of them are."""
    rivals = [row.name for row in rows if row.kind == "rival"]
    if rivals and importlib.util.find_spec("clustpy") is None:
        others = ",".join(row.name for row in benchmark().rows if row.kind != "rival")
        raise InputError(f"rows {', '.join(rivals)} need ClustPy: pip install 'sao[clustering]', or add --rows {others}")
    check_algorithm("umap")  # which the extra of the rivals brings too, so theirs is asked for first
