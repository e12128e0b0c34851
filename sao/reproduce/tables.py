"""Tables 2 to 5 of the paper, and the samples of its appendix: what their rows are, at both scales."""

from collections.abc import Mapping
from dataclasses import replace

from sao.reproduce.rows import (
    CPU_PRESETS,
    OF_IMAGENETTE,
    PAPER_PRESETS,
    REFERENCE,
    WIRING,
    Row,
    Scale,
    Table,
    controls,
    of_method,
    recipe_of,
)
from sao.reproduce.table1 import CPU_SCALE

# --- Table 2: what is left of a representation when augmentations are taken away, for SimCLR and for the paper's method -----

NOTHING = {"crop": "null", "jitter": "null", "grey": "0", "blur": "0", "solarise": "0", "flip": "false"}
FLIP = {**NOTHING, "flip": "true"}
# Ours crops as the authors' code does; SimCLR needs harder crops, and colours changed as the published views do.
OURS_CROP = {**FLIP, "crop": "0.5"}
CROP = {**FLIP, "crop": "0.08"}
JITTER = {**CROP, "jitter": "[0.8, 0.8, 0.8, 0.2]", "grey": "0.2"}
# solo-learn's defaults for CIFAR, which the paper takes for its baselines.
SIMCLR_PAPER = {"train.batch": "256", "train.schedule": "cosine", "train.warmup_epochs": "10"}
SIMCLR_PAPER |= of_method({"optimiser.kind": "lars", "optimiser.learning_rate": "0.4", "optimiser.weight_decay": "1e-5"})
SIMCLR_PAPER |= of_method({"ema_decay": "0.99", "temperature": "0.2", "hidden_size": "2048", "projection_size": "256"})
# VICReg has SimCLR's recipe, but for its loss and head, and at the scale of the paper solo-learn's learning rate for it.
SIMCLR_ALONE = ("method.temperature", "method.hidden_size", "method.projection_size", "method.view.blur")
VICREG_PAPER = {"method.optimiser.learning_rate": "0.3", "method.optimiser.weight_decay": "1e-4"}
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
    rows = (
        _simclr("simclr", "none", NOTHING, scale),
        _ours("ours", "none", NOTHING, scale),
        _simclr("simclr-f", "F", FLIP, scale),
        _ours("ours-f", "F", FLIP, scale),
        _simclr("simclr-fc", "F+C", CROP, scale),
        _ours("ours-fc", "F+C", OURS_CROP, scale),
        _simclr("simclr-fcj", "F+C+J", JITTER, scale),
        _vicreg("vicreg", "none", NOTHING, scale),
        _vicreg("vicreg-fcj", "F+C+J", JITTER, scale),
        *controls(scale),
    )
    title = "Table 2: dependence on augmentation"
    notes = (
        "F, C, J: random flips, crops, colour jitter. For SimCLR they make the two views; for ours, more images.",
        "J has random grey with it (a fifth of the views), as SimCLR's.",
        f"SimCLR's crops keep {CROP['crop']} of an image or more, ours {OURS_CROP['crop']}.",
        "VICReg, which the paper does not have, learns from the views that SimCLR has; made where it is asked for.",
        "All have the same backbone, the discriminator of the preset.",
    )
    if scale == "paper":
        scored = "All are scored with the EMA of their weights."
        return Table("table2", scale, title, rows, PAPER_PRESETS, ("cifar10", "cifar100"), (*notes, scored))
    equal = "About equal time, not equal steps. The learning rate of SimCLR is that of table 1."
    return Table("table2", scale, title, rows, CPU_PRESETS, ("cifar10",), (*notes, equal))


def _simclr(name: str, views: str, augmentation: dict[str, str], scale: Scale) -> Row:
    recipe = SIMCLR_PAPER if scale == "paper" else CPU_SCALE["simclr"]
    view = {f"method.view.{key}": value for key, value in augmentation.items()}
    return Row(name, f"SimCLR, {views}", {"method": "simclr", **view}, recipe, _percent(name))


