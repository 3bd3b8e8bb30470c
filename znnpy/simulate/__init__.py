"""What more workers would bring: the scheduler's policy replayed in time that is added up."""

from znnpy.simulate.curve import WORKERS, compare_policies, curve, simulate_profile
from znnpy.simulate.grain import grain
from znnpy.simulate.measured import Measured
from znnpy.simulate.replay import IDEAL, Machine, Outcome, Replay, simulate
from znnpy.simulate.sums import STRATEGIES, FanIn, simulate_sums

__all__ = [
    "IDEAL",
    "STRATEGIES",
    "WORKERS",
    "FanIn",
    "Machine",
    "Measured",
    "Outcome",
    "Replay",
    "compare_policies",
    "curve",
    "grain",
    "simulate",
    "simulate_profile",
    "simulate_sums",
]
