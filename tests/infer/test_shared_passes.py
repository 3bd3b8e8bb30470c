"""How many windows share a pass; what they say does not depend on which ones these are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from znnpy import Execution, Model
from znnpy.geometry import fit
from znnpy.infer import scans, shared_passes
from znnpy.infer.scans import ScanModel, rows_together
from znnpy.infer.shared_passes import MOST, shared_pass
from znnpy.infer.sliding_window import Windows
from znnpy.network import initial_parameters, load_network
from znnpy.network.types import Network

FLAT, CUBE = [1, 3, 3], [3, 3, 3]


def net(widths: list[int], size: list[int], **keys: Any) -> Network:
    step = [min(2, taps) for taps in size]
    unet = {"widths": widths, "pool": "strided", "down": step, "size": size, **keys}
    return load_network({"unet": unet})


def batch_of(network: Network, window: tuple[int, int, int], mirrored: int = 1) -> int:
    return shared_pass(network, fit(network, window), "auto", mirrored)[0]


def test_flat_windows_share_passes_by_memory_and_estimate(monkeypatch: pytest.MonkeyPatch) -> None:
    wide = net([32, 64, 128, 256, 512], FLAT)
    assert batch_of(wide, (1, 64, 64)) == MOST
    # Twice the voxels, half as many.
    assert batch_of(wide, (1, 128, 256)) * 2 == batch_of(wide, (1, 128, 128)) > 2
    assert [batch_of(wide, (1, 80, 160), mirrored) for mirrored in (1, 2, 4, 8)] == [5, 4, 4, 4]
    assert batch_of(wide, (1, 1024, 1024)) == 1
    # Few filters are nothing to share.
    assert batch_of(net([8, 8], FLAT), (1, 64, 64)) == 1
    monkeypatch.setattr(shared_passes, "ROOM", 0)
    assert batch_of(wide, (1, 64, 64)) == 1


def test_windows_of_volumes_fill_memory_one_by_one() -> None:
    assert batch_of(net([32, 64, 128, 256], CUBE), (64, 96, 96)) == 1


@pytest.mark.parametrize("flips", [(), (2, 3)])
@pytest.mark.parametrize("threads", [1, 2])
def test_the_same_bits_whichever_windows_share_a_pass(threads: int, flips: tuple[int, ...]) -> None:
    """Through layers whose filters are transformed for all windows at once, and one that runs directly."""
    size = 1, 13, 9
    layers = [
        {"conv": {"channels": 64, "size": FLAT, "padding": "same", "norm": "instance", "function": "relu"}},
        {"conv": {"channels": 64, "size": FLAT, "padding": "same"}},
        {"conv": {"channels": 2, "size": 1}},
    ]  # fmt: skip
    network = load_network({"input": 3, "layers": layers})
    plan = {
        edge.name: {"forward": "direct", "gradient": "direct", "weight": "direct"}
        for edge in network.edges
    }
    plan["conv2"]["forward"] = "winograd"
    windows = list(np.random.default_rng(0).standard_normal((5, 3, *size)).astype(np.float32))
    with Model(
        network, size, 3, threads=threads, plan=plan, training=False, execution=Execution(lean=True)
    ) as model:
        weights = initial_parameters(network, 0)
        scan = ScanModel(model, [lambda: dict(weights)], flips)
        assert scan.at_once == (1 if flips else 3)
        alone = [np.array(scan.logits([window])[0]) for window in windows]
        assert alone[0].std() > 0.01
        for order in ([0, 1, 2, 3, 4], [4, 2, 0], [3, 1], [2, 2]):
            found = scan.logits([windows[number] for number in order])
            assert all(map(np.array_equal, found, [alone[number] for number in order]))


def test_members_have_rows_that_fill_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    """But where sums of all fit, all of them: setting a member's weights takes as long as a pass."""
    with Model(
        {"layers": [{"conv": {"channels": 2, "size": FLAT}}]}, (1, 4, 4), 4, training=False
    ) as model:
        one, two = (ScanModel(model, [dict] * count, ()) for count in (1, 2))
        for along_x, rows in ((4, 4), (7, 2), (13, 1)):
            windows = Windows((1, 4, 4), (0.0, 0.0, 0.0), "constant", (50, 4, along_x))
            assert len(windows.starts[2]) == -(-along_x // 4)
            assert rows_together(one, windows) == rows
            assert rows_together(two, windows) == 50
            with monkeypatch.context() as patched:
                patched.setattr(scans, "SUMS", 20 * 4 * 3 * windows.extent[1] * windows.extent[2])
                assert rows_together(two, windows) == 20 // rows * rows
