"""Table 4: what each part of the objectives is worth, for the representation and for the generator."""

from sao.reproduce.tables.cells import CPU_PRESETS, PAPER_PRESETS, Row, Scale, Table, controls


def table4(scale: Scale) -> Table:
    width = {"cpu": "64", "paper": "256"}[scale]
    rows = (
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
        "BigGAN's row has BigGAN's own discriminator and, as every row, our generator, optimisers and batch.",
        "Every row is trained with flips and crops, as in the paper."
        if scale == "paper"
        else "No row is trained with augmentation (the paper's are, with flips and crops).",
    )
    if scale == "paper":
        return Table("table4", scale, title, rows, PAPER_PRESETS, ("cifar10",), notes)
    return Table("table4", scale, title, rows, CPU_PRESETS, ("fashion_mnist", "cifar10"), notes)


def _paper(
    inception: float, frechet: float, kmeans: float, svm: float, parameters_d: float = 11.5, parameters_g: float = 4.9
) -> dict[str, dict[str, float]]:
    """Accuracies in percent and millions of parameters, as the paper prints them."""
    shares = {"kmeans": kmeans / 100, "svm": svm / 100}
    counts = {"parameters_d": 1e6 * parameters_d, "parameters_g": 1e6 * parameters_g}
    return {"cifar10": {"is": inception, "fid": frechet, **shares, **counts}}
