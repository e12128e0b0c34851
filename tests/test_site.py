"""The documentation site: it builds without a warning, has every option and public name, and asks for nothing from outside.

`make slow` builds it; what it is built from is looked at always.
"""

import os
import pkgutil
import re
import runpy
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import unquote

import pytest

from sao.config import Config
from sao.config.overrides import every_option

pytest.importorskip("material", reason="the extra `docs` is not installed: the site is not built")
ROOT = Path(__file__).parents[1]
CHROMIUM = next((path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None)
OUTSIDE = re.compile(r"\s*['\"]?(?:[a-z]+:)?//", re.IGNORECASE)
# Attributes for which a browser fetches something when it shows the page; a link (a href) waits for a click.
FETCHED = {"src", "srcset", "data", "poster", "background"}

hooks = SimpleNamespace(**runpy.run_path(str(ROOT / "docs" / "hooks.py")))


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    words = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    done = subprocess.run(words, cwd=ROOT, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


class Page(HTMLParser):
    """The addresses that a page fetches, and where its links lead."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.fetched: list[str] = []
        self.links: list[str] = []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name in FETCHED or (tag == "link" and name == "href" and ("rel", "canonical") not in attrs):
                self.fetched.append(value or "")
            if name == "style":
                self.fetched += addresses_in_style(value or "")
            if tag == "a" and name == "href" and value:
                self.links.append(value)


def addresses_in_style(text: str) -> list[str]:
    return re.findall(r"(?:url\(|@import\s)\s*([^)\s;]+)", text)


def fetched_from_outside(folder: Path) -> list[str]:
    found = []
    for path in folder.rglob("*.html"):
        found += [f"{path.name}: {address}" for address in Page(path).fetched if OUTSIDE.match(address)]
    for path in folder.rglob("*.css"):
        addresses = addresses_in_style(path.read_text(encoding="utf-8"))
        found += [f"{path.name}: {address}" for address in addresses if OUTSIDE.match(address)]
    return found


@pytest.mark.slow
def test_no_page_fetches_anything_from_outside(site):
    assert fetched_from_outside(site) == []


@pytest.mark.parametrize(
    "text",
    [
        '<script src="https://example.org/a.js"></script>',
        '<link rel="stylesheet" href="//example.org/a.css">',
        '<img srcset="http://example.org/a.png">',
        '<p style="background: url(https://example.org/a.png)">',
    ],
)
def test_a_page_that_fetches_is_noticed(text, tmp_path):
    (tmp_path / "page.html").write_text(f'<a href="https://example.org">a link</a><img src="here.png">{text}')
    assert len(fetched_from_outside(tmp_path)) == 1


def test_every_page_is_in_the_navigation():
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    named = re.findall(r"(?m)^ +- [^:]+: (\S+\.md)$", text.partition("\nnav:")[2])
    assert {path.name for path in (ROOT / "docs").glob("*.md")} <= set(named)
    assert all((ROOT / "docs" / name).exists() or (ROOT / name).exists() for name in named)


def test_every_option_is_on_its_page():
    assert hooks.OPTIONS in (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")
    rows = set(re.findall(r"(?m)^\| `([a-z0-9_.]+)` \|", "\n".join(hooks.option_tables())))
    missing = {
        name for name in every_option(Config) if name not in rows and not any(row.startswith(f"{name}.") for row in rows)
    }
    assert not missing - {"method", "encoder", "method.name", "encoder.name"}


def test_public_names_have_docstrings():
    names = re.findall(r"(?m)^::: (\S+)$", (ROOT / "docs" / "extending.md").read_text(encoding="utf-8"))
    assert len(names) > 5
    assert all(pkgutil.resolve_name(name).__doc__ for name in names)


@pytest.mark.slow
def test_options_and_docstrings_are_shown(site):
    assert "<code>method.distance</code>" in (site / "commands.html").read_text(encoding="utf-8")
    text = (site / "extending.html").read_text(encoding="utf-8")
    for name in ("sao.api.load", "sao.api.train", "sao.estimator.StructuralEmbedding", "sao.core.objectives.jensen_shannon"):
        assert f'id="{name}"' in text, name
    assert "The model of a run folder" in text


@pytest.mark.slow
def test_results_are_on_the_site(site):
    for path in (ROOT / "results").glob("*.md"):
        name = "index" if path.stem == "README" else path.stem
        assert (site / "results" / f"{name}.html").exists(), path


def dead_links(folder: Path) -> list[str]:
    found = []
    for path in set(folder.rglob("*.html")) - {folder / "404.html"}:  # which a server shows, by addresses of its own
        inside = [unquote(link.partition("#")[0]) for link in Page(path).links if ":" not in link]
        found += [f"{path.name}: {link}" for link in inside if link and not (path.parent / link).exists()]
    return found


@pytest.mark.slow
def test_every_link_leads_somewhere(site):
    assert dead_links(site) == []


def test_a_dead_link_is_noticed(tmp_path):
    (tmp_path / "page.html").write_text(
        '<a href="page.html#top">here</a><a href="https://example.org">out</a><a href="no.html">no</a>'
    )
    assert dead_links(tmp_path) == ["page.html: no.html"]


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium here: the site is not tried in a browser")
def test_search_works_from_a_file_without_a_network(site):
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: no test in a browser")
    with playwright.sync_playwright() as driver:
        arguments = ["--no-sandbox", "--disable-gpu", "--host-resolver-rules=MAP * ~NOTFOUND"]
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=arguments)
        page = browser.new_page()
        requests, errors = [], []
        page.on("request", lambda request: requests.append(request.url))
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.goto((site / "index.html").as_uri())
        page.keyboard.press("s")
        page.keyboard.type("jensen_shannon")
        page.locator(".md-search-result__item").first.wait_for(timeout=20_000)
        browser.close()
    assert errors == []
    assert requests
    assert [address for address in requests if not address.startswith(("file:", "data:", "about:", "blob:"))] == []
