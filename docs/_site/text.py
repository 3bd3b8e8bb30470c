"""Markdown of plain text."""

import re

SPECIAL = re.compile(r"([\\*_\[\]<>{}|$~^#])")


def escaped(text: str) -> str:
    """The text with nothing in it that Markdown would take for more, but for code between backticks."""
    parts = text.split("`")
    if len(parts) % 2 == 0:
        return SPECIAL.sub(r"\\\1", text)
    return "`".join(part if i % 2 else SPECIAL.sub(r"\\\1", part) for i, part in enumerate(parts))


def entry(term: str, meaning: str) -> list[str]:
    """Lines of one entry of a definition list."""
    first, *rest = meaning.splitlines() or [""]
    return [term, f": {first}", *(f"  {line}" for line in rest), ""]
