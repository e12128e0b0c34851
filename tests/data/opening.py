"""Files to be opened, and what is found in them, as what it must be."""

import io
import re
import tarfile
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from sao.data.dataset import Images, Samples, Vectors
from sao.data.files.objects import readable
from sao.data.files.open import Opened, open_for_embedding, open_path
from sao.errors import InputError


def encoded(image: Image.Image | np.ndarray, kind: str = "PNG", **options: Any) -> bytes:
    stream = io.BytesIO()
    (image if isinstance(image, Image.Image) else Image.fromarray(image)).save(stream, kind, **options)
    return stream.getvalue()


def write_files(folder: Path, contents: Mapping[str, bytes]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in contents.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return folder


def write_zip(path: Any, members: Mapping[str, bytes], compression: int = zipfile.ZIP_DEFLATED) -> Any:
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return path


def write_tar(path: Path, members: Mapping[str, bytes], mode: Any = "w") -> Path:
    with tarfile.open(path, mode) as archive:
        for name, data in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return path


def images(samples: Samples) -> Images:
    assert isinstance(samples, Images)
    return samples


def vectors(samples: Samples) -> Vectors:
    assert isinstance(samples, Vectors)
    return samples


def parts(opened: Opened) -> tuple[Samples, Samples]:
    return opened.dataset.train, opened.dataset.test


def total(opened: Opened) -> int:
    return len(opened.dataset.train) + len(opened.dataset.test)


def names(samples: Samples) -> list[str]:
    assert samples.names is not None
    return list(samples.names)


def numbers(samples: Samples) -> list[int]:
    """The first of each name."""
    return [int(re.findall(r"\d+", name)[0]) for name in names(samples)]


def labels(samples: Samples) -> np.ndarray:
    assert samples.labels is not None
    return samples.labels


def opened_images(data: Any, **options: Any) -> Images:
    """The images to train on."""
    return images(open_path(data if isinstance(data, Path) else readable(data), **options).dataset.train)


def embedded_images(data: Any, shape: tuple[int, int, int], **options: Any) -> Images:
    """All of them, as a trained network expects them."""
    return images(open_for_embedding(data if isinstance(data, Path) else readable(data), shape=shape, **options)[0])


@contextmanager
def refused(match: str | None = None) -> Iterator[pytest.ExceptionInfo[InputError]]:
    """In one line."""
    with pytest.raises(InputError, match=match) as caught:
        yield caught
    assert "\n" not in str(caught.value)
