"""What a run was trained on, in short, so that volumes which have changed since are told when it goes on."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

from znnpy.data.fingerprint import fingerprint
from znnpy.data.samples.image_labels import stored
from znnpy.data.scene import Scene
from znnpy.errors import RunError
from znnpy.train.progress import Reporter
from znnpy.train.run_directory import VOLUMES, RunDirectory, read_object, write_json

Known = dict[str, str]
"""By scene, kind and node: shape, type and samples of a volume; not its place or time, as runs move."""
MOST = 200  # volumes that are looked at, 27 places each


def known(scenes: Sequence[Scene]) -> Known:
    """Return what the volumes of training are known by; errors as in `Volume.read`."""
    every = (
        (f"{number} {kind} {node}", volume)
        for number, scene in enumerate(scenes)
        for kind, volumes in (
            ("image", scene.images),
            ("labels", scene.labels),
            ("mask", scene.masks),
        )
        for node, volume in volumes.items()
    )
    return {name: fingerprint(stored(volume), None) for name, volume in islice(every, MOST)}


def tell_changed(run: RunDirectory, now: Known, reporter: Reporter) -> None:
    """Note which volumes are not those that a run was trained on until now; nothing of runs that do not know."""
    try:
        before = read_object(run / VOLUMES) if run.started else None
    except RunError as error:
        reporter.note(f"warning: {error}; whether volumes have changed is not known")
        return
    changed = (
        [name for name, it in now.items() if name in before and before[name] != it]
        if before
        else []
    )
    if changed:
        few = ", ".join(f"data.train.{name.replace(' ', ', ', 1)}" for name in changed[:3])
        more = f" and {len(changed) - 3} more" if len(changed) > 3 else ""
        reporter.note(
            f"warning: volumes are not what this run was trained on until now: {few}{more}; it goes on with them as "
            "they are"
        )


def keep(run: RunDirectory, now: Known) -> None:
    """Write what a run is trained on from now on."""
    write_json(run / VOLUMES, now)
