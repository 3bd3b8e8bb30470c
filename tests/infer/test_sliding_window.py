"""Overlapping windows: where they lie, what they weigh, and one content for any pieces."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from children import KILLED, counted, forked
from hypothesis import given
from hypothesis import strategies as st
from jobs import EXTENT, Small, small
from killing import content, predict, remove

from znnpy.cli.prediction_display import print_job
from znnpy.data.scene import Scene
from znnpy.data.values.normalization import normalisation
from znnpy.data.volume import ArrayVolume
from znnpy.data.writing.destination import Destination, journal_of
from znnpy.errors import PlanError, ShapeError, VolumeError
from znnpy.geometry import fit
from znnpy.infer import tiling
from znnpy.infer.block_writer import run_job
from znnpy.infer.blocks import Region, cuts
from znnpy.infer.config_model import prediction_of
from znnpy.infer.kept import Kept
from znnpy.infer.predict import VolumePrediction
from znnpy.infer.seams import verify_seams
from znnpy.infer.sliding_window import Windows
from znnpy.reference import evaluate as reference

WINDOW = (4, 5, 6)
BLOCKS = [(9, 17, 19), (1, 17, 19), (4, 10, 6), (3, 3, 3), (8, 8, 7)]
TRIPLES = st.tuples(*[st.integers(1, 12)] * 3)
SHARES = st.tuples(*[st.floats(0, 0.95)] * 3)


@pytest.fixture
def windowed(monkeypatch: pytest.MonkeyPatch) -> None:
    """All networks are predicted in windows."""
    monkeypatch.setattr(tiling, "patch_dependence", lambda network: "so the test says")


def dense_patch_starts(extent: int, size: int, step: int) -> list[int]:
    """MONAI's rule (`dense_patch_slices`), in its own words."""
    number = -(-extent // step)
    last = next(d for d in range(number) if d * step + size >= extent)
    return [d * step - max(d * step + size - extent, 0) for d in range(last + 1)]


def even(size: Any, extent: Any, blend: Any = "nnunet") -> Windows:
    return Windows(size, (0.5, 0.5, 0.5), blend, extent, spread="even")


def test_windows_that_are_spread_evenly() -> None:
    """As nnU-Net's compute_steps_for_sliding_window has them."""
    assert even((64, 64, 1), (200, 64, 3)).starts == ((0, 27, 54, 82, 109, 136), (0,), (0, 1, 2))
    assert even((64, 10, 10), (110, 7, 11)).starts == ((0, 23, 46), (-1,), (0, 1))


@given(TRIPLES, TRIPLES)
def test_even_windows_reach_all_voxels_and_are_no_further_apart_than_they_overlap(size, more):
    extent = tuple(n + m for n, m in zip(size, more, strict=True))
    for starts, n, whole in zip(even(size, extent).starts, size, extent, strict=True):
        steps = np.diff(starts)
        assert starts[0] == 0
        assert starts[-1] == whole - n
        assert steps.min(initial=1) >= 1
        assert steps.max(initial=1) <= max(1, np.ceil(n / 2))


def test_the_map_of_nnunet_is_highest_behind_the_middle_and_never_0() -> None:
    weight = even((8, 6, 64), (9, 9, 99)).weight
    assert weight.max() == weight[4, 3, 32] == 10
    assert weight.min() == np.float16(6e-8)  # the least number that a float16 holds
    # A Gaussian around it, of an eighth of the window.
    np.testing.assert_allclose(weight[4, 3, 24], 10 * np.exp(-1 / 2), rtol=1e-3)
    assert weight.astype(np.float16).astype(np.float32).tobytes() == weight.tobytes()


@given(TRIPLES, TRIPLES, SHARES, TRIPLES, TRIPLES)
def test_windows_lie_where_monai_has_them(extent, size, overlap, lower, shape):
    windows = Windows(size, overlap, "constant", extent)
    for axis, starts in enumerate(windows.starts):
        whole, n, step = extent[axis], size[axis], windows.unit[axis]
        assert step == max(1, int(n * (1 - overlap[axis])))
        small = whole <= n
        wanted = [-((n - whole) // 2)] if small else dense_patch_starts(whole, n, step)
        assert list(starts) == wanted
    low = tuple(min(a, n) - 1 for a, n in zip(lower, extent, strict=True))
    ends = tuple(min(a + n, e) for a, n, e in zip(low, shape, extent, strict=True))
    region = Region(low, ends)
    met = windows.meeting(region)
    everything = windows.meeting(Region((0, 0, 0), extent))
    assert met == [w for w in everything if min(w.within(region).shape) > 0]
    assert windows.count(region) == len(met)
    span = windows.span(region)
    assert span.lower == tuple(min(w.lower[i] for w in met) for i in range(3))
    assert span.upper == tuple(max(w.upper[i] for w in met) for i in range(3))
    assert all(a <= b for a, b in zip(span.shape, windows.widest(region.shape), strict=True))
    moved = Windows(size, overlap, "constant", extent, (3, -2, 1))
    there = moved.meeting(region.moved((3, -2, 1)))
    assert there == [window.moved((3, -2, 1)) for window in met]


def test_what_windows_weigh() -> None:
    gaussian = Windows((8, 16, 5), (0.5,) * 3, "gaussian", (99,) * 3).weight
    assert gaussian.dtype == np.float32
    assert gaussian.min() == np.float32(1e-3)
    line = gaussian[4, :, 2] / gaussian[4, 8, 2]
    places = np.arange(16) - 7.5
    wanted = np.exp(-(places**2) / (2 * 2**2)) / np.exp(-(0.5**2) / (2 * 2**2))
    np.testing.assert_allclose(line[4:12], wanted[4:12], rtol=1e-6)
    linear = Windows((8, 1, 1), (0.5, 0, 0), "linear", (99,) * 3).weight[:, 0, 0]
    np.testing.assert_allclose(linear[4:] + linear[:4], 1)
    assert np.all(np.diff(linear[:4]) > 0)
    ramp = Windows((10, 1, 1), (0.2, 0, 0), "linear", (99,) * 3).weight[:, 0, 0]
    np.testing.assert_allclose(ramp, [0.25, 0.75, *[1] * 6, 0.75, 0.25])
    assert Windows(WINDOW, (0.5,) * 3, "constant", (99,) * 3).weight.min() == 1


def blended(tiny: Small, windows: Windows, mirror: bool, flips: bool) -> np.ndarray:
    """Each window by the plain reference in float64, added up as the definition says."""
    network, parameters = tiny.weights.network, tiny.weights.parameters
    geometry = fit(network, windows.size)
    offset, seen = geometry.output_offset("input"), geometry.input_shapes["input"]
    with h5py.File(tiny.folder / "raw.h5") as file:
        raw = file["raw"][...][None]
    given = normalisation(ArrayVolume(raw, "raw")).apply(raw).astype(np.float64)[0]
    shift = offset if not mirror else (0, 0, 0)
    wide = 64
    given = np.pad(given, wide, "reflect" if mirror else "constant")
    sums = np.zeros((2, *(3 * [2 * wide + 30])))
    total = np.zeros(sums.shape[1:])
    axes = [2 + a for a, n in enumerate(geometry.fields_of_view["input"]) if n > 1]
    sets = [s for n in range(4) for s in itertools.combinations(axes, n)] if flips else [()]
    places, parts = list(itertools.product(*windows.starts)), []
    for place in places:
        low = [wide + a + b - c for a, b, c in zip(place, shift, offset, strict=True)]
        parts.append(given[tuple(slice(a, a + n) for a, n in zip(low, seen, strict=True))])
    samples, found = np.stack(parts)[:, None], []
    for flip in sets:
        part = {"input": np.flip(samples, flip).copy()}
        values = reference.forward(network, geometry, parameters, part)["output"]
        found.append(np.flip(1 / (1 + np.exp(-values)), flip))
    for place, values in zip(places, np.mean(found, axis=0), strict=True):
        there = tuple(
            slice(wide + a, wide + a + n) for a, n in zip(place, windows.size, strict=True)
        )
        sums[:, *there] += windows.weight * values
        total[there] += windows.weight
    inner = tuple(slice(wide, wide + n) for n in windows.extent)
    return sums[:, *inner] / total[inner]


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    ("blend", "flips"),
    [("gaussian", False), ("gaussian", True), ("linear", False), ("constant", False)],
)
@pytest.mark.parametrize("mirror", [True, False])
@pytest.mark.usefixtures("windowed")
def test_blend_is_the_weighted_mean_of_windows(
    tmp_path: Path, blend: Any, flips: bool, mirror: bool
) -> None:
    inference = {"window": WINDOW, "overlap": [0.5, 0.3, 0.6], "blend": blend}
    tiny = small(tmp_path, inference=inference)
    found = tiny.run(mirror=mirror, flips=flips, patch=None)
    windows = Windows(WINDOW, (0.5, 0.3, 0.6), blend, found.shape[1:])
    np.testing.assert_allclose(found, blended(tiny, windows, mirror, flips), atol=2e-6)
    assert found.max() <= 1


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    ("blocks", "flips"), [(BLOCKS[3:], False), (BLOCKS, False), (BLOCKS, True)]
)
@pytest.mark.usefixtures("windowed")
def test_any_blocks_threads_and_memory_give_the_same_bytes(
    tmp_path: Path, blocks: list[Any], flips: bool
) -> None:
    one, size = None, (5, 6, 8) if flips else WINDOW
    for number, block in enumerate(blocks):
        tiny = small(tmp_path, "auto", 1 + number, inference={"window": size})
        with tiny.scene().reference as volume:
            job = tiny.job(Scene({"input": volume}, {}), block=block, flips=flips, patch=None)
            if number == len(blocks) - 1:
                object.__setattr__(job, "kept", 3)
            run_job(job, Destination(tmp_path / "out.h5", "p", True))
        with h5py.File(tmp_path / "out.h5") as file:
            found = file["p"][...]
        one = found if one is None else one
        assert np.array_equal(found, one)
    assert one.std() > 0


@pytest.mark.slow
@pytest.mark.parametrize("suffix", [".h5", ".zarr"])
@pytest.mark.usefixtures("windowed")
def test_restarts_with_other_threads_give_the_same_bytes(tmp_path: Path, suffix: str) -> None:
    name, block, inference = f"out{suffix}", (2, 5, 5), {"window": WINDOW}
    predict(small(tmp_path, threads=1, inference=inference), name, block=block)
    whole = content(tmp_path / name)
    remove(tmp_path / name)
    noted = [0]
    for threads, calls in ((2, 60), (3, 110), (4, 170)):
        tiny = small(tmp_path, threads=threads, inference=inference)
        arm = lambda calls=calls: counted(calls)  # noqa: E731
        code, _ = forked(lambda _, tiny=tiny, arm=arm: predict(tiny, name, arm=arm, block=block))
        assert code == KILLED
        assert not (tmp_path / name).exists()
        noted.append(journal_of(tmp_path / name).stat().st_size)
    assert noted == sorted(set(noted))
    predict(small(tmp_path, threads=5, inference=inference), name, block=block)
    assert content(tmp_path / name) == whole


@pytest.mark.usefixtures("windowed")
def test_region_and_mask_do_not_move_windows(tmp_path: Path) -> None:
    tiny = small(tmp_path, inference={"window": WINDOW})
    whole = tiny.run("whole.h5")
    part = tiny.run("part.h5", roi=Region((2, 3, 5), (8, 15, 12)))
    assert np.array_equal(part, whole[:, 2:8, 3:15, 5:12])
    mask = np.zeros(EXTENT, np.uint8)
    mask[2:4, 4:9, 3:5] = 1
    with tiny.scene().reference as volume:
        scene = Scene({"input": volume}, {}, {"mask": ArrayVolume(mask, "mask")})
        run_job(tiny.job(scene, block=(3, 4, 5)), Destination(tmp_path / "out.h5", "p"))
    with h5py.File(tmp_path / "out.h5") as file:
        assert np.array_equal(file["p"][...], whole * (mask != 0))


@pytest.mark.usefixtures("windowed")
def test_uint8_is_rounded_once(tmp_path: Path) -> None:
    tiny = small(tmp_path, inference={"window": WINDOW})
    whole = tiny.run("whole.h5")
    rounded = tiny.run("rounded.h5", dtype=np.dtype(np.uint8), block=(3, 5, 7))
    assert np.array_equal(rounded, np.rint(whole * 255).astype(np.uint8))


@pytest.mark.slow
@pytest.mark.usefixtures("windowed")
def test_each_window_is_computed_once_where_they_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny, runs = small(tmp_path, inference={"window": WINDOW}), []
    real = VolumePrediction._forward
    monkeypatch.setattr(
        VolumePrediction, "_forward", lambda self, *a: runs.append(1) or real(self, *a)
    )
    everything = Region((0, 0, 0), EXTENT)
    for number, block in enumerate(BLOCKS):
        del runs[:]
        with tiny.scene().reference as volume:
            job = tiny.job(Scene({"input": volume}, {}), f"{number}.h5", block=block)
            run_job(job, Destination(tmp_path / f"{number}.h5", "p"))
        assert len(runs) == job.runs == job.grid.count(everything)
    with tiny.scene().reference as volume:
        job = tiny.job(Scene({"input": volume}, {}), "last.h5", block=(2, 5, 6))
        object.__setattr__(job, "kept", 0)
        del runs[:]
        run_job(job, Destination(tmp_path / "last.h5", "p"))
        assert len(runs) == job.runs > job.grid.count(everything)


def computed(windows: Windows, region: Region, block: tuple[int, int, int], room: int) -> int:
    """Windows that are computed for a region in blocks, so many remembered."""
    kept, count = Kept(room), 0
    axes = [cuts(region, block, (0, 0, 0), axis) for axis in range(3)]
    for ends in itertools.product(*axes):
        now = Region(tuple(a for a, _ in ends), tuple(b for _, b in ends))
        for window in windows.meeting(now):
            found = kept.take(window)
            count += found is None
            kept.keep(window, {}, now, region)
    return count


@given(TRIPLES, TRIPLES, SHARES, TRIPLES)
def test_what_is_remembered_is_enough(extent, size, overlap, block):
    windows = Windows(size, overlap, "constant", extent)
    region = Region((0, 0, 0), extent)
    enough = windows.shared(region, block, (0, 0, 0))
    assert computed(windows, region, block, enough) == windows.count(region)


def test_less_room_costs_about_as_much_as_is_said() -> None:
    windows = Windows((64,) * 3, (0.5,) * 3, "constant", (300,) * 3)
    region, last = Region((0, 0, 0), (300,) * 3), 0
    for room in (0, 4, 30, 60, 120, 300):
        count = computed(windows, region, (32, 64, 64), room)
        said = windows.runs(region, (32, 64, 64), (0, 0, 0), room)
        assert count <= said <= 1.7 * count
        assert not last or count <= last
        last = count


@pytest.mark.usefixtures("windowed")
def test_journal_says_how_windows_lie(tmp_path: Path) -> None:
    def stopped(done: object) -> None:
        raise KeyboardInterrupt

    tiny = small(tmp_path, inference={"window": WINDOW})
    with tiny.scene().reference as volume:
        job = tiny.job(Scene({"input": volume}, {}), block=(4, 5, 6))
        with pytest.raises(KeyboardInterrupt):
            run_job(job, Destination(tmp_path / "out.h5", "p"), stopped)
    for inference, words in (
        ({"window": WINDOW, "overlap": 0.25}, r"windows was .*0\.5.*, now .*0\.25"),
        ({"window": WINDOW, "blend": "linear"}, "windows was"),
        ({"window": 5}, r"patch was \[4, 5, 6\], now \[5, 5, 5\]"),
    ):
        other = small(tmp_path, inference=inference)
        other.request = tiny.request
        with pytest.raises(VolumeError, match=words):
            other.run(block=(4, 5, 6), patch=None)


@pytest.mark.usefixtures("windowed")
def test_windows_beyond_the_memory_are_refused(tmp_path: Path) -> None:
    tiny = small(tmp_path, inference={"window": 300}, max_memory=1 << 30)
    with pytest.raises(
        PlanError,
        match=r"windows of \(300, 300, 300\) .* give --max-memory \d+MiB .* \(inference.window\)",
    ):
        tiny.run(patch=None)


@pytest.mark.slow
@pytest.mark.usefixtures("windowed")
def test_seams_are_none_to_the_bit(tmp_path: Path) -> None:
    tiny, path = small(tmp_path, inference={"window": WINDOW}), tmp_path / "out.h5"
    with tiny.scene().reference as volume:
        job, there = tiny.job(Scene({"input": volume}, {}), block=(4, 5, 6)), Destination(path, "p")
        run_job(job, there)
        assert verify_seams(job, there, 10).largest == 0
        with h5py.File(path, "r+") as file:
            file["p"][:, :4] += 1e-5
        assert verify_seams(job, there, 10).found


@pytest.mark.usefixtures("windowed")
def test_whole_volume_in_memory_is_what_a_file_holds(tmp_path: Path) -> None:
    tiny = small(tmp_path, inference={"window": WINDOW})
    written = tiny.run(logits=True)
    scene = tiny.scene()
    with scene.reference:
        with prediction_of(tiny.weights, scene) as prediction:
            assert np.array_equal(prediction.whole()["output"], written)
        with prediction_of(tiny.weights, scene, most=900) as prediction:
            low, shape = prediction.field.first, prediction.field.shape
            box = tuple(slice(a, a + n) for a, n in zip(low, shape, strict=True))
            assert max(low) > 0
            assert np.array_equal(prediction.whole()["output"], written[:, *box])


@pytest.mark.usefixtures("windowed")
def test_plan_says_what_values_depend_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tiny = small(tmp_path, inference={"window": WINDOW, "overlap": [0.5, 0.25, 0.5]})
    with tiny.scene().reference as volume:
        job = tiny.job(Scene({"input": volume}, {}))
        print_job(job, Destination(tmp_path / "out.h5", "p"))
    out = capsys.readouterr().out
    assert "in windows of 4x5x6, overlap [0.5, 0.25, 0.5], gaussian: values depend" in out
    assert "so the test says" in out
    assert f"4 x 5 x 6, {job.grid.count(job.region)} network runs" in out
    assert "2 x 5 x 6 voxels around each patch" in out


PADDED = {
    "layers": [
        {
            "conv": {
                "channels": 5,
                "size": 3,
                "padding": "same",
                "norm": "instance",
                "function": "relu",
            }
        },
        {"max_pool": [1, 2, 2]},
        {"conv": {"channels": 6, "size": 3, "padding": [0, 1, 1], "border": "reflect"}},
        {"upsample": {"factor": [1, 2, 2], "mode": "linear"}},
        {"conv": {"channels": 2, "size": [1, 3, 2], "padding": "same"}},
    ]
}


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    ("conv", "blocks"), [("direct", BLOCKS[2:3]), ("direct", BLOCKS), ("auto", BLOCKS)]
)
@pytest.mark.parametrize("mirror", [True, False])
def test_padded_network(tmp_path: Path, mirror: bool, conv: str, blocks: list[Any]) -> None:
    window = (4, 6, 8)
    tiny = small(tmp_path, conv, network=PADDED, shape=window, inference={"overlap": 0.3})
    found = tiny.run(mirror=mirror, patch=None)
    windows = Windows(window, (0.3,) * 3, "gaussian", found.shape[1:])
    assert found.shape[1:] == ((9, 17, 19) if mirror else (7, 17, 19))
    np.testing.assert_allclose(found, blended(tiny, windows, mirror, False), atol=2e-5)
    for number, block in enumerate(blocks):
        other = small(
            tmp_path, conv, number + 1, network=PADDED, shape=window, inference={"overlap": 0.3}
        )
        again = other.run(mirror=mirror, patch=None, block=block, overwrite=True)
        assert np.array_equal(again, found)


