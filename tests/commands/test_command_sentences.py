"""What commands print, to the letter, from numbers that are given to them."""

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny
import torch
from tiny import fake

from sao.cli import bench, cache, cluster, doctor, duplicates, evaluating, output, pricing, sample, search, sweep
from sao.cli import eval as evaluation
from sao.cli.flags import count_or
from sao.cli.main import build_parser, split_options
from sao.config import Config
from sao.config.help import option_lines
from sao.data.dataset import Images, Vectors
from sao.data.files.cache import Kept, _described
from sao.data.files.reading import Skipped, first_of, links_said, skipped_said
from sao.data.labels import parsed_labels
from sao.errors import InputError
from sao.report.cluster_sheet import ClusterSheet
from sao.search.duplicates import Copy, Group, Known
from sao.search.index import Index, Neighbours
from sao.search.page import _size, duplicates_page
from sao.training.cost import StepCost, Trial

GB = 10**9
STEP = Trial(64, 0.5, 2 * GB, torch.nn.Identity())  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(("words", "expected"), [
    ("report r", {"points": 20_000, "layout": "tsne", "clusters": None, "output": None, "channels": None, "labels": None}),
    ("explore f", {"model": None, "clusters": None, "output": None, "channels": None, "overwrite": False}),
    ("eval r", {"rows": "10000", "budget": "10", "metrics": None, "feature": None, "manifold": "spectral", "weights": "ema",
                "samples": None, "seed": 0, "pretrained": None}),
    ("cluster r d -k 3 -o f", {"manifold": None, "seed": 0, "link": False, "overwrite": False, "feature": None}),
    ("search r q --in d", {"k": 20, "feature": None, "output": None}),
    ("duplicates f", {"model": None, "features": None, "output": None}),
    ("sample r -o f", {"n": 64, "seed": 0, "interpolate": False}),
    ("bench", {"steps": 5, "batch": None, "no_literal": False, "against": None, "json": False}),
    ("sweep", {"seeds": "0", "over": None, "out": None, "dry_run": False, "auto": False}),
    ("train", {"minutes": None, "auto": False, "overwrite": False, "dry_run": False, "why": False}),
    ("cache", {"clear": False, "older_than": None, "computes": False}),
    ("reproduce table1", {"seeds": "0", "scale": None, "jobs": None, "steps": None, "controls": False, "no_search": False}),
])  # fmt: skip
def test_what_a_command_does_where_nothing_is_asked_for(words, expected):
    parsed = vars(build_parser(words.split()[0]).parse_args(words.split()))
    assert {name: parsed[name] for name in expected} == expected


def test_a_count_is_a_number_from_one_on_or_the_word():
    assert [count_or("auto", "-k", given, "clusters") for given in ("auto", "1", "20")] == [None, 1, 20]
    for given in ("0", "-1", "1.5", "", "all"):
        with pytest.raises(InputError, match=rf"^-k is '{given}': give a number of clusters, at least 1, or auto$"):
            count_or("auto", "-k", given, "clusters")


def test_options_are_taken_out_of_the_words():
    words = ["train", "own", "--train.batch", "64", "--seed=3", "--method.bank=a=b", "--out", "x"]
    assert split_options(words) == (["train", "own", "--out", "x"], {"train.batch": "64", "seed": "3", "method.bank": "a=b"})
    assert split_options(["sample", "r", "--seed", "3"])[1] == {}
    every_spelling = ["sweep", "--method.name=byol", "--train.start-from", "a-b", "--encoder.name", "vit"]
    assert split_options(every_spelling)[1] == {"method": "byol", "train.start_from": "a-b", "encoder": "vit"}
    with pytest.raises(InputError, match=r"^--train.batch needs a value, for example --train.batch=VALUE$"):
        split_options(["train", "--train.batch", "--auto"])


def test_channels_are_one_or_three_counted_from_one():
    given = (None, "3,2,1", "4", " 1, 1 ,2")
    assert [output.shown_channels(one) for one in given] == [None, (2, 1, 0), (3,), (0, 0, 1)]
    for wrong in ("1,2", "0,1,2", "1,2,3,4", "a", "", "-1"):
        with pytest.raises(InputError, match="give three numbers from 1 on"):
            output.shown_channels(wrong)
    output.check_shown((3, 0, 1), 4, "photos")
    output.check_shown(None, 0, "photos")
    with pytest.raises(InputError, match=r"^--channels names channel 4, and photos has 3: give smaller numbers$"):
        output.check_shown((3, 0, 1), 3, "photos")


def test_a_budget_is_in_minutes():
    assert [evaluation._minutes(given) for given in ("none", "10", "0.5", "1e-9")] == [None, 10.0, 0.5, 1e-9]
    for given in ("0", "-1", "inf", "nan", "all"):
        with pytest.raises(InputError, match="give minutes, or none"):
            evaluation._minutes(given)


