"""The report in a real browser, without a network: what a person does with it. Skipped, and said so, where there is none."""

import csv
import io
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pytest
import tiny

import sao
from sao.data.dataset import Dataset, Images
from sao.evaluation.result import Metric, write_json
from sao.report.build import Limits, Shown, packed, write_report
from sao.report.page import page as page_of
from sao.report.thumbnails import Sheets
from sao.runtime.csv_files import original
from sao.training.run_folder import Run

FEW = Limits(points=2000, placed=100, generated=32, seconds=5.0)
HOSTILE = [
    "</script><script>window.broken=1</script>",
    '"><img src=x onerror="window.broken=1">',
    "\u202egnp.elif",
    "🦊 'a' & b",
]
CHROMIUM = next((path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None)
ARGUMENTS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--host-resolver-rules=MAP * ~NOTFOUND",
]  # fmt: skip
MOST_MILLISECONDS = 16  # of a frame of twenty thousand points

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium here: the report is not tried in a browser")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: no test in a browser")
    with playwright.sync_playwright() as driver:
        launched = driver.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield launched
        launched.close()


@pytest.fixture(scope="module")
def two_runs(tmp_path_factory) -> Path:
    """Two runs of some digits, whose samples and classes have names that would like to be markup."""
    folder = tmp_path_factory.mktemp("runs")
    classes = [f"{HOSTILE[i % 4]} {i}" for i in range(10)]
    parts = []
    for kind, part, n in (("train", tiny.dataset().train, 100), ("test", tiny.dataset().test, 50)):
        assert isinstance(part, Images)
        assert part.labels is not None
        names = [f"{kind}/{HOSTILE[i % 4].replace('/', '|')} {i}.png" for i in range(n)]
        parts.append(Images(part.pixels[:n], part.labels[:n], names, classes))
    shown = []
    for seed in (0, 1):
        run = tiny.trained(folder / f"seed {seed}", seed=seed, log__sample_every=4, log__evaluate_every=4)[0]
        write_json(run.evaluations / "summary.json", [Metric("svm", 0.9, None, {"C": 1.5}), Metric("raw/svm", 0.8)])
        shown.append(Shown(Run.open(run.folder), sao.load(run.folder), Dataset("digits", *parts), run.folder.name))
    write_report(folder / "report.html", shown, FEW, lambda stage: None)
    return folder / "report.html"


class Opened:
    """A page with what it asked for and complained about."""

    def __init__(self, browser: Any, path: Path, before: str = "", ready: bool = True, **options: Any) -> None:
        self.context = browser.new_context(viewport={"width": 1400, "height": 900}, offline=True, **options)
        self.page = self.context.new_page()
        self.page.add_init_script(before)
        self.requests: list[str] = []
        self.complaints: list[str] = []
        self.context.on("request", lambda request: self.requests.append(request.url))
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.goto(path.as_uri())
        if ready:
            self.page.wait_for_selector("html[data-ready]")

    @property
    def asked_for(self) -> list[str]:
        """Everything outside of the file itself."""
        return [url for url in self.requests if not url.startswith(("file:", "data:", "blob:"))]

    def place(self, point: int) -> tuple[float, float]:
        """Of a point of the first map, on the screen."""
        canvas = self.page.locator("canvas").first
        canvas.scroll_into_view_if_needed()
        box = canvas.bounding_box()
        x, y = self.page.evaluate(f"(() => {{ const v = {VIEW}; return [v.screenX({point}), v.screenY({point})]; }})()")
        return box["x"] + x, box["y"] + y

    def view(self, expression: str) -> Any:
        return self.page.evaluate(f"(() => {{ const panel = {PANEL}, view = panel.view; return {expression}; }})()")

    def until(self, expression: str) -> None:
        """Playwright's own waiting evaluates text inside of the page, which the page's security policy forbids."""
        for _ in range(200):
            if self.view(expression):
                return
            self.page.wait_for_timeout(50)
        raise AssertionError(f"it never came true in ten seconds: {expression}")


PANEL = "panels.get(report.runs[0])"
VIEW = f"{PANEL}.view"


@pytest.fixture
def opened(browser, two_runs) -> Iterator[Opened]:
    found = Opened(browser, two_runs)
    yield found
    found.context.close()
    assert found.complaints == []
    assert found.asked_for == []
    assert {url for url in found.requests if url.startswith("file:")} == {two_runs.as_uri()}