def _vicreg(name: str, views: str, augmentation: dict[str, str], scale: Scale) -> Row:
    beside = _simclr(name, views, augmentation, scale)
    recipe = {key: value for key, value in beside.recipe.items() if key not in SIMCLR_ALONE}
    own = VICREG_PAPER if scale == "paper" else {}
    return Row(name, f"VICReg, {views}", {**beside.changes, "method": "vicreg"}, {**recipe, **own}, on_request=True)


def _ours(name: str, augmented: str, augmentation: dict[str, str], scale: Scale) -> Row:
    changes = {f"method.augmentation.{key}": value for key, value in augmentation.items()}
    return Row(name, f"ours, {augmented}", changes, _lasting(scale), _percent(name))


def _lasting(scale: Scale) -> Mapping[str, str]:
    """As long as ours in table 1."""
    return CPU_SCALE["ours"] if scale == "cpu" else {}


def _percent(name: str) -> dict[str, dict[str, float]]:
    shares = [{metric: value / 100 for metric, value in zip(METRICS, values, strict=True)} for values in PAPER.get(name, ())]
    return dict(zip(("cifar10", "cifar100"), shares, strict=False))


# --- Table 3: how clusters agree with classes, for the GAN that conditions itself on clusters and for ours ------------------

# Twenty clusters of a part of the images, made again every 200 steps; about as long as ours.
_RATES = of_method({f"{player}_optimiser.learning_rate": "5e-4" for player in ("discriminator", "generator")})
SELF_CONDITIONED_CPU = {"train.steps": "1200", "log.evaluate_every": "500", "log.checkpoint_every": "500"}
SELF_CONDITIONED_CPU |= {**_RATES, **of_method({"width": "32", "clusters": "20", "clustered": "5000"})}
SELF_CONDITIONED_CPU |= of_method({"recluster_every": "200", "restarts": "3"})


AGREEMENT = {"svm": "SVM", "nmi": "NMI", "purity": "purity", "purity_swapped": "swapped purity"}
AGREEMENT |= {"nmi_equal_k": "NMI, equal k", "minutes": "minutes"}


def table3(scale: Scale) -> Table:
    recipe = SELF_CONDITIONED_CPU if scale == "cpu" else recipe_of("self_conditioned")
    k = int(recipe["method.clusters"])
    method, paper = {"method": "self_conditioned", "method.clusters": str(k)}, {"nmi": 0.3326, "purity_swapped": 0.1173}
    trained = {key: value for key, value in recipe.items() if key != "method.clusters"}
    rows = (
        Row("self-conditioned", f"self-conditioned GAN, {k} clusters", method, trained, {"cifar10": paper}),
        Row("ours", "ours", recipe=_lasting(scale), paper={"cifar10": {"nmi": 0.7277, "purity": 0.8152}}),
        *controls(scale),
    )
    rows = tuple(replace(row, clusters=k, samples=False) for row in rows)
    title = "Table 3: clusters and classes"
    notes = (
        f"nmi, purity, purity_swapped: of the self-conditioned GAN's own {k} clusters; all other rows are clustered by"
        f" k-means with as many clusters as there are classes. …_equal_k: k-means of every row's features with {k} "
        "clusters. All on the test set.",
        "purity: share of samples of the commonest class of their cluster; it rises with the number of clusters. "
        "purity_swapped: share of samples in the commonest cluster of their class; it falls. …_chance: the same "
        "clusters with the labels shuffled.",
        "The paper's 11.73 for the self-conditioned GAN cannot be its purity: an NMI of 33.26 forces a purity of at "
        "least 12.9, and any 100 clusters have about 12.2 by chance. The code of that GAN calls a function of purity "
        "with its arguments exchanged, so the number stands under purity_swapped (chance 1.4 for 100 clusters). The "
        "paper's 81.52 for ours is presumably a purity with 10 clusters: the two numbers are not of one kind.",
    )
    if scale == "paper":
        return Table("table3", scale, title, rows, PAPER_PRESETS, ("cifar10",), notes, AGREEMENT)
    return Table("table3", scale, title, rows, CPU_PRESETS, ("cifar10",), notes, AGREEMENT)


