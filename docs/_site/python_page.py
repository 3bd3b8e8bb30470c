"""The public names as a page: directives of autodoc for all that the package exports."""

import inspect
import re
from typing import Any

# What types and defaults look like that nobody has a name for.
UNREADABLE = re.compile(r"ForwardRef|_Supports\w+|_Nested\w+|<[\w.]+ object at|\b0x[0-9a-f]{6,}")

# what everybody begins with
FIRST = ("train", "open_run", "Run", "segment", "Objects", "score", "load_network", "Model")


def page(package: Any) -> str:
    """A heading for each public class and function."""
    names = [name for name in package.__all__ if not name.startswith("_")]
    names.sort(key=lambda name: (FIRST.index(name) if name in FIRST else len(FIRST), name))
    return "\n".join(section(package, name) for name in names)


def section(package: Any, name: str) -> str:
    """Heading and directive."""
    found = getattr(package, name)
    kind = "autoclass" if inspect.isclass(found) else "autofunction"
    members = "   :members:\n" if kind == "autoclass" else ""
    # Some functions are rooms, too, whose own words are not for users.
    home = f"{package.__name__}.interactive" if inspect.ismodule(found) else package.__name__
    directive = f".. {kind}:: {home}.{name}\n{members}"
    return f"## {name}\n\n```{{eval-rst}}\n{directive}```\n"


def refuse_unreadable(app: Any, doctree: Any) -> None:
    """Warn of what autodoc could not write for people."""
    if app.env.docname != "reference/python":
        return
    from sphinx.util.logging import getLogger

    for found in sorted(set(UNREADABLE.findall(doctree.astext()))):
        getLogger(__name__).warning("%s: name its type in autodoc_type_aliases", found)
