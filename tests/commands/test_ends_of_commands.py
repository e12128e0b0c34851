"""What commands say when their work is done, with the work itself stood in for."""

import base64
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny
import torch
from PIL import Image
from tiny import fake

from sao.cli import explore, export, output, ship, train
from sao.cli.main import main
from sao.cli.resume import changed_config
from sao.cli.sample import _write
from sao.config.presets import preset_names, preset_text
from sao.data.dataset import Images, Vectors
from sao.data.files.objects import IN_MEMORY
from sao.data.files.reading import Skipped
from sao.errors import InputError
from sao.evaluation.evaluator import Evaluation
from sao.evaluation.result import Metric
from sao.evaluation.verdict import Verdict
from sao.report import build
from sao.report.gallery import Gallery
from sao.report.points import Generated, Points
from sao.reproduce import measure
from sao.reproduce.rows import Row, Table, chosen_data, chosen_rows
from sao.training import summary, warm_start
from sao.training.run_folder import DataFacts, Run
from sao.training.warm_start import adapted


@pytest.mark.parametrize("skipped", [0, 3, 5])
def test_exploring_ends_in_numbers_of_the_page(monkeypatch, tmp_path, capsys, skipped):
    (tmp_path / "photos").mkdir()
    items = [Skipped(f"n{i}", f"r{i}") for i in range(skipped)]
    opened = fake(images=Images(np.zeros((12, 8, 8, 3), np.uint8)), skipped=items, embedded_by="patches")
    monkeypatch.setattr("sao.report.explore.open_folder", lambda source, model, progress, warn: opened)
    monkeypatch.setattr(
        "sao.report.explore.explored", lambda source, opened, limit: fake(train="sao train …", cost=f"cost of {limit}")
    )
    asked: list[Any] = []

    def write(target, about, limits, say):
        asked.append((limits.points, limits.clusters, limits.channels))
        target.parent.mkdir(parents=True)
        target.write_bytes(bytes(1_260_000))
        return {"duplicates": [{"copies": [1, 2]}, {"copies": [3]}], "groups": [0] * 4, "odd": {"count": 5}}

    monkeypatch.setattr("sao.report.build.write_exploration", write)
    folders = {"folder": str(tmp_path / "photos"), "output": str(tmp_path / "o")}
    explore.run(fake(**folders, clusters=4, channels="3,2,1", overwrite=False, model=None))
    said = capsys.readouterr()
    assert said.out.splitlines() == [
        "12 images, compared by patches",
        "4 groups; odd images: 5; images that are there already: 3",
        f"look at       {tmp_path}/o/report.html, 1.3 MB: any browser opens it, without a network",
        "next          sao train …",
        "              cost of 20000",
    ]
    assert said.err.splitlines() == [f"skipped n{i}: r{i}" for i in range(min(skipped, 3))] + (
        [f"… and {skipped - 3} more files were skipped"] if skipped > 3 else []
    )
    assert asked == [(20_000, 4, (2, 1, 0))]


