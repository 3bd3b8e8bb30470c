"""Training and predictions that are repeated until they are done, and what may never be lost of them."""

from __future__ import annotations

import json
import re
import shutil
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from soaking.process import WrongError
from znnpy.data.writing.destination import journal_of, partial_of
from znnpy.infer.log import log_of
from znnpy.train import checkpoint as checkpoints
from znnpy.train.run_directory import LOG

PATCH = "8,16,16"
BLOCK = "8,32,32"


def _untimed(records: Iterable[bytes]) -> list[bytes]:
    """Records without the time at which they were written, in which runs differ."""
    return [re.sub(rb', "time": [0-9.e+]+', b"", record) for record in records]


class Job(ABC):
    """A command and what it leaves, compared with what an undisturbed one left."""

    name: str
    words: list[str]

    @property
    @abstractmethod
    def done(self) -> bool:
        """Whether the output is there, though the process that made it may have been killed after."""

    @property
    @abstractmethod
    def files(self) -> list[Path]:
        """What can be damaged."""

    @abstractmethod
    def watch(self) -> None:
        """Look at what is acknowledged; WrongError if something that was is lost."""

    @abstractmethod
    def result(self) -> dict[str, bytes]:
        """All bytes that must be the same."""

    @abstractmethod
    def remove(self) -> None:
        """Make room for the next time."""

    def compare(self, whole: dict[str, bytes]) -> None:
        """WrongErrorError where the result differs from that of the undisturbed job."""
        found = self.result()
        different = [name for name in whole if found.get(name) != whole[name]]
        different += [name for name in found if name not in whole]
        if different:
            raise WrongError(f"{self.name} differs in {', '.join(different)}")


@dataclass
class Training(Job):
    """`znnpy train`."""

    config: Path
    run: Path
    name: str = "train"
    harmed: list[bytes] = field(default_factory=list)  # whole lines of the log that were damaged
    broken: list[bytes] = field(default_factory=list)  # what was made of them
    _newest: int = -1
    _damaged: set[tuple[int, int]] = field(default_factory=set)  # checkpoints, as they were seen

    @property
    def words(self) -> list[str]:  # type: ignore[override]
        return ["train", str(self.config)]

    @property
    def done(self) -> bool:
        return False  # a finished run only says so again

    @property
    def log(self) -> Path:
        """Losses and scores."""
        return self.run / LOG

    @property
    def checkpoints(self) -> list[Path]:
        """Newest first."""
        return checkpoints.listed(self.run / checkpoints.DIRECTORY)

    @property
    def files(self) -> list[Path]:
        return [path for path in self.run.rglob(".*.tmp") if path.is_file()]

    def watch(self) -> None:
        """A checkpoint that was once seen, or a newer one, is there."""
        whole = (path for path in self.checkpoints if _seen(path) not in self._damaged)
        newest = max((int(path.stem[10:]) for path in whole), default=-1)
        if newest < self._newest:
            raise WrongError(
                f"checkpoint {self._newest} was there and is lost; the newest is {newest}"
            )
        self._newest = newest

    def forget_newest(self) -> None:
        """The newest checkpoint was damaged: from now on the one before it may not be lost."""
        damaged, before, *_ = self.checkpoints
        self._damaged.add(_seen(damaged))
        self._newest = int(before.stem[10:])

    def result(self) -> dict[str, bytes]:
        found = {path.name: path.read_bytes() for path in self.checkpoints}
        return {**found, LOG: self.log.read_bytes()}

    def compare(self, whole: dict[str, bytes]) -> None:
        """Records that were damaged may be missing, if what became of them is kept somewhere."""
        found = {**self.result(), LOG: whole[LOG]}
        different = [name for name in {**whole, **found} if found.get(name) != whole.get(name)]
        if different:
            raise WrongError(f"train differs in {', '.join(different)}")
        ours, theirs = (
            _untimed(self.log.read_bytes().splitlines()),
            _untimed(whole[LOG].splitlines()),
        )
        harmed, broken = set(_untimed(self.harmed)), set(_untimed(self.broken))
        missing = [line for line in theirs if line not in set(ours)]
        strange = [line for line in ours if line not in set(theirs)]
        if set(missing) - harmed or [x for x in ours if x not in strange] != [
            x for x in theirs if x not in missing
        ]:
            raise WrongError(f"records were lost from {self.log}: {missing[:3]}")
        kept = b"".join(path.read_bytes() for path in self.run.glob("*") if path.is_file())
        gone = [line for line in self.broken if line not in kept]
        if set(strange) - broken:
            raise WrongError(f"records nobody wrote are in {self.log}: {strange[:3]}")
        if missing and len(gone) == len(self.broken):
            raise WrongError(f"damaged records of {self.log} are kept nowhere: {gone[:3]}")

    def remove(self) -> None:
        shutil.rmtree(self.run)
        self._newest = -1
        self._damaged.clear()
        self.harmed.clear()
        self.broken.clear()


