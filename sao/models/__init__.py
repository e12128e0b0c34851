"""The trained models that come with the package: folders that `sao ship` wrote, each with its model card."""

from collections.abc import Callable
from pathlib import Path

from sao.config.overrides import nearest
from sao.errors import InputError, typed
from sao.runtime.hub import fetched, is_hub_name

FOLDER = Path(__file__).parent
CONFIG = "config.yaml"  # that of a run, which every model has too


def model_names() -> list[str]:
    return sorted(path.parent.name for path in FOLDER.glob(f"*/{CONFIG}"))


def run_folder(run: str | Path, report: Callable[[str], None] | None = None) -> Path:
    """The folder of a run, or of the model of that name. A run in the current folder comes first, and `report` is told so.

    hf:OWNER/NAME is a model of the Hugging Face Hub, which is fetched.
    """
    if is_hub_name(run):
        return fetched(str(run))
    path, names = Path(run), model_names()
    own = (path / CONFIG).is_file()
    if own and str(run) in names and report is not None:
        report(f"{run} is a run in the current folder, which is taken instead of the model of that name that comes with sao")
    if own or (str(run) not in names and (path.exists() or len(path.parts) != 1)):
        return path
    if str(run) in names:
        return FOLDER / run
    there_are = f"there are {', '.join(names)}" if names else "there are none"
    raise InputError(
        f"{run} is not a run, and no model of that name comes with sao{nearest(str(run), names)}: {there_are}; "
        f"`{typed('train', '--out', run)}` makes a run"
    )