def test_a_request_or_an_error_of_a_page_is_seen(browser, tmp_path):
    (tmp_path / "bad.html").write_text("<img src='http://localhost:9/a.png'><script>missing()</script>")
    found = Opened(browser, tmp_path / "bad.html", ready=False)
    assert found.asked_for == ["http://localhost:9/a.png"]
    assert any("missing" in line for line in found.complaints)
    found.context.close()


def test_names_are_text_and_every_section_is_there(opened):
    page = opened.page
    titles = ["Runs", "Overview", "Map", "Groups", "Odd ones", "Duplicates", "Samples over time", "Curves"]
    titles += ["Copies by the generator", "Configuration"]
    assert page.locator("h2").all_inner_texts() == titles
    page.locator(".search").first.fill("<script>")
    found = page.locator(".results").first.locator("button").all_inner_texts()
    assert found
    assert all(text.startswith("<|script><script>", len(text.split("/")[0]) + 1) for text in found)
    page.locator(".colour-by").first.select_option("class")
    assert f"{HOSTILE[1]} 1" in page.locator(".legend").first.inner_text()
    assert page.evaluate("window.broken") is None


def test_pointing_at_a_sample_shows_its_name_and_neighbours(opened):
    opened.page.mouse.move(*opened.place(3))
    tip = opened.page.locator(".map-tip").first
    tip.wait_for(state="visible")
    shown = opened.view("panel.hovered")
    assert tip.locator(".name").inner_text() == opened.view(f"view.name({shown})")
    assert tip.locator(".near .thumbnail").count() == 12
    opened.page.mouse.click(*opened.place(3))
    near = opened.page.locator(".details").first.locator("button").first
    name = near.get_attribute("aria-label")
    near.click()  # a neighbour is gone to
    assert opened.view("view.name(panel.pinned)") in name


OVERLAPS = """(() => {
  const shown = Array.from(view.inView(60)).filter((i) => view.pictured(i)), side = view.side();
  const apart = (i, j) => Math.max(Math.abs(view.screenX(i) - view.screenX(j)), Math.abs(view.screenY(i) - view.screenY(j)));
  return shown.some((i) => shown.some((j) => i < j && apart(i, j) < side));
})()"""


def test_images_are_there_at_first_overlap_nowhere_and_become_more_by_the_wheel(opened):
    page = opened.page
    first = opened.view("panel.painter.pictures")
    assert 8 < first < 150
    assert not opened.view(OVERLAPS)
    x, y = opened.place(5)
    page.mouse.move(x, y)
    page.mouse.wheel(0, -200)
    page.wait_for_timeout(100)
    assert opened.view("view.zoom") == pytest.approx(1)  # the page scrolled
    x, y = opened.place(5)
    page.mouse.click(x, y)
    page.mouse.move(x, y)
    seen = opened.view("Array.from(view.inView()).filter((i) => view.pictured(i))")
    page.mouse.wheel(0, -500)
    opened.until("view.zoom > 2")
    assert opened.place(5) == pytest.approx((x, y), abs=4)  # what is under the pointer stays there
    assert opened.view(f"{seen}.every((i) => view.pictured(i))")  # none goes as others come
    assert opened.view("Array.from(view.inView(1e6)).filter((i) => view.pictured(i)).length") > first
    assert not opened.view(OVERLAPS)
    page.get_by_role("button", name="Show all").first.click()
    assert opened.view("view.zoom") == pytest.approx(1)
    before = opened.view("view.centreX")
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x + 80, y + 10, steps=3)
    page.mouse.up()
    assert opened.view("view.centreX") < before


def lasso_the_left_half(page: Any) -> None:
    page.get_by_role("button", name="Lasso").first.click()
    page.locator("canvas").first.evaluate("(canvas) => canvas.scrollIntoView({ block: 'center' })")
    box = page.locator("canvas").first.bounding_box()
    left, top, right, bottom = box["x"] + 3, box["y"] + 3, box["x"] + box["width"] / 2, box["y"] + box["height"] - 3
    page.mouse.move(left, top)
    page.mouse.down()
    for x, y in ((right, top), (right, bottom), (left, bottom)):
        page.mouse.move(x, y, steps=4)
    page.mouse.up()