# --- Table 4: what each part of the objectives is worth, for the representation and for the generator ----------------------

# Narrow, with p and the EMA of the generator as quick as so few images ask for: minutes, which check that the code runs.
_MINUTES = {"train.steps": "300", "log.evaluate_every": "150", "log.checkpoint_every": "100"}
STYLEGAN2_CPU = {**_MINUTES, **of_method({"width": "32", "latent_size": "64", "adapt_images": "10000", "half_life": "5000"})}
# Of CIFAR-10 Inception score, Fréchet distance, percent by k-means and by SVM, and millions of parameters where they differ.
GENERATED = {
    "stylegan2": (9.82, 3.60, 28.96, 76.50, 20.7, 19.9),
    "biggan": (8.22, 17.50, 29.69, 69.31, 4.2, 4.3),
    "hinge": (8.13, 18.54, 36.41, 77.19),
    "bhattacharyya": (8.39, 17.83, 70.76, 87.9),
    "jsd": (8.55, 16.97, 80.55, 88.32),
    "full-spectral": (7.23, 26.41, 55.38, 83.9),
    "full": (8.73, 13.63, 80.11, 89.76),
}
OF_SAMPLES = {"kmeans": "k-means", "svm": "SVM", "knn1": "1-NN", "frechet_classifier": "Fréchet", "recall_classifier": "recall"}
OF_SAMPLES |= {"fid": "FID", "minutes": "minutes"}
APPENDIX = ("full", "jsd", "hinge", "biggan")  # the rows whose samples the paper shows, in its order


def table4(scale: Scale) -> Table:
    width, small = {"cpu": "64", "paper": "256"}[scale], scale == "cpu"
    stylegan2 = STYLEGAN2_CPU if small else recipe_of("stylegan2")
    # Filters that are divided by their norm cannot start from patches.
    spectral = {**of_method({"smoothness_weight": "0", "spectral_normalisation": "true"}), "encoder.start": "random"}
    alike = (
        Row("biggan", "BigGAN, spectral norm", {"method": "biggan", "encoder": "biggan", "encoder.width": width}),
        Row("hinge", "hinge loss, L_reg", {"method": "hinge"}),
        Row("bhattacharyya", "D_B only, L_reg", of_method({"distance": "bhattacharyya", "cluster_weight": "0"})),
        Row("jsd", "JSD only, L_reg", of_method({"cluster_weight": "0"})),
        Row("full-spectral", "full, spectral norm", spectral),
        Row("full", "full, L_reg"),
    )
    first = f"StyleGAN2-ADA, gradient penalty{WIRING if small else ''}"
    rows = (
        Row("stylegan2", first, {"method": "stylegan2"}, stylegan2, on_request=small),
        *(replace(row, recipe=_lasting(scale)) for row in alike),
        *controls(scale),
    )
    rows = tuple(replace(row, paper=_generated(*GENERATED[row.name])) if row.name in GENERATED else row for row in rows)
    title = "Table 4: ablation of the objectives"
    notes = (
        "The rows with the hinge loss have no term on the norm of embeddings: a score has one coordinate, which may be near 0.",
        "BigGAN's row has BigGAN's own discriminator and, as every row but the first, our generator, optimisers and batch.",
        "StyleGAN2-ADA is trained as its authors do for CIFAR-10, with networks, losses and augmentation of its own. The paper "
        "does not say which layer its features are of; here it is the last map of the discriminator, averaged.",
        "Every other row is trained with flips and crops, as in the paper.",
    )
    if scale == "paper":
        return Table("table4", scale, title, rows, PAPER_PRESETS, ("cifar10",), notes, OF_SAMPLES)
    here = (
        "Every row but the first makes as many steps. The row with the spectral norm starts from random filters, the others "
        "with this backbone from patches of the images.",
        "StyleGAN2-ADA is made where it is asked for: narrow, and after so few steps a check that the code runs.",
    )
    return Table("table4", scale, title, rows, CPU_PRESETS, ("cifar10",), (*notes, *here), OF_SAMPLES)


