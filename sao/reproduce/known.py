"""Runs of an earlier table: as records of its JSON file, made on any machine and day, or with their weights in its folder."""

import json
import shutil
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Any

from sao import config as configuration
from sao.config import Config
from sao.errors import InputError
from sao.evaluation.result import is_metric, read_json
from sao.reproduce.rows import StudyRun
from sao.runtime import files
from sao.runtime.machine import commit, processor_name
from sao.training.run_folder import MARK, Run

ORIGIN = "origin.json"  # in the folder of a run: where and when it was made


def note_origin(run: StudyRun) -> None:
    if (run.folder / ORIGIN).exists():  # it was trained for another table
        return
    origin = {"processor": processor_name(), "commit": commit(), "date": date.today().isoformat()}
    _write(run, ORIGIN, origin)


def record_of(run: StudyRun) -> dict[str, Any]:
    """All that is known of a finished run but its weights."""
    origin = run.folder / ORIGIN
    return {
        "row": run.row.name,
        "data": run.data,
        "seed": run.config.seed,
        **(files.read_json(origin, run.folder) if origin.exists() else {}),
        "config": run.config.model_dump(mode="json"),
        "metrics": read_json(run.evaluation, run.folder),
    }


def known_runs(file: Path, runs: Sequence[StudyRun]) -> list[tuple[StudyRun, dict[str, Any]]]:
    """Those that are not done yet and that the file has a record of.

    A run whose weights others need, such as the classifier of generated images, is made again.
    """
    records, needed = records_in(file), {run.row.needs for run in runs}
    open_runs = [run for run in runs if not run.evaluation.exists()]
    found = []
    for run in (run for run in open_runs if run.row.kind != "reference" and run.row.name not in needed):
        of_row = (one for one in records if (one["row"], one["data"]) == (run.row.name, run.data))
        record = next((one for one in of_row if _same(one["config"], run.config)), None)
        if record is not None:
            found.append((run, record))
    return found


def trained_runs(out: Path, runs: Sequence[StudyRun]) -> list[tuple[StudyRun, Path]]:
    """Those that have not begun and whose like was trained for another table in this folder, with the folder of that run."""
    others = [(path.parent, Run.open(path.parent).config) for path in sorted(out.glob(f"runs/*/{MARK}"))]
    found = []
    for run in (run for run in runs if run.row.kind in ("trained", "reference") and not run.folder.exists()):
        folder = next((folder for folder, config in others if config.learns_as(run.config)), None)
        if folder is not None:
            found.append((run, folder))
    return found


def take_known(known: Path, runs: Sequence[StudyRun]) -> int:
    """Bring in the runs of an earlier table, and return how many. Those of a folder are still to be evaluated."""
    if known.is_dir():
        found = trained_runs(known, runs)
        for run, folder in found:
            shutil.copytree(folder, run.folder, ignore=shutil.ignore_patterns(run.evaluation.name))
        return len(found)
    return _take_records(known, runs)


def _take_records(file: Path, runs: Sequence[StudyRun]) -> int:
    """Write their results as if they had been made here, and return how many."""
    found = known_runs(file, runs)
    for run, record in found:
        run.folder.mkdir(parents=True, exist_ok=True)
        configuration.save(run.config, run.folder / "config.yaml")
        _write(run, ORIGIN, {key: str(record[key]) for key in ("processor", "commit", "date") if key in record})
        _write(run, run.evaluation.name, record["metrics"])
    return len(found)


def _write(run: StudyRun, name: str, content: Any) -> None:
    files.write_text(run.folder / name, json.dumps(content, indent=2, ensure_ascii=False) + "\n", inside=run.folder)


def check_known(known: Path) -> None:
    """A wrong file or folder is said before anything is made."""
    if not known.is_dir():
        records_in(known)
    elif not any(known.glob(f"runs/*/{MARK}")):
        raise InputError(f"{known} holds no runs of a table: give the --out of an earlier `sao reproduce`, or its JSON file")


def records_in(file: Path) -> list[dict[str, Any]]:
    try:
        records = files.read_json(file.resolve())["runs"]  # a person named it: a link may lead to it
        if not all(isinstance(one["config"], dict) and all(map(is_metric, one["metrics"])) for one in records):
            raise ValueError
        return [{**one, "row": str(one["row"]), "data": str(one["data"])} for one in records]
    except OSError as error:
        raise InputError(f"{file} cannot be read: {error.strerror}") from None
    except (ValueError, KeyError, TypeError):
        raise InputError(f"{file} holds no runs: give the JSON file of a table that this version made") from None


def _same(values: dict[str, Any], config: Config) -> bool:
    """Whether a run learnt what this one would; the folder of the data is another on every machine."""
    try:
        recorded = configuration.build(values)
    except InputError:  # of another version
        return False
    data = recorded.data.model_copy(update={"folder": config.data.folder})
    return recorded.model_copy(update={"data": data}).learns_as(config)
