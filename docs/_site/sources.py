"""Pages that are made when they are read: from the code, or from documents that lie elsewhere in the repository.

A line `<<made: config>>` of a document stands for what the code says, `<<file: CHANGELOG.md>>` for a file.
"""

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parents[1]
ROOT = DOCS.parent
MARK = re.compile(r"^<<(made|file): (\S+)>>$", re.MULTILINE)
LINK = re.compile(r"\]\((?!https?:|#)([^)#\s]+)(#[^)\s]*)?\)")
PAGES = {
    "README.md": "index.md",
    "CHANGELOG.md": "reference/changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "docs/design": "design/index.md",
    "znnpy/README.md": "design/rooms.md",
    "znnpy/scheduler/README.md": "design/scheduler.md",
    "volumes/fibsem/README.md": "reference/sample.md",
}
"""Where documents of other folders are on the site."""


def read(app: Any, name: str, source: list[str]) -> None:
    """Fill in what the page stands for, and lead its links to pages of the site."""
    page = Path(app.env.doc2path(name))
    if page.suffix != ".md":
        return
    text = linked(source[0], page, page)
    source[0] = MARK.sub(lambda found: filled(found[1], found[2], page, app), text)


def filled(what: str, name: str, page: Path, app: Any) -> str:
    """The text of a mark; a file's links are led to where they mean."""
    if what == "made":
        return MADE[name]()
    path = ROOT / name
    app.env.note_dependency(str(path))
    return linked(path.read_text(), path, page)


def linked(text: str, path: Path, page: Path) -> str:
    """The text of a file with its links as they must be on a page."""
    return LINK.sub(lambda it: f"]({target(it[1], path, page)}{it[2] or ''})", text)


def target(link: str, path: Path, page: Path) -> str:
    """From a page, what a link of a file leads to: a page of the site, or a file to load."""
    there = Path(os.path.normpath(path.parent / link))
    if there.is_relative_to(ROOT):
        found = PAGES.get(str(there.relative_to(ROOT)))
        there = DOCS / found if found else there
    return os.path.relpath(there, page.parent)


def config() -> str:
    """Sections and keys of the config."""
    from _site.config_page import page
    from znnpy.config import json_schema

    return page(json_schema())


def commands() -> str:
    """Of the command line."""
    import typer

    from _site.cli_page import page
    from znnpy.cli.app import app

    return page(typer.main.get_command(app))


def template() -> str:
    """What `znnpy init` writes."""
    from znnpy.config import template

    return f"```yaml\n{template()}```"


def python() -> str:
    """Of the package."""
    import znnpy
    from _site.python_page import page

    return page(znnpy)


MADE: dict[str, Callable[[], str]] = {
    "config": config,
    "commands": commands,
    "template": template,
    "python": python,
}
