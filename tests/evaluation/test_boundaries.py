"""Sentences, protocols and limits of the evaluation, at their boundaries and by hand."""

import json
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import norm

from sao.core.agreement import best, check_finite, difference
from sao.data.dataset import Dataset, Images, Vectors
from sao.data.split import SLICE, by_class, held_out_rows, held_out_samples, labels_or_note
from sao.errors import InputError, printable, typed
from sao.evaluation import Features, Metric, as_grid, as_table, compare, evaluate, merged
from sao.evaluation.budget import Budget, OutOfTime
from sao.evaluation.comparison import Comparison, over_seeds, paired
from sao.evaluation.evaluator import ChosenRows, Plan, chosen_rows, measure, raw_columns
from sao.evaluation.extract import extract, raw_size
from sao.evaluation.folds import fold_of
from sao.evaluation.generation import inception_score, kernel_distance, precision_recall
from sao.evaluation.inputs import feature_matrix, label_codes, standardiser
from sao.evaluation.kmeans import starts_for
from sao.evaluation.manifold import Proposal, manifold_clustering, proposed_clusters
from sao.evaluation.memorisation import memorised
from sao.evaluation.neighbours import knn_accuracy, majority
from sao.evaluation.outliers import FAR, outlier_scores, outliers
from sao.evaluation.own_clusters import own_clusters
from sao.evaluation.patches import Patches, centroids_for
from sao.evaluation.probe import few_shot
from sao.evaluation.rank import uniformity
from sao.evaluation.result import accuracy, aligned, as_intervals, is_metric, read_summary, with_interval, write_json
from sao.evaluation.suite import caution, check_names, computations
from sao.evaluation.svm import linear_svm
from sao.evaluation.verdict import verdict_of

NAN = float("nan")
OF_RAW = "the baselines (the best of raw)"


def right(gained: int, lost: int, both: int = 0, neither: int = 0) -> tuple[np.ndarray, np.ndarray]:
    counts = [gained, lost, both, neither]
    return np.repeat([True, False, True, False], counts), np.repeat([False, True, True, False], counts)


def pair(name: str, *counts: int, reference: str = "raw") -> list[Metric]:
    ours, theirs = right(*counts)
    return [accuracy(name, ours, {"split": "test"}), accuracy(f"{reference}/{name}", theirs, {})]


@pytest.mark.parametrize(
    ("p", "said"), [(0.001, "p = 0.001"), (0.0009999, "p < 0.001"), (0.04567, "p = 0.046"), (1.0, "p = 1")]
)
def test_a_comparison_in_words(p, said):
    one = Comparison("svm", "pca", 0.7126, 0.75, -0.0612, 0.0213, p, 80, 0.04)
    assert str(one) == f"0.713 against 0.750 of pca (-0.037, -0.061 to +0.021, {said})"
    assert one.decided == (p < 0.05)
    assert not replace(one, p=0.05).decided


def test_the_interval_is_agresti_and_mins_and_the_resolution_that_of_both():
    """(b − c) / (n + 2) ± z √(b + c + 1 − (b − c)² / (n + 2)) / (n + 2)."""
    ours, theirs = pair("svm", 9, 3, 20, 8)
    one = compare(ours, {"raw": theirs})
    half = norm.ppf(0.975) * math.sqrt(13 - 36 / 42) / 42
    assert (one.low, one.high, one.resolution) == pytest.approx((6 / 42 - half, 6 / 42 + half, half))
    assert (one.ours, one.theirs, one.samples) == (29 / 40, 23 / 40, 40)
    assert one.difference == pytest.approx(6 / 40)
    wider = compare(ours, {"raw": theirs}, comparisons=4)
    assert wider.resolution / one.resolution == pytest.approx(norm.ppf(1 - 0.05 / 8) / norm.ppf(0.975))


def test_of_one_sample_over_restarts_nobody_can_say():
    found = paired(np.ones((3, 1), bool), np.zeros((3, 1), bool))
    assert (found.centre, found.error, found.p) == (1.0, math.inf, 1.0)
    same = paired(np.ones((3, 4), bool), np.ones((3, 4), bool))
    assert (same.centre, same.error, same.p) == (0, 0, 1.0)
    apart = paired(np.ones((3, 4), bool), np.zeros((3, 4), bool))
    assert (apart.centre, apart.error, apart.p) == (1, 0, 0.0)


def test_one_restart_adds_nothing_to_the_error():
    draws = np.random.default_rng(0)
    ours, theirs = draws.random((1, 30)) < 0.7, draws.random((5, 30)) < 0.5
    found, apart = paired(ours, theirs), ours.mean(axis=0) - theirs.mean(axis=0)
    sampling = apart.var(ddof=1) / 30
    assert found.sampling_error == pytest.approx(math.sqrt(sampling))
    assert found.error == pytest.approx(math.sqrt(sampling + theirs.mean(axis=1).var(ddof=1) / 5))


def test_what_was_not_measured_is_named_and_not_compared():
    ours, theirs = pair("svm", 5, 1, 4)
    with pytest.raises(InputError, match=r"^raw/svm was not measured, so there is nothing to compare$"):
        compare(ours, {"raw": replace(theirs, value=NAN), "pca": theirs})
    with pytest.raises(InputError, match=r"^svm was not measured"):
        compare(replace(ours, right=None), {"raw": theirs})