@dataclass
class Prediction(Job):
    """`znnpy predict` to a file or folder."""

    run: Path
    stack: Path
    output: Path
    _forgotten: int = 0  # bytes of the log after which blocks count

    @property
    def name(self) -> str:  # type: ignore[override]
        return f"predict to {self.output.suffix[1:]}"

    @property
    def words(self) -> list[str]:  # type: ignore[override]
        sizes = ["--patch", PATCH, "--block", BLOCK]
        places = ["--input", f"{self.stack}:raw", "--output", str(self.output)]
        return ["predict", str(self.run), *places, *sizes]

    @property
    def done(self) -> bool:
        return self.output.exists() and not journal_of(self.output).exists()

    @property
    def partial(self) -> Path:
        """What is written until all is there."""
        return partial_of(self.output)

    @property
    def files(self) -> list[Path]:
        found = [self.partial, *self.partial.rglob("*")] if self.partial.exists() else []
        return [path for path in found if path.is_file()]

    def watch(self) -> None:
        """Each start has at most the blocks left to do that no process had told of."""
        log = log_of(self.output)
        text = log.read_bytes()[self._forgotten :] if log.exists() else b""
        told: set[tuple[int, ...]] = set()
        for line in text[: text.rfind(b"\n") + 1].splitlines():
            record = json.loads(line)
            if record["event"] == "block":
                told.add(tuple(record["lower"]))
            if record["event"] == "start" and record["left"] > record["blocks"] - len(told):
                raise WrongError(f"{len(told)} blocks were finished, but {record['left']} are left")

    def forget_blocks(self) -> None:
        """The partial output was damaged: blocks count anew."""
        self._forgotten = self._logged

    @property
    def resumed(self) -> bool:
        """Whether a process has taken up the damaged output: it tells of that after it has looked at all."""
        return self._logged > self._forgotten

    @property
    def _logged(self) -> int:
        log = log_of(self.output)
        return log.stat().st_size if log.exists() else 0

    def discard(self) -> None:
        """Remove what was begun, as the command asks for when it cannot go on."""
        _remove(self.partial)
        journal_of(self.output).unlink(missing_ok=True)

    def result(self) -> dict[str, bytes]:
        left = [path.name for path in self.output.parent.glob(f"{self.output.name}.partial*")]
        if left:
            raise WrongError(f"{self.name} left {', '.join(left)}")
        inside = [self.output, *self.output.rglob("*")]
        files = [path for path in inside if path.is_file()]
        return {str(path.relative_to(self.output.parent)): path.read_bytes() for path in files}

    def remove(self) -> None:
        _remove(self.output)
        log_of(self.output).unlink()
        self._forgotten = 0


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _seen(path: Path) -> tuple[int, int]:
    """What tells a file from another one that takes its place; (0, 0) if it has just gone."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return 0, 0
    return found.st_ino, found.st_mtime_ns
