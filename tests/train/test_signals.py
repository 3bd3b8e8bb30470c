import os
import signal
import subprocess
import sys
import threading

import pytest

from znnpy.train.signals import Stopped, StopSignals

TWICE = """
import os, signal
from znnpy.train.signals import StopSignals
with StopSignals() as stop, stop.deferred():
    os.kill(os.getpid(), signal.SIGINT)
    print(stop.requested, flush=True)
    os.kill(os.getpid(), signal.SIGINT)
    print("still here", flush=True)
"""


def test_deferred_is_noted_and_not_deferred_is_raised():
    before = signal.getsignal(signal.SIGTERM)
    with StopSignals() as stop, stop.deferred():
        os.kill(os.getpid(), signal.SIGTERM)
        assert stop.requested == signal.SIGTERM
    with StopSignals(), pytest.raises(Stopped, match="SIGTERM"):
        os.kill(os.getpid(), signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) is before


def test_second_signal_leaves_at_once():
    done = subprocess.run([sys.executable, "-c", TWICE], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (130, "2\n")


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
