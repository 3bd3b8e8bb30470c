"""Blocks have every position once, and all voxels that patches there read."""

from __future__ import annotations

import tracemalloc
from collections import Counter
from pathlib import Path

import h5py
import numpy as np
import pytest

from znnpy.data.opening import open_volume
from znnpy.data.samples.image_labels import spread
from znnpy.data.sampling.augmentation import Augmentation
from znnpy.data.sampling.blocks import Block, Held, cut, excerpt, load, outline
from znnpy.data.sampling.position_index import NO_FLIPS
from znnpy.data.sampling.sample import InputPatch, OutputPatch, Patch
from znnpy.data.sampling.sampler import Sampler
from znnpy.data.sampling.targets import BoundaryTarget, ImageTarget, Target
from znnpy.data.scene import Scene
from znnpy.data.volume import Array, ArrayVolume, Triple
from znnpy.errors import VolumeError


def scene(shape: Triple, first: int = 0, **masks: ArrayVolume) -> Scene:
    """Every voxel of image and labels holds its own number, so patches tell where they lie."""
    numbers = np.arange(first, first + np.prod(shape), dtype=np.float64).reshape(shape)
    return Scene({"in": ArrayVolume(numbers)}, {"out": ArrayVolume(numbers + 1)}, masks)


def within(values: Array, nanometres: float) -> ArrayVolume:
    """A volume that lies as many voxels within another, along all axes."""
    return ArrayVolume(values, "within", offset=(nanometres,) * 3)


def padded() -> Scene:
    """Labels and a mask that are smaller than the image."""
    image = ArrayVolume(np.random.default_rng(0).normal(size=(14, 13, 12)), offset=(-3.0,) * 3)
    labels = within(np.arange(8 * 7 * 6).reshape(8, 7, 6), 1.0)
    mask = within(np.random.default_rng(1).random((6, 5, 4)) < 0.9, 2.0)
    return Scene({"in": image}, {"out": labels}, {"out": mask})


def slices() -> Scene:
    """Images along z with a label each."""
    images = ArrayVolume(np.random.default_rng(2).integers(0, 255, (50, 5, 4)).astype(np.uint8))
    return Scene({"in": images}, {"out": spread(ArrayVolume(np.arange(50)[:, None, None]), images)})


def sampler(
    scenes: list[Scene],
    given: Triple,
    wanted: Triple,
    target: Target | None = None,
    **options: object,
) -> Sampler:
    output = OutputPatch(wanted, target or ImageTarget())
    return Sampler(scenes, {"in": InputPatch(given)}, {"out": output}, **options)  # type: ignore[arg-type]


CASES = {
    "two volumes": ([scene((9, 8, 7)), scene((5, 6, 12), 1000)], (4, 3, 4), (2, 1, 2), {}),
    "mirrored": ([scene((9, 8, 7))], (8, 9, 10), (3, 2, 1), {"mirror": True}),
    "padded": ([padded()], (5, 4, 4), (3, 3, 2), {"target": BoundaryTarget(2)}),
    "slices": ([slices()], (1, 5, 4), (1, 5, 4), {}),
}


def held(made: Sampler, block: Block) -> Sampler:
    """A sampler of one block, whose voxels alone it can read."""
    outlines = [outline(it) for it in made.scenes]
    memory = load(block, made.scenes[block.scene])
    assert memory.nbytes == block.bytes
    return made.over([excerpt(block, outlines[block.scene], memory)], lambda index: index, 7)


def told(patch: Patch) -> bytes:
    groups = (patch.images["in"], patch.targets["out"], patch.weights["out"])
    return b"".join(array.tobytes() for array in groups)


@pytest.mark.quick(2)
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("count", [1, 3, 20])
def test_patches_of_all_blocks_are_those_of_the_volumes(case: str, count: int) -> None:
    """Each once in an epoch, bit by bit: of the whole, and of all blocks by themselves."""
    scenes, given, wanted, options = CASES[case]
    whole = sampler(scenes, given, wanted, order="shuffled", **options)  # type: ignore[arg-type]
    blocks = cut(whole, count)
    assert count <= len(blocks) <= 1.5 * count + len(scenes)
    assert sum(block.positions for block in blocks) == whole.positions
    assert min(block.positions for block in blocks) * 8 > whole.positions / len(blocks)
    found = Counter[bytes]()
    for block in blocks:
        own = held(whole, block)
        assert own.positions == block.positions
        found.update(told(own.sample(n)) for n in range(own.positions))
    assert found == Counter(told(whole.sample(n)) for n in range(whole.positions))


@pytest.mark.quick(3)
@pytest.mark.parametrize("case", ["two volumes", "mirrored", "padded"])
@pytest.mark.parametrize("count", [1, 6])
def test_turned_patches_need_no_more(case: str, count: int) -> None:
    """Whatever is drawn from a block lies in it, and its target fits its image."""
    scenes, given, _, options = CASES[case]
    whole = sampler(
        scenes, given, (1, 1, 1), augmentation=Augmentation(), normalise="none", **options
    )  # type: ignore[arg-type]
    for flips, ends in ((flips, places.ends) for flips, places in whole._places.items()):
        blocks = cut(whole, count)
        sizes = [np.prod(np.subtract(*block.ranges[flips][::-1])) for block in blocks]
        assert min(sizes) > 0
        assert sum(sizes) == ends[-1]
    for block in cut(whole, count):
        own = held(whole, block)
        for index in range(60):
            patch = own.sample(index)
            if case != "padded":
                assert patch.targets["out"].item() - 1 in patch.images["in"]


