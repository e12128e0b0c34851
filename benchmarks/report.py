"""The report measured and looked at: seconds, bytes, milliseconds of a frame, and pictures of it.

python benchmarks/report.py RUN [RUN...] [--points 5000] [--pictures DIR]
"""

import argparse
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

from sao.cli.main import main as sao_command

FRAMES = """async () => {
  const panel = panels.get(report.runs[0]), took = [];
  for (let frame = 0; frame < 60; frame++) {
    panel.view.pan(2, 1);
    const started = performance.now();
    panel.painter.paint();
    panel.painter.context.getImageData(0, 0, 1, 1);
    took.push(performance.now() - started);
    await new Promise(requestAnimationFrame);
  }
  return took.sort((a, b) => a - b)[30];
}"""
PANEL = "panels.get(report.runs[0])"


def built(runs: list[str], points: int, target: Path) -> None:
    started, worked = time.perf_counter(), time.process_time()
    assert sao_command(["report", *runs, "--points", str(points), "-o", str(target)]) == 0
    elapsed, processor = time.perf_counter() - started, time.process_time() - worked
    print(f"{target.stat().st_size / 1e6:.2f} MB, {elapsed:.1f} s elapsed, {processor:.1f} s of the processor")


def pictured(page: Any, name: str, folder: Path) -> None:
    """The top of the page, the map from far, the map from near with a sample pointed at, and the clusters."""
    page.screenshot(path=folder / f"{name}-overview.png")
    page.locator("#map").scroll_into_view_if_needed()
    page.evaluate("document.getElementById('map').scrollIntoView()")
    page.wait_for_timeout(200)
    page.screenshot(path=folder / f"{name}-map.png")
    page.evaluate(f"{PANEL}.goTo({PANEL}.run.clusters[0].borderline[0])")
    page.wait_for_timeout(200)
    box = page.locator("canvas").first.bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.wait_for_timeout(200)
    page.screenshot(path=folder / f"{name}-near.png")
    page.evaluate("document.getElementById('clusters').scrollIntoView()")
    page.wait_for_timeout(200)
    page.screenshot(path=folder / f"{name}-clusters.png")


def main() -> None:
    from playwright.sync_api import sync_playwright

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+")
    parser.add_argument("--points", type=int, default=5000)
    parser.add_argument("--pictures", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as driver:
        target = Path(folder) / "report.html"
        built(arguments.runs, arguments.points, target)
        flags = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--disable-background-networking"]
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=flags)
        for scheme in ("light", "dark"):
            page = browser.new_context(viewport={"width": 1400, "height": 900}, color_scheme=scheme, offline=True).new_page()
            page.goto(target.as_uri())
            page.wait_for_selector("html[data-ready]")
            if arguments.pictures is not None:
                arguments.pictures.mkdir(parents=True, exist_ok=True)
                pictured(page, f"{'-'.join(Path(run).name for run in arguments.runs)}-{scheme}", arguments.pictures)
        print(f"a frame takes {page.evaluate(FRAMES):.1f} ms")
        browser.close()


if __name__ == "__main__":
    main()
