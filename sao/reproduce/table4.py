"""Table 4: what each part of the objectives is worth, for the representation and for the generator."""

from dataclasses import replace

from sao.reproduce.rows import CPU_PRESETS, PAPER_PRESETS, REFERENCE, WIRING, Row, Scale, Table, controls, recipe_of

# Narrow, with p and the EMA of the generator as quick as so few images ask for: minutes, which check the wiring.
STYLEGAN2_CPU = {
    "train.steps": "300",
    "method.width": "32",
    "method.latent_size": "64",
    "method.adapt_images": "10000",
    "method.half_life": "5000",
    "log.evaluate_every": "150",
    "log.checkpoint_every": "100",
}
APPENDIX = ("full", "jsd", "hinge", "biggan")  # the rows whose samples the paper shows, in its order


def table4(scale: Scale) -> Table:
    width = {"cpu": "64", "paper": "256"}[scale]
    rows = (
        Row(
            "stylegan2",
            "StyleGAN2-ADA, gradient penalty" + (WIRING if scale == "cpu" else ""),
            {"method": "stylegan2"},
            STYLEGAN2_CPU if scale == "cpu" else recipe_of("stylegan2"),
            paper=_paper(9.82, 3.60, 28.96, 76.50, 20.7, 19.9),
        ),
        Row(
            "biggan",
            "BigGAN, spectral norm",
            {"method": "biggan", "encoder": "biggan", "encoder.width": width},
            paper=_paper(8.22, 17.50, 29.69, 69.31, 4.2, 4.3),
        ),
        Row("hinge", "hinge loss, L_reg", {"method": "hinge"}, paper=_paper(8.13, 18.54, 36.41, 77.19)),
        Row(
            "bhattacharyya",
            "D_B only, L_reg",
            {"method.distance": "bhattacharyya", "method.cluster_weight": "0"},
            paper=_paper(8.39, 17.83, 70.76, 87.9),
        ),
        Row("jsd", "JSD only, L_reg", {"method.cluster_weight": "0"}, paper=_paper(8.55, 16.97, 80.55, 88.32)),
        Row(
            "full-spectral",
            "full, spectral norm",
            {"method.smoothness_weight": "0", "method.spectral_normalisation": "true"},
            paper=_paper(7.23, 26.41, 55.38, 83.9),
        ),
        Row("full", "full, L_reg", paper=_paper(8.73, 13.63, 80.11, 89.76)),
        *controls(scale),
    )
    title = "Table 4: ablation of the objectives"
    notes = (
        "The rows with the hinge loss have no term on the norm of embeddings: a score has one coordinate, which may be near 0.",
        "BigGAN's row has BigGAN's own discriminator and, as every row but the first, our generator, optimisers and batch.",
        "StyleGAN2-ADA is trained as its authors do for CIFAR-10, with networks, losses and augmentation of its own. The paper "
        "does not say which layer its features are of; here it is the last map of the discriminator, averaged.",
        "Every other row is trained with flips and crops, as in the paper."
        if scale == "paper"
        else "No other row is trained with augmentation (the paper's are, with flips and crops). StyleGAN2-ADA is narrow "
        "here: after so few steps a check of the wiring.",
    )
    if scale == "paper":
        return Table("table4", scale, title, rows, PAPER_PRESETS, ("cifar10",), notes)
    return Table("table4", scale, title, rows, CPU_PRESETS, ("fashion_mnist", "cifar10"), notes)


def samples(scale: Scale) -> Table:
    """The pictures of the paper's appendix: the same runs as the table's, so a folder can hold both."""
    table = table4(scale)
    rows = {row.name: row for row in table.rows}
    chosen = (*(rows[name] for name in APPENDIX), rows[REFERENCE])
    title = "Samples: full objectives, JSD alone, hinge loss, BigGAN"
    note = "samples.png has the pictures side by side, in the order of the paper's appendix."
    return replace(table, name="samples", title=title, rows=chosen, notes=(note, *table.notes))


def _paper(
    inception: float, frechet: float, kmeans: float, svm: float, parameters_d: float = 11.5, parameters_g: float = 4.9
) -> dict[str, dict[str, float]]:
    """Accuracies in percent and millions of parameters, as the paper prints them."""
    shares = {"kmeans": kmeans / 100, "svm": svm / 100}
    counts = {"parameters_d": 1e6 * parameters_d, "parameters_g": 1e6 * parameters_g}
    return {"cifar10": {"is": inception, "fid": frechet, **shares, **counts}}
