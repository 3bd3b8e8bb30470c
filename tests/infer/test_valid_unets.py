"""Valid U-Nets: exact and seamless, in patches on the lattice of their pooling."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from jobs import Small, small

from znnpy.data.scene import Scene
from znnpy.data.values.normalization import normalisation
from znnpy.data.volume import ArrayVolume, mirror_read
from znnpy.data.writing.destination import Destination
from znnpy.errors import ShapeError
from znnpy.geometry.shape_inference import fit, fit_input, smallest
from znnpy.infer.block_writer import run_job
from znnpy.infer.blocks import Region
from znnpy.infer.config_model import prediction_of
from znnpy.infer.seams import verify_seams
from znnpy.network.dense_conversion import densest
from znnpy.reference import evaluate as reference

EXTENT = (13, 27, 30)
BLOCKS = [(9, 4, 19), (13, 27, 30), (1, 17, 19), (4, 10, 6), (3, 3, 3)]


def unet(up: dict[str, Any]) -> dict[str, Any]:
    """Two levels, pooled by 2 along y and 3 along x."""
    relu = {"kind": "transfer", "function": "relu"}
    size: dict[str, Any] = {"kind": "conv", "size": [1, 3, 3]}
    return {
        "nodes": {
            "input": {"kind": "input", "channels": 1},
            "fine": {**relu, "channels": 4},
            "pooled": {"kind": "sum", "channels": 4},
            "coarse": {**relu, "channels": 5, "norm": "batch"},
            "grown": {"kind": "sum" if up["kind"] == "upsample" else "transfer", "channels": 5},
            "both": {"kind": "concat", "channels": 9},
            "output": {"kind": "transfer", "channels": 2},
        },
        "edges": {
            "c1": {**size, "from": "input", "to": "fine"},
            "down": {"kind": "max_pool", "from": "fine", "to": "pooled", "size": [1, 2, 3]},
            "c2": {"kind": "conv", "from": "pooled", "to": "coarse", "size": 3},
            "up": {**up, "from": "coarse", "to": "grown"},
            "skip": {"kind": "crop", "from": "fine", "to": "both", "offset": [1, 2, 3]},
            "join": {"kind": "identity", "from": "grown", "to": "both"},
            "c3": {"kind": "conv", "from": "both", "to": "output", "size": [3, 2, 3]},
        },
    }


def by_fractions() -> dict[str, Any]:
    """The same, growing by 3 / 2 and 2 along x."""
    made = unet({"kind": "upsample", "factor": [1, 2, 2]})
    made["nodes"]["between"] = {"kind": "sum", "channels": 5}
    made["edges"]["up"]["from"] = "between"
    made["edges"]["resize"] = {
        "kind": "resize", "factor": [1, 1, 3], "divisor": [1, 1, 2], "mode": "nearest_exact",
        "from": "coarse", "to": "between",
    }  # fmt: skip
    return made


NEAREST = unet({"kind": "upsample", "factor": [1, 2, 3]})
UPS = {
    "nearest": NEAREST,
    "by fractions": by_fractions(),
    "transposed": unet({"kind": "conv_transpose", "size": [1, 2, 3], "stride": [1, 2, 3]}),
}


def tiny(folder: Path, network: dict[str, Any] = NEAREST, **changes: Any) -> Small:
    made = small(folder, **({"extent": EXTENT, "network": network, "shape": (2, 5, 4)} | changes))
    made.request = type(made.request)(
        made.request.node, mirror=False, sources=made.request.sources, logits=True
    )
    return made


def oracle(made: Small, mirror: bool) -> np.ndarray:
    """float64, in one piece that begins with the volume, or before it by what its first voxel sees."""
    network = made.weights.network
    with h5py.File(made.folder / "raw.h5") as file:
        volume = ArrayVolume(file["raw"][...], "raw")
    norm = normalisation(volume)
    if mirror:
        geometry = fit(network, smallest(network, EXTENT))
        low = tuple(-n for n in geometry.output_offset("input"))
    else:
        z, y, x = EXTENT
        most = ((z, y - dy, x - dx) for dy in range(2) for dx in range(6))
        geometry = next(g for g in (possible(network, n) for n in most) if g)
        low = (0, 0, 0)
    high = tuple(a + n for a, n in zip(low, geometry.input_shapes["input"], strict=True))
    given = {"input": norm.apply(mirror_read(volume, low, high)).astype(np.float64)[None]}
    found = reference.forward(network, geometry, made.weights.parameters, given)["output"][0]
    z, y, x = EXTENT
    return found[:, :z, :y, :x] if mirror else found


def possible(network: Any, shape: tuple[int, int, int]) -> Any:
    try:
        return fit_input(network, shape)
    except ShapeError:
        return None


@pytest.mark.share(6)
@pytest.mark.quick(1)
@pytest.mark.parametrize("conv", ["direct", "auto"])
@pytest.mark.parametrize("mirror", [False, True])
@pytest.mark.parametrize("up", UPS)
def test_any_blocks_give_the_same_bits(tmp_path: Path, up: str, mirror: bool, conv: str) -> None:
    made = tiny(tmp_path, UPS[up], conv=conv)
    assert densest(made.weights.network) is made.weights.network
    patch = smallest(made.weights.network, (4, 7, 9))
    one = made.run(mirror=mirror, patch=patch)
    np.testing.assert_allclose(one, oracle(made, mirror), atol=1e-5)
    blocks = BLOCKS if (mirror, conv) == (True, "direct") else BLOCKS[:1]
    for block in blocks:
        found = made.run(mirror=mirror, patch=patch, block=block, overwrite=True)
        assert np.array_equal(found, one)


@pytest.mark.slow
def test_any_patch_and_the_chosen_one_give_close_values(tmp_path: Path) -> None:
    made = tiny(tmp_path)
    wanted = oracle(made, True)
    for patch in (None, (1, 3, 4), (2, 5, 7), (40, 41, 40)):
        found = made.run(mirror=True, patch=patch, overwrite=True)
        np.testing.assert_allclose(found, wanted, atol=1e-5)


def test_patches_that_cannot_be_are_refused(tmp_path: Path) -> None:
    made = tiny(tmp_path)
    with pytest.raises(ShapeError, match=r"--patch: .*4 x 6 x 7 .* nearest possible sizes are"):
        made.run(patch=(4, 6, 7))


def test_region_has_the_bits_of_the_whole(tmp_path: Path) -> None:
    made = tiny(tmp_path)
    whole = made.run("whole.h5", patch=(2, 5, 7))
    part = made.run("part.h5", patch=(2, 5, 7), roi=Region((3, 7, 11), (9, 20, 23)))
    low = [a - b for a, b in zip((3, 7, 11), first(made), strict=True)]
    box = tuple(slice(a, a + n) for a, n in zip(low, part.shape[1:], strict=True))
    assert part.shape[1:] == (6, 13, 12)
    assert np.array_equal(part, whole[:, *box])


def first(made: Small) -> tuple[int, int, int]:
    """First input voxel that can be predicted."""
    network = made.weights.network
    return fit(network, smallest(network)).output_offset("input")


def test_there_are_no_seams(tmp_path: Path) -> None:
    made = tiny(tmp_path)
    with made.scene().reference as volume:
        job = made.job(Scene({"input": volume}, {}), patch=(2, 5, 7), block=(3, 5, 8))
        there = Destination(tmp_path / "out.h5", "p")
        run_job(job, there)
        assert verify_seams(job, there, 10).largest < 1e-5


def test_the_middle_is_cut_from_the_whole(tmp_path: Path) -> None:
    made = tiny(tmp_path)
    scene = made.scene()
    with scene.reference:
        with prediction_of(made.weights, scene) as prediction:
            low, whole = prediction.field.first, prediction.whole()["output"]
        with prediction_of(made.weights, scene, most=1500) as prediction:
            field, part = prediction.field, prediction.whole()["output"]
    box = tuple(
        slice(a - b, a - b + n) for a, b, n in zip(field.first, low, field.shape, strict=True)
    )
    assert part.shape[1:] == field.shape != whole.shape[1:]
    np.testing.assert_allclose(part, whole[:, *box], atol=1e-5)
