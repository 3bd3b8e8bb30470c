"""The option --tune of `znnpy segment`: what was found, as a table and as the options of the next command."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

from znnpy.cli.global_options import note, suggest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from znnpy.evaluation.tuning import Tried
    from znnpy.segment.job import Request

SHOWN = ("cremi_score", "adapted_rand_error", "voi_split", "voi_merge")


def tune_request(
    prediction: str,
    labels: str,
    mask: str | None,
    request: Request,
    allowed: tuple[str, ...],
    *,
    following: bool = True,
) -> Request:
    """Print the best segmentation by each method, and return the best of all, which is suggested where `following`."""
    from znnpy.data.opening import open_volume
    from znnpy.evaluation.tuning import tuned

    with ExitStack() as stack:
        volume = stack.enter_context(open_volume(prediction, allow_filters=allowed))
        known = [
            stack.enter_context(open_volume(name, role="labels", allow_filters=allowed))
            for name in (labels, mask)
            if name is not None
        ]
        truth, counted = known[0], known[1] if mask is not None else None
        found = tuned(volume, truth, counted, request, note)
    _print(prediction, labels, found)
    best = found[0].request
    options: list[object] = ["--method", best.method, "--threshold", f"{best.threshold:g}"]
    options += ["--min-size", best.min_size] if best.min_size else []
    options += ["--kind", best.kind] if best.kind else []
    for channel in best.channels:
        options += ["--channel", channel]
    if following:
        suggest("segment", prediction, "--output", "objects.h5", *options)
    return best


def _print(prediction: str, labels: str, found: Sequence[Tried]) -> None:
    from rich.table import Table

    from znnpy.cli.tables import console
    from znnpy.evaluation.objects import TITLES

    title = f"{prediction} against {labels}, the best of each method"
    table = Table(title=title, title_justify="left")
    table.add_column("method")
    names = ("threshold", "least size", *(TITLES[name].strip() for name in SHOWN))
    for name in names:
        table.add_column(name, justify="right")
    for it in found:
        scores = (f"{it.scores[name] or 0:.4f}" for name in SHOWN)
        request = it.request
        table.add_row(request.method, f"{request.threshold:g}", str(request.min_size), *scores)
    console().print(table)