def test_what_a_page_holds_of_points_is_of_these_points(monkeypatch):
    draws = np.random.default_rng(0)
    pixels = draws.integers(0, 256, (9, 8, 8, 1), dtype=np.uint8)
    labels = np.arange(9) % 3
    data = tiny.Dataset("d", Images(pixels[:6], labels[:6]), Images(pixels[6:], labels[6:]))
    gallery = Gallery.of(data, 99)
    features = draws.normal(size=(9, 4)).astype(np.float32)
    similarities = np.linspace(-1.5, 1.5, 27).reshape(9, 3)
    closeness = np.eye(3)[[0, 1, 2, 0, 1, 2, 0, 1, 2]]
    neighbours = draws.integers(0, 9, (9, 3))
    points = Points(gallery, features, features, neighbours, similarities, closeness, np.array([7.0, 0, 0, 9, 0, 0, 0, 0, 0]))
    drawn = Generated(Images(pixels[:2]), features[:2], neighbours[:2], np.eye(3)[[2, 0]])
    places = np.arange(22).reshape(11, 2).astype(float)
    seen: dict[str, Any] = {}
    monkeypatch.setattr(
        build, "layout", lambda found, umap, most: seen.update(n=len(found), umap=umap, most=most) or (places, "UMAP")
    )
    monkeypatch.setattr(build, "placed", lambda positions: positions.astype(np.uint16))
    said: list[str] = []
    norms = np.full(9, 0.5)
    limits = build.Limits(points=99, placed=8, generated=2, seconds=1.0, umap=True)
    making = build._Making(Path("x"), 1, limits, said.append)
    found = build._of_points(points, drawn, norms, None, making)
    shown = found["map"]
    assert said == ["layout of the map", "thumbnails", "duplicates"]
    assert seen == {"n": 11, "umap": True, "most": 8}
    assert (shown["by"], shown["count"], shown["total"], shown["classes"]) == ("UMAP", 9, 9, ["0", "1", "2"])

    def unpacked(text: str, kind: str) -> list[Any]:
        return np.frombuffer(base64.b64decode(text), kind).tolist()

    assert unpacked(shown["places"], "<u2") == list(range(18))
    assert unpacked(shown["generated"]["places"], "<u2") == list(range(18, 22))
    assert unpacked(shown["labels"], "<u2") == labels.tolist()
    assert unpacked(shown["groups"], "<u2") == [0, 1, 2] * 3
    assert unpacked(shown["generated"]["groups"], "<u2") == [2, 0]
    assert unpacked(shown["neighbours"], "<u2") == neighbours.ravel().tolist()
    assert unpacked(shown["similarities"], "<i1") == np.round(similarities.clip(-1, 1).ravel() * 127).astype(int).tolist()
    assert unpacked(shown["norms"], "<f4") == [0.5] * 9
    bits = np.unpackbits(np.array(unpacked(shown["held_out"], "<u1"), np.uint8), bitorder="little")
    assert bits.tolist()[:9] == [0] * 6 + [1] * 3
    assert (shown["generated"]["count"], shown["links"]) == (2, None)
    assert found["odd"] == {"count": 2, "rows": [3, 0, 1, 2, 4, 5, 6, 7, 8], "scores": [9, 7, 0, 0, 0, 0, 0, 0, 0]}
    assert [group["size"] for group in found["groups"]] == [3, 3, 3]
    assert [group["generated_count"] for group in found["groups"]] == [1, 0, 1]
    assert {shown["sheet"], shown["generated"]["sheet"]} == set(making.sheets.found)
    assert found["duplicates"] == []
    bare = build._of_points(points, None, None, None, making)
    assert (bare["map"]["generated"], bare["map"]["norms"], bare["memorised"], seen["n"]) == (None, None, None, 9)


@pytest.mark.parametrize(
    ("asked", "classes", "generated", "k", "drawn"), [(4, 7, 256, 4, 40), (None, 7, 5, 7, 5), (None, None, 40, 10, 40)]
)
def test_a_page_has_as_many_groups_as_asked_for_or_classes_or_ten(monkeypatch, asked, classes, generated, k, drawn):
    seen: dict[str, Any] = {}
    monkeypatch.setattr(
        build, "points_of", lambda gallery, features, k, seed: seen.update(k=k, seed=seed) or (fake(gallery=gallery), None)
    )
    draw = lambda model, points, centres, count, seconds, seed: seen.update(count=count, seconds=seconds)  # noqa: E731
    monkeypatch.setattr(build, "generated_points", draw)
    monkeypatch.setattr(build, "jacobian_norms", lambda model, gallery, seconds, seed: None)
    monkeypatch.setattr(build, "_of_points", lambda points, drawn, norms, originals, *rest: {"originals": originals})
    data = tiny.Dataset("d", Vectors(np.zeros((30, 2), np.float32)), Vectors(np.zeros((10, 2), np.float32)))
    method = fake(representation=lambda feature: None)
    model = fake(
        config=fake(seed=3), facts=fake(classes=classes), method=method, usual_feature="backbone", device=torch.device("cpu")
    )
    monkeypatch.setattr(Gallery, "features", lambda self, function, device: np.zeros((len(self), 2)))
    limits = build.Limits(points=99, placed=8, generated=generated, seconds=2.5, clusters=asked)
    found, _ = build._of_data(fake(model=model), data, build._Making(Path("x"), 1, limits, [].append))
    assert (seen, found) == ({"k": k, "seed": 3, "count": drawn, "seconds": 2.5}, {"originals": None})


