"""Predicts speed on more workers or ranks: replays the scheduler's policy in simulated time."""

from znnpy.simulate.allreduce import Exchange, Links, exchanged
from znnpy.simulate.granularity import grain
from znnpy.simulate.measured_costs import Measured
from znnpy.simulate.memory import Figures, Memory
from znnpy.simulate.rank_scaling import RANKS, simulate_scaling
from znnpy.simulate.replay import IDEAL, Machine, Replay
from znnpy.simulate.run import Message, Outcome, simulate, simulate_ranks
from znnpy.simulate.speedup_curve import WORKERS, compare_policies, curve, simulate_profile
from znnpy.simulate.sum_strategies import STRATEGIES, FanIn, simulate_sums
from znnpy.simulate.what_if import what_if

__all__ = [
    "IDEAL",
    "RANKS",
    "STRATEGIES",
    "WORKERS",
    "Exchange",
    "FanIn",
    "Figures",
    "Links",
    "Machine",
    "Measured",
    "Memory",
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
    "what_if",
]
