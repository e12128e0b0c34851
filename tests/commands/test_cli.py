"""What a person may type, and what is said to what cannot be done."""

import argparse
import os
import subprocess
import sys
from functools import partial

import pytest
import tiny

from sao.cli.main import COMMANDS, build_parser, main
from sao.config import load_preset
from sao.config.presets import preset_names
from sao.runtime import processor
from sao.runtime.machine import usable_cores

refused = partial(tiny.refused, quiet=True)


@pytest.mark.parametrize(
    "typed",
    [["--help", "presets", "tran", "train --out", "embed run"], [f"{command} --help" for command in COMMANDS]],
    ids=["short", "help"],
)
def test_answers_without_importing_what_is_slow(typed):
    """A second of imports is a second of waiting for a spelling mistake."""
    program = (
        "import sys\nfrom sao.cli.main import main\n"
        "for line in sys.argv[1:]:\n    try:\n        main(line.split())\n    except SystemExit:\n        pass\n"
        "slow = {'torch', 'sklearn', 'matplotlib', 'torchvision', 'scipy'} & set(sys.modules)\n"
        "print(sorted(slow), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", program, *typed], capture_output=True, text=True)
    assert done.stderr.splitlines()[-1] == "[]"


@pytest.mark.parametrize("arguments", [["presets"], ["options", "train"]])
def test_a_command_that_computes_nothing_does_not_wait(arguments, monkeypatch, capsys):
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    monkeypatch.setattr(processor.time, "sleep", lambda seconds: pytest.fail(f"waited for {seconds} s"))
    assert main(arguments) == 0


def test_every_argument_of_every_command_is_explained():
    commands = next(action for action in build_parser()._actions if isinstance(action, argparse._SubParsersAction)).choices
    unsaid = [f"{name} {action.dest}" for name, parser in commands.items() for action in parser._actions if not action.help]
    assert unsaid == []
    silent = (None, False, argparse.SUPPRESS)
    actions = [action for parser in commands.values() for action in parser._actions if action.default not in silent]
    assert [action.dest for action in actions if "default" not in str(action.help)] == []


