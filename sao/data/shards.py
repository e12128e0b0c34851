"""Several tar files as one source, as WebDataset writes them: a sample is 0012.jpg and, where there are labels, 0012.cls."""

from collections.abc import Iterator
from pathlib import Path

from sao.data.file_source import Entry, Skipped
from sao.data.files.archives import TarArchive
from sao.data.files.decode import Loaded
from sao.errors import InputError, printable

COMPANIONS = (".cls", ".json", ".txt")  # what lies beside an image of the same key and is none itself
LABEL = ".cls"


class Shards:
    """The images of all shards in order, nothing unpacked. One with a label gets a name in a folder of its class."""

    def __init__(self, paths: list[Path]) -> None:
        if missing := [path for path in paths if not path.is_file()]:
            raise InputError(
                f"there is no file {printable(str(missing[0]))}: {len(missing)} of {len(paths)} shards are missing"
            )
        self._archives = [TarArchive(path, passed_over=COMPANIONS, kept=LABEL) for path in paths]
        self.entries: list[Entry] = []
        self.skipped: list[Skipped] = []
        for archive in self._archives:
            labels = {_key(name): text.strip() for name, text in archive.texts.items()}
            for entry in archive.entries:
                label = labels.get(_key(entry.name), "").replace("/", "_")
                self.entries.append(Entry(f"{label}/{entry.name}" if label else entry.name, entry.size))
            self.skipped += archive.skipped

    def load(self) -> Iterator[Loaded]:
        for archive in self._archives:
            yield from archive.load()

    def digest(self) -> bytes | None:
        return None  # made of the members as they are decoded: shards are too large to be read twice


def _key(name: str) -> str:
    """What the members of one sample share: the path up to the first dot of the last part."""
    folder, slash, last = name.rpartition("/")
    return folder + slash + last.partition(".")[0]
