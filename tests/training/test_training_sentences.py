"""What a training says and writes on its way: times, rates, collapses, changes, and what is left to do."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny
import torch
from tiny import fake

from sao.data.dataset import Dataset, Images, Vectors
from sao.errors import InputError
from sao.evaluation.evaluator import Evaluation
from sao.evaluation.result import Metric
from sao.methods import NonFiniteError
from sao.training import bar, log, loop, summary, trackers, trainer, validation
from sao.training.bar import Bar, TimeLeft
from sao.training.data_facts import DataFacts, _alike
from sao.training.device import choose_bfloat16
from sao.training.device_check import Comparison, differences
from sao.training.log import EVALUATION, Progress, Stages, _that_fit, clock
from sao.training.loop import Diverged, Interrupted, _due
from sao.training.pictures import as_shown, grid, pixels_of
from sao.training.run_folder import Run, _step_of
from sao.training.schedule import described_changes, learning_rate_factor
from sao.training.validation import Collapse


def images(n: int, size: int = 8, channels: int = 1, labels: Any = None) -> Images:
    return Images(np.zeros((n, size, size, channels), np.uint8), labels)


def test_a_time_has_two_units():
    said = {59.4: "0m 59s", 59.5: "1m 00s", 3599.4: "59m 59s", 3599.6: "1h 00m", 3661: "1h 01m", 86_399: "23h 59m"}
    said |= {86_400: "1d 0h", 2 * 86_400 + 5 * 3600 + 1800: "2d 5h"}
    assert {seconds: clock(seconds) for seconds in said} == said


@pytest.fixture
def now(monkeypatch):
    time = [100.0]
    for module in (bar, log):
        monkeypatch.setattr(module.time, "monotonic", lambda: time[0])
    return time


def test_the_time_left_is_of_the_later_half_of_whole_cycles(now):
    left = TimeLeft(10, 30, cycle=2, every={EVALUATION: 8}, clock=lambda: now[0])
    assert (left.seconds_a_step, left.unknown(EVALUATION)) == (0, 2)  # after steps 16 and 24
    for done, seconds in ((11, 5.0), (12, 3.0)):
        now[0] += seconds
        left.step(done)
    assert left.seconds_a_step == 4.0  # one cycle: all that there was
    assert left.seconds == 18 * 4.0
    for done, seconds in ((13, 2.0), (14, 1.0)):
        now[0] += seconds
        left.step(done)
    assert left.seconds_a_step == 1.5  # two cycles: the second one
    with left.between(EVALUATION):
        now[0] += 40
    assert left.seconds == 16 * 1.5 + 1 * 40  # what happens between steps is timed by itself
    assert (left.unknown(EVALUATION), left.unknown("nothing")) == (0, 0)
    with left.between(EVALUATION):
        now[0] += 20
    assert left.seconds == 16 * 1.5
    for done, seconds in ((15, 1.0), (16, 2.0), (17, 3.0), (18, 6.0)):
        now[0] += seconds
        left.step(done)
    assert left.seconds_a_step == (1 + 2 + 3 + 6) / 4  # four cycles: the last two


def test_the_rate_counts_steps_since_the_run_went_on(now):
    progress = Progress(10, 30, 64, shown=False)
    now[0] += 8
    assert progress.times(14) == {"time/seconds": 8.0, "time/samples_per_second": 32.0}


@pytest.mark.parametrize(("seconds", "done", "lines"), [(14.9, 5, 0), (15.0, 5, 1), (0.1, 30, 1)])
def test_a_line_of_progress_comes_every_fifteen_seconds_and_at_the_end(now, capsys, seconds, done, lines):
    progress = Progress(0, 30, 64, shown=True)
    now[0] += seconds
    progress.left.step(done)
    progress.update(done, "loss 0.5")
    assert capsys.readouterr().out.count("\n") == lines
    silent = Progress(0, 30, 64, shown=False)
    now[0] += 100
    silent.update(30, "loss 0.5")
    assert capsys.readouterr().out == ""


def test_a_line_of_progress_to_the_letter(now, capsys):
    progress = Progress(100, 300, 50, shown=True, evaluate_every=150)
    now[0] += 20
    progress.left.step(110)
    progress.update(110, "distance 1.25")
    assert capsys.readouterr().out == "step 110/300  6m 20s left  distance 1.25  + 2 evaluations  25 samples/s\n"
    with progress.left.between(EVALUATION):
        now[0] += 30
    progress.update(110, "")
    assert capsys.readouterr().out == "step 110/300  6m 50s left  25 samples/s\n"


@pytest.mark.parametrize(
    ("width", "line"), [(11, "aaa  bb  c"), (10, "aaa  bb  c"), (9, "aaa  bb"), (6, "aaa  c"), (5, "aaa"), (1, "aaa")]
)
def test_fields_that_fit_a_line(width, line):
    assert _that_fit(["aaa", "bb", "", "c"], width) == line


@pytest.mark.parametrize(("every", "lines"), [(0, 3), (10, 1), (100, 0)])
def test_stages_are_counted_by_what_stands_before_the_comma(now, capsys, every, lines):
    stages = Stages("report", every=every, of=4)
    for seconds, stage in ((6, "map"), (6, "svm, C = 1"), (6, "svm, C = 2")):
        now[0] += seconds
        stages(stage)
    said = capsys.readouterr().err.splitlines()
    expected = [
        "report: 1 of 4, map (0m 06s so far)",
        "report: 2 of 4, svm, C = 1 (0m 12s so far)",
        "report: 2 of 4, svm, C = 2 (0m 18s so far)",
    ]
    assert said == {3: expected, 1: expected[1:2], 0: []}[lines]


def test_more_stages_than_were_expected_are_not_more_than_all(now, capsys):
    stages = Stages("x", every=0, of=1)
    stages("a")
    stages("b")
    assert capsys.readouterr().err.splitlines()[-1] == "x: 2 of 2, b (0m 00s so far)"
    stages.expect(3)
    stages("c")
    assert capsys.readouterr().err.splitlines()[-1] == "x: 3 of 5, c (0m 00s so far)"


@pytest.mark.parametrize(("begun", "of", "whole"), [(1, 4, 0), (2, 4, 5), (4, 4, 15), (2, 3, 6)])
def test_the_bar_of_stages_is_of_those_that_are_over(begun, of, whole):
    stages = Stages("x", of=of)
    stages.terminal, stages.begun = True, begun
    assert stages._bar() == f"{'█' * whole}{'░' * (20 - whole)} {begun} of {of}, "


def test_a_bar_without_a_terminal_says_what_there_is_every_fifteen_seconds(now, capsys):
    shown = Bar("reading", "items")
    for seconds in (14.9, 0.1, 15.0):
        now[0] += seconds
        shown(int(now[0]), 200, "x.png")
    assert capsys.readouterr().err == "reading: 115 of 200 items x.png\nreading: 130 of 200 items x.png\n"


def test_the_last_column_stays_free(monkeypatch):
    for wide in (80, 40):
        monkeypatch.setenv("COLUMNS", f"{wide}")
        assert bar.columns() == wide - 1


@pytest.mark.parametrize(
    ("step", "factor"),
    [(0, 0.2), (4, 1.0), (5, 1.0), (25, 0.5), (15, (1 + math.sqrt(0.5)) / 2), (44, (1 - math.cos(math.pi / 40)) / 2)],
)
def test_a_warmup_then_half_a_cosine(step, factor):
    assert learning_rate_factor("cosine", step, 45, 5) == pytest.approx(factor)
    assert learning_rate_factor("constant", step, 45, 5) == pytest.approx(min(1, (step + 1) / 5))


@pytest.mark.parametrize(("total", "warmup"), [(5, 5), (4, 5)])
def test_a_run_that_is_all_warmup_divides_by_nothing(total, warmup):
    assert learning_rate_factor("cosine", 5, total, warmup) in (1.0, 0.0)


def changes(done: int = 50, **after: Any) -> list[str]:
    return described_changes(tiny.config(train__steps=100), tiny.config(**{"train__steps": 100, **after}), 1000, done)


def test_what_changed_is_said_with_what_it_was():
    assert changes() == []
    assert changes(log__every=7) == ["log.every is 7 from here on; it was 1"]
    assert changes(train__steps=200) == [
        "train.steps is 200 from here on; it was 100",
        "the learning rate does not depend on the length: the run will be one of 200 steps",
    ]
    assert changes(train__schedule="cosine", train__steps=100)[1] == (
        "the cosine schedule now ends at step 100: after step 50 the learning rate goes on at 50% of its highest value "
        "instead of 100%, so the run will not be the one that 100 steps from the start would have given"
    )
    assert changes(50, train__steps=50)[-1].endswith("one of 50 steps")
    with pytest.raises(InputError, match=r"^the run has made 51 steps already and cannot end at 50: give more"):
        changes(51, train__steps=50)


@pytest.mark.parametrize(("train", "test", "said"), [
    (images(7), images(3), "d: 10 grey images of 8x8, 7 to train on, 3 held out, no labels"),
    (images(4, 16, 3, np.array([0, 1, 2, 0])), images(1, 16, 3, np.array([1])),
     "d: 5 colour images of 16x16, 4 to train on, 1 held out, 3 classes"),
    (Vectors(np.zeros((4, 6), np.float32)), Vectors(np.zeros((2, 6), np.float32)),
     "d: 6 rows of 6 numbers, 4 to train on, 2 held out, no labels"),
])  # fmt: skip
def test_data_is_described_in_a_line(train, test, said):
    assert trainer.described_data(Dataset("d", train, test)) == said


@pytest.mark.parametrize(("threads", "said"), [(1, "1 thread"), (3, "3 threads")])
def test_a_method_is_described_in_a_line(monkeypatch, threads, said):
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    weights = [torch.nn.Parameter(torch.zeros(n)) for n in (1_000_000, 230_000, 4_999)]
    optimisers = {
        "a": fake(param_groups=[{"params": weights[:1]}, {"params": weights[1:2]}]),
        "b": fake(param_groups=[{"params": weights[2:]}]),
    }
    method = fake(optimisers=optimisers, parameters=lambda: iter(weights))
    data = fake(train=range(1000))
    config = tiny.config(train__epochs=3, train__batch=100)
    assert trainer.describe(config, data, method) == (f"structural: 1.23 M trained parameters, 30 steps of 100 on cpu ({said})")


def test_a_complete_run_says_how_it_would_go_on(capsys):
    trainer._say_complete(Run(Path("my runs/a")), 150)
    assert capsys.readouterr().out == (
        "my runs/a is complete: all 150 steps are done; to go on for longer: sao resume 'my runs/a' --train.steps 300\n"
    )


@pytest.mark.parametrize(("sent", "first", "said"), [
    (None, 3, []), (3, 3, []),
    (6, 3, ["wandb and mlflow have rows up to step 6: those of the steps that are made again are not sent again"]),
])  # fmt: skip
def test_rows_that_trackers_have_are_counted(monkeypatch, sent, first, said):
    monkeypatch.setattr(trainer, "remember", lambda folder, rows: sent)
    run = fake(folder=None, rows_after=lambda step: [], cut_metrics=lambda step: None)
    assert trainer._cut_metrics(run, first) == said


@pytest.mark.parametrize(
    ("n_train", "n_test", "shown"), [(5000, 999, True), (10, 1000, False), (999, None, True), (1000, None, False)]
)
def test_intervals_are_shown_below_a_thousand_scored_samples(n_train, n_test, shown):
    metrics = [Metric("svm", 0.5, None, {"interval_95": [0.25, 0.75]})]
    said = summary.intervals_said(Evaluation(metrics, None, n_train, n_test))
    assert said == ("95 % intervals of learnt: svm 0.50 [0.25, 0.75]" if shown else "")


@pytest.mark.parametrize(
    ("each", "left", "rows"),
    [
        (0.1, 1e9, 10_000),  # 0.1 s of 10,010 rows is within half of the time
        (0.1, 1000.0, 2500),  # 500 s / (2 x 0.1 s) for each of two splits
        (0.1, 10.0, 300),  # a minute at least
        (10.0, 1.0, 100),  # and a hundred rows at least
    ],
)
def test_features_have_half_of_the_budget_or_a_minute(monkeypatch, each, left, rows):
    now = [0.0]
    monkeypatch.setattr(summary.time, "monotonic", lambda: now[0])

    def extract(function, samples, device, rows):
        now[0] += each / 2 * 64  # of one of two networks
        return np.zeros((64, 2))

    monkeypatch.setattr(summary, "extract", extract)
    method = fake(parameters=lambda: iter([torch.zeros(1)]), representation=lambda feature: None)
    dataset = fake(train=range(50_000), test=range(10))
    found = summary._rows_in_time(method, "backbone", dataset, fake(left=left))
    assert found == (10_000 if each * 10_010 <= max(60, left / 2) else rows)


def test_what_to_type_next_names_the_folder_and_an_image(tmp_path):
    data = Dataset("d", images(2), Images(np.zeros((1, 8, 8, 1), np.uint8), None, ["a b.png"]))
    run = Run(Path("r"))
    assert summary._next_commands(run, str(tmp_path), data) == [
        f"sao search r '{tmp_path}/a b.png' --in {tmp_path}",
        f"sao cluster r {tmp_path} -k auto -o r-groups",
        f"sao embed r {tmp_path} -o features.npz",
    ]
    assert len(summary._next_commands(run, "digits", data)) == 2


def said_of(rows: list[dict[str, float]], uniform: dict[str, float] | None = None) -> list[str]:
    collapse = Collapse(uniform)
    return [news for step, row in enumerate(rows, 1) if (news := collapse.seen(10 * step, row)) is not None]


@pytest.mark.parametrize(("spread", "said"), [(0.05, 0), (0.0499, 1), (float("nan"), 1)])
def test_a_spread_below_a_twentieth_is_a_collapse(spread, said):
    found = said_of([{"network/spread": spread}] * 10)
    assert len(found) == said
    if said:
        alike = "step 100: the network answers nearly the same to every image (network/spread"
        assert found[0].startswith(f"{alike} {spread:.3f}), so")
    assert said_of([{"network/spread": spread}] * 9) == []


@pytest.mark.parametrize(
    ("distance", "length", "words"), [(0.0999, 3.01, "lower learning rates"), (0.0999, 3.0, "lipschitz"), (0.1, 9.0, "")]
)
def test_a_distance_below_a_tenth_is_none(distance, length, words):
    found = said_of([{"discriminator/distance": -distance, "discriminator/embedding_norm": length}] * 12)
    assert len(found) == bool(words)
    if words:
        assert words in found[0]
        said = "step 100: the discriminator does not tell real samples from generated ones"
        assert found[0].startswith(f"{said} (distance 0.100, embeddings of length 3.0)")


@pytest.mark.parametrize(("loss", "said"), [(2.0099, 1), (1.9901, 1), (2.0101, 0), (1.9899, 0)])
def test_a_loss_within_half_a_percent_has_stayed(loss, said):
    found = said_of([{"a/loss": loss}] * 31, {"a/loss": 2.0})
    assert len(found) == said
    if said:
        assert found[0].startswith("step 300: a/loss has stayed at 2.000, where all outputs are equally likely")


def test_quantiles_of_the_jacobian_norm_are_those_of_their_names(monkeypatch):
    norms = torch.linspace(0, 1, 101)
    monkeypatch.setattr(validation, "jacobian_norm", lambda function, inputs, steps, generator: norms)
    method = fake(parameters=lambda: iter([torch.zeros(1)]), smooth_function=None)
    found = validation._smoothness(method, Dataset("d", images(3), images(3)), 0)
    assert found == pytest.approx({f"eval/jacobian_norm_q{name}": float(f"0.{name}") for name in ("05", "50", "95")})


@pytest.mark.parametrize(("n", "measured"), [(19, False), (20, True)])
def test_clusters_need_two_samples_each(n, measured):
    features = torch.randn(n, 4, generator=torch.Generator().manual_seed(0))
    assert bool(validation._agreement(features, 0)) == measured
    features[0, 0] = torch.inf
    assert validation._agreement(features, 0) == {}


def test_what_stopped_a_training_is_named_with_its_step(tmp_path):
    assert str(Interrupted(3, 8)) == "stopped after step 3 of 8"
    assert str(Diverged(3, "loss is NaN")) == "step 3: loss is NaN"
    assert str(Diverged(3, "loss is NaN", "lower it")) == "step 3: loss is NaN; lower it"
    run = Run(tmp_path / "r")
    none = "no checkpoint was made yet: start again with a lower learning rate and --overwrite"
    kept = f"the last good checkpoint, of step 6, is kept in {run.checkpoints}: "
    assert loop._advice(Diverged(9, "x"), 0, run) == none
    assert loop._advice(Diverged(9, "x"), 6, run).startswith(kept)
    assert loop._advice(Diverged(9, loop.DIFFERENT), 6, run).startswith("the last checkpoint, of step 6, is from before that")
    earlier = NonFiniteError("distance is NaN")
    earlier.step = 4
    assert loop._divergence(9, earlier).step == 5
    assert loop._divergence(9, FloatingPointError("a\nb")).what == "a"


@pytest.mark.parametrize(
    ("every", "done", "last", "due"),
    [(4, 4, False, True), (4, 6, False, False), (None, 4, False, False), (None, 4, True, True), (4, 5, True, True)],
)
def test_something_is_due_every_so_many_steps_and_at_the_end(every, done, last, due):
    assert _due(every, done, last) == due


def test_a_batch_must_fit_the_training_samples():
    loop.check_batch(tiny.config(train__batch=16), 16)
    said = r"^train.batch is 16 but there are only 15 training samples: set --train.batch to 15 or less$"
    with pytest.raises(InputError, match=said):
        loop.check_batch(tiny.config(train__batch=16), 15)


def test_samples_without_a_label_are_counted_where_a_method_learns_from_them():
    def build(samples: Images, needs_labels: bool) -> None:
        method = fake(needs_labels=needs_labels, to=lambda device: "built")
        config = fake(train=fake(batch=5), by_name=dict, build_method=lambda shape, n, classes: method)
        assert loop.new_method(config, Dataset("d", samples, samples), torch.device("cpu")) == "built"

    samples = images(5, labels=np.array([0, -1, 1, -1, 1]))
    with pytest.raises(InputError, match=r"^this method learns from labels, and 2 of 5 training samples have none$"):
        build(samples, needs_labels=True)
    build(samples, needs_labels=False)
    build(images(5), needs_labels=True)


def test_the_headline_is_the_first_loss_without_its_network():
    assert loop._headline(fake(headline=("a/b/distance", "c")), {"a/b/distance": -1.02249, "c": 3.0}) == "distance -1.022"
    assert loop._headline(fake(headline=()), {}) == ""


def test_the_seconds_of_a_training_are_its_steps_at_the_median_time(tmp_path):
    run = Run(tmp_path)
    assert run.training_seconds() == 0
    rows = [(10, 20.0), (20, 30.0), (20, None), (30, 40.0), (40, 140.0), (50, 5.0), (60, 25.0)]  # evaluated, then resumed
    lines = [json.dumps({"step": step} | ({} if time is None else {"time/seconds": time})) for step, time in rows]
    run.metrics.write_text("\n".join([*lines, ""]))
    assert run.training_seconds() == 60 * 2.0  # a step took 2, 1, 1, 10 and 2 seconds
    assert [row["step"] for row in run.rows_after(40)] == [50, 60]
    run.cut_metrics(20)
    assert [row["step"] for row in run.rows()] == [10, 20, 20]


@pytest.mark.parametrize(("line", "step"), [
    ('{"step": 3}\n', 3), ('{"step": 3}', math.inf), ('{"a": 3}\n', math.inf), ("[3]\n", math.inf),
    ('{"step": NaN}\n', math.inf), ("{\n", math.inf),
])  # fmt: skip
def test_a_line_that_was_cut_short_was_never_written(line, step):
    assert _step_of(line) == step


def test_what_a_tracker_has_seen_is_the_last_step_of_each_metric(tmp_path):
    assert trackers.remember(tmp_path, [{"step": 3, "a": 1}]) is None  # nobody was told anything
    (tmp_path / trackers.STATE).write_text('{"wandb": "id", "seen": {"a": 5}}')
    assert trackers.remember(tmp_path, [{"step": 3, "a": 1, "b": 2}, {"step": 4, "b": 2}]) == 5
    assert trackers.read_state(tmp_path) == {"wandb": "id", "seen": {"a": 5, "b": 4}}
    sent: list[Any] = []
    told = trackers.Trackers([], tmp_path, {}, 3, lambda note: None)
    to = lambda name: fake(row=lambda step, scalars: sent.append((name, step, scalars)))  # noqa: E731
    told._seen, told._open = {"a": 5, "b": 4}, {name: to(name) for name in ("wandb", "tensorboard")}
    both = {"a": 0.1, "b": 0.2}
    for step in (4, 5, 6):
        told.row(step, both)
    assert [one for one in sent if one[0] == "tensorboard"] == [("tensorboard", step, both) for step in (4, 5, 6)]
    assert [one for one in sent if one[0] == "wandb"] == [("wandb", 5, {"b": 0.2}), ("wandb", 6, both)]


def test_options_of_others_hold_no_places():
    found = trackers.without_places({"a": ["/home/me/x", "y/z", 3], "b": "~/data", "c": "rel/x"})
    assert found == {"a": ["x", "y/z", 3], "b": "data", "c": "rel/x"}


@pytest.mark.parametrize(("change", "said"), [
    ({"samples": 7}, "8 samples of (1, 8, 8) with 2 classes then, 7 samples of (1, 8, 8) with 2 classes now"),
    ({"shape": (3, 8, 8)}, "8 samples of (1, 8, 8) with 2 classes then, 8 samples of (3, 8, 8) with 2 classes now"),
    ({"classes": None}, "8 samples of (1, 8, 8) with 2 classes then, 8 samples of (1, 8, 8) with no classes now"), ({}, None),
])  # fmt: skip
def test_what_has_changed_in_the_data(change, said):
    then = DataFacts("d", (1, 8, 8), 8, 2)
    assert then.difference(replace(then, **change)) == said


@pytest.mark.parametrize(
    ("mean", "std", "label", "same"),
    [(0.02, 0, 1, True), (0.021, 0, 1, False), (0, 0.0199, 1, True), (0, 0.021, 1, False), (0, 0, 2, False)],
)
def test_rounding_by_a_fiftieth_is_the_same_data(mean, std, label, same):
    assert _alike([(0.0, 0.5, 1)], [(mean, 0.5 + std, label)]) == same
    assert not _alike([(0.0, 0.5, 1)], [])
    assert _alike([(100.0, 0.5, None)], [(100.0999, 0.5, None)])


def facts(**change: Any) -> str:
    return json.dumps({"name": "d", "shape": [3, 8, 8], "samples": 4} | change)


@pytest.mark.parametrize(("text", "said"), [
    (facts(samples=0), "samples: Input should be greater than or equal to 1"),
    (facts(shape=[3, 8]), r"shape: \(3, 8\) is neither of images nor of vectors"),
    (facts(pixel_range={"low": [0, 0], "high": [1, 1]}), "pixel_range: its numbers do not fit together"),
    (facts(pixel_range={"low": [0, 0, 2], "high": [1, 1, 1]}), "pixel_range: its numbers do not fit together"), ("[]", "it: "),
])  # fmt: skip
def test_facts_that_do_not_fit_together_are_refused(text, said):
    with pytest.raises(ValueError, match=f"^{said}"):
        DataFacts.from_text(text)


def test_facts_that_fit_together_are_read():
    assert DataFacts.from_text(facts(pixel_range={"low": [0, 0, 1], "high": [1, 1, 1]})).samples == 4
    written = DataFacts("d", (2,), 5, 3).as_text()
    assert DataFacts.from_text(written) == DataFacts("d", (2,), 5, 3)
    assert written.splitlines()[1] == ' "name": "d",'


@pytest.mark.parametrize(("loss", "gradient", "agrees"), [(1e-3, 1e-3, True), (1.001e-3, 0, False), (0, 2e-3, False)])
def test_a_device_agrees_within_a_thousandth(loss, gradient, agrees):
    found = Comparison({"a": loss, "b": 0.0}, {"w": gradient}, {"mul": 1e-4, "conv": 0.5, "exp": 2e-4, "log": float("nan")})
    assert found.agrees == agrees
    assert set(found.wrong_operators) == {"conv", "exp", "log"}
    worst = (f"{max(loss, 0.0):.0e}", f"{gradient:.0e}")
    assert str(found) == f"losses within {worst[0]} and gradients within {worst[1]} of a step on the CPU (allowed: 1e-03)"


def test_what_should_be_nothing_counts_beside_the_largest():
    expected = {"w": torch.tensor([10.0, -20.0]), "bias": torch.tensor([1e-9])}
    found = differences(expected, {"w": torch.tensor([10.0, -20.5]), "bias": torch.tensor([2e-2])})
    assert found == pytest.approx({"w": 0.025, "bias": 0.1})


@pytest.mark.parametrize(("exact", "rounded", "chosen"), [(3.0, 2.0, False), (3.01, 2.0, True)])
def test_bfloat16_is_chosen_where_it_is_more_than_half_again_as_fast(monkeypatch, exact, rounded, chosen):
    seconds = {torch.float32: exact, torch.bfloat16: rounded}
    monkeypatch.setattr("sao.training.device.product_seconds", lambda dtype, device: seconds[dtype])
    assert choose_bfloat16("auto", torch.device("cpu")) == chosen
    assert choose_bfloat16("bfloat16", torch.device("cpu")) is True
    assert choose_bfloat16("float32", torch.device("cpu")) is False


def test_inputs_become_the_nearest_pixels():
    values = torch.tensor([-1.5, -1.0, 0.0, 0.0045, 1.0, 2.0]).view(1, 1, 1, 6)
    assert pixels_of(values)[0, 0, :, 0].tolist() == [0, 0, 128, 128, 255, 255]


@pytest.mark.parametrize(
    ("channels", "chosen", "shown"),
    [(1, None, [0]), (2, None, [0]), (3, None, [0, 1, 2]), (5, None, [0, 1, 2]), (5, (4, 0, 2), [4, 0, 2])],
)
def test_the_first_three_channels_are_shown_or_those_that_were_chosen(channels, chosen, shown):
    pixels = np.arange(channels, dtype=np.uint8).reshape(1, 1, 1, channels)
    assert as_shown(pixels, chosen).ravel().tolist() == shown


@pytest.mark.parametrize(("n", "columns", "size", "shape"), [
    (1, None, 32, (36, 36)), (5, None, 40, (86, 128)), (5, 5, 40, (44, 212)), (2, None, 16, (36, 70)), (1, None, 31, (66, 66)),
])  # fmt: skip
def test_a_grid_is_about_square_and_its_images_at_least_32_pixels(n, columns, size, shape):
    assert grid(np.zeros((n, size, size, 1), np.uint8), columns).size[::-1] == shape
