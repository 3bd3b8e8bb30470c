import ctypes
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from znnpy.train.signals import CALLING_BACK, Stopped, StopSignals

TWICE = """
import os, signal
from znnpy.train.signals import StopSignals
with StopSignals() as stop, stop.deferred():
    os.kill(os.getpid(), signal.SIGINT)
    print(stop.requested, flush=True)
    os.kill(os.getpid(), signal.SIGINT)
    print("still here", flush=True)
"""


@pytest.fixture
def listening():
    """Also where the tests were started by `nohup`."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.usefixtures("listening")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_deferred_is_noted_and_not_deferred_is_raised(number):
    before = signal.getsignal(number)
    with StopSignals() as stop, stop.deferred():
        os.kill(os.getpid(), number)
        assert stop.requested == number
    with StopSignals(), pytest.raises(Stopped, match=number.name):
        os.kill(os.getpid(), number)
    assert signal.getsignal(number) is before


def test_a_signal_within_a_callback_comes_again_behind_it(capfd):
    """Ctypes prints and drops what a callback raises, so the signal would be lost."""
    told: list[int | None] = []
    names = {"__name__": CALLING_BACK, "os": os, "signal": signal, "told": told}
    exec("def callback():\n    os.kill(os.getpid(), signal.SIGTERM)\n    told.append(1)", names)
    with StopSignals() as stop:
        ctypes.CFUNCTYPE(None)(names["callback"])()
        assert told == [1]
        assert stop.requested is None
        with pytest.raises(Stopped, match="SIGTERM"):
            time.sleep(30)
    assert capfd.readouterr().err == ""


def test_a_hangup_that_is_ignored_still_is():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with StopSignals():
            os.kill(os.getpid(), signal.SIGHUP)
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_second_signal_leaves_at_once():
    done = subprocess.run([sys.executable, "-c", TWICE], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (130, "2\n")


def test_second_signal_leaves_at_once_where_nobody_hears_of_it():
    """Of a process without that stream its number is a file's."""
    code = TWICE.replace("import ", "import sys; sys.stderr = None\nimport ", 1)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (130, "2\n", "")


def test_a_terminal_that_closes_sends_its_signal_twice():
    code = """
import os, signal
from znnpy.train.signals import StopSignals
signal.signal(signal.SIGHUP, signal.SIG_DFL)
with StopSignals() as stop, stop.deferred():
    os.kill(os.getpid(), signal.SIGHUP)
    os.kill(os.getpid(), signal.SIGHUP)
    print(stop.requested, flush=True)
    os.kill(os.getpid(), signal.SIGINT)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (130, "1\n")


def test_other_threads_leave_handlers_alone():
    found = []

    def inside():
        with StopSignals():
            found.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=inside)
    thread.start()
    thread.join()
    assert found == [signal.getsignal(signal.SIGINT)]


STUCK = """
import os, signal, time
from znnpy.train.signals import StopSignals
with StopSignals():
    try:
        os.kill(os.getpid(), signal.SIGTERM)
    finally:
        time.sleep(60)
"""


def test_where_nothing_is_saved_a_slow_clean_up_is_cut_short():
    assert subprocess.run([sys.executable, "-c", STUCK]).returncode == 143
