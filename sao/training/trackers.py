"""Where a team looks at its runs: TensorBoard, Weights & Biases, MLflow. Each gets the rows of metrics.jsonl as they come.

A run that goes on goes on in the same place. TensorBoard forgets what came after the checkpoint. The others cannot, so rows
that they have are not sent again: trackers.json has their ids, and the last step of each metric that was logged before a stop.
"""

import importlib.util
import json
import os
import sys
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from sao.errors import InputError, printable
from sao.runtime.files import make_folder, read_json, write_text

LIBRARIES = {"tensorboard": "track", "wandb": "wandb", "mlflow": "mlflow"}  # and the extra of each
PROJECT = "sao"  # unless WANDB_PROJECT or MLFLOW_EXPERIMENT_NAME says else
STATE = "trackers.json"
SEEN = "seen"  # in it: the last step of each metric
FINAL = "final/"  # before the names of the evaluation after the last step
MOST_PARAMETERS = 100  # that MLflow takes at once
LONGEST = 500  # letters of a parameter, which every server of MLflow takes


def check_trackers(names: Iterable[str]) -> None:
    for name in names:
        if importlib.util.find_spec(name) is None:
            raise InputError(f"log.to {name} needs {name}: pip install 'sao[{LIBRARIES[name]}]', or leave it out")


class Trackers:
    """Those that a run asks for. One that fails is left out from then on, with one warning: the training goes on."""

    def __init__(
        self, names: Sequence[str], folder: Path, options: Mapping[str, Any], first: int, note: Callable[[str], None]
    ) -> None:
        self._note, self._complete = note, False
        self._open: dict[str, TensorBoard | Wandb | MLflow] = {}
        self._seen: dict[str, int] = {}
        if not names:
            return
        openers = {"tensorboard": TensorBoard, "wandb": Wandb, "mlflow": MLflow}
        options = {name: without_places(value) for name, value in options.items()}
        state = read_state(folder)
        self._seen = state.get(SEEN, {})
        for name in names:
            self._guarded(name, lambda name=name: self._open.update({name: openers[name](folder, options, first, state)}))
        if state:
            write_text(folder / STATE, json.dumps(state) + "\n")

    def row(self, step: int, scalars: Mapping[str, float]) -> None:
        new = {name: value for name, value in scalars.items() if step > self._seen.get(name, -1)}
        for name, tracker in list(self._open.items()):
            wanted = scalars if name == "tensorboard" else new
            if wanted:
                self._guarded(name, lambda tracker=tracker, wanted=wanted: tracker.row(step, wanted))

    def finish(self, step: int, metrics: Mapping[str, float]) -> None:
        """The evaluation after the last step."""
        self._complete = True
        final = {f"{FINAL}{name}": value for name, value in metrics.items()}
        for name, tracker in list(self._open.items()):
            self._guarded(name, lambda tracker=tracker: tracker.finish(step, final))

    def close(self) -> None:
        for name, tracker in list(self._open.items()):
            self._guarded(name, lambda tracker=tracker: tracker.close(self._complete))

    def _guarded(self, name: str, call: Callable[[], None]) -> None:
        try:
            call()
        except InputError:  # of a link in the run's folder
            raise
        except Exception as error:
            self._open.pop(name, None)
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            warning = f"{name} failed and gets nothing more, metrics.jsonl has all rows: {reason}"
            print(f"sao: warning: {printable(warning)}", file=sys.stderr, flush=True)
            self._note(f"warning: {warning}")


