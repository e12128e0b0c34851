"""The checkpoint that is chosen without labels: which one, when it is said, and after a kill the same."""

import json
from typing import Any

import numpy as np
import pytest
import tiny
import torch

import sao
from sao.cli import main
from sao.engine.steadiest import PATIENCE, Steadiest
from sao.errors import InputError
from sao.training import checkpoint
from sao.training.validation import Watched


def considered(run, method, scores, choice=None, first=1, ranks=None):
    """What is said at each of some evaluations."""
    choice = choice or Steadiest(run, 0)
    clusters = np.zeros(3, np.uint8)
    said = []
    for step, score in enumerate(scores, first):
        scalars = {"eval/clusters_agree": score + 0.25, "eval/clusters_kept": score - 0.25, "eval/memorised": 0.25}
        if ranks is not None:
            scalars["eval/effective_rank"] = ranks[step - first]
        with run.metrics.open("a") as rows:
            rows.write(json.dumps({"step": step, **scalars}) + "\n")
        said.append(choice.consider(method, step, Watched(scalars, clusters + step)))
    return said


def kept(run) -> list[str]:
    return [path.name for path in checkpoint.steps_in(run.steadiest)]


@pytest.fixture
def started(tmp_path):
    run, method = tiny.trained(tmp_path / "run", train__steps=1)
    run.metrics.unlink()
    return run, method


def test_the_greatest_mean_of_both_agreements_is_kept(started):
    run, method = started
    considered(run, method, [0.3, 0.6, 0.6, 0.5])
    assert kept(run) == ["step-00000002"]


def test_it_is_said_once_when_nothing_becomes_steadier(started):
    run, method = started
    said = considered(run, method, [0.3, 0.6, *[0.5] * (PATIENCE + 2)])
    assert [line is not None for line in said] == [*[False] * (1 + PATIENCE), True, False, False]
    assert "agreement 0.600 at step 2" in said[1 + PATIENCE]
    assert "25.0% of the generated samples are near copies" in said[1 + PATIENCE]


def test_nothing_is_said_while_features_spread_over_more_directions(started):
    run, method = started
    ranks = [10.0, 11.0, 12.0, 13.0, *[13.01] * PATIENCE, 20.0]
    said = considered(run, method, [0.3, 0.6, *[0.5] * (2 + PATIENCE + 1)], ranks=ranks)
    assert [line is not None for line in said] == [*[False] * (3 + PATIENCE), True, False]
    assert "effective rank 13 at step 4" in said[3 + PATIENCE]
    assert "the checkpoint of step 2 is kept" in said[3 + PATIENCE]


def test_evaluations_after_the_checkpoint_that_a_run_goes_on_from_do_not_count(started):
    run, method = started
    considered(run, method, [0.3, 0.6, 0.9, 0.5])
    said = considered(run, method, [0.5] * PATIENCE, Steadiest(run, 2), first=3)
    assert [line is not None for line in said] == [*[False] * (PATIENCE - 1), True]


def test_a_resumed_run_says_it_at_the_same_evaluation(started):
    run, method = started
    considered(run, method, [0.3, 0.6, 0.5], ranks=[10.0, 12.0, 12.0])
    resumed = Steadiest(run, 3)
    said = considered(run, method, [0.5] * PATIENCE, resumed, first=4, ranks=[12.0] * PATIENCE)
    assert [line is not None for line in said] == [*[False] * (PATIENCE - 2), True, False]


def test_an_evaluation_without_clusters_or_without_one_before_it_is_no_candidate(started):
    run, method = started
    choice = Steadiest(run, 0)
    assert choice.consider(method, 1, Watched({}, None)) is None
    choice.consider(method, 2, Watched({"eval/clusters_agree": 0.9}, np.zeros(3, np.uint8)))
    assert kept(run) == []
    assert choice.clusters is not None


def test_a_resumed_run_knows_what_was_kept_and_the_clusters_before(started):
    run, method = started
    considered(run, method, [0.3, 0.6, 0.5])
    resumed = Steadiest(run, 3)
    assert resumed.clusters is not None
    assert resumed.clusters.tolist() == [3, 3, 3]
    considered(run, method, [0.55], resumed, first=4)
    assert kept(run) == ["step-00000002"]
    considered(run, method, [0.7], resumed, first=5)
    assert kept(run) == ["step-00000005"]


def test_what_was_kept_after_the_checkpoint_gives_way(started):
    """Its steps are made again, and with other options they may become others."""
    run, method = started
    considered(run, method, [0.3, 0.2, 0.9])
    resumed = Steadiest(run, 2)
    considered(run, method, [0.4], resumed, first=3)
    assert kept(run) == ["step-00000003"]
    further_back = Steadiest(run, 1)
    considered(run, method, [0.35], further_back, first=2)
    assert kept(run) == ["step-00000002"]


def test_as_steady_as_before_is_no_progress(started):
    run, method = started
    said = considered(run, method, [0.6] * (PATIENCE + 2))
    assert [line is not None for line in said] == [*[False] * PATIENCE, True, False]


@pytest.mark.parametrize("damage", [b"", b"\x93NUMPY", b"no array"])
def test_clusters_that_cannot_be_read_are_done_without(started, damage):
    run, method = started
    considered(run, method, [0.3])
    (run.evaluations / "step-00000001-clusters.npy").write_bytes(damage)
    assert Steadiest(run, 1).clusters is None


def test_a_run_keeps_it_and_every_command_can_use_it(tmp_path, capsys):
    run = tmp_path / "run"
    assert main(["train", *tiny.words(train__steps=8, log__evaluate_every=2), "--out", str(run)]) == 0
    (path,) = checkpoint.steps_in(run / "steadiest")
    step = int(path.name[-1])
    assert step in (4, 6, 8)
    model = sao.load(run, checkpoint="steadiest")
    assert model.step == step
    other = tiny.method()
    checkpoint.load(path, other)
    inputs = tiny.batch().inputs
    torch.testing.assert_close(model.method_for("backbone").features(inputs), other.features(inputs))
    for words in (["sample", str(run), "-n", "4", "-o", str(tmp_path / "x.npy")], ["eval", str(run), "--metrics", "knn1"]):
        assert main([*words, "--checkpoint", "steadiest"]) == 0
    assert (run / "eval" / f"step-{step:08d}-backbone-ema.json").exists()
    assert main(["train", *tiny.words(), "--out", str(run), "--overwrite"]) == 0
    assert not (run / "steadiest").exists()
    with pytest.raises(InputError, match="kept no steadiest checkpoint"):
        sao.load(run, checkpoint="steadiest")


def test_a_killed_run_keeps_the_same(tmp_path):
    options: dict[str, Any] = {"train__steps": 8, "log__evaluate_every": 1}
    run, _ = tiny.trained(tmp_path / "run", **options, log__keep=9)
    expected, rows = kept(run), tiny.rows(run.folder)
    for path in checkpoint.steps_in(run.checkpoints)[1:]:
        path.rename(tmp_path / path.name)
    run.cut_metrics(3)
    method = tiny.method(**options)
    assert checkpoint.load_newest(run.checkpoints, method, print) == 3
    tiny.go_on(run, run.config, tiny.dataset(), method, 3)
    assert kept(run) == expected
    assert tiny.rows(run.folder) == rows