def test_seeds_are_compared_by_their_differences():
    found = over_seeds([0.6, 0.5, 0.7], [0.5, 0.45, 0.55])
    apart = np.array([0.1, 0.05, 0.15])
    half = 4.302653 * apart.std(ddof=1) / math.sqrt(3)  # Student's t of two degrees of freedom
    assert (found.low, found.high) == pytest.approx((0.1 - half, 0.1 + half), abs=1e-6)
    assert (found.ours, found.theirs, found.samples) == pytest.approx((0.6, 0.5, 3))
    same = over_seeds([0.5, 0.75], [0.25, 0.5])
    assert (same.p, same.low, same.high) == (1.0, 0.25, 0.25)


def test_a_verdict_lists_wins_before_ties_with_the_name_of_each_metric():
    metrics = [*pair("svm", 90, 10, 50, 50), *pair("knn5", 20, 20, 80, 80), *pair("kmeans", 80, 5, 50, 65)]
    found = verdict_of(metrics)
    assert found.better is True
    assert found.sentence.startswith(
        f"Yes, this embedding is better than {OF_RAW}: k-means 0.650 against 0.275 of raw (+0.375, "
    )
    assert ", linear SVM 0.700 against 0.300 of raw (+0.400, " in found.sentence
    assert "; no measurable difference at 5-nearest-neighbour 0.500 against 0.500 of raw (+0.000, " in found.sentence


def test_a_verdict_that_wins_here_and_loses_there():
    found = verdict_of([*pair("svm", 90, 10, 50, 50), *pair("knn5", 10, 90, 50, 50), *pair("kmeans", 20, 20, 80, 80)])
    assert found.better is None
    assert found.sentence.startswith(f"Only in part is this embedding better than {OF_RAW}: it wins at linear")
    assert " but loses at 5-nearest-neighbour 0.300 against 0.700 of raw (-0.400, " in found.sentence
    assert found.sentence.index("; no measurable difference at k-means") > found.sentence.index("loses at")


def test_a_verdict_that_loses():
    found = verdict_of(pair("knn5", 10, 90, 50, 50))
    assert found.better is False
    assert found.sentence.startswith(f"No, this embedding is worse than {OF_RAW}: 5-nearest-neighbour 0.300")
    assert "no measurable" not in found.sentence
    found = verdict_of(pair("svm", 100, 100, 10_000, 10_000))  # samples enough to see a difference
    assert found.better is False
    assert found.sentence.startswith(f"No, this embedding is not measurably better than {OF_RAW}; no measurable")


@pytest.mark.parametrize(
    ("split", "said"), [("test", "held-out samples"), ("one split, 5-fold cross-validation", "labelled samples")]
)
def test_a_verdict_that_is_not_settled_says_how_many_samples_there_were(split, said):
    ours, theirs = right(12, 12, 48, 48)
    metrics = [accuracy("svm", ours, {"split": split}), accuracy("raw/svm", theirs, {})]
    found = verdict_of(metrics)
    half = norm.ppf(0.975) * math.sqrt(25) / 122
    assert found.better is None
    assert found.sentence.startswith(
        f"Not settled: 120 {said} are too few to say whether this embedding is better than the baselines (the best of raw); "
        "no measurable difference at linear SVM 0.500 against 0.500 of raw (+0.000, "
    )
    more = "hold out more" if split == "test" else "label more"
    assert found.sentence.endswith(f". Differences below about {half:.2f} cannot be seen with so few: {more}.")


def unlabelled(rank: float = 3.14, agreement: float = 0.5, **others: float) -> list[Metric]:
    return [
        Metric("effective_rank", rank, None, {"dimensions": 16}),
        Metric("cluster_agreement", agreement),
        *(Metric(f"{name}/cluster_agreement", value) for name, value in others.items()),
    ]


@pytest.mark.parametrize(("agreement", "others", "said"), [
    (0.5, {"raw": 0.25, "pca": 0.375}, "more stable between seeds (ARI 0.50) than those of pca (0.38)"),
    (0.375, {"raw": 0.375, "pca": 0.25}, "no more stable between seeds (ARI 0.38) than those of raw (0.38)"),
])  # fmt: skip
def test_without_labels_stability_is_told(agreement, others, said):
    found = verdict_of(unlabelled(agreement=agreement, **others))
    assert found.better is None
    assert found.sentence.startswith(
        "Without labels nobody can say whether this embedding is better than the baselines (raw, pca); it has not collapsed "
        "(effective rank 3.1 of 16) and its clusters are "
    )
    assert said in found.sentence


@pytest.mark.parametrize(("rank", "collapsed"), [(1.4999, True), (1.5, False)])
def test_an_effective_rank_below_one_and_a_half_is_a_collapse(rank, collapsed):
    found = verdict_of(unlabelled(rank, raw=0.5))
    assert (found.better is False) == collapsed
    collapse = "it has collapsed to an effective rank of 1.50 of 16 dimensions."
    assert found.sentence.endswith(collapse) == collapsed


def test_what_is_missing_for_a_verdict_is_said():
    with pytest.raises(InputError, match="nothing to compare with"):
        verdict_of([Metric("svm", 0.5)])
    out = {"caution": "out of time"}
    said = verdict_of([Metric("svm", NAN, None, out), Metric("raw/svm", 0.5)])
    assert said.sentence == "Nobody can say whether this embedding is better than the baselines: out of time."
    said = verdict_of([Metric("effective_rank", NAN, None, out), Metric("raw/effective_rank", 2)])
    assert said.sentence.endswith("baselines: out of time.")
    said = verdict_of([Metric("effective_rank", 3.0), Metric("raw/effective_rank", 2)])
    assert said.sentence.endswith("baselines: it was not measured.")


