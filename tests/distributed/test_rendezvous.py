"""Processes that cannot become ranks say in one line why."""

import os
import re
import subprocess
import sys
import threading
import time
from contextlib import nullcontext

import pytest
from called import status_of
from ranked import SECONDS, ranked
from train.small_run import write_config

from znnpy.distributed import rendezvous
from znnpy.distributed.errors import DistributedError, KnownToAllError
from znnpy.distributed.launcher import announcing
from znnpy.distributed.rendezvous import in_time
from znnpy.errors import ZnnpyError

JOIN = "from znnpy.distributed.rendezvous import joined\nwith joined(): pass"
TRAIN = "import sys; {}; from znnpy.cli import main; main(['train', 'config.yaml'])"


def said(before, **environment):
    line = [sys.executable, "-c", TRAIN.format(before)]
    here = os.environ | environment
    done = subprocess.run(line, capture_output=True, text=True, env=here, timeout=SECONDS)
    assert (done.returncode, done.stdout) == (1, "")
    return done.stderr


@pytest.mark.slow
def test_without_mpi4py_one_line_says_what_to_install():
    words = said("sys.modules['mpi4py'] = None", PMI_RANK="0", PMI_SIZE="2")
    assert words == (
        'znnpy: a run over several ranks needs mpi4py: pip install "znnpy[mpi]", then mpiexec -n 2 znnpy ...\n'
    )


@pytest.mark.slow
def test_without_an_mpi_library_one_line_says_what_to_install():
    words = said("pass", PMI_RANK="0", PMI_SIZE="2", MPI4PY_LIBMPI="/nowhere/libmpi.so")
    assert words.endswith("pip install mpich, then mpiexec -n 2 znnpy ...\n")
    assert words.count("\n") == 1


@pytest.mark.slow
def test_another_rank_leaves_the_word_to_rank_0():
    assert said("sys.modules['mpi4py'] = None", PMI_RANK="1", PMI_SIZE="2") == ""


@pytest.mark.slow
def test_the_first_rank_of_a_host_has_a_word_if_it_is_still_there():
    words = said("sys.modules['mpi4py'] = None", PMI_RANK="4", PMI_SIZE="8", MPI_LOCALRANKID="0")
    assert words.startswith("znnpy: rank 4: a run over several ranks needs mpi4py: pip install")


UNTHREADED = f"""
import os, threading
start = threading.Thread.start
def refused(thread):
    if os.environ["PMI_RANK"] == "1" and thread.name == os.environ["REFUSED"]:
        raise RuntimeError("can't start new thread")
    start(thread)
threading.Thread.start = refused
{JOIN}
"""


@pytest.mark.slow
@pytest.mark.parametrize("name", ["znnpy messages", "znnpy later"])
def test_a_rank_that_can_start_no_thread_ends_all_at_once(monkeypatch, name):
    monkeypatch.setenv("REFUSED", name)
    done = ranked(3, "-c", UNTHREADED, options=("-disable-auto-cleanup",))
    assert done.returncode != 0
    assert done.stderr.count("znnpy: ") == 1
    assert "znnpy: rank 1: the system lets this process start no more threads" in done.stderr


@pytest.mark.slow
def test_a_launcher_that_mpi_does_not_know_is_noticed():
    words = said("pass", SLURM_STEP_NUM_TASKS="4", SLURM_PROCID="0")
    assert "4 ranks were started, but the MPI library of mpi4py sees this one alone" in words


@pytest.fixture
def launched(monkeypatch):
    """What a launcher says to a process that has met nobody."""

    def launch(**environment):
        for name in announcing():
            monkeypatch.delenv(name)
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(rendezvous, "_met", False)
        monkeypatch.setattr(rendezvous, "in_time", lambda *_: nullcontext())
        monkeypatch.setattr(rendezvous.time, "sleep", lambda _: None)

    return launch