@pytest.mark.parametrize(("data", "labels", "name"), [
    (None, None, "step-00000070-layers-raw.json"), ("some/my photos", None, "step-00000070-layers-raw-on-my_photos.json"),
    (None, "a/b c.csv", "step-00000070-layers-raw-on-b_c.csv.json"), ("d", "l.csv", "step-00000070-layers-raw-on-d_l.csv.json"),
])  # fmt: skip
def test_a_file_of_metrics_is_named_by_all_that_it_depends_on(data, labels, name):
    found = evaluating._default_file(
        fake(evaluations=Path("eval")), 70, fake(feature="layers", weights="raw", data=data, labels=labels)
    )
    assert found == Path("eval") / name


def test_what_is_evaluated_by_default():
    plan = evaluating._plan(None, fake(manifold="spectral", rows=123, budget=10.0))
    assert (plan.metrics, plan.rows, plan.strict, plan.minutes, plan.few, plan.restarts) == (None, 123, False, 10.0, 500, 20)
    plan = evaluating._plan(["svm", "nmi"], fake(manifold="spectral", rows=None, budget=None))
    assert (plan.metrics, plan.rows, plan.strict, plan.minutes) == (("svm", "nmi"), None, True, None)


@pytest.fixture
def priced(monkeypatch, capsys):
    """The lines of a price, and what the report was asked to cost."""

    def lines(
        config: Any, seconds: float = 4.0, memory: float = 3e9, here: float = 8e9
    ) -> tuple[list[str], list[tuple[int, int]]]:
        seen = []
        opened: Any = fake(notes=["a note"], skipped=[], dataset=tiny.few())
        data = pricing.Priced(opened, 400, 110, "data        digits", False)
        monkeypatch.setattr(pricing, "with_other_runs", lambda config: config)
        monkeypatch.setattr(pricing, "_data", lambda config, automatic: (config, data))
        monkeypatch.setattr(pricing, "take_weights", lambda *given: fake(notes=[]))
        monkeypatch.setattr(pricing, "step_cost", lambda config, dataset: StepCost(seconds, memory, STEP))  # pyright: ignore
        monkeypatch.setattr(pricing, "report_seconds", lambda method, test, total: seen.append((len(test), total)) or 75.0)
        monkeypatch.setattr(pricing.checkpoint, "size_on_disk", lambda method: 250_000_000)
        monkeypatch.setattr(pricing, "memory_of", lambda device: here)
        pricing.price_run(config)
        return capsys.readouterr().out.splitlines(), seen

    return lines


@pytest.mark.parametrize(
    ("batch", "said"), [(64, "2 s, measured"), (256, "2 s, a straight line through batches of 32 and 64 (0.5 s)")]
)
def test_how_the_time_of_a_step_is_known(priced, batch, said):
    assert f"one step    {said}" in priced(tiny.config(train__batch=batch), seconds=2.0)[0]


@pytest.mark.parametrize(("memory", "here", "said"), [
    (2.25e9, 100e9, "2.2 GB of the 100 GB here"), (0.123e9, 16.6e9, "0.12 GB of the 16.6 GB here"),
    (8.99e9, 10e9, "9 GB of the 10 GB here"),
    (9e9, 10e9, "9 GB of the 10 GB here: too much; lower train.batch, or set method.micro_batch"),
])  # fmt: skip
def test_memory_is_too_much_from_nine_tenths_on(priced, memory, here, said):
    assert f"memory      {said}" in priced(tiny.config(train__device="cpu"), memory=memory, here=here)[0]


@pytest.mark.parametrize("report", [True, False])
def test_a_price_is_the_sum_of_its_parts(priced, report):
    options = {"train__batch": 50, "train__steps": 30, "log__keep": 3, "log__evaluate_minutes": 2.5}
    lines, seen = priced(tiny.config(**options, log__report=str(report).lower()))
    assert lines == [
        "a note",
        "data        digits",
        "length      30 steps of 50: 3.75 passes over the data",
        "one step    4 s, a straight line through batches of 32 and 64 (0.5 s)",
        "evaluation  at most 2m 30s after the last step",
        *(["report      1m 15s after that"] if report else []),
        f"whole run   30 steps: {'3m 15s' if report else '2m 00s'} without evaluations",
        "memory      3 GB of the 8 GB here",
        "disk        1.00 GB for 3 checkpoints and the one being written",
    ]
    assert seen == ([(110, 510)] if report else [])


@pytest.mark.parametrize(("source", "more", "shape", "train", "test"), [
    ("cifar10", {}, (3, 32, 32), 50_000, 10_000), ("imagenet100", {"data__size": 64}, (3, 64, 64), 126_689, 5000),
    ("mnist", {}, (1, 28, 28), 60_000, 10_000), ("imagenet10", {"data__size": 16}, (3, 16, 16), 13_000, 500),
])  # fmt: skip
def test_data_that_is_not_at_hand_is_stood_in_for(source, more, shape, train, test):
    found = pricing._stand_in(tiny.config(data__source=source, train__batch=70, **more))
    samples = found.opened.dataset.train
    assert (samples.shape, len(samples), found.train, found.test, found.at_hand) == (shape, 70, train, test, False)
    assert found.note == f"data        {source} is not at hand: priced with random pixels of its shape and its {train} samples"
    assert len(pricing._stand_in(tiny.config(data__source=source, train__batch=63, **more)).opened.dataset.train) == 64


