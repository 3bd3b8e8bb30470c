"""What runs meanwhile runs beside the block, and is waited for."""

import threading

import pytest

from znnpy.meanwhile import meanwhile


def test_both_run_at_once() -> None:
    begun, go, done = threading.Event(), threading.Event(), list[str]()

    def work() -> None:
        begun.set()
        assert go.wait(10)
        done.append("work")

    with meanwhile(work):
        assert begun.wait(10)
        assert not done
        go.set()
    assert done == ["work"]


def test_what_it_raises_is_raised_at_the_end() -> None:
    done = list[str]()

    def fails() -> None:
        raise ValueError("it failed")

    with pytest.raises(ValueError, match="it failed"), meanwhile(fails):
        done.append("block")
    assert done == ["block"]
    with pytest.raises(KeyError, match="block"), meanwhile(fails):
        raise KeyError("block")
