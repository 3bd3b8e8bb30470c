"""The patch that a run uses for a stack: chosen once and remembered, so that predictions round the same.

Another patch rounds otherwise. So the choice depends on the total memory of the machine or control group, not on
what happens to be free, and is remembered with the run; a limit that it does not fit is the only reason to take
another.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from znnpy.data.process_memory import available_memory, readable
from znnpy.data.volume import Triple
from znnpy.errors import PlanError
from znnpy.infer.blocks import Region
from znnpy.infer.memory import rss
from znnpy.infer.patch_search import Candidate, Needs, covering
from znnpy.infer.provenance import plan_record
from znnpy.network.types import Network
from znnpy.plan import Choice, Plan

Search = Callable[[int], Candidate]
"""Finds the best patch within a limit in bytes; raises PlanError when none fits."""
MAY_DIFFER = "values may differ from the usual ones by rounding"


@dataclass(frozen=True)
class Chosen:
    """A candidate; `record` is what the run shall remember, if it knows no patch for this yet."""

    candidate: Candidate
    record: dict[str, Any] | None = None
    notes: tuple[str, ...] = ()


def chosen_patch(
    known: Any,
    network: Network,
    conv: Choice,
    region: Region,
    search: Search,
    needs: Needs,
    usual_limit: int,
    limit: int,
) -> Chosen:
    """Return the patch that is `known` of a run, or the best within `usual_limit`; another if it exceeds `limit`.

    `known`: a record of an earlier choice, None without one. A damaged record is noted, and the patch
    chosen anew. Raises PlanError when no patch fits into `limit`.
    """
    try:
        remembered = None if known is None else recalled(known, network, conv, region)
    except PlanError as error:
        text = f"the patch that the run remembers cannot be used: {error}; it is chosen anew"
        anew = chosen_patch(None, network, conv, region, search, needs, usual_limit, limit)
        return replace(anew, notes=(text, *anew.notes))
    # The usual patch is found, and remembered, even if this prediction's limit takes another: the
    # next one shall not depend on it.
    usual = remembered or _within(search, usual_limit)
    # Only what is new has to be written.
    record = None if remembered or usual is None else recorded(usual)
    # `least_bytes` first: it is known without planning an engine.
    if usual is not None and usual.least_bytes <= limit and needs(usual) <= limit:
        return Chosen(usual, record)
    other = search(limit)
    if usual is None:
        return Chosen(other)
    text = (
        f"the usual patches of {_size(usual.patch)} take {readable(needs(usual))} of memory and "
        f"{readable(limit)} are allowed, so patches are {_size(other.patch)}: {MAY_DIFFER}"
    )
    return Chosen(other, record, (text,))


def recorded(candidate: Candidate) -> dict[str, Any]:
    """Return the record of a choice, JSON-able."""
    return {"patch": list(candidate.patch), "plan": plan_record(candidate.plan)}


def recalled(known: Any, network: Network, conv: Choice, region: Region) -> Candidate:
    """Return the candidate of a record; raises PlanError when it is none of this network and region."""
    if not isinstance(known, Mapping) or set(known) != {"patch", "plan"}:
        raise PlanError("its record needs patch and plan")
    patch = patch_of(known["patch"])
    # A patch larger than what is predicted was remembered for another stack, or edited.
    most = covering(network, region.shape)
    if patch is None or any(n > m for n, m in zip(patch, most, strict=True)):
        raise PlanError(f"{known['patch']!r} is no patch of {_size(region.shape)} voxels")
    Plan.from_record(known["plan"], network)
    return Candidate(network, patch, conv, known["plan"])


def patch_of(value: Any) -> Triple | None:
    """Return three sizes z, y, x from JSON; None for anything else."""
    if not isinstance(value, list) or len(value) != 3:
        return None
    if any(type(n) is not int or n < 1 for n in value):
        return None
    return value[0], value[1], value[2]


def warnings_of(memory: int, processes: int) -> tuple[str, ...]:
    """Return a line when what is planned for each process is more than is free at this moment."""
    free = available_memory()
    # What is taken already is no longer free, so it does not count again.
    more = processes * (memory - rss())
    if more <= free:
        return ()
    return (
        f"predicting may take {readable(more)} more memory and only {readable(free)} are free now; a lower "
        f"--max-memory takes smaller patches: {MAY_DIFFER}",
    )


def _within(search: Search, limit: int) -> Candidate | None:
    try:
        return search(limit)
    except PlanError:
        return None


def _size(shape: Triple) -> str:
    return " x ".join(map(str, shape))
