"""What happens to a running job: `FAULTS` by name, each with what must follow."""

from __future__ import annotations

import errno
import resource
import shutil
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random

from soaking.disk import Disk
from soaking.jobs import Job, Prediction, Training
from soaking.process import LONGEST, Process, WrongError

NO_ROOM = r"No space left on device|disk is full|no room on the disk"
TOO_LARGE = r"File too large"
IN_USE = r"another process|exists already"
CHANGED = r"was cut or changed outside its blocks|damaged|changed"
GRACE = 60.0  # seconds within which a process that is asked to end must do so


@dataclass
class Hit:
    """A job that runs, and what a fault needs to disturb it. A fault may put another process there."""

    job: Job
    process: Process
    choose: Random
    again: Callable[[], Process]  # the same command once more
    disk: Disk | None
    cache: Path
    met: str = ""  # words about earlier faults that the process may still complain about
    late: str = ""  # and about this one, once it is over

    def or_met(self, words: str) -> str:
        """Words about this fault, or an earlier one."""
        return "|".join(filter(None, (words, self.met)))

    def killed(self) -> bool:
        """End the process by force, before files are damaged; False if it was done just now."""
        self.process.signal(signal.SIGKILL)
        ending = self.process.ending()
        ending.require({-signal.SIGKILL, 0})
        return ending.code != 0


Fault = Callable[[Hit], bool]
"""Disturbs; False when there was nothing to disturb."""


def killed(hit: Hit) -> bool:
    return hit.killed()


def terminated(hit: Hit) -> bool:
    return _asked(hit, signal.SIGTERM)


def interrupted(hit: Hit) -> bool:
    return _asked(hit, signal.SIGINT)


def stopped_for_a_while(hit: Hit) -> bool:
    hit.process.signal(signal.SIGSTOP)
    time.sleep(hit.choose.uniform(0.1, 3))
    hit.process.signal(signal.SIGCONT)
    return True


def full_disk(hit: Hit) -> bool:
    return _failing(hit, errno.ENOSPC, NO_ROOM)


def broken_disk(hit: Hit) -> bool:
    return _failing(hit, errno.EIO, r"Input/output error")


def killed_within_a_call(hit: Hit) -> bool:
    """At a call to the disk; a write is done by half."""
    if hit.disk is None:
        return False
    hit.disk.arm(hit.choose.randrange(40), 0)
    ended = hit.process.wait(5)
    hit.disk.disarm()
    if ended:
        hit.process.ending().require({-signal.SIGKILL, 0})
    return ended


def no_larger_files(hit: Hit) -> bool:
    """What `ulimit -f` does, for a while."""
    size = hit.choose.choice((0, 4096, 1 << 16))
    try:
        before = resource.prlimit(hit.process.pid, resource.RLIMIT_FSIZE, (size, -1))
    except ProcessLookupError:
        return False
    if not hit.process.wait(hit.choose.uniform(0.1, 5)):
        resource.prlimit(hit.process.pid, resource.RLIMIT_FSIZE, before)
        hit.late = TOO_LARGE
        return True
    hit.process.ending().require({0, 1}, hit.or_met(TOO_LARGE))
    return True


def second_process(hit: Hit) -> bool:
    """The same command is started beside: one of the two is refused, the other goes on."""
    other = hit.again()
    until = time.monotonic() + GRACE
    while hit.process.running and other.running and time.monotonic() < until:
        time.sleep(0.05)
    if hit.process.running and other.running:
        other.end()
        raise WrongError("two processes run the same job")
    ended, left = (other, hit.process) if hit.process.running else (hit.process, other)
    ending = ended.ending()
    ending.require({0, 1}, IN_USE)
    if ending.code == 0:  # it was done just now: the other finds nothing to do
        left.ending().require({0, 1}, IN_USE)
    hit.process = ended if ending.code == 0 else left
    return True