def samples(scale: Scale) -> Table:
    """The pictures of the paper's appendix: the same runs as the table's, so a folder can hold both."""
    table = table4(scale)
    rows = {row.name: row for row in table.rows}
    chosen = (*(rows[name] for name in APPENDIX), rows[REFERENCE])
    title = "Samples: full objectives, JSD alone, hinge loss, BigGAN"
    note = "samples.png has the pictures side by side, in the order of the paper's appendix."
    return replace(table, name="samples", title=title, rows=chosen, notes=(note, *table.notes))


def _generated(
    inception: float, frechet: float, kmeans: float, svm: float, parameters_d: float = 11.5, parameters_g: float = 4.9
) -> dict[str, dict[str, float]]:
    shares = {"kmeans": kmeans / 100, "svm": svm / 100}
    counts = {"parameters_d": 1e6 * parameters_d, "parameters_g": 1e6 * parameters_g}
    return {"cifar10": {"is": inception, "fid": frechet, **shares, **counts}}


# --- Table 5: a linear probe of ours beside GenRep's, which learns from a generator that was trained before ----------------

BIGBIGAN_CPU = {**_MINUTES, **_RATES, **of_method({"width": "16", "joint_width": "128", "head_width": "128"})}
BIGBIGAN_CPU |= of_method({"generator.width": "32", "generator.depth": "1", "generator.latent_size": "64"})
GENREP_CPU = {**_MINUTES, "train.batch": "128", "train.schedule": "cosine"}
GENREP_CPU |= of_method({"hidden_size": "256", "projection_size": "64"})
# SimCLR's, as its authors combine the two.
VIEWS = {"crop": "0.2", "jitter": "[0.4, 0.4, 0.4, 0.1]", "grey": "0.2", "flip": "true"}
OF_PROBE = {"kmeans": "k-means", "svm": "SVM", "probe": "probe", "knn1": "1-NN", "minutes": "minutes"}


def table5(scale: Scale) -> Table:
    of_generator, recipe = (BIGBIGAN_CPU, GENREP_CPU) if scale == "cpu" else (recipe_of("bigbigan"), recipe_of("genrep"))
    genrep = {"method": "genrep", "method.generator": "bigbigan"}
    small = scale == "cpu"
    wiring = WIRING if small else ""
    views = {f"method.view.{key}": value for key, value in VIEWS.items()}
    rows = (
        Row("bigbigan", f"BigBiGAN, whose generator GenRep learns from{wiring}", {"method": "bigbigan"}, of_generator),
        Row("genrep", f"GenRep, Tz only{wiring}", genrep, recipe, {"imagenet100": {"probe": 0.55}}, needs="bigbigan"),
        Row("genrep-views", f"GenRep, Tz and views{wiring}", {**genrep, **views}, recipe, on_request=small, needs="bigbigan"),
        Row("ours", "ours", recipe=_lasting(scale), paper={"imagenet100": {"probe": 0.599}}, samples=False),
        *controls(scale),
    )
    title = "Table 5: learning from a generator"
    notes = (
        "Tz only: the two views of GenRep are images of adjacent latents, and nothing else differs; with views, each "
        "is augmented too.",
        "The paper's 55.0 for GenRep is copied from Figure 6 of GenRep's own paper: a ResNet-50 that learnt from a "
        "BigBiGAN of all of ImageNet. Nothing was trained for it, and its protocol is another. Here every row has the"
        " same data, and the generator is trained on it.",
        "Minutes of GenRep's rows are without those of the generator, which stand in its row.",
    )
    if scale == "paper":
        own = "imagenet100 is read from a folder of that name (train/CLASS/*, val/CLASS/*) where the command is given."
        return Table("table5", scale, title, rows, {"imagenet100": "imagenet100"}, ("imagenet100",), (*notes, own), OF_PROBE)
    short = "In minutes BigBiGAN and GenRep only check that the code runs: GenRep cannot learn more than the generator shows."
    return Table("table5", scale, title, rows, CPU_PRESETS, ("imagenette",), (*notes, short, OF_IMAGENETTE), OF_PROBE)