def test_a_lasso_lists_names_to_copy_and_to_save(opened):
    page = opened.page
    lasso_the_left_half(page)
    page.locator(".chosen summary").first.click()
    area = page.locator(".chosen textarea").first
    names = area.input_value().splitlines()
    half = opened.view("view.names.filter((_, i) => view.screenX(i) < view.width / 2)")
    assert 0 < len(names) < 150
    assert sorted(names) == sorted(half)
    with page.expect_download() as saved:
        page.locator(".chosen .save").first.click()
    assert Path(saved.value.path()).read_text(encoding="utf-8").splitlines() == names
    page.locator(".copy").first.click()
    opened.until("document.querySelector('.copy').textContent === 'Copied'")
    page.get_by_role("button", name="Let go").first.click()
    assert area.count() == 0


FORMULA = '=1+2, "quoted"'


def saved_labels(page: Any) -> dict[str, str]:
    with page.expect_download() as saved:
        page.locator(".export").first.click()
    content = Path(saved.value.path()).read_bytes()
    assert content.startswith("\ufeffname,label\r\n".encode())
    rows = list(csv.DictReader(io.StringIO(content.decode("utf-8-sig"), newline="")))
    assert all(set(row) == {"name", "label"} for row in rows)
    assert not any(row["label"].startswith("=") for row in rows)
    return {original(row["name"]): original(row["label"]) for row in rows}


def test_groups_are_named_and_merged_a_lasso_labels_and_the_labels_come_back(opened, tmp_path):
    page = opened.page
    groups = page.locator("#groups .cell").first
    assert groups.locator(".group").count() == 10
    groups.locator(".group-name").nth(2).fill("cats")
    groups.locator(".group-name").nth(2).press("Enter")
    members = opened.view("view.names.filter((_, i) => view.groups[i] === 2)")
    assert saved_labels(page) == dict.fromkeys(members, "cats")
    groups.locator(".group select").nth(3).select_option("2")
    assert groups.locator(".group").count() == 9
    members = opened.view("view.names.filter((_, i) => view.groups[i] === 2 || view.groups[i] === 3)")
    assert saved_labels(page) == dict.fromkeys(members, "cats")
    lasso_the_left_half(page)
    chosen = opened.view("panel.choice.map((i) => view.names[i])")
    page.locator(".chosen .label-name").first.fill(FORMULA)
    page.locator(".chosen .primary").first.click()
    labelled = saved_labels(page)
    assert labelled == dict.fromkeys(members, "cats") | dict.fromkeys(chosen, FORMULA)
    page.locator(".colour-by").first.select_option("label")
    assert FORMULA in page.locator(".legend").first.inner_text()
    page.reload()  # a page that is opened again has them still
    page.wait_for_selector("html[data-ready]")
    assert saved_labels(page) == labelled
    page.once("dialog", lambda question: question.accept())
    page.get_by_role("button", name="Clear").first.click()
    assert page.locator(".export").first.is_disabled()
    with (tmp_path / "labels.csv").open("w", encoding="utf-8-sig", newline="") as file:
        csv.writer(file).writerows([["label", "name"], ["a\nb", members[0]], ["x", "of nobody"]])
    page.locator("input[type=file]").first.set_input_files(tmp_path / "labels.csv")
    opened.until("panel.labels.own.size === 1")
    assert "1 label taken; 1 name of no image here" in page.locator(".label-tools").first.inner_text()
    assert saved_labels(page) == {members[0]: "a\nb"}
    page.locator("input[type=file]").first.set_input_files({"name": "a.csv", "mimeType": "text/csv", "buffer": b"a,b\n1,2\n"})
    page.get_by_text("This file was not taken: its first line must have the columns name and label").first.wait_for()


def test_any_image_opens_with_those_most_similar_and_leads_to_the_map(opened):
    page = opened.page
    assert page.locator("#groups .held-out").count() > 0
    page.locator("#odd button.bare").nth(1).click()
    window = page.locator("dialog")
    first = window.locator(".name").inner_text()
    assert window.locator(".near button").count() == 12
    window.locator(".near button").nth(3).click()
    second = window.locator(".name").inner_text()
    assert second != first
    window.get_by_role("button", name="Show on the map").click()
    assert not window.is_visible()
    assert opened.view("view.name(panel.pinned)") == second
    page.locator("#groups button.bare").first.focus()
    page.keyboard.press("Enter")
    assert window.is_visible()
    page.keyboard.press("Escape")
    assert not window.is_visible()


def test_runs_are_tested_against_each_other(opened):
    said = opened.page.locator("#runs").inner_text()
    assert "Is one better?" in said
    assert "on the same 50 held-out samples" in said
    assert "5 neighbours" in opened.page.locator(".tested").inner_text()


