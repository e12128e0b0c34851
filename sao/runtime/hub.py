"""Models of the Hugging Face Hub, hf:OWNER/NAME or hf:OWNER/NAME@REVISION, as folders on this machine.

Nothing is fetched unless a person writes such a name, and then only the files that `sao ship` writes. The Hub's cache keeps
them as links, which nothing here follows inside a run; so a model is a copy without links, which goes when the process ends.
"""

import functools
import re
import shutil
import tempfile
from pathlib import Path

from sao.errors import InputError
from sao.runtime.files import read_json

PREFIX = "hf:"
_NAME = re.compile(r"hf:([\w.-]+/[\w.-]+)(?:@([\w./-]+))?", re.ASCII)
_MARK = "sao-run.json"
_ASKED = [_MARK, "config.yaml", "data.json", "checkpoints/step-*/method.safetensors", "checkpoints/step-*/state.json"]
_FILES = re.compile(r"sao-run\.json|config\.yaml|data\.json|checkpoints/step-\d{8,}/(method\.safetensors|state\.json)")


def is_hub_name(name: object) -> bool:
    return str(name).startswith(PREFIX)


def fetched(name: str) -> Path:
    """The folder of a model; it is fetched where the Hub's cache does not have this revision yet."""
    found = _NAME.fullmatch(name)
    if found is None:
        raise InputError(f"{name} is no name on the Hugging Face Hub: write hf:OWNER/NAME, or hf:OWNER/NAME@REVISION")
    return _copied(_snapshot(found[1], found[2]), found[1])


def _snapshot(model: str, revision: str | None) -> Path:
    """The folder in the Hub's cache, one for each commit."""
    try:
        import huggingface_hub
        from huggingface_hub import errors
    except ImportError:
        raise InputError(f"hf:{model} needs huggingface_hub: pip install 'sao[hub]'") from None
    try:
        return Path(huggingface_hub.snapshot_download(model, revision=revision, allow_patterns=_ASKED))
    except errors.GatedRepoError:
        reason = "asks for permission: get it on the model's page, then `hf auth login`"
    except errors.RepositoryNotFoundError:
        reason = "is not on the Hugging Face Hub, or is private: check the name, or `hf auth login`"
    except errors.RevisionNotFoundError:
        reason = f"has no revision {revision}: leave out @{revision}, or give a branch, a tag or a commit that it has"
    except errors.LocalEntryNotFoundError:
        reason = "cannot be fetched, and is not in the Hub's cache: the Hub is out of reach, or HF_HUB_OFFLINE is set"
    except Exception as error:  # a network fails in more ways than can be listed
        first = next(iter(str(error).splitlines()), "")
        reason = f"cannot be fetched ({type(error).__name__}: {first[:200]})"
    raise InputError(f"{model} {reason}")


@functools.cache  # by the commit: a model that is used twice is copied once
def _copied(snapshot: Path, model: str) -> Path:
    if not _is_shipped(snapshot):
        raise InputError(f"{model} on the Hugging Face Hub is no model of sao: it must hold the files that `sao ship` writes")
    names = [path.relative_to(snapshot).as_posix() for path in snapshot.rglob("*") if path.is_file()]
    names = [name for name in names if _FILES.fullmatch(name)]
    parent = tempfile.TemporaryDirectory(prefix="sao-hub-")
    folder = Path(parent.name) / f"{model.replace('/', '--')}@{snapshot.name[:12]}"
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(snapshot / name, folder / name)
    _kept.append(parent)
    return folder


def _is_shipped(snapshot: Path) -> bool:
    """Not a whole run: that would be gone, with what is learnt in it, when the process ends."""
    try:
        mark = read_json((snapshot / _MARK).resolve())
    except (OSError, ValueError):
        return False
    return isinstance(mark, dict) and mark.get("copy") is True


_kept: list[tempfile.TemporaryDirectory] = []  # each folder goes when the process ends, or with this
