"""Prints the summary of `znnpy check` as tables."""

from __future__ import annotations

import os
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table

from znnpy.cli.config_summary import MOST_SHAPES, UNPLANNED
from znnpy.cli.tables import console
from znnpy.data.process_memory import readable
from znnpy.layers.edges import EDGE_KINDS
from znnpy.plan.choose import UNMEASURED

_PASSES = {"forward": "forward", "gradient": "data gradient", "weight": "weight gradient"}


def print_summary(found: dict[str, Any]) -> None:
    """Print the summary as tables."""
    out = console()
    if found["volumes"]:
        out.print(_volumes(found))
    else:
        out.print("volumes         the config names none", highlight=False)
    out.print(_layers(found))
    out.print(_plans(found), width=min(100, out.width))
    if any(row["why"] == UNPLANNED for row in found["algorithms"]):
        words = f"more than {MOST_SHAPES} layers differ, shown as if direct; --measure plans them"
        out.print(f"{UNPLANNED:15} {words}", highlight=False)
    if any(row["why"] == UNMEASURED for row in found["algorithms"]):
        words = "training measures these first and may choose others; --measure does it now"
        out.print(f"{UNMEASURED:15} {words}", highlight=False)
    if any(row["of_sgemm"] is not None for row in found["algorithms"]):
        words = "operations of direct convolution in that time, by those of NumPy's matrix product on one core"
        out.print(f"of sgemm        {words}", highlight=False)
    if found["fingerprint"]:
        out.print(f"fingerprint     {_fingerprint(found)}", highlight=False)
    views = ", ".join(f"{name} {_size(view)}" for name, view in found["receptive_field"].items())
    out.print(f"receptive field {views}", highlight=False)
    out.print(f"prediction      {found['prediction']}", highlight=False, soft_wrap=True)
    out.print(f"parameters      {found['parameters']:,}", highlight=False)
    if found["microbatches"]["count"] > 1 or found["microbatches"]["chosen"]:
        out.print(f"microbatches    {_microbatches(found)}", highlight=False)
    if found["counted"]:
        out.print(f"peak memory     {readable(found['memory_bytes'])}", highlight=False)
        out.print(f"at the peak     {_uses(found['memory_uses'])}", highlight=False)
        if found["again_seconds"]:
            out.print(f"made again      {_again(found)}", highlight=False)
    else:
        least = f"at least {readable(found['memory_bytes'])}, by feature maps and parameters alone"
        words = f"{least}; an update has too many tasks to count them quickly, --measure counts"
        out.print(f"peak memory     {words}", highlight=False)
    if found["connected"]:
        out.print(
            "tasks           connected by an earlier start, whose graph is kept", highlight=False
        )
    if found["measuring_bytes"] > found["memory_bytes"]:
        words = f"up to {readable(found['measuring_bytes'])}, once, to measure layers at its start"
        out.print(f"before that     {words}", highlight=False)
    saved = f"{readable(found['checkpoint_bytes'])} more while one is written"
    out.print(f"checkpoints     {saved}", highlight=False)
    out.print(f"machine         {_machine(found['machine'])}", highlight=False)
    out.print(
        f"time per update about {found['update_seconds'] * 1e3:.3g} ms on {found['threads']} "
        f"thread{'s' * (found['threads'] != 1)} (estimated work {found['work_seconds'] * 1e3:.3g} ms)",
        highlight=False,
    )
    for text in found["weights"]:
        out.print(f"weights         {text}", highlight=False, soft_wrap=True)
    for text in found["warnings"]:
        out.print(f"warning: {text}", highlight=False, soft_wrap=True)


def _fingerprint(found: dict[str, Any]) -> str:
    """Return the plan's fingerprint, to compare with another machine's, and what training may still change."""
    word = f"{found['fingerprint']}, {found['lanes']} lanes"
    if any(row["why"] == UNMEASURED for row in found["algorithms"]):
        return f"{word}, by estimates; --measure shows the one of training"
    fftw = any(row["algorithm"] == "fft" for row in found["algorithms"])
    rest = ", but for FFTW's plans, which --save-plan keeps" if fftw else ""
    return f"{word}: machines that show the same one compute the same bits{rest}"


def _machine(found: dict[str, Any]) -> str:
    """Return the cores that this process may use, and which of them share a last-level cache."""
    cores = f"{found['cores']} core{'s' * (found['cores'] != 1)}"
    caches = [f"{readable(it['bytes'])} for {len(it['cores'])}" for it in found["caches"]]
    alike = [f"{caches.count(cache)} x {cache}" for cache in dict.fromkeys(caches)]
    nodes = f"; {found['nodes']} NUMA nodes" if found["nodes"] > 1 else ""
    return f"{cores}; last-level caches: {', '.join(alike) or 'not told'}{nodes}"


