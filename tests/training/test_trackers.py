"""`log.to`: the rows of metrics.jsonl in TensorBoard, wandb and MLflow, each with the real library, offline."""

import getpass
import json
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
import tiny
from mlflow import MlflowClient
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from sao.cli.main import main
from sao.config import load, load_preset
from sao.errors import InputError
from sao.training import trackers, trainer
from sao.training.run_folder import Run

WORDS = tiny.words(method="vicreg", log__evaluate_every=6)


def killed_and_resumed(folder: Path, to: str, *words: str) -> Path:
    """A run that was killed when it saved its checkpoint of step 6, so that it goes on after step 3."""
    run = folder / "run"
    command = tiny.Command(folder, "train", *WORDS, *words, "--out", str(run), "--log.to", to, die=(*CHECKPOINT, 2))
    assert command.wait() == -9
    assert [row["step"] for row in Run(run).rows()] == [1, 2, 3, 4, 5, 6, 6]
    assert main(["resume", str(run)]) == 0
    return run


CHECKPOINT = ("sao.training.checkpoint", "save")


def columns(rows: list[dict]) -> dict[str, list[tuple[int, float]]]:
    """Of each metric its steps and values."""
    found: dict[str, list[tuple[int, float]]] = {}
    for row in rows:
        for name, value in row.items():
            if name != "step":
                found.setdefault(name, []).append((row["step"], value))
    return found


def in_tensorboard(run: Path) -> dict[str, list[tuple[int, float]]]:
    events = EventAccumulator(str(run / "tensorboard")).Reload()
    return {name: [(event.step, event.value) for event in events.Scalars(name)] for name in events.Tags()["scalars"]}


def mlflow_run(run: Path):
    client = MlflowClient((run.parent / "mlruns").as_uri())
    (found,) = client.search_runs([one.experiment_id for one in client.search_experiments()])
    return client, found


def in_mlflow(run: Path) -> dict[str, list[tuple[int, float]]]:
    client, found = mlflow_run(run)
    history = {name: client.get_metric_history(found.info.run_id, name) for name in found.data.metrics}
    return {name: [(metric.step, metric.value) for metric in rows] for name, rows in history.items()}


def wandb_records(run: Path) -> list:
    """Everything in the files that `wandb sync` would send, in its order."""
    from wandb.proto.wandb_internal_pb2 import Record  # pyright: ignore[reportAttributeAccessIssue]

    found = []
    for path in sorted((run.parent / "wandb").glob("offline-run-*/*.wandb")):
        for data in blocks(path.read_bytes()):
            record = Record()
            record.ParseFromString(data)
            found.append(record)
    return found


