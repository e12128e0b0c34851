"""The measurement of fine-tuning compares what it says: the encoder of the run, and the same network as the run began."""

import re
import sys
from pathlib import Path

import numpy as np
import pytest
import tiny
import torch

import sao
from sao.data.dataset import Images, pixels_to_inputs

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import fine_tuning  # pyright: ignore[reportMissingImports]


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    return tiny.trained(tmp_path_factory.mktemp("runs") / "run", train__steps=3)[0].folder


def arrays() -> dict[str, np.ndarray]:
    data, found = tiny.dataset(), {}
    for part, samples in (("train", data.train), ("test", data.test)):
        assert isinstance(samples, Images)
        found |= {f"x_{part}": np.asarray(samples.pixels), f"y_{part}": samples.labels}
    return found


def test_it_prints_both_arms_and_their_gain(run, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(fine_tuning, "RATES", (1e-3,))
    np.savez(tmp_path / "data.npz", allow_pickle=False, **arrays())
    fine_tuning.main([str(run), str(tmp_path / "data.npz"), "--labels", "10", "--seeds", "0", "--test", "50"])
    said = capsys.readouterr().out
    row = re.search(r"\| 10 \| (0\.\d{3}) \| (0\.\d{3}) \| ([+-]\d+\.\d) \| .* \| 20, 40 \|", said)
    assert row is not None, said
    assert float(row[3]) == pytest.approx(100 * (float(row[1]) - float(row[2])), abs=0.11)
    assert said.count("validation accuracy by learning rate 0.001: ") == 2


def test_one_arm_begins_with_the_run_and_the_other_as_the_run_began(run, tmp_path):
    data = arrays()
    train, test = (fine_tuning.Labelled(data[f"x_{part}"], data[f"y_{part}"]) for part in ("train", "test"))
    measured = fine_tuning.Measurement(str(run), train, test, False, tmp_path)
    model, pixels = sao.load(run, device="cpu"), torch.from_numpy(data["x_test"][:10])
    untrained = model.untrained().features(pixels_to_inputs(pixels))
    with torch.no_grad():
        tuned, scratch = (measured.encoders[name](pixels) for name in ("fine-tuned", "from scratch"))
    torch.testing.assert_close(tuned, torch.from_numpy(model.embed(data["x_test"][:10])), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(scratch, untrained, rtol=1e-4, atol=1e-5)
    assert not torch.allclose(tuned, scratch, atol=1e-3)
    rows = fine_tuning.balanced(train.labels, 30, seed=0)
    assert np.bincount(train.labels[rows]).tolist() == [3] * 10
    before = {name: value.clone() for name, value in measured.encoders["fine-tuned"].state_dict().items()}
    network = measured.arm("fine-tuned", train.rows(rows), 3, 1e-2, 0)
    assert all(torch.equal(value, before[name]) for name, value in measured.encoders["fine-tuned"].state_dict().items())
    assert not any(torch.equal(value, before[name]) for name, value in network[0].named_parameters())