def test_the_paper_has_data_sets_of_known_size():
    found = {name: (known[0], known[3], known[4]) for name, known in pricing.KNOWN.items()}
    cifar, imagenet, digits = {"cifar10": (50_000, 10_000, 10)}, {"imagenet10": (13_000, 500, 10)}, (60_000, 10_000, 10)
    cifar["cifar100"], imagenet["imagenet100"] = (50_000, 10_000, 100), (126_689, 5000, 100)
    assert found == {**cifar, **imagenet, "mnist": digits, "fashion_mnist": digits}


@pytest.mark.parametrize(("seeds", "done", "lines"), [
    ([0, 1], 0, ["4 runs: 2 combinations with 2 seeds each",
                 "a: 10 steps of 3 s, 1m 00s a run, 2 to do",
                 "b: 10 steps of 3 s, 1m 00s a run, 2 to do",
                 "about 4m 00s in all, and at most 6m 00s of evaluations on top"]),
    ([0], 1, ["2 runs: 2 combinations with 1 seed each, 1 of them done already",
              "b: 10 steps of 3 s, 1m 00s a run, 1 to do",
              "about 1m 00s in all, and at most 1m 30s of evaluations on top"]),
    ([0], 2, ["2 runs: 2 combinations with 1 seed each, 2 of them done already"]),
])  # fmt: skip
def test_a_sweep_says_how_long_it_takes(monkeypatch, capsys, seeds, done, lines):
    config = tiny.config(log__evaluate_minutes=1.5)
    runs = [fake(name=f"{name},{seed}", combination=name, config=config, automatic=None) for name in "ab" for seed in seeds]
    over = {run.name for run in runs[:done]}
    monkeypatch.setattr("sao.sweeps.run.finished", lambda run: run.name in over)
    monkeypatch.setattr(pricing, "price", lambda config, automatic: pricing.Price("", 1, StepCost(3.0, 1, STEP), 10, 30.0, 1))
    sweep._forecast(fake(combinations=lambda: [1, 2], seeds=seeds, diverged={}), runs)
    assert capsys.readouterr().out.splitlines() == lines


def test_a_finding_without_a_remedy_is_one_line(capsys):
    doctor._show(doctor.Finding("disk", "3 GB"))
    doctor._show(doctor.Finding("disk", "1 GB", "make room"))
    assert capsys.readouterr().out.splitlines() == [
        "ok    disk          3 GB",
        "look  disk          1 GB",
        "                    remedy: make room",
    ]


@pytest.mark.parametrize(("threads", "cores", "load", "remedy"), [
    (2, 2, 3.0, ""),
    (2, 2, 3.01, "other programs are busy here: OMP_NUM_THREADS=1, or --train.threads 1, is often faster then"),
    (1, 2, 9.0, ""), (3, 2, 0.0, "OMP_NUM_THREADS=2: more threads than cores wait for each other"),
])  # fmt: skip
def test_threads_beside_cores_and_load(monkeypatch, threads, cores, load, remedy):
    monkeypatch.setenv("OMP_WAIT_POLICY", "PASSIVE")
    monkeypatch.setenv("GOMP_SPINCOUNT", "0")
    monkeypatch.setattr(doctor, "usable_cores", lambda: cores)
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    monkeypatch.setattr(doctor.os, "getloadavg", lambda: (load, 77.0, 88.0))
    (found,) = doctor._threads()
    assert found.text == f"{threads} on {cores} cores, load {load:.1f}, OMP_WAIT_POLICY PASSIVE, GOMP_SPINCOUNT 0"
    assert found.remedy == remedy


@pytest.mark.parametrize(
    ("exact", "rounded", "said"), [(3.0, 2.0, "1.5 times as fast, so"), (3.1, 2.0, "1.6 times as fast, so")]
)
def test_bfloat16_may_help_where_a_product_is_more_than_half_again_as_fast(monkeypatch, exact, rounded, said):
    seconds = {torch.float32: exact, torch.bfloat16: rounded}
    monkeypatch.setattr("sao.training.device.product_seconds", lambda dtype, device: seconds[dtype])
    (found,) = doctor._precision()
    better = "may help" if exact > 3 else "does not pay here"
    assert found.text == f"float32; a bfloat16 product is {said} --train.precision bfloat16 {better}"
    assert found.remedy == ""


@pytest.mark.parametrize(
    ("free", "remedy"), [(2_000_000_001, ""), (2_000_000_000, "less than 2 GB: elsewhere"), (0, "less than 2 GB: elsewhere")]
)
def test_a_disk_needs_two_gigabytes(monkeypatch, tmp_path, free, remedy):
    monkeypatch.setattr(doctor.shutil, "disk_usage", lambda path: fake(total=9 * free, used=8 * free, free=free))
    found = doctor._folder("disk", tmp_path, "elsewhere")
    assert (found.text, found.remedy) == (f"{free / 1e9:.1f} GB free for {tmp_path}", remedy)
    assert doctor._folder("disk", tmp_path / "a" / "b", "").text.endswith("/a/b (made when needed)")