def beside_pretrained(svm: tuple[int, ...], knn: tuple[int, ...]) -> str:
    metrics = [*pair("svm", 90, 10, 50, 50), *pair("knn5", 90, 10, 50, 50)]
    for name, (theirs, ours) in {"svm": svm, "knn5": knn}.items():
        one = next(metric for metric in metrics if metric.name == name)
        assert one.right is not None
        other = one.right.copy()
        other[np.flatnonzero(~one.right)[:theirs]] = True
        other[np.flatnonzero(one.right)[:ours]] = False
        metrics.append(accuracy(f"pretrained/{name}", other, {"feature": "pretrained net"}))
    return verdict_of(metrics).sentence


ELSEWHERE = "the pretrained net, trained elsewhere on other images"


@pytest.mark.parametrize(("svm", "knn", "said"), [
    ((40, 0), (1, 1), f"A pretrained network is the better choice here ({ELSEWHERE}): linear SVM 0.900 against 0.700."),
    ((40, 0), (0, 100), f"A pretrained network ({ELSEWHERE}) is better in part: linear SVM 0.900 against 0.700; but worse at "
     "5-nearest-neighbour 0.200 against 0.700."),
    ((1, 1), (0, 100), f"It is better than a pretrained network too ({ELSEWHERE}): 5-nearest-neighbour 0.200 against 0.700."),
    ((1, 1), (1, 1), f"A pretrained network ({ELSEWHERE}) is neither better nor worse, measurably."),
])  # fmt: skip
def test_a_pretrained_network_is_told_apart_from_the_baselines(svm, knn, said):
    assert beside_pretrained(svm, knn).endswith(said)


def test_a_table_of_metrics_to_the_letter():
    metrics = [
        Metric("svm", 0.81236, None, {"split": "test", "n_test": 7}),
        Metric("km", 0.5, 0.0125, {"feature": "x"}),
        Metric("nmi", NAN, 0.1),
    ]
    assert as_table(metrics).splitlines() == [
        "| metric | value           | split | feature | n_test |",
        "|--------|-----------------|-------|---------|--------|",
        "| svm    | 0.8124          | test  |         | 7      |",
        "| km     | 0.5000 ± 0.0125 |       | x       |        |",
        "| nmi    | –               |       |         |        |",
    ]
    assert aligned([["a", "bb"], ["ccc", "d"]]) == "| a   | bb |\n|-----|----|\n| ccc | d  |"


def test_a_grid_says_once_why_something_was_not_measured():
    metrics = [
        Metric("svm", 0.5, 0.25, {"left_out": {"patches": "late"}}),
        Metric("nmi", NAN, None, {"caution": "few"}),
        Metric("raw/nmi", NAN, None, {"caution": "few"}),
        Metric("raw/svm", NAN, None, {"caution": "few"}),
        Metric("raw/ari", 0.125, None, {}),
    ]
    assert as_grid(metrics, ours="mine").splitlines() == [
        "|      | svm   | nmi | ari   |",
        "|------|-------|-----|-------|",
        "| mine | 0.500 | –   | –     |",
        "| raw  | –     | –   | 0.125 |",
        "– nmi, svm: few",
        "– patches: late",
    ]


@pytest.mark.parametrize(("width", "tables"), [(29, 1), (28, 2), (21, 2), (20, 3), (1, 3)])
def test_a_grid_is_cut_where_the_next_column_would_be_too_wide(width, tables):
    metrics = [Metric(name, 0.5) for name in ("aaa", "bbb", "ccc")]
    found = as_grid(metrics, ours="r", width=width)
    assert len(found.split("\n\n")) == tables
    assert width == 1 or max(map(len, found.splitlines())) <= width


def test_intervals_are_of_the_learnt_features_alone():
    metrics = [
        Metric("svm", 0.512, None, {"interval_95": [0.4444, 0.5777]}),
        Metric("raw/svm", 0.3, None, {"interval_95": [0.2, 0.4]}),
        Metric("knn1", 0.25, None, {"interval_95": [0.1, 0.375]}),
        Metric("nmi", 0.5),
    ]
    assert as_intervals(metrics) == "95 % intervals of learnt: svm 0.51 [0.44, 0.58], knn1 0.25 [0.10, 0.38]"
    assert as_intervals(metrics[1:2]) == ""


@pytest.mark.parametrize(("hits", "n", "low", "high"), [(0, 20, 0.0, 0.1611), (20, 20, 0.8389, 1.0), (10, 20, 0.2993, 0.7007)])
def test_intervals_at_the_ends(hits, n, low, high):
    assert with_interval(accuracy("svm", np.arange(n) < hits, {})).protocol["interval_95"] == [low, high]
    plain = Metric("nmi", 0.5)
    assert with_interval(plain) is plain