@pytest.mark.parametrize("command", ["train", "check", "profile", "evaluate"])
def test_processes_that_know_no_mpi_do_not_work_alone(launched, capfd, tmp_path, command):
    launched(RANK="0", WORLD_SIZE="3")
    assert status_of(command, write_config(tmp_path)) == 1
    words = capfd.readouterr().err
    assert words.count("\n") == 1
    assert words.startswith(("znnpy: 3 processes were started", "znnpy: znnpy evaluate is done by"))
    assert "torchrun" in words
    assert "env -u WORLD_SIZE znnpy" in words
    assert "mpiexec -n 3 znnpy" in words or command == "evaluate"
    assert [path.name for path in tmp_path.iterdir() if path.is_dir()] == []
    launched(RANK="2", WORLD_SIZE="3")  # what rank 0 says
    assert status_of(command, tmp_path / "config.yaml") == 1
    assert capfd.readouterr().err == ""
    assert status_of(command, "--nonsense") != 0  # as who is alone says
    assert status_of(command, "--help") == 0
    assert capfd.readouterr() == ("", "")


def test_processes_that_know_no_mpi_do_not_try_to_meet(launched, monkeypatch):
    launched(RANK="0", WORLD_SIZE="2")
    monkeypatch.setattr(rendezvous, "_meeting", lambda *_: pytest.fail("has met others"))
    rendezvous.end_together(ZnnpyError("config.yaml is missing"))


def test_a_rank_of_an_uncounted_world_that_mpi_does_not_see_is_refused(launched, monkeypatch):
    launched(PMIX_RANK="0")
    monkeypatch.setattr(rendezvous.World, "open", lambda *_: rendezvous.World())
    with pytest.raises(DistributedError, match="env -u PMIX_RANK znnpy"), rendezvous.joined():
        pytest.fail("works alone")