def test_help_says_what_to_do_first(capsys):
    with pytest.raises(SystemExit) as stop:
        main(["--help"])
    assert stop.value.code == 0
    said = capsys.readouterr().out
    for word in ("sao train ", "resume", "presets", "embed", "eval"):
        assert word in said


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["train", "--train.bacth", "64"], ["--train.bacth", "did you mean --train.batch?"]),
        (["train", "--method.epsilom", "1"], ["method structural has no option epsilom", "did you mean --method.epsilon?"]),
        (["train", "--batch", "64"], ["--batch", "did you mean --train.batch?"]),
        (["train", "--bacth", "64"], ["--bacth", "did you mean --train.batch?"]),
        (["train", "--overwrit"], ["--overwrit", "did you mean --overwrite?"]),
        (["train", "cifr10"], ["'cifr10'", "did you mean cifar10", "sao presets"]),
        (["train", "nothing.yaml"], ["nothing.yaml", "No such file"]),
        (["train", "digits", "spirals"], ["does not take spirals"]),
        (["train", "--train.batch", "1"], ["train.batch", "greater than or equal to 2", "1"]),
        (["train", "--train.batch", "many"], ["train.batch", "'many'"]),
        (["train", "--train.steps", "true"], ["train.steps", "number", "True"]),
        (["train", "--method.epsilon", ".inf"], ["method.epsilon", "finite"]),
        (["train", "--encoder.widths", "[]"], ["encoder.widths", "at least 1"]),
        (["train", "--method", "structurall"], ["method", "'structurall'", "did you mean structural?"]),
        (["train", "--method.distance", "hing"], ["method.distance", "jensen_shannon"]),
        (["train", "--method", "hinge", "--method.bank", "64"], ["method hinge has no option bank", "structural has it"]),
        (["train", "--method", "simclr", "--method.generator.width", "64"], ["method simclr", "generator"]),
        (["train", "--method", "simclr", "--encoder", "biggan"], ["method simclr cannot use encoder biggan", "resnet"]),
        (["train", "--encoder", "resnt"], ["'resnt'", "did you mean resnet?"]),
        (["train", "--lr", "1"], ["--lr", "--method.discriminator_optimiser.learning_rate", "--method.generator_optimiser"]),
        (["train", "--batch-size", "1"], ["did you mean --train.batch?"]),
        (["train", "--epochs", "1"], ["did you mean --train.epochs?"]),
        (["train", "--size", "1"], ["did you mean --data.size?"]),
        (["train", "--workers", "1"], ["did you mean --train.threads?"]),
        (["train", "--gpu", "1"], ["did you mean --train.device?"]),
        (["train", "--output", "1"], ["did you mean --out?"]),
        (["train", "--seed", "-1"], ["seed", "-1"]),
        (["train", "--log.keep", "0"], ["log.keep", "0"]),
        (["train", "--keep", "3"], ["did you mean --log.keep?"]),
        (["train", "--data", ""], ["data.source", "at least 1 character"]),
        (["train", "--out", ""], ["--out"]),
        (["train", "--train.device", "abacus"], ["train.device", "'abacus'"]),
        (["train", "--train.batch"], ["--train.batch needs a value"]),
        (["train", "--train.batch", "--dry-run"], ["--train.batch needs a value"]),
        (["train", "--out"], ["--out", "expected one argument"]),
        (["resume"], ["RUN"]),
        (["embed", "x", "y", "-o", "z", "--train.batch", "3"], ["embed does not take --train.batch"]),
        (["presets", "digit"], ["'digit'", "did you mean digits?"]),
        (["tran"], ["'tran'", "train"]),
        ([], ["COMMAND"]),
    ],
)
def test_refuses_in_one_line_that_names_the_mistake(arguments, words, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    said = refused(capsys, *arguments)
    for word in words:
        assert word in said
    assert list(tmp_path.iterdir()) == []


def test_a_path_in_the_place_of_a_preset_is_understood(capsys, tmp_path):
    assert f"sao train --data {tmp_path}" in refused(capsys, "train", str(tmp_path))


@pytest.mark.parametrize("text", ["train: [", "- 1", "train: 3", "trian: {batch: 3}", "\udcff"])
def test_refuses_a_preset_file_that_cannot_be_used(text, capsys, tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text(text, errors="surrogateescape")
    assert "mine.yaml" in refused(capsys, "train", str(path), "--train.batch", "3", "--out", str(tmp_path / "run"))
    assert not (tmp_path / "run").exists()


def test_presets_are_listed_and_shown(capsys):
    listed = tiny.said(capsys, "presets")
    assert [line.split()[0] for line in listed.splitlines()] == preset_names()
    assert all(len(line.split()) > 3 for line in listed.splitlines())
    shown = tiny.said(capsys, "presets", "cifar10")
    assert "# command: sao train cifar10" in shown
    import yaml

    from sao.config import build

    assert build(yaml.safe_load(shown)) == load_preset("cifar10")


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's allocator")
def test_memory_that_was_freed_is_used_again():
    """In a process of its own: fetching the pages of a large block anew would take a fault for each of them."""
    code = """
import resource
from threading import Thread
from sao.runtime.processor import keep_freed_memory
keep_freed_memory()
def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    block = bytearray(1 << 26)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
print(faults(), faults())
thread = Thread(target=lambda: print(faults()))
thread.start()
thread.join()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    first, second, in_a_thread = map(int, done.stdout.split())
    assert first > 10_000
    assert second < first / 10
    assert in_a_thread < first / 10


def test_threads_spin_only_where_the_cores_are_idle_now(monkeypatch):
    def waits(*times) -> str:
        monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
        monkeypatch.delenv("GOMP_SPINCOUNT", raising=False)
        readings = iter(times)
        monkeypatch.setattr(processor, "_core_times", lambda: next(readings))
        processor.choose_how_threads_wait()
        assert os.environ["OMP_WAIT_POLICY"] == "PASSIVE"
        return os.environ["GOMP_SPINCOUNT"]

    assert waits((1000, 5000), (1038, 5040)) == "30000"
    assert waits((1000, 5000), (1020, 5040)) == "0", "one of two cores is busy"
    assert waits(None, None) == "0", "a system that does not say"


def test_a_busy_core_is_seen():
    burning = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(usable_cores())]
    try:
        assert processor._share_busy() > 0.5
    finally:
        for process in burning:
            process.kill()
            process.wait()
