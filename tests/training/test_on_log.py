"""`on_log`: the rows of metrics.jsonl as they are written, and a run that loses nothing where the function fails."""

import pytest
import tiny

import sao
from sao.cli.main import main
from sao.training.run_folder import Run

OPTIONS = tiny.OPTIONS | tiny.METHODS["vicreg"] | {"log.evaluate_every": "4", "log.checkpoint_every": "100"}


def train(folder, on_log, **more):
    return sao.train("digits", folder, method="vicreg", options=OPTIONS | more, on_log=on_log)


def test_on_log_gets_every_row_of_the_metrics(tmp_path):
    rows: list[dict] = []
    train(tmp_path / "run", rows.append)
    assert rows == Run(tmp_path / "run").rows()
    assert [row["step"] for row in rows] == [1, 2, 3, 4, 4, 5, 6, 7, 8, 8]
    assert "network/vicreg" in rows[0]


@pytest.mark.parametrize("error", [ValueError("no room"), OSError(28, "no room")], ids=["value", "system"])
def test_an_exception_stops_the_run_with_a_checkpoint_and_reaches_the_caller(error, tmp_path, capsys):
    def fails(row: dict) -> None:
        if row["step"] == 3:
            raise error

    with pytest.raises(type(error)) as raised:
        train(tmp_path / "run", fails)
    assert raised.value is error
    assert "stopped after step 3 of 8; go on with: sao resume" in capsys.readouterr().out
    assert sao.load(tmp_path / "run").step == 3
    assert main(["resume", str(tmp_path / "run")]) == 0
    train(tmp_path / "whole", None)
    assert tiny.rows(tmp_path / "run") == tiny.rows(tmp_path / "whole")


def test_an_exception_in_the_last_row_leaves_a_complete_run(tmp_path):
    def fails(row: dict) -> None:
        if row["step"] == 8:
            raise ValueError("late")

    with pytest.raises(ValueError, match="late"):
        train(tmp_path / "run", fails)
    assert Run(tmp_path / "run").evaluated
    assert sao.load(tmp_path / "run").step == 8


def test_on_log_ends_the_training_early_by_keyboard_interrupt(tmp_path):
    def stops(row: dict) -> None:
        if row["step"] == 2:
            raise KeyboardInterrupt

    assert train(tmp_path / "run", stops).step == 2