def test_metrics_of_the_same_origin_are_kept_and_others_are_not():
    before = [
        {"name": "svm", "value": 0.5, "std": None, "protocol": {"run": "a", "step": 3}},
        {"name": "nmi", "value": None, "std": None, "protocol": {"run": "a", "step": 3}},
        {"name": "ari", "value": 0.5, "std": None, "protocol": {"run": "a", "step": 4}},
        {"name": "knn1", "value": 0.5, "std": None, "protocol": {"run": "a", "step": 3, "data": "other"}},
    ]
    found = merged(before, [Metric("svm", 0.75, None, {"run": "a", "step": 3})])
    assert [(one.name, one.value) for one in found][1:] == [("svm", 0.75)]
    assert found[0].name == "nmi"
    assert math.isnan(found[0].value)


def test_metrics_of_another_feature_or_of_other_weights_are_not_kept():
    def row(name: str, **protocol: str) -> dict[str, Any]:
        return {"name": name, "value": 0.5, "std": None, "protocol": {"run": "a"} | protocol}

    learnt, raw = {"feature": "backbone", "weights": "ema"}, {"feature": "raw inputs", "weights": "none"}
    before = [row("svm", **learnt), row("raw/svm", **raw), row("untrained/svm", feature="backbone", weights="untrained")]
    before.append(row("fid", weights="ema"))

    def kept(name: str, **protocol: str) -> list[str]:
        return [one.name for one in merged(before, [Metric(name, 0.75, None, {"run": "a"} | protocol)])[:-1]]

    assert kept("knn1", **learnt) == ["svm", "raw/svm", "untrained/svm", "fid"]
    assert kept("knn1", **learnt | {"feature": "layers"}) == ["raw/svm", "untrained/svm", "fid"]
    assert kept("knn1", **learnt | {"weights": "raw"}) == ["raw/svm", "untrained/svm", "fid"]
    assert kept("untrained/knn1", feature="layers", weights="untrained") == ["svm", "raw/svm", "fid"]
    assert kept("kid", weights="ema") == ["svm", "raw/svm", "untrained/svm", "fid"]
    assert kept("kid", weights="raw") == ["svm", "raw/svm", "untrained/svm"]


def test_the_table_of_a_training_is_that_of_its_step(tmp_path):
    path = tmp_path / "summary.json"
    assert read_summary(path, 8, 8, tmp_path) == []
    write_json(path, [Metric("svm", 0.5, None, {"step": 8}), Metric("nmi", 0.25), Metric("ari", 0.5, None, {"step": 9})])
    assert [row["name"] for row in read_summary(path, 8, 8, tmp_path)] == ["svm", "nmi"]
    assert [row["name"] for row in read_summary(path, 8, 9, tmp_path)] == ["svm"]
    assert [row["name"] for row in read_summary(path, 9, 9, tmp_path)] == ["nmi", "ari"]
    assert json.loads(path.read_text())[0] == {"name": "svm", "value": 0.5, "std": None, "protocol": {"step": 8}}
    assert not is_metric({"name": "svm", "value": 1, "std": None})