@pytest.mark.slow
def test_alone_nothing_of_mpi_is_loaded():
    code = (
        "import sys\nfrom znnpy.cli import main\ntry: main(['train', 'no.yaml'])\n"
        "except SystemExit: print([name for name in sys.modules if 'mpi4py' in name])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "no.yaml" in done.stderr
    assert done.stdout == "[]\n"


STOPS = """
import os, signal, sys, time
from pathlib import Path
where, who, there = sys.argv[1:]
def stop(*_):
    if os.environ["PMI_RANK"] == who:
        os.kill(os.getpid(), signal.SIGSTOP)
def come():
    Path(there, os.environ["PMI_RANK"]).touch()
if where == "before":
    os.environ["PMI_RANK"] == who and come()
    stop()
from znnpy.distributed import failure_detector, rendezvous
if where == "when MPI has begun":
    rendezvous.Watch = lambda *_: stop() or failure_detector.Watch(*_)
if where == "at the end":
    rendezvous.END = 2
    rendezvous.Watch.stop = stop
come()
while len(os.listdir(there)) < 3:  # else one may load while the others' time passes
    time.sleep(0.01)
with rendezvous.joined() as all_ranks:
    pass
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("where", "rank"),
    [("before", 1), ("before", 0), ("before", 2), ("when MPI has begun", 1), ("at the end", 1)],
)
def test_ranks_do_not_wait_without_end_for_one_that_is_stopped(monkeypatch, tmp_path, where, rank):
    patience = 8 if where == "when MPI has begun" else 2  # some spin that long
    if where != "at the end":
        monkeypatch.setenv("ZNNPY_BEGIN_SECONDS", str(patience))
    done = ranked(3, "-c", STOPS, where, rank, tmp_path)
    assert done.returncode != 0
    assert done.stderr.count("znnpy: ") == 1
    missing = "ended" if where == "at the end" else "begun"
    assert f"have not {missing} after {patience} s" in done.stderr
    assert f"rank {rank} (pid " in done.stderr
    assert "is stopped" in done.stderr


@pytest.mark.slow
def test_ranks_do_not_wait_without_end_for_one_that_has_left(monkeypatch):
    monkeypatch.setenv("ZNNPY_BEGIN_SECONDS", "2")
    done = ranked(3, "-c", f"import os; os.environ['PMI_RANK'] == '0' and os._exit(0)\n{JOIN}")
    assert done.returncode != 0
    assert "one may be stopped, or have ended before MPI began" in done.stderr


@pytest.mark.parametrize("given", ["inf", "soon", "nan", "0", "-1"])
def test_a_time_to_begin_that_is_no_number_is_refused(monkeypatch, given):
    for name, value in {"PMI_RANK": "0", "PMI_SIZE": "2", rendezvous.BEGIN_SECONDS: given}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(rendezvous, "_met", False)
    monkeypatch.setattr(rendezvous, "in_time", lambda *_: pytest.fail("waits for others"))
    words = f"{rendezvous.BEGIN_SECONDS} is {given!r}, which is no number of seconds above 0"
    with pytest.raises(DistributedError, match=re.escape(words)), rendezvous.joined():
        pass


@pytest.mark.slow
def test_a_time_to_begin_that_is_no_number_is_one_line():
    words = said("pass", PMI_RANK="0", PMI_SIZE="2", ZNNPY_BEGIN_SECONDS="soon")
    expected = "ZNNPY_BEGIN_SECONDS is 'soon', which is no number of seconds above 0"
    assert words == f"znnpy: {expected}\n"


def test_a_time_to_begin_may_be_longer_than_clocks_count():
    with in_time(1e300, str):
        timers = [it for it in threading.enumerate() if isinstance(it, threading.Timer)]
        time.sleep(0.1)
        assert timers
        assert all(timer.is_alive() for timer in timers)


SPEAKS = """
import os, sys, time
from znnpy.cli import app
from znnpy.distributed.rendezvous import joined
def speak():
    with joined() as world:
        pass
    if world.rank == 0:
        time.sleep(1)
        print("spoken", flush=True)
app._commands = lambda *_: lambda *_, **__: sys.exit(speak())
app.main()
"""


def test_rank_0_lives_until_it_has_spoken():
    done = ranked(2, "-c", SPEAKS, "now")
    assert (done.returncode, done.stdout, done.stderr) == (0, "spoken\n", "")


@pytest.mark.parametrize("error", [SystemExit(130), KnownToAllError("one process does this")])
def test_ranks_do_not_meet_for_signals_and_for_what_all_know(monkeypatch, error):
    def met(*_):
        raise AssertionError

    monkeypatch.setattr(rendezvous, "_meeting", met)
    monkeypatch.setenv("PMI_SIZE", "2")
    monkeypatch.setenv("PMI_RANK", "0")
    rendezvous.end_together(error)


@pytest.fixture
def waits(monkeypatch):
    """How long this process, which is rank 1 of 2 and has met nobody, waits."""
    found = []
    monkeypatch.setattr(rendezvous, "_met", False)
    monkeypatch.setattr(rendezvous.time, "sleep", found.append)
    monkeypatch.setenv("PMI_SIZE", "2")
    monkeypatch.setenv("PMI_RANK", "1")
    return found


def test_other_ranks_wait_once_for_the_word_of_rank_0(monkeypatch, waits):
    monkeypatch.setenv("ZNNPY_BEGIN_SECONDS", "soon")
    with pytest.raises(SystemExit) as left, rendezvous.joined():
        pytest.fail("has met others")
    rendezvous.end_together(left.value)
    assert waits == [rendezvous.FOR_RANK_0]


def test_rank_0_may_be_late_to_say_what_all_know(waits):
    """Where a launcher kills it as soon as another rank has failed."""
    with pytest.raises(SystemExit):
        rendezvous.end_together(KnownToAllError("one process does this"))
    assert waits == [rendezvous.FOR_RANK_0]