def test_blocks_are_as_small_as_asked_for() -> None:
    whole = sampler([scene((20, 15, 10))], (3, 3, 3), (1, 1, 1))
    for largest in (20_000, 10_000, 3_000):
        blocks = cut(whole, 2, largest)
        assert max(block.bytes for block in blocks) <= largest
        assert sum(block.positions for block in blocks) == whole.positions


@pytest.mark.parametrize("mirror", [False, True])
def test_blocks_are_not_much_smaller_than_patches(mirror: bool) -> None:
    """Else nearly all that each holds would be its neighbours', and there would be as many as positions."""
    volumes = scene((40, 40, 40))
    whole = sampler([volumes], (9, 9, 9), (1, 1, 1), mirror=mirror)
    blocks = cut(whole, 1, 1)
    everything = sum(volume.nbytes for volume in volumes.volumes())
    assert sum(block.bytes for block in blocks) < 8 * everything
    assert max(block.bytes for block in blocks) <= 8 * (8 * 9**3 + 64)
    assert len(blocks) < 300


def test_what_comes_is_not_looked_through() -> None:
    """Only patches are, which takes no memory of a block's size and no time between updates."""
    made = sampler([scene((40, 40, 40))], (3, 3, 3), (1, 1, 1))
    (block,) = cut(made, 1)
    memory = load(block, made.scenes[0])
    tracemalloc.start()
    try:
        found = excerpt(block, outline(made.scenes[0]), memory)
        assert tracemalloc.get_traced_memory()[1] < memory.nbytes / 20
    finally:
        tracemalloc.stop()
    memory[8 * 777 : 8 * 778].view(np.float64)[:] = np.nan
    image = found.held.images["in"]
    assert not image.read((0, 0, 0), (1, 1, 1)).flags.writeable
    with pytest.raises(VolumeError, match=r"nan at \(z, y, x\) = \(0, 19, 17\)"):
        image.read((0, 0, 0), (1, 40, 40))


def test_blocks_are_not_many_more_than_asked_for() -> None:
    whole = sampler([scene((32, 20, 10))], (1, 1, 1), (1, 1, 1))
    for count in range(1, 60):
        assert count <= len(cut(whole, count)) <= 1.4 * count + 1


def test_only_a_block_s_own_bytes_are_read(tmp_path: Path) -> None:
    values = np.random.default_rng(0).integers(0, 255, (60, 20, 20)).astype(np.uint8)
    path = tmp_path / "data.h5"
    with h5py.File(path, "w") as file:
        file["raw"] = values
    volume = open_volume(f"{path}:raw")
    whole = sampler(
        [Scene({"in": volume}, {"out": volume})], (3, 3, 3), (3, 3, 3), normalise="none"
    )
    asked = list[tuple[Triple, Triple]]()
    read = volume.read

    def noted(lower: Triple, upper: Triple, *, finite: bool = True) -> Array:
        asked.append((lower, upper))
        return read(lower, upper, finite=finite)

    volume.read = noted  # type: ignore[method-assign]
    block = cut(whole, 6)[2]
    own = held(whole, block)
    volume.close()
    path.unlink()
    (lower, upper), *others = asked
    assert not others
    assert (lower, upper) == block.regions[0]
    assert block.bytes < values.nbytes / 3
    for index in range(50):
        patch = own.sample(index)
        assert np.array_equal(patch.images["in"], patch.targets["out"])


def test_voxels_that_are_not_there_are_no_zeros() -> None:
    volume = ArrayVolume(np.ones((9, 9, 9)))
    part = Held(volume, (2, 0, 0), np.ones((1, 3, 9, 9)))
    assert part.extent == (9, 9, 9)
    assert part.read((2, 0, 0), (5, 9, 9)).shape == (1, 3, 9, 9)
    for lower, upper in (((1, 0, 0), (3, 9, 9)), ((4, 0, 0), (6, 9, 9))):
        with pytest.raises(AssertionError, match="not held"):
            part.read(lower, upper)


def test_what_counts_is_counted_block_by_block() -> None:
    mask = np.zeros((12, 8, 8), np.uint8)
    mask[:4] = 1
    whole = sampler([scene((12, 8, 8), out=ArrayVolume(mask))], (3, 3, 3), (1, 1, 1))
    assert whole.selective
    for block in cut(whole, 5):
        (first, *_), (end, *_) = positions = block.ranges[NO_FLIPS]
        planes = mask[first + 1 : end + 1, 1:-1, 1:-1]  # that outputs show
        assert whole.counted(0, positions) == planes.mean()
    assert not sampler([scene((12, 8, 8))], (3, 3, 3), (1, 1, 1)).selective
