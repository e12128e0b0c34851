"""Table 1 on 8x8 digits with a few steps, and what its rows are at the scale of the paper."""

from pathlib import Path

import pytest
from test_tables import lines, words

from sao.cli import main
from sao.engine.run import Run
from sao.methods import METHODS
from sao.reproduce.tables.cells import Cell, cells_of, chosen_rows
from sao.reproduce.tables.table1 import DATA, PAPER, TITLES, table1

CONTROLS = ["raw", "untrained", "supervised"]
SMALL = ["--encoder.widths", "[4, 8]", "--method.hidden_size", "16", "--method.projection_size", "8"]


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("table1") / "out"
    assert main(words("table1", out, *SMALL)) == 0
    assert main(words("table1", out, *SMALL, "--rows", "byol-bn")) == 0
    return out


def test_every_row_has_its_numbers(made):
    found = lines(made, "table1")
    assert list(found) == [*TITLES, "ours", *CONTROLS, "byol-bn"]
    for name, line in found.items():
        assert {"kmeans", "svm"} <= line["metrics"].keys()
        assert not any(key.endswith("_classifier") for key in line["metrics"]), "images are judged in Table 4"
        assert ("parameters_encoder" in line["metrics"]) == (name not in ("raw", "untrained"))
    counts = {name: line["metrics"]["parameters_encoder"]["mean"] for name, line in found.items() if name in (*TITLES, "ours")}
    assert len(set(counts.values())) == 1, "one backbone for all"
    assert "_classifier" not in (made / "table1.md").read_text()


def test_rows_are_the_learners_that_they_are_named_for(made):
    for name in TITLES:
        config = Run(made / f"runs/{name}-digits-seed0").config
        assert config.method.name == name.removesuffix("-same")
        assert (config.method.model_dump().get("same_views") is True) == (name == "nnclr-same")
    plain = Run(made / "runs/byol-bn-digits-seed0").config
    assert plain.encoder is not None
    assert plain.encoder.model_dump()["norm"] == "batch"


def cells(name: str) -> dict[str, Cell]:
    """At the scale of the paper, by data set."""
    table = table1("paper")
    (row,) = [row for row in table.rows if row.name == name]
    return {cell.data: cell for cell in cells_of(table, [row], list(table.data), [0], {}, Path("runs"))}


# Learning rate and weight decay on CIFAR and on ImageNet.
RATES = {
    "simclr": ((0.4, 1e-4), (0.3, 1e-4)),
    "nnclr": ((0.4, 1e-5), (0.4, 1e-5)),
    "nnclr-same": ((0.4, 1e-5), (0.4, 1e-5)),
    "byol": ((1.0, 1e-5), (0.5, 1e-6)),
    "swav": ((0.6, 1e-6), (0.6, 1e-6)),
    "dino": ((0.3, 1e-6), (0.3, 1e-6)),
}


@pytest.mark.parametrize("name", TITLES)
def test_the_scale_of_the_paper_has_the_published_settings(name):
    for data, cell in cells(name).items():
        config, method = cell.config, cell.config.method.model_dump()
        rate, decay = RATES[name][data == "imagenet10"]
        assert method["optimiser"] | {"kind": "lars", "learning_rate": rate, "weight_decay": decay} == method["optimiser"]
        train = config.train
        assert (train.epochs, train.batch, train.schedule, train.warmup_epochs) == (1000, 256, "cosine", 10)
        assert method["average"] is None
        assert config.encoder is not None
        assert config.encoder.model_dump()["norm"] == "group"


def test_imagenet_has_views_and_sizes_of_its_own():
    for name in ("nnclr", "byol", "dino"):
        for data, cell in cells(name).items():
            method = cell.config.method.model_dump()
            blurs = method["view"]["blur"], method["second_view"]["blur"]
            assert blurs == ((1.0, 0.1) if data == "imagenet10" else (0.0, 0.0))
            assert (method["view"]["solarise"], method["second_view"]["solarise"]) == (0.0, 0.2)
    predictors = [cell.config.method.model_dump()["predictor_size"] for cell in cells("byol").values()]
    assert predictors == [4096, 4096, 8192]
    heads = [cell.config.method.model_dump() for cell in cells("simclr").values()]
    assert [(head["hidden_size"], head["projection_size"]) for head in heads] == [(2048, 256)] * 2 + [(4096, 512)]
    warm_ups = [cell.config.method.model_dump()["warm_up"] for cell in cells("dino").values()]
    assert warm_ups == [None, None, {"temperature": 0.04, "epochs": 50}]


def test_the_networks_with_batchnorm_are_the_usual_ones():
    for cell in cells("byol-bn").values():
        assert cell.config.encoder is not None
        encoder = cell.config.encoder.model_dump()
        assert (encoder["norm"], encoder["widths"], encoder["blocks"]) == ("batch", None, 2)


def test_networks_with_batchnorm_are_made_where_they_are_asked_for():
    table = table1("cpu")
    assert [row.name for row in chosen_rows(table, None)] == [*TITLES, "ours", *CONTROLS]
    assert [row.name for row in chosen_rows(table, ["byol-bn"])] == ["byol-bn"]
    assert [row.name for row in chosen_rows(table, ["ours"])] == ["ours"], "nothing is compared in the features of another row"


def test_the_papers_numbers_stand_beside_ours():
    rows = {row.name: row for row in table1("paper").rows}
    for name, (first, _, last, _) in PAPER.items():
        assert rows[name].paper["cifar10"]["svm"] == pytest.approx(first[0] / 100)
        assert rows[name].paper["imagenet10"]["kmeans"] == pytest.approx(last[1] / 100)
        assert set(rows[name].paper) == set(DATA)
    assert rows["nnclr-same"].paper == {}


def test_both_scales_are_priced(capsys):
    asked = ["reproduce", "table1", "--dry-run", "--rows", "byol,raw", "--data", "digits", "--method.hidden_size", "16"]
    assert main(asked) == 0
    said = capsys.readouterr().out
    assert "byol on digits, seed 0: 1100 steps of" in said
    assert "raw on digits, seed 0: nothing to train" in said


@pytest.mark.parametrize("name", [*TITLES, "ours"])
def test_every_row_of_every_scale_can_be_built(name):
    """On a device without memory, for the paper's sizes too."""
    import torch

    for scale in ("cpu", "paper"):
        table = table1(scale)
        rows = [row for row in table.rows if row.name in (name, f"{name}-bn")]
        for cell in cells_of(table, rows, list(table.data), [0], {}, Path("runs")):
            size = cell.config.data.size or 32
            with torch.device("meta"):
                method = cell.config.build_method((3, size, size), 50_000, 10)
            assert type(method).__module__ == METHODS[cell.config.method.name].__module__
