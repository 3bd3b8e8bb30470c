"""The public names as a page: directives of autodoc for all that the package exports."""

import inspect
from typing import Any


def page(package: Any) -> str:
    """A heading for each public class and function."""
    names = [name for name in package.__all__ if not name.startswith("_")]
    return "\n".join(section(package, name) for name in names)


def section(package: Any, name: str) -> str:
    """Heading and directive."""
    kind = "autoclass" if inspect.isclass(getattr(package, name)) else "autofunction"
    members = "   :members:\n" if kind == "autoclass" else ""
    directive = f".. {kind}:: {package.__name__}.{name}\n{members}"
    return f"## {name}\n\n```{{eval-rst}}\n{directive}```\n"
