"""Damage the files of a run, one at a time, and use the run: every command must end well or say in one line what is wrong.

python benchmarks/damage.py [--mutants 2000] [--seed 0]
"""

import argparse
import contextlib
import io
import random
import re
import shutil
import tempfile
import traceback
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import numpy as np

from sao.cli.main import main

WORDS = ["-1", "0", "7", "3.5", "1e12", "123456789012", "nan", "null", "true", "{}", "[]", '""', "{a: 1}", '{"a": 1}', "'", "é"]
COMMANDS = ("eval", "sample", "resume", "embed")
MOST_STEPS = 60  # a length that was damaged into a longer one is as good as any other: it is not trained
SMALL = (
    "--encoder.widths [4] --method.embedding_size 4 --method.generator.width 4 --method.generator.latent_size 4 "
    "--method.bank 16 --train.batch 8 --train.steps 3 --train.threads 1 --log.checkpoint_every 1 --log.evaluate_every 2 "
    "--log.report false"
)


@dataclass(frozen=True)
class Mutant:
    file: str
    damage: str
    content: bytes | None  # None: the file is gone


def make_run(folder: Path) -> Path:
    """A small run with one of every kind of file."""
    draws = np.random.default_rng(0)
    np.savez(folder / "data.npz", x=draws.integers(0, 256, (40, 8, 8), dtype=np.uint8), y=np.arange(40) % 2)
    run = folder / "run"
    words = ["train", "digits", "--data", str(folder / "data.npz"), "--out", str(run), *SMALL.split()]
    for command in (words, ["eval", str(run), "--metrics", "effective_rank"]):
        code, said = _ran(command)
        if code != 0:
            raise RuntimeError(f"{' '.join(command)}: {said}")
    return run


def mutants(run: Path, count: int, seed: int) -> Iterator[Mutant]:
    draws = random.Random(seed)
    files = sorted(path for path in run.rglob("*") if path.is_file())
    for index in range(count):
        path = files[index % len(files)]  # each as often as every other
        content = path.read_bytes()
        damage = draws.choice(("flipped", "cut", "inserted", "word", "word", "number", "number", "emptied", "removed"))
        yield Mutant(str(path.relative_to(run)), damage, _damaged(content, damage, draws))


def _damaged(content: bytes, damage: str, draws: random.Random) -> bytes | None:
    place = draws.randrange(len(content)) if content else 0
    match damage:
        case "flipped" if content:
            return content[:place] + bytes([content[place] ^ (1 << draws.randrange(8))]) + content[place + 1 :]
        case "flipped":
            return b"x"
        case "cut":
            return content[:place]
        case "inserted":
            return content[:place] + draws.randbytes(draws.randint(1, 8)) + content[place:]
        case "word" | "number":
            pattern = rb"-?\d+(\.\d+)?" if damage == "number" else rb"[^\s:,\[\]{}]+"
            found = list(re.finditer(pattern, content[:100_000]))
            if not found:
                return b""
            one = draws.choice(found)
            return content[: one.start()] + draws.choice(WORDS).encode() + content[one.end() :]
        case "emptied":
            return b""
        case _:
            return None


def trial(run: Path, mutant: Mutant, command: str, folder: Path) -> str | None:
    """What is wrong with how a command took the damage; None if it ended well, or with one line."""
    copy = shutil.copytree(run, folder / "copy")
    target = copy / mutant.file
    target.unlink()
    if mutant.content is not None:
        target.write_bytes(mutant.content)
    words = {
        "eval": ["eval", str(copy), "--metrics", "effective_rank"],
        "sample": ["sample", str(copy), "-n", "4", "-o", str(folder / "s.npy"), "--overwrite"],
        "resume": ["resume", str(copy)],
        "embed": ["embed", str(copy), str(run.parent / "data.npz"), "-o", str(folder / "f.csv"), "--overwrite"],
    }
    try:
        code, said = _ran(words[command])
    except BaseException:
        return traceback.format_exc()
    finally:
        shutil.rmtree(copy, ignore_errors=True)
    wrong = [line for line in said.splitlines() if line.startswith("sao: ") and not line.startswith("sao: warning: ")]
    if code not in (0, 2, 3) or len(wrong) != (code != 0) or "Traceback" in said:
        return f"exit code {code}: {said}"
    return None


def _ran(words: list[str]) -> tuple[int, str]:
    """Exit code and what was said on stderr."""
    said = io.StringIO()
    with _short(), contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(said):
        return main(words), said.getvalue()


@contextlib.contextmanager
def _short() -> Iterator[None]:
    from sao.training import trainer

    train = trainer.train

    def limited(run, config, dataset, *others) -> None:
        if config.steps_for(len(dataset.train)) <= MOST_STEPS:
            train(run, config, dataset, *others)

    with mock.patch.object(trainer, "train", limited), warnings.catch_warnings():
        warnings.simplefilter("error")  # one that reaches a person shows a line of the program
        warnings.filterwarnings("ignore", category=DeprecationWarning)  # torch's own
        yield


def run_all(count: int, seed: int, folder: Path) -> list[str]:
    """One line, and its story, for each mutant that was taken badly."""
    run, draws = make_run(folder), random.Random(f"commands {seed}")
    failures = []
    for mutant in mutants(run, count, seed):
        command = draws.choice(COMMANDS)
        story = trial(run, mutant, command, folder)
        if story is not None:
            failures.append(f"{mutant.file} {mutant.damage}, {command}: {story}")
    return failures


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mutants", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        failures = run_all(arguments.mutants, arguments.seed, Path(folder))
    for failure in failures:
        print(failure)
    kinds = Counter(failure.split(" ")[0] for failure in failures)
    print(f"{arguments.mutants} mutants, {len(failures)} taken badly {dict(kinds) or ''}")
    raise SystemExit(bool(failures))