def damaged_checkpoint(hit: Hit) -> bool:
    """A byte of the newest checkpoint changes; the one before it is whole."""
    job = hit.job
    if not isinstance(job, Training) or not hit.killed() or len(job.checkpoints) < 2:
        return False
    job.watch()
    _damage(job.checkpoints[0], hit.choose)
    job.forget_newest()
    return True


def damaged_log(hit: Hit) -> bool:
    """A byte of the run's log changes, which harms the line that it is in (or ends)."""
    job = hit.job
    if not isinstance(job, Training) or not hit.killed() or not job.log.exists():
        return False
    before = job.log.read_bytes()
    if not before:
        return False
    place = _damage(job.log, hit.choose)
    after = job.log.read_bytes()
    first = before.rfind(b"\n", 0, place) + 1
    last = before.find(b"\n", place + 1)
    last = len(before) if last < 0 else last
    job.harmed += before[first:last].splitlines()
    job.broken += after[first:last].splitlines()
    return True


def lost_kernels(hit: Hit) -> bool:
    """All compiled kernels vanish."""
    if not hit.killed():
        return False
    shutil.rmtree(hit.cache, ignore_errors=True)
    return True


def cut_kernel(hit: Hit) -> bool:
    """A file of a compiled kernel loses its end."""
    return hit.killed() and _cut(sorted(hit.cache.rglob("*.nb?")), hit.choose)


def cut_partial(hit: Hit) -> bool:
    """A file of the output that is being written loses its end; the command goes on or refuses."""
    job = hit.job
    if not hit.killed() or not _cut(job.files, hit.choose):
        return False
    if isinstance(job, Prediction):
        job.watch()
        job.forget_blocks()
        hit.process = hit.again()
        _look_at_what_is_there(job, hit.process)
        if not hit.process.running and (ending := hit.process.ending()).code:
            ending.require({1}, CHANGED)
            job.discard()
    return True


FAULTS: dict[str, Fault] = {
    "kill": killed,
    "term": terminated,
    "int": interrupted,
    "stop": stopped_for_a_while,
    "full": full_disk,
    "broken": broken_disk,
    "half-write": killed_within_a_call,
    "file-size": no_larger_files,
    "second": second_process,
    "checkpoint": damaged_checkpoint,
    "log": damaged_log,
    "cache": lost_kernels,
    "kernel": cut_kernel,
    "partial": cut_partial,
}


def _asked(hit: Hit, number: int) -> bool:
    """Ask to end; before Python has started, the signal itself ends the process."""
    hit.process.signal(number)
    if not hit.process.wait(GRACE):
        raise WrongError(f"no end within {GRACE:.0f} s of {signal.Signals(number).name}")
    hit.process.ending().require({128 + number, -number, 0})
    return True


def _failing(hit: Hit, failure: int, words: str) -> bool:
    """The disk fails for a while: the process ends with one line about it, or has noticed nothing."""
    if hit.disk is None:
        return False
    hit.disk.arm(hit.choose.randrange(10), failure)
    hit.process.wait(hit.choose.uniform(0.1, 8))
    hit.disk.disarm()
    hit.late = words
    if not hit.process.running:
        hit.process.ending().require({0, 1}, hit.or_met(words))
    return True


def _damage(path: Path, choose: Random) -> int:
    """Change a byte; its place."""
    data = bytearray(path.read_bytes())
    place = choose.randrange(len(data))
    data[place] ^= choose.randrange(1, 256)
    path.write_bytes(data)
    return place


def _look_at_what_is_there(job: Prediction, process: Process) -> None:
    """Wait until a process goes on with damaged output, or has refused it."""
    until = time.monotonic() + LONGEST
    while not job.resumed and not process.wait(0.05):
        if time.monotonic() > until:
            raise WrongError(f"neither goes on nor ends within {LONGEST:.0f} s")


def _cut(files: list[Path], choose: Random) -> bool:
    whole = [path for path in files if path.stat().st_size]
    if not whole:
        return False
    path = choose.choice(whole)
    with path.open("r+b") as file:
        file.truncate(choose.randrange(path.stat().st_size))
    return True