@pytest.mark.parametrize("width", [390, 1400])
def test_nothing_is_wider_than_the_screen_and_nothing_moves_as_pictures_come(browser, two_runs, width):
    found = Opened(browser, two_runs, before=SHIFTS)
    found.page.set_viewport_size({"width": width, "height": 844})
    found.page.reload()
    found.page.wait_for_selector("html[data-ready]")
    found.page.wait_for_timeout(100)
    assert found.page.evaluate("document.documentElement.scrollWidth") <= width
    assert found.page.evaluate("window.shifted") < 0.01
    found.context.close()


SHIFTS = """window.shifted = 0; new PerformanceObserver((list) => {
  for (const entry of list.getEntries()) window.shifted += entry.value;
}).observe({ type: "layout-shift", buffered: true });"""


FINGER = """([id, kind, x, y]) => document.querySelector("canvas").dispatchEvent(
    new PointerEvent(kind, { pointerId: id, pointerType: "touch", clientX: x, clientY: y, bubbles: true }))"""


def test_two_fingers_zoom(opened):
    opened.page.evaluate("HTMLCanvasElement.prototype.setPointerCapture = () => {}")  # of pointers that are none
    opened.page.locator("canvas").first.scroll_into_view_if_needed()
    box = opened.page.locator("canvas").first.bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    for touch in ([1, "pointerdown", x - 50, y], [2, "pointerdown", x + 50, y], [2, "pointermove", x + 150, y]):
        opened.page.evaluate(FINGER, touch)
    assert opened.view("view.zoom") == pytest.approx(2, rel=0.02)
    before = opened.view("view.centreX")
    for touch in ([2, "pointerup", x + 150, y], [1, "pointermove", x + 150, y], [1, "pointerup", x + 150, y]):
        opened.page.evaluate(FINGER, touch)
    assert opened.view("[view.centreX, panel.pinned, panel.touching.size]") == [before, -1, 0]


def test_colours_filters_and_generated_samples(opened):
    page = opened.page
    key = page.locator(".legend .key").first
    size = int(key.locator("small").inner_text())
    assert opened.view("view.inView().length") == 150
    key.click()
    assert opened.view("view.inView().length") == 150 - size
    key.click()
    page.locator("input.generated").first.check()
    assert opened.view("view.inView().length") == 182
    page.locator(".colour-by").first.select_option("norm")
    assert page.locator(".ramp").first.is_visible()


UNNAMED = """[...document.querySelectorAll("button, input, select, textarea, canvas")]
    .filter((one) => !(one.textContent.trim() || one.getAttribute("aria-label") || one.closest("label")))
    .map((one) => one.outerHTML)"""


def test_keys_and_a_screen_reader_reach_samples_and_protocols(opened):
    page = opened.page
    page.locator("canvas").first.focus()
    page.keyboard.press("n")
    assert opened.view("view.name(0)") in page.locator("#live").inner_text()
    page.keyboard.press("+")
    assert opened.view("view.zoom") > 1.5
    page.keyboard.press("0")
    page.keyboard.press("ArrowRight")
    assert opened.view("view.zoom") == pytest.approx(1)
    page.locator("#overview .value").first.focus()
    assert "1.5" in page.locator("#hover").inner_text()
    assert page.evaluate(UNNAMED) == []


def test_runs_are_switched_and_their_differences_listed(opened):
    page = opened.page
    assert page.locator("#map .cell").count() == 2
    assert page.locator("#differences tbody th").all_inner_texts() == ["seed"]
    page.locator(".switch input").nth(1).uncheck()
    assert page.locator("#map .cell").count() == 1
    assert page.locator("#map .run-name").inner_text() == "seed 0"
    page.locator(".switch input").nth(1).check()
    assert page.locator("#map .run-name").all_inner_texts() == ["seed 0", "seed 1"]
    page.locator("#samples input[type=range]").first.fill("0")
    assert page.locator("#samples output").first.inner_text() == "step 4"


def test_light_and_dark(browser, two_runs):
    papers = []
    for scheme in ("light", "dark"):
        found = Opened(browser, two_runs, color_scheme=scheme)
        papers.append(found.page.evaluate("getComputedStyle(document.body).backgroundColor"))
        found.page.locator("#theme").click()
        papers.append(found.page.evaluate("getComputedStyle(document.body).backgroundColor"))
        found.context.close()
    assert papers[0] == papers[3] != papers[1] == papers[2]


