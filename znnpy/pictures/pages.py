"""Pages of HTML in one file, that load nothing: templates of a package, with the style that all of them share."""

from __future__ import annotations

from functools import cache
from typing import Any

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined, select_autoescape

from znnpy.pictures import svg
from znnpy.pictures.palette import PALETTE


def page(package: str, template: str, **values: Any) -> str:
    """Return the text of a page from a template of a package's folder `templates`."""
    found = _environment(package).get_template(template)
    return found.render(palette=PALETTE, **values)


@cache  # with its templates, which are compiled once: a run draws its page again and again
def _environment(package: str) -> Environment:
    environment = Environment(
        loader=ChoiceLoader(
            [PackageLoader(package, "templates"), PackageLoader("znnpy.pictures", "templates")]
        ),
        # Names of networks and layers come from users.
        autoescape=select_autoescape(default=True, default_for_string=True),
        # A name that is misspelt in the template is an error, not an empty cell.
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["seconds"] = svg.seconds
    return environment