def blocks(file: bytes) -> Iterator[bytes]:
    """Records of a log of LevelDB after a header of 7 bytes: blocks of 32 KiB, in them checksum, length, kind and data."""
    place, whole = 7, b""
    while place + 7 <= len(file):
        if 32768 - place % 32768 < 7:
            place += 32768 - place % 32768
            continue
        length, kind = struct.unpack("<HB", file[place + 4 : place + 7])
        whole += file[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in (1, 4):  # whole, or the last part
            yield whole
            whole = b""


def in_wandb(records: list) -> dict[str, list[tuple[int, float]]]:
    rows = []
    for record in records:
        if record.WhichOneof("record_type") == "history":
            values = {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in record.history.item}
            rows.append({"step": record.history.step.num} | {k: v for k, v in values.items() if not k.startswith("_")})
    return columns(rows)


def without_clock(found: dict) -> dict:
    return {name: rows for name, rows in found.items() if not name.startswith(("time/", "final/"))}


def assert_same(found: dict, expected: dict) -> None:
    assert {name: [step for step, _ in rows] for name, rows in found.items()} == {
        name: [step for step, _ in rows] for name, rows in expected.items()
    }
    for name, rows in expected.items():
        assert [value for _, value in found[name]] == pytest.approx([value for _, value in rows], rel=1e-6), name


def test_a_killed_run_goes_on_in_the_same_place_everywhere_without_rows_twice(tmp_path, monkeypatch, capfd):
    monkeypatch.delenv("WANDB_MODE", raising=False)
    data = tiny.save_few(tmp_path / "few.npz")
    more = ["--data", str(data), "--log.evaluate_minutes", "10"]
    run = killed_and_resumed(tmp_path, "tensorboard,wandb,mlflow", *more)
    assert "wandb and mlflow have rows up to step 6" in capfd.readouterr().out
    logged = columns(Run(run).rows())
    assert [step for step, _ in logged["network/vicreg"]] == [1, 2, 3, 4, 5, 6, 7, 8]
    records = wandb_records(run)
    for found in (in_tensorboard(run), in_mlflow(run)):
        assert_same(without_clock(found), without_clock(logged))
        assert "time/samples_per_second" in found
    # Its process writes each second: a kill may take the rows since then, and the others are there once.
    for name, rows in without_clock(in_wandb(records)).items():
        assert rows[-2:] == logged[name][-2:]
        assert [row for row in logged[name] if row in rows] == rows
    # One run in each place.
    assert len({record.run.run_id for record in records if record.WhichOneof("record_type") == "run"}) == 1
    assert len(list((run.parent / "wandb").glob("offline-run-*"))) == 2
    _, one = mlflow_run(run)
    assert one.info.status == "FINISHED"
    # The options, and the evaluation after the last step.
    final = {row["name"]: row["value"] for row in json.loads((run / "eval/summary.json").read_text())}
    assert one.data.metrics["final/svm"] == final["svm"]
    assert in_tensorboard(run)["final/svm"] == [(8, pytest.approx(final["svm"]))]
    summaries = [item for record in records for item in record.summary.update]
    assert {i.key: i.value_json for i in summaries}["final/svm"] == json.dumps(final["svm"])
    assert one.data.params["train.batch"] == "16"
    assert one.data.params["data.source"] == "few.npz"
    configs = [item for record in records for item in (*record.config.update, *record.run.config.update)]
    assert {item.key: item.value_json for item in configs}["train.batch"] == "16"
    # Nothing of the machine or the person goes out with them.
    sent = b"".join(record.SerializeToString() for record in records)
    for secret in (str(tmp_path), str(Path.home())):
        assert secret.encode() not in sent, secret
    assert {record.run.host for record in records} == {""}
    assert str(tmp_path) not in str(one.data.params)
    assert getpass.getuser() not in one.data.tags.values()
    # Such a run is one like others: it opens, and another takes its place whole.
    assert main(["train", *WORDS, "--out", str(run), "--overwrite"]) == 0
    assert not (run / "trackers.json").exists()


def test_the_old_option_is_the_new_one_with_a_hint(tmp_path, capsys):
    assert load_preset("digits", {"log.tensorboard": "true"}).log.to == ("tensorboard",)
    assert load_preset("digits", {"log.tensorboard": "false"}).log.to == ()
    file = tmp_path / "own.yaml"
    file.write_text("log: {tensorboard: true}\n")
    assert load_preset(str(file)).log.to == ("tensorboard",)
    assert capsys.readouterr().err.count("log.tensorboard is now called log.to tensorboard") <= 1  # once in a process


def test_a_run_of_before_opens_without_a_hint(capsys):
    assert load(Path(__file__).parents[1] / "runs_of_0_2/byol/config.yaml").log.to == ()
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("typed", ["wandb,mlflow", "[wandb, mlflow]", "wandb, mlflow,wandb"])
def test_several_are_typed_with_commas(typed):
    assert load_preset("digits", {"log.to": typed}).log.to == ("wandb", "mlflow")


@pytest.mark.parametrize(
    ("typed", "said"),
    [("tensorbord", "did you mean tensorboard?"), ("", "with commas between them"), ("3", "with commas between them")],
)
def test_a_wrong_place_is_one_line(typed, said):
    with pytest.raises(InputError, match=r"log\.to") as error:
        load_preset("digits", {"log.to": typed})
    assert said in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", list(trackers.LIBRARIES))
def test_a_missing_library_is_one_line_before_anything_is_written(name, tmp_path, monkeypatch, capsys):
    found = trackers.importlib.util.find_spec
    monkeypatch.setattr(trackers.importlib.util, "find_spec", lambda word: None if word == name else found(word))
    said = tiny.refused(capsys, "train", *WORDS, "--out", tmp_path / "run", "--log.to", name)
    assert said == f"sao: log.to {name} needs {name}: pip install 'sao[{trackers.LIBRARIES[name]}]', or leave it out\n"
    assert not (tmp_path / "run").exists()


def test_a_tracker_that_fails_is_one_warning_and_the_training_goes_on(tmp_path, monkeypatch, capsys):
    calls = []

    def full(self, step: int, scalars) -> None:
        calls.append(step)
        if step == 3:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(trackers.MLflow, "row", full)
    run = tmp_path / "run"
    assert main(["train", *WORDS, "--out", str(run), "--log.to", "mlflow,tensorboard"]) == 0
    assert calls == [1, 2, 3]
    warned = [line for line in capsys.readouterr().err.splitlines() if "warning" in line]
    assert len(warned) == 1
    assert "mlflow failed and gets nothing more" in warned[0]
    assert "No space left on device" in warned[0]
    assert [step for step, _ in in_tensorboard(run)["network/vicreg"]] == list(range(1, 9))
    assert Run(run).evaluated


def test_a_place_that_cannot_be_reached_is_one_warning(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "nowhere://there")
    assert main(["train", *WORDS, "--out", str(tmp_path / "run"), "--log.to", "mlflow"]) == 0
    assert capsys.readouterr().err.count("mlflow failed") == 1
    assert not (tmp_path / "mlruns").exists()


def test_mlflow_goes_where_the_environment_says_and_keeps_what_changed(tmp_path, monkeypatch):
    """A parameter of MLflow never changes."""
    monkeypatch.setenv("MLFLOW_TRACKING_URI", (tmp_path / "elsewhere").as_uri())
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", "mine")
    run = tmp_path / "run"
    assert main(["train", *WORDS, "--out", str(run), "--log.to", "mlflow"]) == 0
    assert main(["resume", str(run), "--train.steps", "10", "--log.every", "2"]) == 0
    client = MlflowClient((tmp_path / "elsewhere").as_uri())
    experiment = client.get_experiment_by_name("mine")
    assert experiment is not None
    (one,) = client.search_runs([experiment.experiment_id])
    assert one.data.params["train.steps"] == "8"
    assert one.data.tags["train.steps after step 8"] == "10"
    steps = [metric.step for metric in client.get_metric_history(one.info.run_id, "network/vicreg")]
    assert steps == [*range(1, 9), 10]
    assert not (tmp_path / "mlruns").exists()


def test_a_state_file_of_a_stranger_is_not_believed(tmp_path):
    for text in ("[]", "{", '{"wandb": 3, "seen": {"a": "b"}}', '{"seen": 4}'):
        (tmp_path / trackers.STATE).write_text(text)
        assert trackers.read_state(tmp_path) in ({}, {"seen": {}})


def test_the_first_process_alone_logs(tmp_path, monkeypatch):
    config = tiny.config(method="random", log__to="tensorboard,mlflow")
    run, learner = tiny.trained(tmp_path / "run", tiny.few(), method="random", train__steps=1)
    before = run.metrics.read_text()
    monkeypatch.setattr("sao.core.distributed.is_main", lambda: False)
    with trainer._writing(run, config, run.facts, learner, 1) as log:
        log.row(2, {"network/spread": 1.0})
        log.final(2, {"svm": 1.0})
    assert run.metrics.read_text() == before
    assert not (run.folder / "tensorboard").exists()
    assert not (tmp_path / "mlruns").exists()