def many_points(n: int, names: list[str] | None = None, **more: Any) -> str:
    """A page of so many points, without the minutes that their layout would take; `more` is of its run."""
    draws = np.random.default_rng(0)
    sheets, places = Sheets(), draws.integers(0, 65536, (n, 2)).astype(np.uint16)
    shown = {
        "by": "t-SNE",
        "count": n,
        "total": n,
        "links": None if names is None else {"start": "./../my%20photos/", "rest": None},
        "places": packed(places),
        "clearances": packed(draws.integers(0, 2000, n).astype(np.uint16)),
        "names": names or [f"{i}.png" for i in range(n)],
        "groups": packed(draws.integers(0, 10, n).astype(np.uint16)),
        "neighbours": packed(draws.integers(0, n, (n, 12)).astype(np.uint16)),
        "similarities": packed(np.zeros((n, 12), np.int8)),
        "sheet": sheets.add(draws.integers(0, 256, (n, 8, 8, 1), dtype=np.uint8), room=10_000_000),
        **dict.fromkeys(("held_out", "labels", "classes", "norms", "generated")),
    }
    empty: dict[str, Any] = {key: [] for key in ("metrics", "compared", "curves", "pictures", "duplicates")}
    run = {
        "name": "many",
        "step": 1,
        "said": ["Many points."],
        "verdict": None,
        "config": {},
        "memorised": None,
        "groups": [{"size": 1, "labels": None, "typical": [0], "borderline": [], "towards": []}] * 10,
        "odd": {"count": 0, "rows": [], "scores": []},
        "map": shown,
        **empty,
        **more,
    }
    return page_of({"sao": "test", "runs": [run], "sheets": sheets.found, "tested": []}, "many")


FRAMES = """async () => {
  const panel = panels.get(report.runs[0]), took = [];
  for (let frame = 0; frame < 40; frame++) {
    panel.view.pan(3, 2);
    panel.view.zoomBy(ZOOM);
    const started = performance.now();
    panel.painter.paint();
    panel.painter.context.getImageData(0, 0, 1, 1); // waits for what was only noted down
    took.push(performance.now() - started);
    await new Promise(requestAnimationFrame);
  }
  return Math.min(...took); // what a frame takes of the processor: other programs have it in the others
}"""


def test_a_frame_of_twenty_thousand_points_is_quick(browser, tmp_path):
    (tmp_path / "many.html").write_text(many_points(20_000), encoding="utf-8")
    found = Opened(browser, tmp_path / "many.html")
    far = found.page.evaluate(FRAMES.replace("ZOOM", "1.001"))
    found.page.evaluate(f"{VIEW}.zoomBy(7)")
    near = found.page.evaluate(FRAMES.replace("ZOOM", "1.0"))
    assert found.view("panel.painter.pictures") > 100
    found.context.close()
    print(f"a frame takes {far:.1f} ms from afar, {near:.1f} ms near by")
    assert max(far, near) < MOST_MILLISECONDS


def test_links_are_those_of_the_files_whatever_they_are_called(browser, tmp_path):
    names = [*HOSTILE, "javascript:alert(1)", "it's (1)*!~.png", "a#b?c%41/d e.png", "plain.png"]
    (tmp_path / "page.html").write_text(many_points(len(names), names), encoding="utf-8")
    found = Opened(browser, tmp_path / "page.html")
    assert found.view("view.names.map((_, i) => view.link(i))") == ["./../my%20photos/" + quote(name) for name in names]
    for i in range(len(names)):
        found.view(f"panel.goTo({i})")
        link = found.page.locator(".details .name a")
        assert link.inner_text() == names[i]
        assert link.evaluate("(link) => [link.protocol, link.rel]") == ["file:", "noopener"]
    found.context.close()
    assert found.complaints == []


def test_the_table_behind_the_verdict_fits_beside_the_metrics(browser, tmp_path):
    compared = [
        {"word": "manifold clusters", "with": "untrained", "difference": 0.1234, "interval": [0.0123, 0.2345], "decided": True}
    ]
    verdict = {"better": True, "claim": "Yes.", "reasons": "", "sentence": "Yes."}
    (tmp_path / "page.html").write_text(many_points(10, verdict=verdict, compared=compared), encoding="utf-8")
    found = Opened(browser, tmp_path / "page.html")
    for width in (1600, 1200, 1080, 640):
        found.page.set_viewport_size({"width": width, "height": 800})
        needed, there = found.page.evaluate(
            "(({ scrollWidth, clientWidth }) => [scrollWidth, clientWidth])(document.querySelector('.verdict .scroll'))"
        )
        assert needed <= there, f"at {width} pixels a part of it is hidden"
    found.context.close()