@pytest.mark.parametrize(
    ("minutes", "source", "report"), [(2.5, "digits", True), (None, IN_MEMORY, False), (10, "digits", False)]
)
def test_a_training_ends_in_its_numbers_and_what_to_type_next(monkeypatch, tmp_path, capsys, minutes, source, report):
    options = {"log__evaluate_minutes": "null" if minutes is None else minutes, "log__report": str(report).lower()}
    config = tiny.config(train__steps=70, **options)
    config = config.model_copy(update={"data": config.data.model_copy(update={"source": source})})
    run = Run.create(tmp_path / "run", config, DataFacts("d", (1, 8, 8), 400))
    (run.samples / "step-00000070.png").write_bytes(b"")
    ours = Metric("svm", 0.5, None, {"interval_95": [0.25, 0.75]})
    found = Evaluation([ours, Metric("nmi", float("nan"))], Verdict(True, "Yes, it is.", []), 400, 30)
    monkeypatch.setattr(summary, "_evaluated", lambda *given: found)
    monkeypatch.setattr(summary, "refreshed", lambda run, model, data: Path("page.html") if model.step == 70 else None)
    lines: list[str] = []
    finals: list[Any] = []
    log = fake(say=lines.append, check=lambda step: None, final=lambda step, metrics: finals.append((step, metrics)))
    data = tiny.Dataset("d", Vectors(np.zeros((400, 2), np.float32)), Vectors(np.zeros((30, 2), np.float32)))
    summary.print_summary(run, config, data, fake(eval=lambda: None), log, 3725.0)
    folder, limit = run.folder, "minutes (log.evaluate_minutes); metrics that do not fit are left out and named"
    before = [] if minutes is None else [f"evaluation    at most {minutes:g} {limit}"]
    after = [
        f"next          sao cluster {folder} digits -k auto -o {folder}-groups",
        f"              sao embed {folder} digits -o features.npz",
    ]
    if source == IN_MEMORY:
        after = [f"next          sao.load({str(folder)!r}).embed(data)"]
    assert lines == [
        *before,
        "",
        "fitted to 400 training samples, scored on 30 held-out ones",
        "|        | svm   | nmi |",
        "|--------|-------|-----|",
        "| learnt | 0.500 | –   |",
        "95 % intervals of learnt: svm 0.50 [0.25, 0.75]",
        "Yes, it is.",
        "",
        f"trained in 1h 02m; the run is in {folder}, all numbers in {folder}/eval/summary.json",
        f"look at       {'page.html' if report else run.samples / 'step-00000070.png'}",
        *after,
    ]
    assert finals == [(70, {"svm": 0.5})]
    assert '"step": 70, "better": true, "sentence": "Yes, it is."' in (run.evaluations / "verdict.json").read_text()


