"""What is said of the images of a data set: how large they are, what was chosen for them, what became of them."""

from collections import Counter
from dataclasses import dataclass, field
from statistics import median

from sao.data.files.decode import Header
from sao.data.fitting import Recipe

SMALLEST, LARGEST_CHOSEN, LARGEST = 8, 128, 256


@dataclass
class Tally:
    """What the notes will say about the decoded images."""

    sizes: Counter = field(default_factory=Counter)
    transparent: int = 0
    deep: int = 0

    def add(self, header: Header) -> None:
        self.sizes[header.width, header.height] += 1
        self.transparent += header.transparent
        self.deep += header.deep

    def notes(self, recipe: Recipe) -> list[str]:
        total = sum(self.sizes.values())
        notes = [fit_note(self.sizes, recipe)]
        smaller = sum(count for (width, height), count in self.sizes.items() if min(width, height) < recipe.size)
        if smaller:
            notes.append(f"{smaller} of {total} images are smaller than {recipe.size} pixels and were enlarged")
        if self.transparent:
            notes.append(f"{self.transparent} of {total} images have transparency and were composited on white")
        if self.deep:
            notes.append(f"{self.deep} of {total} images have more than 8 bits a pixel and were reduced to 8")
        notes.append(f"images are read as {'grey (1 channel)' if recipe.channels == 1 else 'colour (3 channels)'}")
        if recipe.frame is not None:
            notes.append(
                f"training sees random crops of the whole images, which are kept at {recipe.frame}x{recipe.frame} for it"
            )
        return [note for note in notes if note is not None]


def choose_size(shorter_sides: list[int]) -> tuple[int, str]:
    """The median shorter side rounded down to a power of two in 8..128, and the sentence that says so."""
    middle = int(median(shorter_sides))
    size = min(max(1 << max(middle.bit_length() - 1, 0), SMALLEST), LARGEST_CHOSEN)
    return size, (
        f"size {size} was chosen: the median shorter side is {middle} pixels, and sizes are powers of two from"
        f" {SMALLEST} to {LARGEST_CHOSEN} unless set (up to {LARGEST})"
    )


def fit_note(sizes: Counter, recipe: Recipe) -> str | None:
    """How images of these (width, height) became the recipe's squares; None if they already were."""
    if set(sizes) == {(recipe.size, recipe.size)} and recipe.fit != "centre":
        return None
    square = all(width == height for width, height in sizes)
    way = "centre-cropped to squares and " if recipe.fit == "crop" else "padded to squares with mid-grey and "
    if len(sizes) == 1:
        ((width, height),) = sizes
        start = f"images of {width}x{height} pixels were"
    else:
        start = f"images of {len(sizes)} different sizes were"
    if recipe.fit == "centre":
        return (
            f"{start} resized to a short side of {recipe.short_side}, of which the centre {recipe.size}x{recipe.size} is kept"
        )
    return f"{start} {'' if square else way}resized to {recipe.size}x{recipe.size}"
