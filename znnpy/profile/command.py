"""`znnpy profile`: a few recorded updates for each number of threads, written down and printed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from znnpy.config.models import Config
from znnpy.infer.build import training_model
from znnpy.network import build_network
from znnpy.profile.summary import summarise
from znnpy.profile.trace import write_trace
from znnpy.profile.updates import Profile, events_needed, profile_updates


def profile_config(
    config: Config, out: Path, updates: int = 10, threads: Sequence[int] = ()
) -> list[dict[str, Any]]:
    """Profile the config's updates; writes `trace-P.json.gz` for P threads and `summary.json`.

    Uses random data of the config's sizes, so the volumes need not be there. Returns the summaries
    in the order of `threads` (default: the config's, or all cores).
    """
    out.mkdir(parents=True, exist_ok=True)
    summaries = []
    plan: dict[str, Any] | None = None
    for count in threads or (config.run.threads,):
        profile, plan = _profile(config, count, updates, plan)
        workers = len(profile.workers)
        write_trace(profile, out / f"trace-{workers}.json.gz")
        summaries.append({"threads": workers, **summarise(profile)})
    (out / "summary.json").write_text(json.dumps(summaries, indent=1))
    return summaries


def _profile(
    config: Config, threads: int | None, updates: int, plan: dict[str, Any] | None
) -> tuple[Profile, dict[str, Any]]:
    run = config.run.model_copy(update={"threads": threads})
    config = config.model_copy(update={"run": run})
    network = build_network(config.network)
    with training_model(config, network, plan) as model:
        tasks, plan = model.task_graph.size, model.plan_record
    record = events_needed(tasks, updates + 2)
    with training_model(config, network, plan, record=record) as model:
        return profile_updates(model, updates), plan
