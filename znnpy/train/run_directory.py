"""The run directory: names and locking of a run's files, its JSON files, remembered patches and FFTW wisdom.

Remembered patches let the next prediction of a stack round as the last one did; the wisdom, kept beside the
plan, lets a run resume with the same bits after its cache is lost. Nothing of these two is needed: a file that is
damaged, or a directory that cannot be written, costs a note.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any, Self

from znnpy.atomic_files import explained, final_name, sync, write_text
from znnpy.closing import Closing
from znnpy.data.process_memory import readable
from znnpy.errors import PlanError, RunError, reason
from znnpy.locks import alone
from znnpy.plan import Plan, fftw
from znnpy.plan.record import saved_plan
from znnpy.train.checkpoint import BEST, DIRECTORY, MEMBERS, RUN_CONFIG
from znnpy.train.log import DAMAGED
from znnpy.train.signals import StopSignals

CONFIG, VERSIONS, PLAN = RUN_CONFIG, "versions.json", "plan.json"
LOG, TIMINGS, RESULT, PICTURE = "log.jsonl", "timings.jsonl", "result.json", "prediction.png"
PAGE, LOOKS, SLICES = (
    "run.html",
    "looks.jsonl",
    "slices.json",
)  # for people, and what it is drawn from
EVENTS = "tensorboard"  # folder
FFTW = "fftw.wisdom"  # of the plan, where a layer runs by FFTW
ORIGIN = "class.json"  # of a run that was taken over: whose network it is, so that weights go back
VOLUMES = "volumes.json"  # shape, type and samples of what it is trained on
CALIBRATION = "calibration.json"  # where training weighs classes: shifts of logits
PATCHES = "patches.json"  # of predictions, so that the next one rounds the same
LOCK = "lock"
_NEW = ".run.tmp"  # folder in which a run is made that is whole from the first
# JSON takes many times its size in memory once it is parsed.
JSON_LIMIT = 16 << 20  # bytes; a larger file is not one of a run
# With temporary files and damage set aside (`_is_file`) all that `--overwrite` removes, beside
# checkpoints.
_FILES = frozenset(
    {
        CONFIG,
        VERSIONS,
        PLAN,
        LOG,
        TIMINGS,
        RESULT,
        PICTURE,
        FFTW,
        CALIBRATION,
        VOLUMES,
        ORIGIN,
        PATCHES,
        PAGE,
        LOOKS,
        SLICES,
    }
)

Note = Callable[[str], None]


class RunDirectory(Closing):
    """The files of one run, locked from `open` to `close` so that a second process is refused.

    The lock is the kernel's (flock): it ends with the process, however that ends. A directory made by `open` in
    which no run begins is removed by `close`, so that a refused config leaves nothing behind.
    """

    def __init__(self, path: Path, lock: IO[str], made: tuple[Path, ...], anew: bool) -> None:
        self.path = path
        self._lock = lock
        self._made = made  # folders that were not there before, innermost first
        self._anew = anew

    @classmethod
    def open(cls, path: Path, *, overwrite: bool = False) -> Self:
        """Create or lock a run directory; with `overwrite`, `begin` will empty one that exists.

        Raises RunError when another process holds it, or when it is a directory of something else: only znnpy's own
        files are ever removed.
        """
        # Noted before `mkdir`, so that `close` removes these alone, and `begin` makes their names
        # durable.
        made = tuple(folder for folder in (path, *path.parents) if not folder.exists())
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RunError(
                f"cannot make run directory {path}: {error.strerror}; choose another run.directory"
            ) from error
        _refuse_foreign(path)
        if not overwrite and not (path / CONFIG).exists() and (path / DIRECTORY).exists():
            raise RunError(
                f"{path} has checkpoints but no {CONFIG}; choose another directory, "
                "or start anew with --overwrite"
            )
        return cls(path, _locked(path / LOCK), made, overwrite)

    def __truediv__(self, name: str) -> Path:
        return self.path / name

    @property
    def checkpoints(self) -> Path:
        """The directory of the checkpoints."""
        return self.path / DIRECTORY

    @property
    def best(self) -> Path:
        """The directory of the checkpoints that validated best so far; there once one is saved."""
        return self.path / BEST

    @property
    def started(self) -> bool:
        """Whether a run has begun here that is to be resumed."""
        return not self._anew and (self.path / CONFIG).exists()

    def begin(
        self,
        config_text: str,
        versions: dict[str, Any],
        fill: Callable[[Path], None] | None = None,
    ) -> None:
        """Write what identifies a new run; the config comes last, as it makes the directory a run.

        Removes the run that was here before, if it was opened to be overwritten. `fill` writes to a folder what the
        run has from the first, such as weights: if it fails or is interrupted, nothing of it stays, and the run that
        was here does; so the disk needs room for both.
        """
        if fill is None:
            if self._anew:
                self._clear()
                shutil.rmtree(self.path / _NEW, ignore_errors=True)  # of a process that was killed
            self._make_durable()
            # Before the config: a directory with a config is a run, and must have all that one has.
            write_json(self / VERSIONS, versions)
            write_text(self / CONFIG, config_text, RunError)
        else:
            self._make_durable()
            with self._beside() as new:
                write_json(new / VERSIONS, versions)
                write_text(new / CONFIG, config_text, RunError)
                fill(new)
                with explained(self.path, RunError):
                    for folder in (it for it in new.rglob("*") if it.is_dir()):
                        sync(folder)
                self._replace_by(new)
        self._anew = False
        self._make_checkpoints()

    def refresh(self, config_text: str) -> None:
        """Replace the config of a resumed run, where it changed in ways that do not matter."""
        if (self / CONFIG).read_text(encoding="utf-8") != config_text:
            write_text(self / CONFIG, config_text, RunError)
        self._make_checkpoints()

    def close(self) -> None:
        """Release the lock; remove a new directory in which no run began."""
        if self._made and not (self.path / CONFIG).exists():
            with contextlib.suppress(OSError):  # somebody put something there, or the disk fails
                (self.path / LOCK).unlink(missing_ok=True)
                # Innermost first; one that holds something else stays, and with it all above.
                for folder in self._made:
                    folder.rmdir()
        # After the folder is removed: until then nobody else may begin a run in it.
        self._lock.close()

    def _make_durable(self) -> None:
        # A new folder is durable once the one above it is synced (docs/design/inference.md,
        # "Nothing finished is lost").
        with explained(self.path, RunError):
            for folder in (self.path, *self._made):
                sync(folder.absolute().parent)

    @contextlib.contextmanager
    def _beside(self) -> Iterator[Path]:
        """Yield an empty folder beside the run's files, which is removed at the end."""
        new, there = self.path / _NEW, (self.path / CONFIG).exists()
        try:
            with explained(self.path, RunError):
                shutil.rmtree(new, ignore_errors=True)  # of a process that was killed
                new.mkdir()
            yield new
        except RunError as error:
            kept = there and (self.path / CONFIG).exists()
            raise RunError(
                f"{error}; the run in {self.path} stays" if kept else str(error)
            ) from error
        finally:
            shutil.rmtree(new, ignore_errors=True)

    def _replace_by(self, new: Path) -> None:
        """Remove the run that was here and move the new one in; signals wait, as meanwhile there is none."""
        with StopSignals() as signals, signals.deferred():
            self._clear()
            self._move_in(new)
        if signals.requested is not None:
            os.kill(os.getpid(), signals.requested)

    def _move_in(self, new: Path) -> None:
        with explained(self.path, RunError):
            for path in [it for it in new.iterdir() if it.name != CONFIG]:
                path.rename(self.path / path.name)
            sync(self.path)
            (new / CONFIG).rename(self.path / CONFIG)
            sync(self.path)

    def _make_checkpoints(self) -> None:
        with explained(self.checkpoints, RunError):
            self.checkpoints.mkdir(exist_ok=True)
            sync(self.path)

    def _clear(self) -> None:
        """Remove a run; its config goes first, durably, so that no rest of it is taken for a run."""
        try:
            (self / CONFIG).unlink(missing_ok=True)
            sync(self.path)
            for path in list(self.path.iterdir()):
                if _is_file(path.name):
                    path.unlink()
            for folder in (self.checkpoints, self.best, self.path / MEMBERS, self.path / EVENTS):
                if folder.exists():
                    shutil.rmtree(folder)
            sync(self.path)
        except OSError as error:
            raise RunError(
                f"cannot remove the run in {self.path}: {reason(error)}; repeat the command"
            ) from error


