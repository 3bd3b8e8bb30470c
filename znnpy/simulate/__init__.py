"""What more workers would bring: the scheduler's policy replayed in time that is added up."""

from znnpy.simulate.curve import WORKERS, compare_policies, curve, simulate_profile
from znnpy.simulate.exchange import Exchange, Links, exchanged
from znnpy.simulate.grain import grain
from znnpy.simulate.measured import Measured
from znnpy.simulate.replay import IDEAL, Machine, Replay
from znnpy.simulate.run import Message, Outcome, simulate, simulate_ranks
from znnpy.simulate.scaling import RANKS, simulate_scaling
from znnpy.simulate.sums import STRATEGIES, FanIn, simulate_sums

__all__ = [
    "IDEAL",
    "RANKS",
    "STRATEGIES",
    "WORKERS",
    "Exchange",
    "FanIn",
    "Links",
    "Machine",
    "Measured",
    "Message",
    "Outcome",
    "Replay",
    "compare_policies",
    "curve",
    "exchanged",
    "grain",
    "simulate",
    "simulate_profile",
    "simulate_ranks",
    "simulate_scaling",
    "simulate_sums",
]
