"""The folders of a study's runs: ordinary run folders, checked before anything is trained there."""

from pathlib import Path

from sao.config import Config
from sao.errors import InputError
from sao.training.run_folder import Run


def check_folder(folder: Path, config: Config) -> None:
    """Refuse to take a run that learnt something else for this one."""
    if (folder / "config.yaml").exists() and not Run(folder).config.learns_as(config):
        raise InputError(f"{folder} was trained with other options: choose another --out, or remove it")


def check_out(out: Path) -> None:
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{out} cannot be written: {error.strerror}; choose another --out") from None
