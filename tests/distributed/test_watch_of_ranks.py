"""Ranks that are killed, stopped, or fail: the others end soon, and one of them says why."""

import signal
import subprocess
import sys
import time

import pytest
from ranked import SECONDS, mpiexec, ranked, ranks_of, send

SCRIPT = """
import os, signal, sys, threading, time
from pathlib import Path
from znnpy.distributed import failure_detector
from znnpy.distributed.errors import DistributedError
from znnpy.distributed.rendezvous import joined
from znnpy.errors import VolumeError
from znnpy.train.signals import Stopped

what, who = sys.argv[1], int(sys.argv[2])
if what in ("SIGSTOP", "leave"):
    failure_detector.BEAT = 0.3
if what == "suspend":
    failure_detector.BEAT = 0.2
try:
    with joined(debug=what == "trace") as world:
        if world.rank == who:
            if what in ("fail", "trace"):
                raise VolumeError("a.h5 is damaged")
            if what == "break":
                world.messenger.call(lambda: 1 / 0)
            if what == "threads":
                def refused(thread):
                    raise RuntimeError("can't start new thread")
                threading.Thread.start = refused
                raise VolumeError("the system lets no more than 1 of 4 worker threads start")
            if what == "signal":
                raise Stopped(signal.SIGINT)
            if what in ("SIGSTOP", "leave"):
                world.exchange(None)  # else others may wait for words with which they begin
            if what in ("SIGKILL", "SIGSTOP"):
                os.kill(os.getpid(), getattr(signal, what))
            if what == "leave":
                os._exit(0)
        if what in ("fail", "trace", "threads", "SIGSTOP", "leave"):
            world.exchange(None)
        if what == "suspend":
            print("joined\\n", end="", flush=True)  # at once, or the ranks' lines mix
            while not Path(sys.argv[3]).exists():
                time.sleep(0.05)
        elif what != "end":
            time.sleep(1000)
except (VolumeError, DistributedError) as error:
    print("rank 0 says itself:", error, file=sys.stderr)
    sys.exit(1)
except Stopped as error:
    os._exit(130)
print("done", flush=True)
"""
# mpiexec kills the others itself when a rank has ended badly, unless it is told not to.
ALONE = ("-disable-auto-cleanup",)


def ended(ranks, *words, options=()):
    return ranked(ranks, "-c", SCRIPT, *words, options=options)


@pytest.mark.slow
def test_all_end_together():
    done = ended(3, "end", -1)
    assert (done.returncode, done.stdout.count("done"), done.stderr) == (0, 3, "")


@pytest.mark.quick(1)
@pytest.mark.parametrize("rank", [0, 2])
def test_an_error_of_one_ends_all_and_is_said_once(rank):
    done = ended(3, "fail", rank)
    assert done.returncode == 1
    assert done.stderr.count("a.h5 is damaged") == 1
    assert ("itself: a.h5" if rank == 0 else f"itself: rank {rank} (pid ") in done.stderr


@pytest.mark.slow
def test_where_an_error_of_another_comes_from_is_shown_with_its_number():
    done = ended(3, "trace", 2)
    assert done.returncode != 0
    _, *trace, end = done.stderr.partition("rank 0 says itself: ")[2].splitlines()
    assert trace[0] == "rank 2: Traceback (most recent call last):"
    assert all(line.startswith("rank 2: ") for line in trace)
    assert end == "rank 2: znnpy.errors.VolumeError: a.h5 is damaged"


@pytest.mark.slow
def test_a_signal_to_one_ends_all():
    done = ended(3, "signal", 1)
    assert done.returncode != 0
    assert "stopped by SIGINT" in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("what", "rank"), [("SIGSTOP", 1), ("SIGSTOP", 0), ("leave", 0), ("leave", 1)]
)
def test_one_that_falls_silent_ends_all(rank, what):
    done = ended(3, what, rank, options=ALONE)
    assert done.returncode != 0
    assert f"znnpy: rank {rank} (pid " in done.stderr
    assert "has not answered for 4 s" in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("rank", [0, 1])
def test_one_that_is_killed_ends_all(rank):
    done = ended(3, "SIGKILL", rank)
    assert done.returncode != 0
    assert "KILLED" in (done.stdout + done.stderr).upper()  # mpiexec says it


@pytest.mark.slow
@pytest.mark.parametrize("rank", [0, 2])
def test_one_that_can_start_no_more_threads_tells_it_at_once(rank):
    done = ended(3, "threads", rank, options=ALONE)
    assert done.returncode != 0
    assert done.stderr.count("no more than 1 of 4 worker threads") == 1
    assert ("itself: the sys" if rank == 0 else f"itself: rank {rank} (pid ") in done.stderr
    assert "has not answered" not in done.stderr


@pytest.mark.slow
def test_a_broken_communication_thread_says_so():
    done = ended(2, "break", 1)
    assert done.returncode != 0
    assert "division by zero" in done.stderr


@pytest.mark.slow
def test_a_run_that_was_suspended_goes_on(tmp_path):
    """For longer than ranks may be silent while the others run."""
    line = mpiexec(2, sys.executable, "-c", SCRIPT, "suspend", -1, tmp_path / "end")
    with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as run:
        assert run.stdout
        assert [run.stdout.readline() for _ in range(2)] == ["joined\n"] * 2
        for number in (signal.SIGSTOP, signal.SIGCONT):
            send(number, ranks_of(run).values())
            time.sleep(4)
        (tmp_path / "end").touch()
        out, said = run.communicate(timeout=SECONDS)
    assert (run.returncode, out.count("done"), said) == (0, 2, "")
