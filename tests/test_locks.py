"""Locks between processes: whoever waits for one that is stopped says so, and can be interrupted."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from znnpy_kernels.machine import cache

from znnpy import locks
from znnpy.locks import alone
from znnpy.plan import fftw, wisdom
from znnpy.plan.types import Method
from znnpy.train.run_directory import remember

HOLDER = """
import sys
from pathlib import Path
from znnpy.locks import alone
with alone(Path(sys.argv[1]), "waits"):
    print("held", flush=True)
    sys.stdin.read()
"""


@contextmanager
def stopped_holder(path: Path) -> Iterator[int]:
    """A process that has the lock and is stopped; its number."""
    pipe = subprocess.PIPE
    line = [sys.executable, "-c", HOLDER, str(path)]
    with subprocess.Popen(line, stdin=pipe, stdout=pipe, text=True) as holder:
        try:
            assert holder.stdout
            assert holder.stdout.readline() == "held\n"
            holder.send_signal(signal.SIGSTOP)
            os.waitpid(holder.pid, os.WUNTRACED)
            yield holder.pid
        finally:
            holder.kill()


@contextmanager
def told(monkeypatch: pytest.MonkeyPatch, patience: float = 0.1) -> Iterator[list[str]]:
    """What is warned of within."""
    said: list[str] = []
    monkeypatch.setattr(locks, "PATIENCE", patience)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        monkeypatch.setattr(warnings, "showwarning", lambda text, *_: said.append(str(text)))
        yield said


@contextmanager
def meanwhile(said: list[str], act: signal.Signals, process: int) -> Iterator[None]:
    """Send a signal to a process once something has been said, or after minutes."""

    def send() -> None:
        deadline = time.monotonic() + 300
        while not said and time.monotonic() < deadline:
            time.sleep(0.01)
        os.kill(process, act)

    sender = threading.Thread(target=send, daemon=True)
    sender.start()
    yield
    sender.join(600)


def fft_planned() -> None:
    with fftw._planner():
        pass


def cost_noted() -> None:
    costs = {Method("direct"): {"forward": 1.0}}
    wisdom.remember("layer", costs, costs)


@pytest.mark.parametrize(
    ("work", "name", "words"),
    [
        (fft_planned, "fftw.lock", "plans FFTs"),
        (cost_noted, "wisdom.lock", "notes what layers cost"),
        (lambda: remember(cache.made(), {"a": 1}, pytest.fail), "", "notes patches of predictions"),
    ],
    ids=["fftw", "wisdom", "patches"],
)
def test_who_waits_for_a_stopped_process_names_it_and_goes_on_after_it(
    work, name, words, tmp_path, monkeypatch
):
    monkeypatch.setenv("ZNNPY_CACHE", str(tmp_path / "cache"))
    cache.root.cache_clear()
    try:
        path = cache.made() / name
        with told(monkeypatch) as said, stopped_holder(path) as holder:
            with meanwhile(said, signal.SIGKILL, holder):
                work()
            expected = f"waits for process {holder}, which {words} and is stopped"
            assert said == [f"{expected}; kill -CONT {holder} lets it go on"]
    finally:
        cache.root.cache_clear()


def test_ctrl_c_ends_the_wait(tmp_path, monkeypatch):
    with (
        told(monkeypatch) as said,
        stopped_holder(tmp_path / "lock"),
        meanwhile(said, signal.SIGINT, os.getpid()),
        pytest.raises(KeyboardInterrupt),
        alone(tmp_path / "lock", "waits"),
    ):
        pytest.fail("has the lock")
    assert len(said) == 1


def test_short_waits_are_not_told(tmp_path, monkeypatch):
    with told(monkeypatch, patience=60.0) as said, stopped_holder(tmp_path / "lock") as holder:
        timer = threading.Timer(0.3, os.kill, (holder, signal.SIGKILL))
        timer.start()
        with alone(tmp_path / "lock", "waits"):
            timer.join()
    assert said == []


@pytest.mark.parametrize("device", ["ff:fe", "no:ne", None], ids=["other", "unnamed", "unseen"])
def test_whoever_cannot_be_seen_is_another_process(device, tmp_path, monkeypatch):
    """The kernel's list has no such file, or none of this device."""
    (tmp_path / "lock").touch()
    if device:
        place = f"{device}:{(tmp_path / 'lock').stat().st_ino}"
        (tmp_path / "list").write_text(f"1: FLOCK ADVISORY WRITE {os.getppid()} {place} 0 EOF\n")
    monkeypatch.setattr(locks, "LOCKS", tmp_path / "list")
    with (
        told(monkeypatch) as said,
        stopped_holder(tmp_path / "lock") as holder,
        meanwhile(said, signal.SIGKILL, holder),
        alone(tmp_path / "lock", "plans FFTs"),
    ):
        pass
    assert said == ["waits for another process, which plans FFTs"]


def test_nothing_is_said_of_another_thread(tmp_path, monkeypatch):
    def hold() -> None:
        with alone(tmp_path / "lock", "waits"):
            time.sleep(0.5)

    with told(monkeypatch) as said:
        both = [threading.Thread(target=hold, daemon=True) for _ in range(2)]
        for thread in both:
            thread.start()
        for thread in both:
            thread.join(300)
    assert not any(thread.is_alive() for thread in both)
    assert said == []


def test_who_has_it_after_another_thread_is_told(tmp_path, monkeypatch):
    holders, found = [os.getpid()], locks._holder
    monkeypatch.setattr(locks, "_holder", lambda file: holders.pop() if holders else found(file))
    with (
        told(monkeypatch) as said,
        stopped_holder(tmp_path / "lock") as holder,
        meanwhile(said, signal.SIGKILL, holder),
        alone(tmp_path / "lock", "plans FFTs"),
    ):
        pass
    assert not holders
    assert len(said) == 1
    assert f"process {holder}, which plans FFTs" in said[0]
