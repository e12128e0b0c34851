"""Table 5: a linear probe of the paper's method beside GenRep's, which learns from a generator that was trained before."""

from sao.reproduce.rows import CPU_PRESETS, WIRING, Row, Scale, Table, controls, recipe_of

BIGBIGAN_CPU = {
    "train.steps": "300",
    "method.generator.width": "32",
    "method.generator.depth": "1",
    "method.generator.latent_size": "64",
    "method.width": "16",
    "method.joint_width": "128",
    "method.head_width": "128",
    "method.discriminator_optimiser.learning_rate": "5e-4",
    "method.generator_optimiser.learning_rate": "5e-4",
    "log.evaluate_every": "150",
    "log.checkpoint_every": "100",
}
GENREP_CPU = {
    "train.steps": "300",
    "train.batch": "128",
    "train.schedule": "cosine",
    "method.hidden_size": "256",
    "method.projection_size": "64",
    "log.evaluate_every": "150",
    "log.checkpoint_every": "100",
}
# SimCLR's, as its authors combine the two.
VIEWS = {"crop": "0.2", "jitter": "[0.4, 0.4, 0.4, 0.1]", "grey": "0.2", "flip": "true"}


def table5(scale: Scale) -> Table:
    of_generator, recipe = (BIGBIGAN_CPU, GENREP_CPU) if scale == "cpu" else (recipe_of("bigbigan"), recipe_of("genrep"))
    learner = {"method": "genrep", "method.generator": "bigbigan"}
    wiring = WIRING if scale == "cpu" else ""
    views = {f"method.view.{key}": value for key, value in VIEWS.items()}
    rows = (
        Row("bigbigan", f"BigBiGAN, whose generator GenRep learns from{wiring}", {"method": "bigbigan"}, of_generator),
        Row("genrep", f"GenRep, Tz only{wiring}", learner, recipe, {"imagenet100": {"probe": 0.55}}, needs="bigbigan"),
        Row("genrep-views", f"GenRep, Tz and views{wiring}", {**learner, **views}, recipe, needs="bigbigan"),
        Row("ours", "ours", paper={"imagenet100": {"probe": 0.599}}, samples=False),
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
        return Table("table5", scale, title, rows, {"imagenet100": "imagenet100"}, ("imagenet100",), (*notes, own))
    small = (
        "After minutes at this size BigBiGAN and GenRep check the wiring: GenRep cannot learn more than the generator shows."
    )
    return Table("table5", scale, title, rows, CPU_PRESETS, ("fashion_mnist", "cifar10"), (*notes, small))
