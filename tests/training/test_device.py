"""What is decided of a device once, when a run begins, and what torch is told for the time of its steps."""

import pytest
import tiny
import torch

from sao.cli.main import main
from sao.config import Train
from sao.errors import InputError
from sao.methods.supervised import Supervised
from sao.training import device
from sao.training.device import choose_device, fixed_choices, numerics
from sao.training.run_folder import Run


@pytest.mark.parametrize(("half", "precision"), [(0.5, "bfloat16"), (0.9, "float32"), (400.0, "float32")])
def test_device_and_precision_are_chosen_once(monkeypatch, half, precision):
    seconds = {torch.float32: 1.0, torch.bfloat16: half}
    monkeypatch.setattr(device, "product_seconds", lambda dtype, where: seconds[dtype])
    assert fixed_choices(Train(precision="auto")) == {"device": choose_device("auto").type, "precision": precision}
    for given in ("bfloat16", "float32"):
        assert fixed_choices(Train(device="cpu", precision=given)) == {"device": "cpu", "precision": given}


def test_a_run_goes_on_where_it_began(tmp_path, monkeypatch, capsys):
    seconds = {torch.float32: 1.0, torch.bfloat16: 2.0}
    monkeypatch.setattr(device, "product_seconds", lambda dtype, where: seconds[dtype])
    out = tmp_path / "run"
    words = tiny.words(method="random", train__precision="auto", train__steps=2)
    assert main(["train", *words, "--out", str(out)]) == 0
    stored = Run.open(out).config.train
    assert (stored.device, stored.precision) == (choose_device("auto").type, "float32")
    seconds[torch.bfloat16] = 0.1  # another machine would choose otherwise
    capsys.readouterr()
    assert main(["resume", str(out), "--train.steps", "3"]) == 0
    assert "bfloat16" not in capsys.readouterr().out
    config = out / "config.yaml"
    config.write_text(config.read_text().replace(f"device: {stored.device}", "device: hpu"))
    said = tiny.refused(capsys, "resume", str(out), "--train.steps", "4")
    assert "train.device 'hpu' cannot be used here" in said
    assert "--train.device cpu" in said
    assert main(["resume", str(out), "--train.steps", "4", "--train.device", "cpu"]) == 0


def test_the_same_bits_are_asked_for_during_the_steps_alone(tmp_path, monkeypatch):
    seen = []
    tiny.before_step(monkeypatch, Supervised, lambda *_: seen.append(torch.are_deterministic_algorithms_enabled()))
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
    for index, wanted in enumerate((True, False)):
        tiny.trained(tmp_path / str(index), method="supervised", train__steps=1, train__deterministic=wanted)
    assert seen == [True, False]
    assert not torch.are_deterministic_algorithms_enabled()


def test_an_operator_without_a_deterministic_version_is_named_in_one_line():
    with pytest.raises(InputError, match=r"^train.deterministic cannot be kept here \(grid_sampler has none\): leave it off"):  # noqa: SIM117
        with numerics(Train(deterministic=True)):
            raise RuntimeError("grid_sampler has none. You can turn off deterministic algorithms")
    with pytest.raises(RuntimeError, match="something else"), numerics(Train(deterministic=True)):
        raise RuntimeError("something else")
    assert not torch.are_deterministic_algorithms_enabled()


def test_products_are_rounded_in_passes_that_carry_no_jacobian_alone():
    method, like = tiny.method(method="supervised"), torch.zeros(1)

    def state() -> tuple[str, bool]:
        return torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32

    before = state()
    for wanted, inside in ((False, ("highest", False)), (True, ("high", True))):
        method.autocast_tf32 = wanted
        with numerics(Train()):
            assert state() == ("highest", False)
            with method.autocast(like):
                assert state() == inside
            with method.autocast(like, allowed=False):
                assert state() == ("highest", False)
            assert state() == ("highest", False)
        assert state() == before