@pytest.mark.parametrize("mirror", [True, False])
def test_volume_smaller_than_a_window(tmp_path: Path, mirror: bool) -> None:
    window, extent = (9, 8, 12), (6, 17, 9)
    tiny = small(tmp_path, extent=extent, network=PADDED, shape=window)
    found = tiny.run(mirror=mirror, patch=None)
    windows = Windows(window, (0.5,) * 3, "gaussian", found.shape[1:])
    assert len(windows.starts[0]) == len(windows.starts[2]) == 1
    np.testing.assert_allclose(found, blended(tiny, windows, mirror, False), atol=2e-5)


def test_impossible_window_is_refused(tmp_path: Path) -> None:
    tiny = small(tmp_path, network=PADDED, shape=(4, 6, 8), inference={"window": 5})
    with pytest.raises(ShapeError, match=r"inference.window: .* nearest possible sizes are"):
        tiny.run(patch=None)


@pytest.mark.quick(1)
@pytest.mark.parametrize("norm", ["instance", "batch"])
def test_a_window_that_leaves_a_norm_one_voxel_is_refused(tmp_path: Path, norm: str) -> None:
    """What is normalised by its own single value is 0 whatever the image shows."""
    layers = [{"conv": {"channels": 2, "size": 1, "norm": norm}}, {"max_pool": 2}]
    padded = [{"conv": {"channels": 2, "size": 3, "padding": "same"}}, {"upsample": {"factor": 2}}]
    last = [{"conv": {"channels": 2, "size": 1, "norm": norm}}]
    network = {"layers": [*layers, *last, *padded]}
    tiny = small(tmp_path, network=network, shape=(4, 4, 4), inference={"window": 2})
    if norm == "batch":
        assert tiny.run(patch=None).shape[0] == 2
        return
    with pytest.raises(ShapeError, match=r"inference.window: node .* instance .* one voxel"):
        tiny.run(patch=None)