@pytest.mark.parametrize(("back_ends", "launcher", "text", "remedy"), [
    (("gloo",), "x", "torchrun with gloo", ""), (("gloo", "nccl"), "x", "torchrun with gloo, nccl", ""),
    ((), "x", "torchrun with no back end", "this torch was built without torch.distributed"),
    (("gloo",), None, "torchrun with gloo", "torchrun was not found"),
])  # fmt: skip
def test_what_starts_several_processes(monkeypatch, back_ends, launcher, text, remedy):
    monkeypatch.setattr("torch.distributed.is_backend_available", lambda name: name in back_ends)
    monkeypatch.setattr(doctor.shutil, "which", lambda name, path=None: launcher)
    (found,) = doctor._processes()
    assert found.text == text
    assert found.remedy.startswith(remedy)
    assert bool(found.remedy) == bool(remedy)


def test_graphics_cards_are_named_with_their_memory(monkeypatch):
    monkeypatch.setattr("sao.training.device.choose_device", lambda name: torch.device("cuda"))
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda i: fake(name=f"card {i}", total_memory=(i + 1) * 24e9))
    monkeypatch.setattr(doctor, "agreement_of", lambda device: doctor.Finding("agreement", device))
    assert [found.text for found in doctor._devices()] == ["card 0, 24 GB; card 1, 48 GB", "cuda"]


@pytest.mark.parametrize(("agrees", "wrong", "remedy"), [
    (True, {}, ""), (False, {}, "operators that differ: none by itself; try --train.device cpu"),
    (True, {"conv": 0.012}, "operators that differ: conv by 1e-02; try --train.device cpu"),
    (False, {f"o{i}": 1.0 for i in range(7)}, f"operators that differ: {', '.join(f'o{i} by 1e+00' for i in range(5))}; try"),
])  # fmt: skip
def test_at_most_five_wrong_operators_are_named(monkeypatch, agrees, wrong, remedy):
    result = type("Result", (), {"agrees": agrees, "wrong_operators": wrong, "__str__": lambda self: "said"})()
    monkeypatch.setattr("sao.training.device_check.compare", lambda *given: result)
    found = doctor.agreement_of("cpu")
    assert found.text == "cpu: said"
    assert found.remedy.startswith(remedy)
    assert bool(found.remedy) == bool(remedy)