def test_presets_are_listed_with_their_first_line(capsys):
    assert main(["presets"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == preset_names()
    assert all(line.startswith(f"{name:12} ") and len(line) > 20 for line, name in zip(lines, preset_names(), strict=True))
    assert main(["presets", "digits"]) == 0
    said = capsys.readouterr().out
    assert said.startswith(preset_text("digits").splitlines()[0])
    assert "\n  held_out: " in said


def test_options_are_shown_with_kind_default_and_meaning(capsys):
    assert main(["options", "train.batch"]) == 0
    assert capsys.readouterr().out == (
        "--train.batch  (whole number from 2; default: 256)\n    samples in a step, over all processes\n"
    )
    assert main(["options", "log"]) == 0
    said = capsys.readouterr().out
    assert said.count("\n--") + 1 == 8
    assert "--log.evaluate_minutes  (number above 0, or null; default: 10)" in said
    assert main(["options", "qqqq"]) == 2
    assert "there is no group of options 'qqqq'; `sao options` lists them" in capsys.readouterr().err
    assert main(["options", "trian"]) == 2
    assert "(did you mean train?)" in capsys.readouterr().err


def test_what_a_run_is_cannot_change_when_it_goes_on():
    config = tiny.config()
    assert changed_config(config, {"train.steps": "99"}).train.steps == 99
    for key, said in (
        ("data.size", "--data.size cannot be changed when a run goes on; data that was moved is --data PATH"),
        ("seed", "--seed cannot be changed when a run goes on: start another one"),
        ("method", "--method cannot be changed"),
        ("method.name", r"--method\.name cannot be changed"),
        ("train.start_from", "--train.start_from cannot be changed"),
        ("train.start-from", "--train.start-from cannot be changed"),
        ("train.start-weights", "--train.start-weights cannot be changed"),
        ("data.held-out", "--data.held-out cannot be changed"),
    ):
        with pytest.raises(InputError, match=f"^{said}"):
            changed_config(config, {key: "3"})


@pytest.mark.parametrize(("preset", "source", "name", "taken"), [
    (None, None, "digits", "digits"), (None, "a/my photos.zip", "my photos", "own"), ("cifar10", "x", "cifar10", "cifar10"),
    ("a/b.yaml", None, "b", "a/b.yaml"),
])  # fmt: skip
def test_a_run_is_named_by_its_preset_or_its_data(preset, source, name, taken):
    arguments = fake(preset=preset, source=source)
    assert train.run_name(arguments) == name
    assert train.preset_of(arguments) == taken


def test_words_of_train_become_options(tmp_path):
    arguments = fake(options={"train.steps": "3"}, source="d", start_from="m", labels="l.csv", out="o", preset=None, auto=False)
    assert train.typed_options(arguments) == {
        "train.steps": "3",
        "data.source": "d",
        "train.start_from": "m",
        "data.label_file": "l.csv",
    }
    for name in ("start_from", "out"):
        with pytest.raises(InputError, match=f"--{name.replace('_', '-')} is empty"):
            train.typed_options(fake(**{**vars(arguments), name: ""}))
    with pytest.raises(InputError, match="is a path, not a preset: sao train --data"):
        train.preset_of(fake(preset=str(tmp_path), source=None))


def test_outputs_are_checked_before_the_work(tmp_path):
    (tmp_path / "file").write_text("x")
    (tmp_path / "full").mkdir()
    (tmp_path / "full/a.csv").write_text("x")
    output.writable(tmp_path / "new" / "deep" / "a.csv")
    output.writable(tmp_path / "file")
    output.writable_folder(tmp_path / "full", True, r"a\.csv|b\.csv")
    for call, said in (
        (lambda: output.writable(tmp_path / "full"), "is a folder: give the name of a file"),
        (lambda: output.writable(tmp_path / "file", False), "exists already: choose another -o, or add --overwrite"),
        (lambda: output.writable(tmp_path / "file" / "x" / "a"), "cannot be made: .*/file is not a folder"),
        (lambda: output.writable_folder(tmp_path / "file", True, "x"), "exists and is not a folder"),
        (lambda: output.writable_folder(tmp_path / "full", False, r"a\.csv"), "exists and is not an empty folder"),
        (lambda: output.writable_folder(tmp_path / "full", True, r"b\.csv"), r"full/a\.csv is not what this command writes"),
    ):
        with pytest.raises(InputError, match=said):
            call()


@pytest.mark.parametrize(
    ("half", "off", "kept"), [(False, 0.0, True), (False, 1e-9, False), (True, 0.02, True), (True, 0.021, False)]
)
def test_a_copy_agrees_wholly_or_in_half_of_the_bits_nearly(monkeypatch, half, off, kept):
    values = {
        "a": {"backbone": np.ones(3), "decode": np.full(3, 50.0)},
        "b": {"backbone": np.ones(3), "decode": np.array([50, 50, 50 * (1 - off)])},
    }
    monkeypatch.setattr(ship, "_used", lambda model, use: values[model][use])
    model: Any = "a"
    copy: Any = "b"
    if kept:
        assert ship._checked(model, copy, ["backbone", "decode"], half) == pytest.approx(off)
    else:
        advice = ": leave --half out" if half else "$"
        with pytest.raises(
            InputError, match=rf"the copy differs from the run by {off:.1e} of the largest value, so it was not kept{advice}"
        ):
            ship._checked(model, copy, ["backbone", "decode"], half)


def test_the_speed_of_a_file_is_in_samples_a_second(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(export.time, "perf_counter", lambda: now[0])
    calls: list[int] = []

    def function(x: np.ndarray) -> np.ndarray:
        calls.append(len(x))
        now[0] += 0.4
        return x

    assert export._speed(function, np.zeros((64, 2))) == pytest.approx(3 * 64 / 1.2)
    assert calls == [64] * 4  # one to warm up


def test_samples_are_written_as_asked(tmp_path):
    values = np.array([[0.123456789012, 2.0], [3, 4]])
    _write(tmp_path / "a.csv", values, None)
    assert (tmp_path / "a.csv").read_text() == "0.123456789,2\n3,4\n"
    _write(tmp_path / "a.npy", values, None)
    assert (np.load(tmp_path / "a.npy") == values).all()
    _write(tmp_path / "a.png", np.zeros((6, 32, 32, 1), np.uint8), 5)
    with Image.open(tmp_path / "a.png") as picture:
        assert picture.size == (2 + 5 * 34, 2 + 2 * 34)


def test_the_first_layer_sums_or_shares_its_colours():
    grey, colour = torch.arange(8.0).view(2, 1, 2, 2), torch.arange(24.0).view(2, 3, 2, 2)
    last = torch.tensor([[1.0], [2], [6]])
    torch.testing.assert_close(adapted(colour, torch.Size([2, 1, 2, 2]), 3, 1), colour.sum(1, keepdim=True))
    torch.testing.assert_close(adapted(grey, torch.Size([2, 3, 2, 2]), 1, 3), grey.expand(2, 3, 2, 2) / 3)
    torch.testing.assert_close(adapted(last, torch.Size([1, 1]), 3, 1), torch.tensor([[3.0]]))
    assert adapted(colour, colour.shape, 3, 1) is colour
    assert adapted(colour, torch.Size([2, 5, 2, 2]), 3, 5) is None
    assert adapted(grey, torch.Size([2, 3, 4, 4]), 1, 3) is None


@pytest.mark.parametrize(("there", "here", "said"), [
    ((1, 8, 8), (3, 16, 16), None),
    ((3, 8, 8), (2, 8, 8), "learnt from images of 3 channels and this data has 2: only grey and colour can be exchanged"),
    ((4,), (5,), "learnt from samples of 4 and this data has 5: start from another run"),
    ((4,), (1, 8, 8), "learnt from samples of 4 and this data has 1x8x8"),
])  # fmt: skip
def test_runs_that_can_be_begun_from(there, here, said):
    source = fake(shape=there, name="it")
    if said is None:
        warm_start._check_shapes(source, here)
    else:
        with pytest.raises(InputError, match=f"^it {said}"):
            warm_start._check_shapes(source, here)


@pytest.mark.parametrize(
    ("there", "here", "said"), [(1, 3, ", adapted from grey to colour"), (3, 1, ", adapted from colour to grey"), (3, 3, "")]
)
def test_adapted_weights_are_said(there, here, said):
    assert warm_start._adapted(fake(shape=(there, 8, 8)), (here, 8, 8)) == said


def test_the_costs_of_a_run_are_minutes_and_parameters(monkeypatch):
    monkeypatch.setattr(measure.Run, "open", lambda folder: fake(training_seconds=lambda: 90.0))
    weights = [torch.nn.Parameter(torch.zeros(n)) for n in (5, 7, 11)]
    optimisers = {
        "generator": fake(param_groups=[{"params": weights[:2]}]),
        "discriminator": fake(param_groups=[{"params": weights[2:]}]),
    }
    method = fake(parameters=lambda: iter(weights), modules=list, optimisers=optimisers)
    found = {metric.name: metric.value for metric in measure._costs(fake(folder="x"), method)}
    assert found == {"minutes": 1.5, "parameters_g": 12, "parameters_d": 11}


def test_clusters_of_a_row_stand_beside_chance_and_as_many_of_k_means():
    draws = np.random.default_rng(0)
    labels = np.arange(60) % 3
    test = measure.Features(np.eye(3)[labels] + draws.normal(0, 0.1, (60, 3)), labels)
    found = {metric.name: metric.value for metric in measure.clusterings(test, fake(own_clusters=None), fake(), 6, 0)}
    assert (found["k"], found["k_equal_k"]) == (3, 6)
    assert found["nmi"] == found["purity"] == found["purity_swapped"] == 1.0
    assert found["purity_equal_k"] == 1.0
    assert found["purity_swapped_equal_k"] < 1
    assert set(found) == {"k", "k_equal_k", *measure.CLUSTERED}
    assert found["purity_equal_k_chance"] > found["purity_chance"]


def test_rows_come_with_those_that_they_need():
    rows = (
        Row("a", "", samples=False), Row("b", "", needs="a", samples=False), Row("c", "", on_request=True),
        Row("d", "", without=("digits",)), Row("supervised", "", kind="reference"),
    )  # fmt: skip
    table = Table("t", "cpu", "", rows, {"digits": "digits", "mnist": "fashion16"}, ("digits",))
    assert [row.name for row in chosen_rows(table, None)] == ["a", "b", "supervised"]
    assert [row.name for row in chosen_rows(table, None, ["mnist"])] == ["a", "b", "d", "supervised"]
    assert [row.name for row in chosen_rows(table, ["b"])] == ["a", "b"]
    assert [row.name for row in chosen_rows(table, ["c"])] == ["c", "supervised"]  # it makes images
    with pytest.raises(InputError, match=r"^t does not make d for digits: leave it out"):
        chosen_rows(table, ["d"])
    said = r"^t has no row 'superviced' \(did you mean supervised\?\); there are a, b, c, d, supervised$"
    with pytest.raises(InputError, match=said):
        chosen_rows(table, ["superviced"])
    assert chosen_data(table, None) == ["digits"]
    assert chosen_data(table, ["mnist", "digits", "mnist"]) == ["mnist", "digits"]
