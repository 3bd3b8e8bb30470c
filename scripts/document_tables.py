"""Reads tables of the documents, from which pictures are drawn."""

from __future__ import annotations


def rows(text: str, after: str) -> list[dict[str, str]]:
    """The first table behind a sentence: a dict by heading for each line.

    Of columns of one name the first counts. Raises SystemExit if there is no such sentence.
    """
    _, found, rest = text.partition(after)
    if not found:
        raise SystemExit(f"no table after {after!r}")
    lines = rest.partition("\n\n|")[2].splitlines()
    cells = []
    for line in ("|" + lines[0], *lines[1:]):
        if line[:1] != "|":
            break
        cells.append([cell.strip() for cell in line.strip("|").split("|")])
    heading, _, *values = cells
    return [dict(reversed([*zip(heading, row, strict=True)])) for row in values]
