"""Writes the task graph for Graphviz: every task, or tasks of one name together."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from pathlib import Path

import numpy as np

from znnpy.atomic_files import write_text
from znnpy.profile.colours import colour_of
from znnpy.profile.recorded_updates import Profile
from znnpy.profile.summary import step_edges, typical_costs

Node = tuple[str, str, float]
"""Name, kind, seconds."""


def write_dot(profile: Profile, path: Path, *, full: bool = False) -> None:
    """Write one step of a profile's graph; edges to other steps are left out."""
    graph, costs = profile.graph, typical_costs(profile).tolist()
    tasks = np.flatnonzero(graph.step == 0).tolist()
    nodes = [
        (graph.names[task], graph.kinds[task], spent)
        for task, spent in zip(tasks, costs, strict=True)
    ]
    before, after = step_edges(profile)
    pairs = list(zip(before.tolist(), after.tolist(), strict=True))
    head = [
        "digraph update {",
        "  rankdir=TB; node [shape=box, style=filled, fontname=sans]; edge [color=gray50];",
    ]
    lines = _every_task(nodes, pairs) if full else _grouped(nodes, pairs)
    write_text(path, "\n".join([*head, *lines, "}", ""]))


def _every_task(nodes: list[Node], pairs: list[tuple[int, int]]) -> list[str]:
    drawn = [
        _node(f"t{number}", name, kind, spent) for number, (name, kind, spent) in enumerate(nodes)
    ]
    return drawn + [f"  t{one} -> t{other};" for one, other in pairs]


def _grouped(nodes: list[Node], pairs: list[tuple[int, int]]) -> list[str]:
    count: Counter[tuple[str, str]] = Counter()
    seconds: dict[tuple[str, str], float] = defaultdict(float)
    for name, kind, spent in nodes:
        count[name, kind] += 1
        seconds[name, kind] += spent
    number = {group: f"g{index}" for index, group in enumerate(count)}
    drawn = [
        _node(number[group], f"{group[0]}\n{tasks} tasks", group[1], seconds[group])
        for group, tasks in count.items()
    ]
    edges = Counter((number[nodes[one][:2]], number[nodes[other][:2]]) for one, other in pairs)
    return drawn + [
        f'  {one} -> {other} [label="{times}"];' for (one, other), times in edges.items()
    ]


def _node(number: str, label: str, kind: str, seconds: float) -> str:
    text = json.dumps(f"{label}\n{kind}, {seconds * 1e3:.3g} ms")
    return f'  {number} [label={text}, fillcolor="{colour_of(kind)}", fontcolor=white];'