@pytest.mark.parametrize(("count", "size", "said"), [
    (0, 0, "0 entries, 0.0 MB"), (1, 999_949_999, "1 entry, 999.9 MB"), (2, 10**9, "2 entries, 1.00 GB"),
    (3, 2_346_000_000, "3 entries, 2.35 GB"),
])  # fmt: skip
def test_from_a_thousand_megabytes_on_sizes_are_in_gigabytes(count, size, said):
    entries = [Kept(Path("x"), size // max(count, 1), 0.0, "")] * count
    assert cache._said(entries) == said


@pytest.fixture
def kept(monkeypatch):
    """So many entries, the first one day old, the next two and so on, each a megabyte larger; none of them is there."""

    def make(count: int) -> list[int]:
        removed: list[int] = []
        entries = [Kept(Path(str(i)), (i + 1) * 1_000_000, 1e9 - 86400 * (i + 1), f"what {i}") for i in range(count)]
        stands_in = fake(folder="F", kept=lambda: entries, remove=lambda entry: removed.append(int(str(entry.path))) or True)
        monkeypatch.setattr(cache, "Cache", lambda: stands_in)
        monkeypatch.setattr(cache.time, "time", lambda: 1e9)
        return removed

    return make


@pytest.mark.parametrize(
    ("days", "removed"), [(None, [2, 1, 0]), (0.0, [2, 1, 0]), (1.0, [2, 1]), (1.5, [2, 1]), (3.0, []), (2.999, [2])]
)
def test_older_than_is_in_days(kept, capsys, days, removed):
    found = kept(3)
    cache.run(fake(older_than=days, clear=True))
    assert found == removed
    size = sum(number + 1 for number in removed)
    assert capsys.readouterr().out == f"F: removed {len(removed)} entr{'y' if len(removed) == 1 else 'ies'}, {size}.0 MB\n"


@pytest.mark.parametrize(("count", "more"), [(20, ""), (21, "  and 1 entry more"), (23, "  and 3 entries more")])
def test_the_largest_twenty_entries_are_listed(kept, capsys, count, more):
    kept(count)
    cache.run(fake(older_than=None, clear=False))
    first, *lines, last = capsys.readouterr().out.splitlines()
    assert first == f"F (SAO_CACHE): {count} entries, {count * (count + 1) // 2}.0 MB"
    assert [line.split()[-1] for line in lines[:20]] == [str(count - 1 - i) for i in range(20)]
    assert lines[0].startswith(f"        {count}.0 MB  2001-08-")
    assert lines[20:] == ([more] if more else [])
    assert last == "decoded images are made again when they are needed: `sao cache --clear` removes them"


@pytest.mark.parametrize(("shape", "said"), [
    ([5, 8, 9, 1], "5 images of 9x8, grey"), ([5, 8, 9, 3], "5 images of 9x8, colour"),
    ([5, 8, 9, 4], "5 images of 9x8, 4 channels"),
])  # fmt: skip
def test_an_entry_is_described_by_its_width_and_height(tmp_path, shape, said):
    assert _described(tmp_path) == "damaged"
    (tmp_path / "facts.json").write_text(f'{{"shape": {shape}}}')
    assert _described(tmp_path) == said


@pytest.mark.parametrize(("count", "said"), [
    (1, "1 item could not be used: n0: r0"), (3, "3 items could not be used: n0: r0; n1: r1; n2: r2"),
    (4, "4 items could not be used: n0: r0; n1: r1; n2: r2; …"),
])  # fmt: skip
def test_three_of_the_items_that_could_not_be_used_are_named(count, said):
    items = [Skipped(f"n{i}", f"r{i}") for i in range(count)]
    assert skipped_said(items) == said
    assert first_of(items) == f" ({count} skipped, the first: n0: r0)"
    assert first_of([]) == ""


def test_links_that_were_not_followed_are_counted():
    links = [Skipped("a", "a link that leaves the folder"), Skipped("b", "not an image")]
    said = links_said("my photos", [*links, Skipped("c", "a link to a folder; only links to files are followed")])
    assert said is not None
    assert said.startswith("2 links out of my photos were not followed: `find -L 'my photos' -type f > images.txt` lists")
    assert links_said("x", links[1:]) is None


def group(keep: int, *copies: tuple[int, Any, float], why: str = "first name") -> Group:
    return Group(keep, why, tuple(Copy(*copy) for copy in copies))


def test_groups_are_printed_with_three_copies_each(capsys):
    names = Known([f"n{i}" for i in range(60)])
    first = group(3, (1, "same bytes", 0), (2, "same pixels", 0), (4, "near", 0.128), (5, "near", 0.2))
    duplicates._print([first, group(8, (9, "near", 0.3))], names)
    assert capsys.readouterr().out.splitlines() == [
        "5 copies in 2 groups among 60 images: 1 same bytes, 1 same pixels, 3 near",
        "   1  keep n3 (first name)",
        "           n1 (same bytes)",
        "           n2 (same pixels)",
        "           n4 (near, distance 0.13)",
        "           … and 1 more",
        "   2  keep n8 (first name)",
        "           n9 (near, distance 0.30)",
    ]
    for count in (20, 21):
        duplicates._print([group(2 * i, (2 * i + 1, "near", 0.1)) for i in range(count)], names)
        lines = capsys.readouterr().out.splitlines()
        assert len(lines) == 1 + 40 + (count > 20)
        assert (lines[-1] == "… and 1 more group") == (count > 20)
    duplicates._print([group(1, (0, "same bytes", 0))], names)
    assert capsys.readouterr().out.startswith("1 copy in 1 group among 60 images: 1 same bytes\n")
    duplicates._print([], names)
    assert capsys.readouterr().out == "no duplicates among 60 images\n"


def looked(n: int, paths: bool = True) -> Any:
    known = Known([f"<{i}>.png" for i in range(n)])
    return fake(
        known=known,
        sizes=[(10 * i + 10, 7) for i in range(n)],
        places=list(range(n)),
        source=fake(entries=[fake(size=9999 + i) for i in range(n)]),
        pictures=lambda rows, side: {row: np.full((side, side, 3), row, np.uint8) for row in rows if row != 2},
        path=lambda row: f"/data/a b/{row}.png" if paths else None,
    )


def test_the_table_of_duplicates_has_a_row_for_each_image():
    groups = [group(1, (0, "near", 0.12345), (2, "near", 0.5)), group(4, (3, "same bytes", 0))]
    header, rows = duplicates._table(groups, looked(5).known, looked(5))
    assert header == ["group", "name", "keep", "kind", "distance", "why", "width", "height", "bytes"]
    assert rows == [
        [1, "<1>.png", 1, "", "", "first name", 20, 7, 10_000],
        [1, "<0>.png", 0, "near", "0.1235", "", 10, 7, 9999],
        [1, "<2>.png", 0, "near", "0.5000", "", 30, 7, 10_001],
        [2, "<4>.png", 1, "", "", "first name", 50, 7, 10_003],
        [2, "<3>.png", 0, "same bytes", "0.0000", "", 40, 7, 10_002],
    ]
    header, rows = duplicates._table(groups[1:], looked(5).known, None)
    assert (header[-1], rows[0]) == ("why", [1, "<4>.png", 1, "", "", "first name"])


def test_the_page_of_duplicates_says_sizes_and_links_relative_to_itself(tmp_path):
    page = duplicates_page([group(1, (0, "near", 0.25), (2, "near", 0.5))], looked(3), "Duplicates", Path("/data/out"))
    assert "<h2>Group 1: 3 images, near</h2>" in page
    assert page.count("<figure class=keep>") == 1
    keep = page.partition("<figure class=keep>")[2].partition("</figure>")[0]
    assert '<a href="../a%20b/1.png">&lt;1&gt;.png</a><br>keep: first name, 20x7, 10 kB<' in keep
    assert ">&lt;0&gt;.png</a><br>near, distance 0.25, 10x7, 10.0 kB<" in page
    assert page.count("<img ") == 2  # one could not be read again
    assert "The table has" not in page
    assert "<a href" not in duplicates_page([group(1, (0, "near", 0.25))], looked(2, paths=False), "D", tmp_path)


@pytest.mark.parametrize(
    ("most", "left"), [(6, None), (5, "1 more group"), (4, "1 more group"), (3, "2 more groups"), (1, "2 more groups")]
)
def test_a_page_of_duplicates_is_not_endless(monkeypatch, most, left):
    monkeypatch.setattr("sao.search.page.MOST_PICTURES", most)
    groups = [group(2 * i, (2 * i + 1, "near", 0.1)) for i in range(3)]
    page = duplicates_page(groups, looked(6), "D", Path("/data"))
    assert (left is None) == ("The table has" not in page)
    assert left is None or f"<p>The table has {left}.</p>" in page
    assert page.count("<section>") == 3 - (0 if left is None else int(left[0]))


def test_small_files_are_said_in_tenths_of_a_kilobyte():
    said = {0: "0.0 kB", 1234: "1.2 kB", 9999: "10.0 kB", 10_000: "10 kB", 1_234_567: "1235 kB"}
    assert {count: _size(count) for count in said} == said


def neighbours(queries: int, k: int) -> Neighbours:
    distances = np.arange(queries * k).reshape(queries, k) / 1000
    names = [[f"n{q}-{i}" for i in range(k)] for q in range(queries)]
    return Neighbours([f"q{q}" for q in range(queries)], names, distances, np.zeros((queries, k), np.int64))


@pytest.mark.parametrize(("queries", "k"), [(10, 5), (11, 5), (12, 6), (1, 1), (2, 8)])
def test_five_neighbours_of_ten_queries_are_printed(capsys, queries, k):
    search._print(neighbours(queries, k))
    expected = []
    for q in range(min(queries, 10)):
        expected += [f"q{q}", *(f"  {(q * k + i) / 1000:.3f}  n{q}-{i}" for i in range(min(k, 5)))]
        expected += [f"  … and {k - 5} more"] if k > 5 else []
    expected += [f"… and {queries - 10} more {'query' if queries == 11 else 'queries'}"] if queries > 10 else []
    assert capsys.readouterr().out.splitlines() == expected


def test_ranks_begin_at_one():
    assert list(search._rows(neighbours(2, 2))) == [
        ("q0", 1, "n0-0", "0.000000"),
        ("q0", 2, "n0-1", "0.001000"),
        ("q1", 1, "n1-0", "0.002000"),
        ("q1", 2, "n1-1", "0.003000"),
    ]


def test_neighbours_in_a_notebook_are_three_of_five_queries():
    assert repr(neighbours(1, 3)) == "3 neighbours of 1 query\n  q0: n0-0 0.000, n0-1 0.001, n0-2 0.002"
    lines = repr(neighbours(6, 4)).splitlines()
    assert (lines[0], lines[1]) == ("4 neighbours of 6 queries", "  q0: n0-0 0.000, n0-1 0.001, n0-2 0.002, …")
    assert (len(lines), lines[-1]) == (7, "  …")
    assert len(repr(neighbours(5, 4)).splitlines()) == 6


def test_distances_are_one_less_the_cosine():
    index = Index.of(np.array([[1.0, 0], [0, 2], [-3, 0], [1, 1]]), ["a", "b", "c", "d"])
    found = index.search(np.array([[5.0, 0]]), k=9)
    assert found.names == [["a", "d", "b", "c"]]
    np.testing.assert_allclose(found.distances, [[0, 1 - 0.5**0.5, 1, 2]], atol=1e-6)
    assert found.queries == ["0"]


def test_the_picture_of_a_search_is_query_gap_and_neighbours():
    gallery = Images((np.arange(6, dtype=np.uint8) * 40).reshape(6, 1, 1, 1).repeat(8, 1).repeat(8, 2))
    asked = Images((np.arange(2, dtype=np.uint8) + 100).reshape(2, 1, 1, 1).repeat(8, 1).repeat(8, 2))
    found = Neighbours(["a", "b"], [["", "", ""]] * 2, np.zeros((2, 3)), np.array([[3, 0, 1], [2, 5, 4]]))
    picture = search._picture(found, [("digits", asked)], ("digits", gallery))
    assert picture is not None
    shown = np.asarray(picture.convert("L"))[np.ix_(2 + 66 * np.arange(2) + 32, 2 + 66 * np.arange(5) + 32)]
    assert shown.tolist() == [[100, 255, 120, 0, 40], [101, 255, 80, 200, 160]]
    vectors = Vectors(np.zeros((6, 2), np.float32))
    assert search._picture(found, [("x", vectors)], ("x", vectors)) is None


def sheet(k: int = 3) -> ClusterSheet:
    clusters = np.array([0, 0, 0, 1, 1, 2])
    cosines = np.array([0.5, 0.25, 0.125, 1, 0.1234567, -0.5])
    return ClusterSheet(list("abcdef"), clusters, cosines, np.array([False, True, False, False, False, True]), k)


def test_a_group_is_called_what_most_of_its_labelled_members_are(capsys):
    labels = parsed_labels("name,label\na,cat\nb,dog\nc,dog\nd,dog\n", "l.csv")
    assert cluster._names(sheet(), labels) == ["dog", "dog", None]
    assert capsys.readouterr().out.splitlines() == [
        "l.csv: 4 of 6 samples have a label, of 2 classes; 2 have none",
        "group 0 of 3: dog, as 2 of 3 labelled members say",
        "group 1 of 2: dog, as 1 of 1 labelled members say",
        "1 of 3 groups have no labelled member, and no name",
    ]


@pytest.mark.parametrize("names", [None, ["x", None, "y"]])
def test_the_table_of_groups(tmp_path, names):
    cluster._write_table(tmp_path / "t.csv", sheet(), names)
    rows = list(csv.reader((tmp_path / "t.csv").read_text("utf-8-sig").splitlines()))
    expected = [
        ["name", "cluster", "cosine", "outlier"], ["a", "0", "0.500000", "0"], ["b", "0", "0.250000", "1"],
        ["c", "0", "0.125000", "0"], ["d", "1", "1.000000", "0"], ["e", "1", "0.123457", "0"], ["f", "2", "-0.500000", "1"],
    ]  # fmt: skip
    group = ["group", "x", "x", "x", "", "", "y"]
    assert rows == (expected if names is None else [[*row, one] for row, one in zip(expected, group, strict=True)])


@pytest.mark.parametrize(("k", "first"), [(3, "group-0"), (10, "group-0"), (11, "group-00"), (101, "group-000")])
@pytest.mark.parametrize("link", [False, True])
def test_folders_of_groups_have_numbers_of_one_length(monkeypatch, capsys, k, first, link):
    seen = []

    def write(target, paths, groups, samples, *more):
        seen.append((paths, groups, more))
        return dict.fromkeys(groups, 1)

    monkeypatch.setattr("sao.data.files.grouped.write_groups", write)
    files = {name: f"/d/{name}" for name in "abcdef"}
    cluster._copy(fake(copy_to="out", link=link, overwrite=False), sheet(k), None, files)
    ((paths, groups, more),) = seen
    assert (paths[0], groups[0], groups[5], more) == ("/d/a", first, f"{first[:-1]}2", (link, False))
    what = "links to them" if link else "copies"
    assert capsys.readouterr().out == f"6 images as {what} in 3 folders of out; the originals are where they were\n"
    cluster._copy(fake(copy_to="out", link=link, overwrite=False), sheet(), ["x", "x", None], files)
    assert seen[1][1] == ["x"] * 5 + ["group-2"]
    with pytest.raises(InputError, match=r"^f is no file of its own"):
        cluster._copy(fake(copy_to="out", link=link, overwrite=False), sheet(), None, {name: name for name in "abcde"})


@pytest.mark.parametrize(("rows", "said"), [
    ("x/a,1\nx/b,2\nx/c,2\ny/a,1\n", "l: 4 of 4 samples have a label, of 2 classes"),
    ("b,1\n", "l: 1 of 4 samples have a label, of 1 class; 3 have none"),
    ("b,1\na,1\n",
     "l: 1 of 4 samples have a label, of 1 class; 3 have none; 1 file name is in several folders: write their paths"),
    ("b,1\nq,1\nr,1\n", "l: 1 of 4 samples have a label, of 1 class; 3 have none; 2 names are unknown (the first: q)"),
    ("b,1\nb,1\n", "l: 1 of 4 samples have a label, of 1 class; 3 have none; 1 name comes more than once"),
    ("b,1\nc,1\nc,2\nb,1\n", "l: 1 of 4 samples have a label, of 1 class; 3 have none; 2 names come more than once, "
     "1 of them with different labels and left out"),
])  # fmt: skip
def test_what_a_table_of_labels_names(rows, said):
    found = parsed_labels(f"name,label\n{rows}", "l").assign(["x/a", "x/b", "x/c", "y/a"])
    assert found.note == said
    assert (found.codes >= 0).sum() == int(said.split()[1])


def test_an_interpolation_goes_from_one_latent_to_another_in_ten_even_turns():
    model = fake(latent_shape=(6,), decode=lambda latents: latents.numpy())
    found = sample._interpolated(model, 3, 0).reshape(3, 10, 6)
    lengths = np.linalg.norm(found, axis=2)
    middle = found[:, 1:-1] / lengths[:, 1:-1, None]
    ends = found[:, [0, -1]] / lengths[:, [0, -1], None]
    for row in range(3):
        first, last = ends[row]
        angle = np.arccos(first @ last)
        plane = last - first * (first @ last)
        plane /= np.linalg.norm(plane)
        share = np.arctan2(middle[row] @ plane, middle[row] @ first) / angle
        assert (np.diff([0, *share, 1]) > 0).all()
        np.testing.assert_allclose(
            middle[row] - np.outer(middle[row] @ first, first), np.outer(middle[row] @ plane, plane), atol=1e-5
        )
        assert lengths[row].min() > 0.9 * min(lengths[row, 0], lengths[row, -1])


MEASURED = {
    "preset": "digits",
    "batch": 64,
    "threads": 2,
    "torch": "9.9",
    "processor": "P",
    "steps": 5,
    "seconds": {"median": 0.5, "fastest": 0.4, "slowest": 0.75},
    "images_per_second": 128.04,
    "peak_gb": 1.256,
    "tflop": 0.12345,
    "phases": {"data": 0.1, "generator": 0.3},
    "embedding": {"images_per_second": 1234.4, "share_of_bare_forward": 0.956},
}


def test_a_benchmark_in_words():
    lines = bench._as_text(MEASURED).splitlines()
    assert lines == [
        "digits, batch 64, 2 threads, torch 9.9, P, 5 steps",
        "step         0.500 s median (0.400 to 0.750), 128.0 images/s",
        "memory       1.26 GB peak",
        "arithmetic   0.1235 TFLOP a step",
        "embedding    1234 images/s, 96 % of a bare forward pass",
        "  data                       0.100 s  25.0 %",
        "  generator                  0.300 s  75.0 %",
    ]


def test_a_benchmark_beside_others_in_words():
    more = {
        "literal": {"seconds": {"median": 0.9}, "peak_gb": 3.5, "without": {"smooth_every": 2, "keys_from": "own"}},
        "times_as_fast_as_literal": 1.8,
        "memory_of_literal": 0.359,
        "other": {"name": "own", "seconds": {"median": 0.7}, "batch": 32, "images_per_second": 45.71},
        "times_as_fast_as_other": 2.801,
        "uncompiled": {"seconds": {"median": 0.8}, "first_compiled_step": 12.4},
        "ceiling_gflops": {"gemm": 50.0, "conv": 70.4},
        "share_of_ceiling": 0.456,
    }
    lines = bench._as_text(MEASURED | more).splitlines()
    assert lines[4:9] == [
        "literal      0.900 s, 3.50 GB: ours is 1.80 times as fast with 0.36 of the memory",
        "             the literal step is the paper's; ours is shorter by smooth_every 2, keys_from own",
        "own: 0.700 s for a batch of 32, 45.7 images/s; 2.80 times as many here",
        "uncompiled   0.800 s: the compiled step is 1.60 times as fast; the first one took 12 s",
        "ceiling      70 GFLOP/s (conv): the fastest step reaches 46 % of it",
    ]


def test_an_option_is_shown_with_its_range_and_default():
    rows = {name: kind for name, kind, _ in option_lines(Config, "")}
    for name, kind in {
        "seed": "whole number from 0 below 4294967296; default: 0",
        "data.size": "whole number from 8 to 256, or null; default: null",
        "data.crop": "number above 0 below 1, or null; default: null",
        "data.range": "list of 2: number each, or null; default: null",
        "data.labels": "true or false; default: true",
        "train.batch": "whole number from 2; default: 256",
        "train.epochs": "whole number from 1, or null; default: null",
        "log.evaluate_minutes": "number above 0, or null; default: 10",
        "log.to": "list of one of tensorboard, wandb, mlflow each; default: []",
    }.items():
        assert rows[name] == kind


def test_the_values_that_a_run_has_where_nobody_chooses():
    chosen = Config()
    assert (chosen.seed, chosen.data.held_out, chosen.data.fit, chosen.data.source) == (0, 0.1, "crop", "digits")
    train, log = chosen.train, chosen.log
    assert (train.steps, train.epochs, train.batch, train.schedule, train.warmup_epochs) == (1000, None, 256, "constant", 0)
    assert (train.check_every, train.timeout_seconds, train.precision) == (100, 60, "float32")
    assert (log.every, log.evaluate_every, log.evaluate_minutes, log.sample_every) == (10, None, 10, None)
    assert (log.checkpoint_every, log.keep, log.to, log.report) == (500, 2, (), True)


@pytest.mark.parametrize(
    ("samples", "steps", "warmup"), [(100, 6, 2), (99, 6, 2), (101, 6, 2), (159, 9, 3), (160, 12, 4), (39, 3, 1), (1, 3, 1)]
)
def test_an_epoch_is_as_many_whole_batches_as_there_are(samples, steps, warmup):
    config = tiny.config(train__epochs=3, train__batch=40, train__warmup_epochs=1)
    assert (config.steps_for(samples), config.warmup_steps_for(samples)) == (steps, warmup)
    assert tiny.config(train__steps=7).steps_for(samples) == 7
