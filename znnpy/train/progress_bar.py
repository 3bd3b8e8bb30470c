"""Progress of training on a terminal: a bar."""

from __future__ import annotations

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)

from znnpy.errors import screenful
from znnpy.train.progress import Smooth, Status, heard_or_not, shown


class Bar:
    """A progress bar with loss, error, updates/s, voxels/s and the time left."""

    def __init__(self, console: Console) -> None:
        self._smooth = Smooth()
        self._preparing: Progress | None = None
        self._prepared = TaskID(0)
        self._progress = Progress(
            SpinnerColumn(),
            MofNCompleteColumn(),
            BarColumn(bar_width=None),
            TextColumn("{task.fields[shown]}"),
            TextColumn("{task.fields[rate]:.1f} updates/s  {task.fields[voxels]:,.0f} voxels/s"),
            TextColumn("ETA"),
            TimeRemainingColumn(compact=True),
            console=console,
        )
        self._task = self._progress.add_task("", start=False, shown="", rate=0.0, voxels=0.0)

    @heard_or_not
    def preparing(self, what: str, done: int, total: int) -> None:
        """Show a separate bar until all is ready."""
        if self._preparing is None:
            columns = (TextColumn("{task.description}"), MofNCompleteColumn(), BarColumn())
            self._preparing = Progress(*columns, console=self._progress.console, transient=True)
            self._prepared = self._preparing.add_task(what, total=total)
            self._preparing.start()
        self._preparing.update(self._prepared, description=what, completed=done, total=total)
        if done == total:
            self._end_preparing()

    @heard_or_not
    def start(self, total: int, done: int) -> None:
        """Show the bar."""
        self._end_preparing()
        self._progress.update(self._task, total=total, completed=done)
        self._progress.start_task(self._task)
        self._progress.start()

    @heard_or_not
    def update(self, status: Status) -> None:
        """Move the bar."""
        loss, error = self._smooth.add(status)
        self._progress.update(
            self._task,
            completed=status.iteration,
            shown=shown(loss, error, self._smooth.losses),
            rate=status.updates_per_s,
            voxels=status.voxels_per_s,
        )

    @heard_or_not
    def note(self, text: str) -> None:
        """Print a line above the bar."""
        self._progress.console.print(screenful(text), highlight=False, markup=False, soft_wrap=True)

    @heard_or_not
    def close(self) -> None:
        """Leave the bar on the screen as it is."""
        self._end_preparing()
        self._progress.stop()

    def _end_preparing(self) -> None:
        if self._preparing is not None:
            self._preparing.stop()
            self._preparing = None
