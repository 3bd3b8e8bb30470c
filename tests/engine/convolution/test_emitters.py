"""Every algorithm that plans know makes tasks, and the other way round."""

from znnpy.engine.convolution.passes import CONV_EMITTERS
from znnpy.plan import ALGORITHMS


def test_what_plans_know_makes_tasks():
    assert list(CONV_EMITTERS) == list(ALGORITHMS)