def test_a_computation_has_half_of_the_time_that_is_left(monkeypatch):
    from sao.evaluation import budget as module

    now = [100.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    budget = Budget(2)
    assert budget.left == 120
    assert budget.reason == "left out: it does not fit into the 2 minutes of this evaluation"
    now[0] += 20
    with budget.computation():
        now[0] += 50
        module.check_time()  # exactly half of the 100 s
        now[0] += 0.1
        with pytest.raises(OutOfTime):
            module.check_time()
    module.check_time()
    assert budget.left == pytest.approx(49.9)
    now[0] = 220.0
    with budget.computation():
        pass
    now[0] = 220.1
    with pytest.raises(OutOfTime), budget.computation():
        pass
    with Budget().computation():
        now[0] += 1e9
        module.check_time()


@pytest.mark.parametrize(("name", "samples", "classes", "said"), [
    ("svm", 19, 2, "19 samples are too few to score: at least 20 are needed"), ("svm", 20, 10, None), ("kmeans", 20, 4, None),
    ("kmeans", 24, 5, "24 samples of 5 classes are too few to match clusters with: at least 25 are needed"),
    ("manifold_nmi", 49, 10, "49 samples of 10 classes are too few to match clusters with: at least 50 are needed"),
    ("manifold", 50, 10, None), ("nmi", 30, None, None),
])  # fmt: skip
def test_a_split_may_be_too_small(name, samples, classes, said):
    labels = None if classes is None else np.arange(samples) % classes
    assert caution(name, Features(np.zeros((samples, 1)), labels)) == said


def test_computations_are_counted_by_what_is_found_together():
    assert computations(["kmeans", "nmi", "purity", "ari", "kmeans_best"]) == 1
    assert computations(["knn1", "knn5", "svm", "probe", "probe_1pct", "probe_10pct"]) == 5
    assert computations([]) == 0
    assert check_names(["nmi", "svm", "nmi"], True) == ["nmi", "svm"]


@pytest.mark.parametrize(("k", "starts"), [(10, 20), (200, 20), (201, 19), (400, 10), (800, 5), (4000, 5)])
def test_many_clusters_have_fewer_starts(k, starts):
    assert starts_for(k, 20) == starts
    assert starts_for(k, 3) == 3
    assert Plan().restarts_for(k) == starts


def test_raw_inputs_have_fewer_columns_where_there_are_many_rows_and_classes():
    found = [raw_columns(10_000, classes) for classes in (None, 20, 40, 200)]
    assert [*found, raw_columns(100, 10)] == [3355, 3355, 1677, 768, 335_544]


@pytest.mark.parametrize(("shape", "columns", "size"), [
    ((3, 32, 32), 768, (16, 16)), ((1, 8, 8), 64, (8, 8)), ((1, 8, 8), 63, (7, 7)), ((1, 8, 8), None, (8, 8)),
    ((3, 20, 40), 600, (10, 20)), ((3, 64, 2), 3, (5, 1)),
])  # fmt: skip
def test_raw_images_are_averaged_to_so_many_numbers(shape, columns, size):
    assert raw_size(shape, columns) == size


@pytest.mark.parametrize(
    ("seconds", "images", "centroids"),
    [(0, 10, 256), (2.9, 1000, 256), (3, 1000, 512), (1e9, 1000, 4096), (1e9, 10**5, 256), (1e9, 40_000, 512)],
)
def test_patches_have_as_many_centroids_as_time_and_memory_allow(seconds, images, centroids):
    assert centroids_for(seconds, images) == centroids


def test_patches_of_small_images_are_small_and_of_large_ones_stepped_over():
    draws = np.random.default_rng(0)
    for side, size, step in ((4, 4, 1), (32, 6, 1), (33, 6, 2), (60, 6, 3)):
        images = draws.integers(0, 256, (3, side, side, 1), dtype=np.uint8)
        fitted = Patches.fit(images, np.arange(3), 16)
        assert (fitted.size, fitted.step) == (size, step)
        assert fitted.features(images, np.arange(3)).shape == (3, 4 * len(fitted.centroids))
    few = Patches.fit(draws.integers(0, 256, (1, 8, 8, 1), dtype=np.uint8), np.arange(1), 16)
    assert len(few.centroids) == 2  # nine patches, four for each


def test_classes_that_cannot_be_scored_are_left_out_and_counted():
    def images(labels) -> Images:
        return Images(np.zeros((len(labels), 8, 8, 1), np.uint8), np.asarray(labels))

    train, test = [0, 1] * 20, [0, 1] * 10 + [2, 2, 3]
    chosen = ChosenRows.of(Dataset("d", images(train), images(test)), None, 0)
    assert chosen.left_out == {"3 labelled samples of 2 classes": "the training set has none of them"}
    assert [len(rows) for rows in chosen.rows] == [40, 20]
    alone = ChosenRows.of(images([*train, 7]), None, 0)
    assert alone.left_out == {"1 labelled sample of 1 class": "cross-validation needs two of each"}
    assert len(alone.rows[0]) == 40


@pytest.mark.parametrize(
    ("train", "test", "few", "splits"),
    [(30, 20, 0, 2), (30, 20, 50, 2), (30, 20, 51, 1), (300, 19, 50, 1), (300, 20, 50, 2), (300, 19, 0, 2)],
)
def test_few_labelled_samples_are_one_split(train, test, few, splits):
    parts = [Images(np.zeros((n, 8, 8, 1), np.uint8), np.arange(n) % 2) for n in (train, test)]
    chosen = ChosenRows.of(Dataset("d", *parts), None, 0, few)
    assert len(chosen.parts) == splits
    assert sum(map(len, chosen.rows)) == train + test
    assert chosen.splits == (["train", "test"] if splits == 2 else ["one split, which the network may have been trained on"])


def test_samples_without_a_label_are_left_out():
    labels = np.array([0, 1, -1] * 30)
    parts = [Images(np.arange(90, dtype=np.uint8)[:, None, None, None].repeat(8, 1).repeat(8, 2), labels)] * 2
    chosen = ChosenRows.of(Dataset("d", *parts), None, 0)
    assert [len(rows) for rows in chosen.rows] == [60, 60]
    assert np.unique(np.asarray(chosen.labels[0])).tolist() == [0, 1]
    sparse = np.full(90, -1)
    sparse[:19] = np.arange(19) % 2
    chosen = ChosenRows.of(Dataset("d", *(replace(part, labels=sparse) for part in parts)), None, 0)
    assert chosen.labels == [None, None]
    assert [len(rows) for rows in chosen.rows] == [90, 90]


@pytest.mark.parametrize(
    ("limit", "counts"), [(3, [1, 1, 1]), (6, [4, 1, 1]), (8, [5, 2, 1]), (12, [8, 3, 1]), (99, [8, 3, 1])]
)
def test_a_few_rows_are_of_every_class(limit, counts):
    labels = np.repeat([0, 1, 2], [8, 3, 1])
    rows = chosen_rows(12, labels, limit, 0)
    found = np.bincount(labels[rows], minlength=3)
    assert found.sum() == min(limit, 12)
    assert found[1:].min() >= 1
    assert np.abs(found - counts).max() <= 1


def test_progress_of_features_is_counted_in_samples():
    said: list[tuple[int, int]] = []
    samples = Vectors(np.arange(20, dtype=np.float32).reshape(10, 2))
    found = extract(lambda x: x * 2, samples, torch.device("cpu"), chunk=4, progress=lambda *given: said.append(given))
    assert said == [(4, 10), (8, 10), (10, 10)]
    np.testing.assert_array_equal(found, samples.rows * 2)
    rows = extract(lambda x: x, samples, torch.device("cpu"), chunk=3, rows=np.array([7, 8, 9, 2, 4]))
    np.testing.assert_array_equal(rows, samples.rows[[7, 8, 9, 2, 4]])


def test_an_evaluation_carries_its_seed_and_the_size_of_each_split():
    draws = np.random.default_rng(0)
    labels = np.arange(60) % 3
    values = np.eye(3)[labels] + draws.normal(0, 0.3, (60, 3))
    train, test = (Features(values[of], labels[of]) for of in (slice(36), slice(36, None)))
    found = measure({"learnt": (train, test)}, Plan(("knn1", "svm")), seed=5)
    assert (found.n_train, found.n_test, found.verdict) == (36, 24, None)
    assert {metric.protocol["seed"] for metric in found.metrics} == {5}
    for metric in found.metrics:
        assert metric.protocol["interval_95"][0] <= metric.value <= metric.protocol["interval_95"][1]
    assert "verdict" not in repr(found)


@pytest.fixture(scope="module")
def groups() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    draws = np.random.default_rng(1)
    labels = np.arange(90) % 3
    values = np.eye(3, 5)[labels] + draws.normal(0, 0.2, (90, 5))
    return values[:60], labels[:60], values[60:], labels[60:]


def test_a_protocol_says_how_each_number_was_found(groups):
    train, test = (Features(x, y, {"split": name}) for x, y, name in ((*groups[:2], "train"), (*groups[2:], "test")))
    found = {metric.name: metric.protocol for metric in evaluate(train, test, repeats=3, seed=4)}
    for name, protocol in found.items():
        assert protocol["n_test"] == 30, name
        assert protocol.get("n_train", 60) == 60, name
        assert protocol.get("classes", 3) == 3, name
    for name in ("kmeans", "kmeans_best", "kmeans_strict", "nmi", "purity", "ari"):
        assert (found[name]["k"], found[name]["restarts"], found[name]["seeds"]) == (3, 3, "4..6"), name
    assert found["cluster_agreement"]["restarts"] == 10
    assert found["cluster_agreement"]["seeds"] == "4..13"
    assert (found["knn1"]["k"], found["knn5"]["k"]) == (1, 5)
    assert (found["probe_1pct"]["share"], found["probe_1pct"]["labels"], found["probe_1pct"]["seeds"]) == (0.01, 3, "4..8")
    assert (found["probe_10pct"]["share"], found["probe_10pct"]["labels"]) == (0.1, 6)
    assert found["probe"]["C"] == 1.0
    assert found["effective_rank"]["dimensions"] == 5
    assert found["kmeans_strict"]["fitted_on"] == found["kmeans_strict"]["matched_on"] == "train"
    assert found["kmeans"]["fitted_on"] == "the scored features"
    assert found["kmeans_best"]["chosen"] == "the greatest sum of cosines"
    assert found["uniformity"]["pairs_of"] == 30


def test_the_cost_of_the_svm_is_chosen_among_seven(groups):
    protocol = linear_svm(*groups).protocol
    assert protocol["C_candidates"] == [1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0]
    assert protocol["C_chosen_on"] == "0.2 of the training split, stratified"
    assert protocol["C_held_out_accuracy"][f"{protocol['C']:g}"] == max(protocol["C_held_out_accuracy"].values())
    assert protocol["C_at_edge"] == (protocol["C"] in (1e-5, 10.0))
    given = linear_svm(*groups, costs=[0.1]).protocol
    assert (given["C"], given["C_chosen_on"], given["C_at_edge"], given["C_held_out_accuracy"]) == (0.1, "given", False, {})
    with pytest.raises(InputError, match=r"no class has more than 4 labelled training samples.*label at least 5 of a class"):
        linear_svm(groups[0][:12], groups[1][:12], *groups[2:])


def test_cross_validated_costs_are_those_of_each_fold(groups):
    protocol = evaluate(Features(*groups[:2]), None, ["svm"])[0].protocol
    assert len(protocol["C"]) == 5
    assert (protocol["n_train"], protocol["n_test"]) == (48, 60)
    assert "C_held_out_accuracy" not in protocol
    two = np.repeat([0, 1], [2, 2])
    assert sorted(fold_of(two).tolist()) == [0, 1, 2, 3]  # five folds, of which one is empty


def test_few_shot_takes_one_of_each_class_at_least(groups):
    metric = few_shot(*groups, share=0.05, repeats=2, seed=7)
    assert (metric.name, metric.protocol["labels"], metric.protocol["seeds"]) == ("probe_5pct", 3, "7..8")
    assert few_shot(*groups, share=1).protocol["labels"] == 60


def test_votes_that_tie_go_to_the_lowest_class():
    assert majority(torch.tensor([[2, 1, 1, 2], [0, 2, 2, 1], [2, 2, 0, 0]]), 3).tolist() == [1, 2, 0]
    train, labels = np.eye(3), np.array([2, 1, 0])
    (one,) = knn_accuracy(train, labels, train, labels, ks=(3,))
    assert one.value == pytest.approx(1 / 3)


def test_clusters_beyond_the_manifold_say_how_many_coordinates_they_had(groups):
    x, y, *_ = groups
    protocol = manifold_clustering(x, y, k=4)[0].protocol
    assert protocol["algorithm"] == "spectral on the graph of 10 neighbours by cosine, best of 20 spherical k-means"
    assert (protocol["k"], protocol["classes"], protocol["n_test"], protocol["fitted_on"]) == (4, 3, 60, "the scored features")


@pytest.mark.parametrize(("second", "sure"), [(0.25, True), (0.2501, False), (-0.1, True)])
def test_a_number_of_groups_is_sure_where_its_drop_is_twice_the_next(second, sure):
    proposal = Proposal([(3, 0.5), (7, second), (2, 0.1), (9, 0.05)], 30)
    assert (proposal.k, proposal.sure) == (3, sure)
    drop = "the eigenvalues of the graph of 10 nearest neighbours drop most after 3 groups (by 0.500)"
    then = f"7 (by {second:.3f}), 2 (by 0.100)"
    if sure:
        assert str(proposal) == f"3 clusters: {drop}, then after {then}"
    else:
        unsure = f"3 clusters, but that is unsure: {drop}, and hardly less after {then}; 2 to 30 were tried"
        assert str(proposal).startswith(unsure)
    assert str(Proposal([(2, 0.5)], 2)) == f"2 clusters: {drop.replace('3 groups', '2 groups')}"


@pytest.mark.parametrize(("n", "most"), [(4, 2), (5, 3), (31, 29), (32, 30), (60, 30)])
def test_as_many_numbers_of_groups_are_tried_as_there_are_samples_less_two(n, most):
    draws = np.random.default_rng(0)
    assert proposed_clusters(draws.normal(size=(n, 4))).most == most
    with pytest.raises(InputError, match="3 samples are too few"):
        proposed_clusters(np.eye(3))


def test_the_level_of_chance_is_that_of_shuffled_labels():
    clusters, labels = np.repeat([0, 1], [30, 10]), np.tile([0, 1], 20)
    found = {metric.name: metric for metric in own_clusters(clusters, labels, 5, seed=3)}
    draws = np.random.default_rng(3)
    shuffled = [draws.permutation(labels) for _ in range(20)]
    expected = np.mean([np.bincount(one[:30]).max() + np.bincount(one[30:]).max() for one in shuffled])
    assert found["purity"].protocol["chance"] == pytest.approx(expected / 40)
    assert (found["purity"].value, found["purity_swapped"].value) == (0.5, 0.75)
    assert (found["nmi"].protocol["k"], found["nmi"].protocol["classes"], found["nmi"].protocol["n_test"]) == (5, 2, 40)
    assert found["nmi"].protocol["chance_is"] == "mean over 20 shuffles of the labels"


def test_copies_are_counted_by_a_quantile_that_the_protocol_names():
    reals = np.array([[0.0], [1], [3], [6], [10], [15]])  # to the nearest other: 1, 1, 2, 3, 4, 5
    found = memorised(np.array([[0.5], [8.1], [16.0], [17.1]]), reals, quantile=0.2)
    protocol = found.share.protocol
    assert (protocol["threshold"], protocol["median_between_reals"], protocol["count"]) == (1.0, 2.0, 2)
    assert protocol["median_to_nearest_real"] == pytest.approx(1.0)
    assert protocol["threshold_is"] == "0.2 quantile of the distance from 6 reals to their nearest other real"
    assert (protocol["n_fake"], protocol["n_real"], protocol["expected_of_fresh_data"]) == (4, 6, 0.2)
    assert (found.share.value, found.rows.tolist(), found.nearest.tolist()) == (0.5, [0, 2], [0, 4, 5, 5])


def test_inception_score_and_kid_say_of_how_many_parts():
    logits = torch.randn(7, 5, generator=torch.Generator().manual_seed(0))
    assert inception_score(logits).protocol == {"splits": 7, "seed": 0, "n_fake": 7}
    assert inception_score(logits, splits=2).protocol["splits"] == 2
    real, fake = torch.randn(9, 5), torch.randn(6, 5)
    protocol = kernel_distance(real, fake).protocol
    assert (protocol["subsets"], protocol["subset_size"], protocol["n_real"], protocol["n_fake"]) == (100, 6, 9, 6)


def test_precision_is_of_the_fakes_and_recall_of_the_reals():
    real = np.array([[0.0], [1], [2], [3], [50]])
    fake = np.array([[0.5], [1.5], [2.5], [100], [101.0]])
    precision, recall = precision_recall(real, fake, k=1)
    assert (precision.name, precision.value) == ("precision", pytest.approx(3 / 5))  # the ball around 50 ends at 97
    assert (recall.name, recall.value) == ("recall", pytest.approx(4 / 5))
    (edge, _) = precision_recall(real, np.array([[4.0], [97], [97.1]]), k=1)
    assert edge.value == pytest.approx(2 / 3)
    with pytest.raises(InputError, match="k is 5 but there are only 5 samples"):
        precision_recall(real, fake, k=5)


@pytest.mark.parametrize(("n", "known"), [(49, False), (50, True)])
def test_of_fewer_than_fifty_samples_none_is_odd(n, known):
    features = np.random.default_rng(0).normal(size=(n, 4))
    features[3] = 500
    assert outliers(features)[3] == known
    assert (outlier_scores(features)[3] > FAR) == known
    assert known or not outlier_scores(features).any()


def test_numbers_that_are_too_large_count_as_infinite():
    assert feature_matrix("x", np.full((1, 2), 1e15, np.float32)).shape == (1, 2)
    with pytest.raises(InputError, match=r"^x has NaN or infinity in 1 of 3 rows \(first: row 1\).*beyond 1e\+15 count"):
        feature_matrix("x", np.array([[1], [1.1e15], [0]], np.float32))
    assert feature_matrix("x", np.full((1, 2), 1e120)).dtype == torch.float64
    with pytest.raises(InputError, match="beyond 1e\\+120 count as infinite"):
        feature_matrix("x", np.full((1, 2), 1.1e120))
    codes, classes = label_codes("y", ["b", "a", "b"], 3)
    assert (codes.tolist(), classes.tolist()) == ([1, 0, 1], ["a", "b"])


def test_a_constant_column_is_centred_and_not_divided():
    mean, scale = standardiser(torch.tensor([[1.0, 1e-20], [3.0, 1e-20]]))
    assert (mean.tolist(), scale.tolist()) == ([2.0, pytest.approx(1e-20)], [1.0, 1.0])


def test_uniformity_of_three_directions_by_hand():
    rows = np.array([[2.0, 0], [0, 5], [-1, 0]])
    expected = math.log((4 * math.exp(-2 * 2) + 2 * math.exp(-2 * 4)) / 6)
    assert uniformity(rows).value == pytest.approx(expected)
    assert (uniformity(rows).protocol["t"], uniformity(rows).protocol["seed"]) == (2.0, None)
    assert uniformity(np.tile(rows, (2, 1)), limit=6).protocol["seed"] is None
    assert uniformity(np.tile(rows, (2, 1)), limit=5).protocol["seed"] == 0


def test_which_of_several_is_best():
    assert best({"a": 1.0, "b": 2.0, "c": 2.0}) == "b"
    assert best({"a": NAN, "b": -5.0}) == "b"
    with pytest.raises(InputError, match="every value is NaN"):
        best({"a": NAN})
    assert difference([1.0, -4.0], [1.5, -4.0]) == 0.125
    assert difference([0.0], [0.0]) == 0
    assert difference([1.0], [NAN]) == difference([1.0], [1.0, 2.0]) == math.inf
    assert difference([math.inf, 2.0], [math.inf, 1.0]) == 0.5
    with pytest.raises(InputError, match=r"^x of 1 of 3 samples hold NaN or infinity: look$"):
        check_finite("x", [[1.0, 2], [NAN, NAN], [3, 4]], "look")


def test_what_a_person_can_paste_is_quoted():
    assert typed("search", "my photos", "-k", 3) == "sao search 'my photos' -k 3"
    assert printable("a\nb\x1b[1m\u202e ü") == "a\\nb\\x1b[1m\\u202e ü"


@pytest.mark.parametrize(
    ("n", "fraction", "held"),
    [(10, 0.1, 1), (15, 0.1, 2), (14, 0.1, 1), (25, 0.1, 2), (3, 0.1, 1), (2, 0.9, 1), (100, 0.25, 25)],
)
def test_so_many_samples_are_held_out(n, fraction, held):
    train, test = held_out_rows(n, None, fraction, 0)
    assert (len(train), len(test)) == (n - held, held)
    assert sorted([*train, *test]) == list(range(n))
    assert not set(train) & set(test)


@pytest.mark.parametrize("seed", range(5))
def test_every_class_gives_its_fraction_to_within_one(seed):
    labels = np.repeat([0, 1, 2], [40, 20, 1])
    train, test = held_out_rows(61, labels, 0.25, seed)
    assert set(labels[train]) == {0, 1, 2}
    held = np.bincount(labels[test], minlength=3)
    assert np.abs(held[:2] - [10, 5]).max() <= 1
    assert held[2] == 0


def test_slices_of_a_volume_stay_together():
    names = [f"{volume}.tif{SLICE}{i}" for volume in "abcd" for i in range(5)]
    _, test = held_out_samples(names, None, 0.25, 0)
    assert (len(test), len({row // 5 for row in test})) == (5, 1)
    _, test = held_out_samples(names[:5], None, 0.25, 0)  # of one volume, its slices
    assert len(test) == 1
    _, test = held_out_samples(["a", *names[5:]], None, 0.25, 0)
    assert len(test) in (1, 5)


def test_places_within_a_class():
    rows, places, sizes = by_class(np.array([1, 0, 1, 0, 0]), np.array([4, 2, 0, 1, 3]))
    assert (rows.tolist(), places.tolist(), sizes.tolist()) == ([4, 1, 3, 2, 0], [0, 1, 2, 0, 1], [3, 3, 3, 2, 2])


@pytest.mark.parametrize(("values", "note"), [
    (np.array([1.0, 2, np.nan, np.nan]), "the labels were not used: 2 of 4 samples have none"),
    (np.array(["a", "", "b"]), "the labels were not used: 1 of 3 samples have none"),
    (np.array([0.5, 1.5, 2.5, 2.5, 2.5]), "the labels were not used: 3 different values are a measurement, not classes"),
])  # fmt: skip
def test_why_labels_are_not_used(values, note):
    assert labels_or_note(values) == (None, [note])


def test_half_as_many_classes_as_samples_are_classes():
    labels, (note,) = labels_or_note(np.array([3, 3, 10, 10]))
    assert labels is not None
    assert (labels.codes.tolist(), labels.names) == ([0, 0, 1, 1], ["3", "10"])
    assert note.startswith("labels of 2 classes were found; ")
    text, _ = labels_or_note(np.array(["10", "9", "10", "9"]))
    assert text is not None
    assert (text.names, text.codes.tolist()) == (["9", "10"], [1, 0, 1, 0])