def _microbatches(found: dict[str, Any]) -> str:
    own = found["microbatches"]
    patches = f"{own['patches']} patch{'' if own['patches'] == 1 else 'es'} each"
    at_once = f", {own['in_flight']} in flight at once" if found["counted"] else ""
    chosen = "; chosen for this machine, a run keeps what it began with" * own["chosen"]
    return f"{own['count']} an update, {patches}{at_once}{chosen}"


def _layers(found: dict[str, Any]) -> Table:
    table = _table("network (sizes z, y, x)")
    for name in ("name", "what", "channels", "size or shape", "stride", "sparsity", "parameters"):
        table.add_column(name)
    for node in found["nodes"]:
        for edge in (e for e in found["edges"] if e["to"] == node["name"]):
            what = f"{edge['kind']} of {edge['from']}"
            windowed = "size" in EDGE_KINDS[edge["kind"]].keys.model_fields
            size = _size(edge["size"]) if windowed else ""
            steps = _size(edge["stride"]), _size(edge["sparsity"])
            table.add_row(f"  {edge['name']}", what, "", size, *steps, _count(edge), style="dim")
        what = node["function"] or node["kind"]
        what = f"{node['norm']} norm, {what}" if node["norm"] else what
        steps = _size(node["stride"]), _size(node["sparsity"])
        shape = _size(node["shape"])
        table.add_row(node["name"], what, str(node["channels"]), shape, *steps, _count(node))
    return table


def _table(title: str) -> Table:
    return Table(title=title, title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))


def _volumes(found: dict[str, Any]) -> Table:
    table = _table("volumes (shapes c, z, y, x)")
    for name in ("what", "volume", "shape", "type", "range", "patches"):
        table.add_column(name, overflow="fold")
    for volume in found["volumes"]:
        shape = _size(volume["shape"])
        span = f"{volume['lowest']:g} to {volume['highest']:g}"
        span += "" if volume["whole"] else " (sample)"
        what = volume["key"].removeprefix("data.")
        count = f"{volume['positions']:,}" if "positions" in volume else ""
        table.add_row(what, _near(volume["name"]), shape, volume["type"], span, count)
    return table


def _near(name: str) -> str:
    """Return a file's name from the current folder, where that is shorter."""
    return min(name, os.path.relpath(name), key=len)


def _plans(found: dict[str, Any]) -> Table:
    table = _table("algorithms (ms on one core)")
    for name in ("layer", "pass", "algorithm"):
        table.add_column(name, overflow="fold")
    table.add_column("ms", justify="right")
    table.add_column("of sgemm", justify="right")
    table.add_column("next best", overflow="fold")
    table.add_column("ms", justify="right")
    table.add_column("why", overflow="fold")
    before = None
    for row in found["algorithms"]:
        first = row["layer"] != before
        before = row["layer"]
        table.add_row(
            before if first else "",
            _PASSES[row["pass"]],
            row["algorithm"],
            _ms(row["seconds"]),
            "" if row["of_sgemm"] is None else f"{row['of_sgemm']:.0%}",
            row["next"] or "",
            _ms(row["next_seconds"]),
            row["why"] if first else "",
        )
    return table


def _ms(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds * 1e3:.3g}"


def _again(found: dict[str, Any]) -> str:
    """Return how much memory rematerialisation (activation checkpointing) saves, and how much time it costs."""
    saved = found["memory_kept_bytes"] - found["memory_bytes"]
    share = found["again_seconds"] / (found["work_seconds"] - found["again_seconds"])
    return (
        f"by run.max_memory: {readable(saved)} less than {readable(found['memory_kept_bytes'])}, "
        f"{share:.1%} more work; the same bits"
    )


def _uses(bytes_: dict[str, int]) -> str:
    """Return what memory serves at the busiest moment, largest first, without what is under 1 %."""
    total = sum(bytes_.values())
    ranked = sorted(bytes_.items(), key=lambda it: -it[1])
    return ", ".join(f"{use} {readable(size)}" for use, size in ranked if size > total / 100)


def _size(triple: tuple[int, ...]) -> str:
    return "x".join(map(str, triple))


def _count(item: dict[str, Any]) -> str:
    return f"{item['parameters']:,}" if item["parameters"] else ""
