"""What the site has beside the pages of docs/: the measured results, the pages of the project's root, and the list of options.

The Markdown of the repository stays as a code host shows it: links lead to files. Here they are turned to where the
same file is on the site.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files, InclusionLevel

ROOT = Path(__file__).parents[1]
OF_THE_ROOT = ("CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", "CODE_OF_CONDUCT.md")
OPTIONS = "<!-- every option -->"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    for name in OF_THE_ROOT:
        files.append(File.generated(config, name, abs_src_path=str(ROOT / name)))
    results = [path for path in (ROOT / "results").rglob("*") if path.suffix in (".md", ".png", ".json")]
    cards = (ROOT / "sao" / "models").glob("*/README.md")
    for path in sorted([*results, *cards]):
        name = str(path.relative_to(ROOT))
        # They are reached from the pages that quote them; a list of them in the navigation would hide the rest.
        files.append(File.generated(config, name, abs_src_path=str(path), inclusion=InclusionLevel.NOT_IN_NAV))
    return files


def on_page_markdown(markdown: str, page: Any, config: MkDocsConfig, files: Files) -> str:
    name = page.file.src_uri
    if name == "commands.md":
        if OPTIONS not in markdown:
            raise PluginError(f"docs/commands.md has no line {OPTIONS}")
        markdown = markdown.replace(OPTIONS, "\n".join(option_tables()))
    markdown = re.sub(r"\[([^\]]+)\]\([^)\s]+\.py\)", r"\1", markdown)  # source files are not on the site
    return re.sub(r"(?<=\]\()([^)\s:]+)(?=[)\s])", lambda link: moved(link[1], name), markdown)


def moved(link: str, page: str) -> str:
    """A link of the repository, as it must be on the site, where docs/ is the root and results/ lies in it."""
    if link.startswith("#"):
        return link
    if page in OF_THE_ROOT:
        return link.removeprefix("docs/")
    if page.startswith("results/"):
        return link.replace("../docs/", "../") if not link.startswith("../sao") else link
    return link.removeprefix("../")


def option_tables() -> Iterator[str]:
    """Every option as tables, from the place where it is declared."""
    from sao.config import Config
    from sao.config.help import option_lines
    from sao.methods import ENCODERS, METHODS

    rows = list(option_lines(Config, ""))
    for group, field in Config.model_fields.items():
        if group in ("method", "encoder"):
            continue
        of_group = [row for row in rows if row[0] == group or row[0].startswith(f"{group}.")]
        yield from _table(f"### {group}", field.description or "", of_group)
    for kind, members in (("method", METHODS), ("encoder", ENCODERS)):
        for name, member in members.items():
            first = (member.__doc__ or "").strip().splitlines()[0]
            yield from _table(f"### --{kind} {name}", first, list(option_lines(member, f"{kind}.")))


def _table(heading: str, meaning: str, rows: list[tuple[str, str, str]]) -> Iterator[str]:
    yield from ("", heading, "", meaning, "")
    shown = [row for row in rows if not row[1].startswith("group")]
    if not shown:
        return
    yield from ("| option | values | meaning |", "|---|---|---|")
    for name, values, text in shown:
        yield f"| `{name}` | {_cell(values)} | {_cell(text)} |"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*").replace("\n", " ")