def write_json(path: Path, value: Any) -> None:
    """Write a value as indented JSON, atomically; raises RunError when the disk fails."""
    write_text(path, json.dumps(value, indent=2, sort_keys=True) + "\n", RunError)


def read_object(path: Path) -> dict[str, Any] | None:
    """Read a JSON object of a run; None when there is no file; raises RunError when it is damaged."""
    try:
        with path.open("rb") as file:
            # One byte more shows that there is more.
            text = file.read(JSON_LIMIT + 1)
        found = json.loads(text) if len(text) <= JSON_LIMIT else None
    except FileNotFoundError:
        return None
    except OSError as error:
        raise RunError(f"cannot read {path}: {reason(error)}") from error
    except (ValueError, RecursionError) as error:
        raise RunError(f"{path} is damaged: no JSON ({error})") from error
    if not isinstance(found, dict):
        raise RunError(f"{path} is damaged: no JSON object of at most {readable(JSON_LIMIT)}")
    return found


def require_run(path: Path) -> Path:
    """Return the path if a run lives there; raises RunError otherwise."""
    if (path / CONFIG).is_file():
        return path
    raise RunError(f"{path} is not a run directory (no {CONFIG} in it); `znnpy train` makes one")


def _refuse_foreign(path: Path) -> None:
    names = {entry.name for entry in path.iterdir()} - {
        DIRECTORY,
        BEST,
        LOCK,
        MEMBERS,
        EVENTS,
        _NEW,
    }
    foreign = sorted(name for name in names if not _is_file(name))
    if foreign and not (path / CONFIG).exists():
        raise RunError(
            f"{path} holds other files ({', '.join(foreign[:3])}); choose a new directory"
        )