def read_state(folder: Path) -> dict[str, Any]:
    """Ids and last steps; nothing where there is no file, or one that sao did not write so."""
    try:
        found = read_json(folder / STATE)
    except (OSError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        return {}
    if not isinstance(found, dict):
        return {}
    state = {name: found[name] for name in ("wandb", "mlflow") if isinstance(found.get(name), str)}
    seen = found.get(SEEN)
    if isinstance(seen, dict):
        state[SEEN] = {name: step for name, step in seen.items() if isinstance(step, int)}
    return state


def remember(folder: Path, rows: Iterable[Mapping[str, Any]]) -> int | None:
    """Note the rows that metrics.jsonl is about to forget: wandb and MLflow have them. Returns the last step of them."""
    state = read_state(folder)
    if not state:
        return None
    seen = state.setdefault(SEEN, {})
    for row in rows:
        seen |= {name: max(row["step"], seen.get(name, -1)) for name in row if name != "step"}
    write_text(folder / STATE, json.dumps(state) + "\n")
    return max(seen.values(), default=None)


def without_places(value: Any) -> Any:
    """An option for others to read: of an absolute path the last name alone, since the rest is about a person's machine."""
    if isinstance(value, str) and Path(value).expanduser().is_absolute():
        return Path(value).name
    if isinstance(value, list):
        return [without_places(one) for one in value]
    return {name: without_places(one) for name, one in value.items()} if isinstance(value, dict) else value


class TensorBoard:
    def __init__(self, folder: Path, options: Mapping[str, Any], first: int, state: dict[str, Any]) -> None:
        from torch.utils.tensorboard import SummaryWriter

        make_folder(folder / "tensorboard")
        self._options = {
            name: value if isinstance(value, bool | int | float) else str(value) for name, value in options.items()
        }
        # What a killed process drew after its last checkpoint is drawn again.
        self._writer = SummaryWriter(str(folder / "tensorboard"), purge_step=first + 1)
        self._writer.add_text("config", "\n".join(f"    {name}: {value}" for name, value in options.items()), first)

    def row(self, step: int, scalars: Mapping[str, float]) -> None:
        for name, value in scalars.items():
            self._writer.add_scalar(name, value, step)
        self._writer.flush()  # else a kill takes rows of two minutes, which the checkpoint has

    def finish(self, step: int, metrics: Mapping[str, float]) -> None:
        self._writer.add_hparams(self._options, dict(metrics), run_name=".", global_step=step)

    def close(self, complete: bool) -> None:
        self._writer.close()


class Wandb:
    """Its files are in the folder wandb beside the run, since there are links among them: `wandb sync` sends them."""

    def __init__(self, folder: Path, options: Mapping[str, Any], first: int, state: dict[str, Any]) -> None:
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")  # to its makers
        import wandb

        # Nothing of the machine and the person: no name of the host, no command, no packages, no git, no environment.
        quiet = wandb.Settings(
            silent=True,
            console="off",
            symlink=False,
            host="",
            disable_git=True,
            disable_code=True,
            save_code=False,
            x_disable_meta=True,
            x_disable_stats=True,
            x_disable_machine_info=True,
            x_save_requirements=False,
            use_dot_wandb=False,
            x_transaction_log_flush_interval=1.0,  # seconds: a kill takes the rows since then
            finish_timeout=120.0,  # without a network it would wait for ever; what is left is there for `wandb sync`
            finish_timeout_raises=True,
        )
        mode: Any = os.environ.get("WANDB_MODE", "offline")
        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", PROJECT),
            dir=os.environ.get("WANDB_DIR") or str(folder.resolve().parent),
            id=state.setdefault("wandb", uuid.uuid4().hex[:12]),
            name=folder.resolve().name,
            resume=None if mode == "offline" else "allow",  # offline the id says it when it is synced
            reinit="create_new",
            mode=mode,
            settings=quiet,
        )
        self._run.config.update(dict(options), allow_val_change=True)

    def row(self, step: int, scalars: Mapping[str, float]) -> None:
        self._run.log(dict(scalars), step=step)

    def finish(self, step: int, metrics: Mapping[str, float]) -> None:
        self._run.summary.update(dict(metrics))

    def close(self, complete: bool) -> None:
        self._run.finish(exit_code=0 if complete else 1)


class MLflow:
    """In the folder mlruns beside the run, where runs that lie together are compared, or where MLFLOW_TRACKING_URI says."""

    def __init__(self, folder: Path, options: Mapping[str, Any], first: int, state: dict[str, Any]) -> None:
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")  # a database would need the large distribution
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2")  # the training waits; 7 take four minutes
        from mlflow import MlflowClient
        from mlflow.exceptions import MlflowException

        place = folder.resolve().parent / "mlruns"
        self._client = MlflowClient(os.environ.get("MLFLOW_TRACKING_URI") or place.as_uri())
        values = {name: str(value)[:LONGEST] for name, value in options.items()}
        before: dict[str, str] = {}
        try:
            self._id = state["mlflow"]
            before = self._client.get_run(self._id).data.params
            self._client.update_run(self._id, status="RUNNING")
        except (KeyError, MlflowException):  # a new run, or one that was moved away from its mlruns
            self._id = self._client.create_run(self._experiment(), run_name=folder.resolve().name).info.run_id
        state["mlflow"] = self._id
        self._parameters({name: value for name, value in values.items() if name not in before})
        for name, value in values.items():  # a parameter never changes: what a run goes on with is a tag
            if before.get(name, value) != value:
                self._client.set_tag(self._id, f"{name} after step {first}", value)

    def _experiment(self) -> str:
        from mlflow.exceptions import MlflowException

        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", PROJECT)
        found = self._client.get_experiment_by_name(name)
        if found is None:
            try:
                return self._client.create_experiment(name)
            except MlflowException:  # another run was quicker
                found = self._client.get_experiment_by_name(name)
                if found is None:
                    raise
        return found.experiment_id

    def _parameters(self, values: Mapping[str, str]) -> None:
        from mlflow.entities import Param

        params = [Param(name, value) for name, value in values.items()]
        for start in range(0, len(params), MOST_PARAMETERS):
            self._client.log_batch(self._id, params=params[start : start + MOST_PARAMETERS])

    def row(self, step: int, scalars: Mapping[str, float]) -> None:
        from mlflow.entities import Metric

        now = int(time.time() * 1000)
        self._client.log_batch(self._id, metrics=[Metric(name, value, now, step) for name, value in scalars.items()])

    def finish(self, step: int, metrics: Mapping[str, float]) -> None:
        self.row(step, metrics)

    def close(self, complete: bool) -> None:
        self._client.set_terminated(self._id, "FINISHED" if complete else "KILLED")
