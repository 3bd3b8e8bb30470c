"""What a run learns from and is validated on: other volumes are told when it goes on, other voxels when it predicts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

import numpy as np

from znnpy.data.fingerprint import fingerprint
from znnpy.data.samples.image_labels import stored
from znnpy.data.scene import Scene
from znnpy.data.volume import UNSET, Triple64, Volume
from znnpy.distributed.world import World
from znnpy.errors import RunError
from znnpy.train.progress import Reporter
from znnpy.train.run_directory import VOLUMES, RunDirectory, read_object, write_json

Known = dict[str, str]
"""By scene, kind and node: shape, type and samples of a volume; not its place or time, as runs move.

By scene of training, where files say it: the voxel size z, y, x in nanometres. Names of volumes for validation begin
with that word.
"""
MOST = 200  # volumes that are looked at, 27 places each
SIZE = "voxels"
VALIDATION = "validation "
ALIKE = 0.05  # by which voxel sizes may differ, relatively: structures of a size look the same


def known(scenes: Sequence[Scene], validation: Sequence[Scene] = ()) -> Known:
    """Return what the volumes of training and validation are known by; errors as in `Volume.read`."""
    found = {
        name: fingerprint(stored(volume), None)
        for every in (_volumes(scenes), _volumes(validation, VALIDATION))
        for name, volume in islice(every, MOST)
    }
    sizes = ((f"{number} {SIZE}", scene.resolution) for number, scene in enumerate(scenes))
    return found | {name: _words(size) for name, size in islice(sizes, MOST) if size != UNSET}


def known_to_all(scenes: Sequence[Scene], world: World, hosts: Sequence[str]) -> Known:
    """Return `known` of volumes of training, which the first rank of each host looks at; all ranks call it together.

    `hosts`: of each rank. Raises RunError, on all ranks, where one host has other volumes under these names than rank
    0's: an old copy, say; ranks would draw samples of both.
    """
    first = world.size == 1 or hosts.index(hosts[world.rank]) == world.rank
    told = world.exchange(known(scenes) if first else None)
    for rank, other in enumerate(told):
        differs = [name for name, it in told[0].items() if other and other.get(name) != it]
        if differs:
            raise RunError(
                f"{_place(differs[0])} is another volume on {hosts[rank]} (rank {rank}) than "
                f"on {hosts[0]} (rank 0); the same files must be under the same paths on all hosts"
            )
    found: Known = told[0]
    return found


def _volumes(scenes: Sequence[Scene], begin: str = "") -> Iterator[tuple[str, Volume]]:
    for number, scene in enumerate(scenes):
        kinds = {"image": scene.images, "labels": scene.labels, "mask": scene.masks}
        for kind, volumes in kinds.items():
            for node, volume in volumes.items():
                yield f"{begin}{number} {kind} {node}", volume


def tell_changed(run: RunDirectory, now: Known, reporter: Reporter) -> None:
    """Note which volumes are not those that a run was trained on until now; nothing of runs that do not know."""
    try:
        before = read_object(run / VOLUMES) if run.started else None
    except RunError as error:
        reporter.note(f"warning: {error}; whether volumes have changed is not known")
        return
    changed = [name for name, it in now.items() if (before or {}).get(name, it) != it]
    validated = [name for name in changed if name.startswith(VALIDATION)]
    if trained := [name for name in changed if name not in validated]:
        reporter.note(
            f"warning: volumes are not what this run was trained on until now: {_few(trained)}; it goes "
            "on with them as they are"
        )
    if validated:
        reporter.note(
            "warning: volumes are not what this run was validated on until now: "
            f"{_few(validated)}; scores from here on are of other voxels than those before, and which "
            "weights are best does not follow from both"
        )


def _few(names: Sequence[str]) -> str:
    few = ", ".join(map(_place, names[:3]))
    return few + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _place(name: str) -> str:
    """Return where a config names a volume."""
    section = "validation" if name.startswith(VALIDATION) else "train"
    return f"data.{section}.{name.removeprefix(VALIDATION).replace(' ', ', ', 1)}"


def other_voxels(run: Path, scene: Scene) -> str | None:
    """Return what to tell of an image whose voxels have another size than all that a run was trained on, else None."""
    try:
        values = read_object(run / VOLUMES) or {}
    except RunError:
        return None  # told when the run goes on
    sizes = {str(it): _size(str(it)) for name, it in values.items() if name.endswith(SIZE)}
    own = scene.resolution
    if own == UNSET or not sizes:
        return None
    if any(np.allclose(own, it, rtol=ALIKE, atol=0) for it in sizes.values() if it):
        return None
    return (
        f"voxels of {scene.reference.name} are {_words(own)} nm (z, y, x), and this run was trained on "
        f"{' and '.join(sorted(sizes))}: it knows structures by their size in voxels; resample the image, or say "
        "`resolution` if its own is wrong"
    )


def _words(size: Triple64) -> str:
    return " x ".join(f"{it:g}" for it in size)


def _size(words: str) -> list[float]:
    """Return the numbers of a voxel size that was written down; none of anything else."""
    try:
        return [float(it) for it in words.split(" x ")]
    except ValueError:
        return []


def keep(run: RunDirectory, now: Known) -> None:
    """Write what a run is trained on from now on."""
    write_json(run / VOLUMES, now)