def _is_file(name: str) -> bool:
    """Return whether a name is that of one of a run's files, or of its temporary file."""
    name = final_name(name)
    return name in _FILES or name.startswith((LOG + DAMAGED, LOOKS + DAMAGED))


def _locked(path: Path) -> IO[str]:
    try:
        file = path.open("a+", encoding="utf-8")
    except OSError as error:
        raise RunError(
            f"cannot write into run directory {path.parent}: {error.strerror}; choose another "
            "run.directory"
        ) from error
    try:
        # Not waited for: the other process may train for days.
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        file.seek(0)
        holder = file.read().strip() or "unknown"
        file.close()
        raise RunError(
            f"run directory {path.parent} is in use by another process (pid {holder}); "
            "wait for it or choose another directory"
        ) from error
    if os.fstat(file.fileno()).st_nlink == 0:
        file.close()
        raise RunError(
            f"run directory {path.parent} was removed by the process that had it; repeat the command"
        )
    with explained(path, RunError):
        try:
            # Only after the lock is ours: the number in it is the holder's.
            file.truncate(0)
            file.write(str(os.getpid()))
            file.flush()
        except OSError:
            with contextlib.suppress(OSError):
                file.close()
            raise
    return file


def remembered(run: Path, note: Note) -> dict[str, Any]:
    """Return remembered patches by what they depend on; none, and a note, when the file is damaged."""
    try:
        return read_object(run / PATCHES) or {}
    except RunError as error:
        note(f"{error}; patches are chosen anew")
        return {}


def remember(run: Path, records: Mapping[str, Any], note: Note) -> None:
    """Add remembered patches, replacing those of the same name; a note when they cannot be written."""
    try:
        # Several predictions of one run may end at the same time.
        with alone(run, "notes patches of predictions"):
            known = remembered(run, lambda _: None)
            write_json(run / PATCHES, known | dict(records))
    except (RunError, OSError) as error:
        note(f"the patch is not remembered: {error}")


def keep_wisdom(run: Path, plan: Plan) -> bool:
    """Write the FFTW wisdom of a plan, unless it exists or no layer runs by FFTW; return whether it was written."""
    text = saved_plan(plan).fftw
    if text is None or (run / FFTW).exists():
        return False
    # Only ever written once: a run goes on by the wisdom that it was begun with.
    write_text(run / FFTW, text, RunError)
    return True


def pin_wisdom(run: Path, note: Callable[[str], None]) -> None:
    """Make FFTW plan as the run did, by its wisdom; a note when that cannot be used."""
    try:
        fftw.pin((run / FFTW).read_text(encoding="ascii"))
    except FileNotFoundError:
        return
    except (OSError, ValueError, PlanError) as error:
        note(
            f"warning: {run / FFTW} cannot be used: {reason(error)}; FFTs are planned by this machine's "
            "wisdom and may round otherwise"
        )
