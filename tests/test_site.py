"""Pages of the site that are made from the code: they name all that users may write."""

from __future__ import annotations

import re
import runpy
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import typer
from blocks import ROOT

import znnpy
from znnpy.cli.app import app
from znnpy.config import json_schema

DOCS = ROOT / "docs"
PROGRAM: Any = typer.main.get_command(app)


@pytest.fixture(autouse=True)
def _extension(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(DOCS), *sys.path])


def test_every_key_of_a_config_is_named() -> None:
    from _site.config_page import page

    text = page(json_schema())
    sections = json_schema()["$defs"].values()
    keys = {key for section in sections for key in section["properties"]}
    assert len(keys) > 80
    assert {key for key in keys if f"\n`{key}`\n: " not in text} == set()


def test_every_link_to_a_mapping_leads_to_its_heading() -> None:
    from _site.config_page import page

    text = page(json_schema())
    linked = set(re.findall(r"\]\(#([\w-]+)\)", text))
    assert len(linked) > 20
    assert linked <= set(re.findall(r"^\(([\w-]+)\)=$", text, re.MULTILINE))


def test_values_stand_with_their_bounds_and_defaults() -> None:
    from _site.config_page import page

    text = page(json_schema())
    assert (
        "`batch`\n: Patches per update.\\\n  [whole number at least 1; default `1`]{.values}"
        in text
    )


def test_every_option_is_named() -> None:
    from _site.cli_page import page

    text = page(PROGRAM)
    assert "\n`--version`\n: " in text
    for name, command in PROGRAM.commands.items():
        _, _, after = text.partition(f"## znnpy {name}\n")
        here = after.partition("\n## ")[0]
        options = [option for it in command.params for option in it.opts if option[:2] == "--"]
        assert [option for option in options if f"`{option}`" not in here] == [], name


def test_every_public_name_has_its_heading() -> None:
    from _site.python_page import page

    text = page(znnpy)
    names = [name for name in znnpy.__all__ if name[:1] != "_"]
    assert [name for name in names if f"## {name}\n" not in text] == []
    assert "autoclass:: znnpy.Model" in text
    assert "autofunction:: znnpy.load_network" in text


def test_links_of_other_folders_lead_to_pages_of_the_site() -> None:
    from _site.sources import linked

    page = DOCS / "design" / "rooms.md"
    text = "[a](scheduler/README.md) [b](../docs/design/order.md#x) [c](https://example.org)"
    led = linked(text, ROOT / "znnpy" / "README.md", page)
    assert led == "[a](scheduler.md) [b](order.md#x) [c](https://example.org)"


def test_every_document_is_on_the_site() -> None:
    from _site.sources import MARK, PAGES

    pages = [path for path in DOCS.rglob("*.md") if "_site" not in path.parts]
    filled = {found[2] for path in pages for found in MARK.finditer(path.read_text())}
    elsewhere = {str(path.relative_to(ROOT)) for path in (ROOT / "znnpy").rglob("*.md")}
    elsewhere |= {path.name for path in ROOT.glob("*.md")} - {"README.md"}
    assert elsewhere <= filled
    assert [page for page in PAGES.values() if not (DOCS / page).is_file()] == []
    assert elsewhere <= set(PAGES)


def test_what_is_shown_as_a_path_is_there() -> None:
    for path in re.findall(r"[\w/]+\.css", (DOCS / "conf.py").read_text()):
        assert Path(DOCS, "_static", path).is_file()


def test_tutorials_train_no_longer_than_they_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inline = pytest.importorskip("matplotlib_inline.backend_inline")
    monkeypatch.setattr(inline, "set_matplotlib_formats", lambda *_: None)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ZNNPY_TUTORIAL_VOLUMES", str(Path(__file__).parent / "pictures"))
    magics: dict[str, Callable[[str, str], None]] = {}
    shell = SimpleNamespace(register_magic_function=lambda it, _, name: magics.update({name: it}))
    runpy.run_path(str(DOCS / "_site/startup.py"), {"get_ipython": lambda: shell})

    def written(text: str) -> str:
        magics["writefile"]("config.yaml", text)
        return (tmp_path / "config.yaml").read_text()

    tutorials = [path.read_text() for path in sorted((DOCS / "tutorials").glob("*.md"))]
    assert [written(text) for text in tutorials] == tutorials
    monkeypatch.setenv("ZNNPY_TUTORIAL_UPDATES", "70")
    numbers = [
        int(it) for text in tutorials for it in re.findall(r"iterations: (\d+)", written(text))
    ]
    assert len(numbers) > 5
    assert min(numbers) < max(numbers) == 70
