"""The folder and the pictures of docs/tutorial.md.

python benchmarks/tutorial.py folder imagenette/train things                  2,000 of its files, a folder for each class
python benchmarks/tutorial.py pictures runs/things things docs/figures/tutorial

Imagenette is ten classes of ImageNet.
"""

import argparse
import random
import shutil
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps

NAMES = {
    "n01440764": "tench", "n02102040": "spaniel", "n02979186": "cassette-player", "n03000684": "chain-saw",
    "n03028079": "church", "n03394916": "french-horn", "n03417042": "garbage-truck", "n03425413": "gas-pump",
    "n03445777": "golf-ball", "n03888257": "parachute",
}  # fmt: skip
IMAGES = 2000
SHOWN = 45
CHROMIUM = next((path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None)
PANEL = "panels.get(report.runs[0])"


def write_folder(source: Path, folder: Path) -> None:
    paths = sorted(path for name in NAMES for path in (source / name).glob("*.JPEG"))
    for path in random.Random(0).sample(paths, IMAGES):
        place = folder / NAMES[path.parent.name]
        place.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, place / f"{path.stem}.jpg")


def contact_sheet(folder: Path, out: Path) -> None:
    """Some of the folder's images."""
    paths = random.Random(0).sample(sorted(folder.rglob("*.jpg")), SHOWN)
    tiles = [np.asarray(ImageOps.fit(Image.open(path).convert("RGB"), (72, 72))) for path in paths]
    rows = [np.hstack(tiles[start : start + 15]) for start in range(0, len(tiles), 15)]
    Image.fromarray(np.vstack(rows)).save(out)


def samples_over_time(run: Path, out: Path) -> None:
    """The first and the last generated pictures of a run, side by side."""
    first, *_, last = (Image.open(path) for path in sorted((run / "samples").glob("step-*.png")))
    both = Image.new(first.mode, (2 * first.width + 16, first.height), "white")
    both.paste(first, (0, 0))
    both.paste(last, (first.width + 16, 0))
    both.save(out)


def report_pictures(page_file: Path, out: Path) -> None:
    """Overview, verdict, map, and a sample pointed at, as a person sees them."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(viewport={"width": 1200, "height": 760}, color_scheme="light")
        page.goto(page_file.resolve().as_uri())
        page.wait_for_timeout(500)
        page.screenshot(path=out / "overview.png")
        page.locator(".verdict").first.screenshot(path=out / "verdict.png")
        page.evaluate("document.getElementById('map').scrollIntoView()")
        page.wait_for_timeout(500)
        page.screenshot(path=out / "map.png")
        page.evaluate(f"{PANEL}.goTo(0)")
        page.wait_for_timeout(300)
        box = page.locator("canvas").first.bounding_box()
        assert box is not None
        page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
        page.wait_for_timeout(300)
        page.screenshot(path=out / "near.png")
        browser.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    tasks = parser.add_subparsers(dest="task", required=True)
    folder = tasks.add_parser("folder")
    folder.add_argument("source", type=Path)
    folder.add_argument("folder", type=Path)
    pictures = tasks.add_parser("pictures")
    pictures.add_argument("run", type=Path)
    pictures.add_argument("folder", type=Path)
    pictures.add_argument("out", type=Path)
    arguments = parser.parse_args()
    if arguments.task == "folder":
        write_folder(arguments.source, arguments.folder)
        return
    arguments.out.mkdir(parents=True, exist_ok=True)
    contact_sheet(arguments.folder, arguments.out / "folder.png")
    samples_over_time(arguments.run, arguments.out / "samples.png")
    report_pictures(arguments.run / "report.html", arguments.out)


if __name__ == "__main__":
    main()
