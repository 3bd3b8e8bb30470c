"""One rank of znnpy: updates of a case by each strategy, and of one rank alone; rank 0 prints JSON.

mpiexec -n 2 python ours.py --net 3x64 --strategies tree blocking
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from peers.cases import Case

import znnpy
from ranks.cases import case_of, compared
from znnpy.config.training_section import DistributedSection
from znnpy.distributed.strategies import STRATEGIES
from znnpy.distributed.world import World


class Rank:
    """A case's updates, a microbatch a rank, which all ranks add up by a strategy; without one, no messages."""

    def __init__(
        self,
        case: Case,
        threads: int,
        world: World,
        conv: str,
        by: DistributedSection | None = None,
        plan: Any = None,
    ) -> None:
        self.world = world
        hardware = znnpy.Hardware(ranks=world, distributed=by) if by else None
        self.model = znnpy.Model(
            case.network,
            output_shape=case.output_shape,
            batch=case.batch * (world.size if by else 1),
            training=znnpy.Training(microbatch=case.batch),
            threads=threads,
            loss=case.loss,
            conv=conv,
            plan=plan,
            optimizer=znnpy.Optimizer("sgd", momentum=0.9),
            hardware=hardware,
        )
        self.sample = case.sample(world.rank)

    def seconds(self, count: int) -> float:
        """Seconds of an update on the slowest rank, of so many in a row that begin on all ranks at once."""
        self.world.exchange(None)
        start = time.perf_counter()
        for _ in range(count):
            self.model.submit(*self.sample, learning_rate=0.01)
        self.model.drain()
        return max(self.world.exchange((time.perf_counter() - start) / count))

    def close(self) -> None:
        """Free the memory."""
        self.model.close()


def main() -> None:
    """Time blocks of updates of one strategy after the other, each beside updates without messages."""
    options = _options()
    case, found = case_of(options.net, options.samples), {}
    with World.open() as world:
        common = case, options.threads, world, options.conv
        plan = None
        if world.rank == 0:  # which all have, so that they differ in messages alone
            with contextlib.closing(Rank(*common)) as first:
                plan = first.model.plan_record
        plan = world.broadcast(plan)
        alone = Rank(*common, plan=plan)
        for word in options.strategies:
            name, _, colors = word.partition(":")
            section = {"strategy": name} | ({"colors": int(colors)} if colors else {})
            if os.environ.get("MPIR_CVAR_NOLOCAL") == "1":  # as if each rank had a host of its own
                section["shared_memory"] = False
            together = Rank(*common, DistributedSection(**section), plan)
            for rank in (together, alone):
                rank.seconds(3)
            blocks = [
                (together.seconds(options.updates), alone.seconds(options.updates))
                for _ in range(options.blocks)
            ]
            together.close()
            found[word] = compared(blocks)
        parameters = sum(value.size for value in alone.model.parameters.values())
        alone.close()
        if world.rank == 0:
            print(json.dumps({"strategies": found, "bytes": 4 * parameters}))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--net", default="3x64")
    parser.add_argument("--samples", type=int, help="of each rank (default: the recipe's, or 1)")
    parser.add_argument("--strategies", nargs="+", default=list(STRATEGIES))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--conv", default="auto", help="algorithm of convolutions")
    parser.add_argument("--updates", type=int, default=5)
    parser.add_argument("--blocks", type=int, default=5)
    return parser.parse_args()


if __name__ == "__main__":
    main()
