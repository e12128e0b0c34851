"""From a name or a path to data: the one door through which commands, estimator and studies come."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from sao.data import named as sources
from sao.data.dataset import Dataset
from sao.data.files.open import Fit, Opened, open_path
from sao.data.shard_names import data_exists
from sao.errors import InputError


def open_data(
    source: str,
    *,
    folder: str,
    size: int | None = None,
    fit: Fit = "crop",
    crop: float | None = None,
    labels: bool = True,
    strict: bool = False,
    held_out: float = 0.1,
    seed: int = 0,
    download: bool = True,
    progress: Callable[[int, int], None] | None = None,
) -> Opened:
    """A named data set (see `sao.data.named`), or whatever is at a path. A name comes before a path that reads the same."""
    if source not in sources.NAMES:
        if not data_exists(source):
            raise InputError(f"there is no file or folder {source}, and no data set of that name ({', '.join(sources.NAMES)})")
        return open_path(
            source,
            size=size,
            fit=fit,
            crop=crop,
            use_labels=labels,
            strict=strict,
            held_out=held_out,
            seed=seed,
            progress=progress,
        )
    if crop is not None:
        raise InputError(f"data.crop takes crops of whole image files, and {source} holds none: set method.augmentation.crop")
    match source:
        case "digits":
            dataset = sources.digits(held_out, seed)
        case "spirals":
            dataset = sources.spirals(seed=seed)
        case _:
            dataset = sources.torchvision_images(source, Path(folder).expanduser(), download)
    if size is not None:
        dataset = sources.resized(dataset, size)
    if not labels:
        dataset = Dataset(dataset.name, replace(dataset.train, labels=None), replace(dataset.test, labels=None))
    here = [f"{source} is the data set of that name; what lies here is ./{source}"] if Path(source).exists() else []
    return Opened(dataset, [], here)
