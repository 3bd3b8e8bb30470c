"""Normalisation over a single value is refused."""

from __future__ import annotations

from typing import Any

import pytest

from znnpy import Model, load_network
from znnpy.errors import ShapeError
from znnpy.geometry import fit, refuse_single_values


@pytest.mark.parametrize(
    ("norm", "batch", "words"),
    [
        ("batch", 1, "batch normalisation has one voxel .* a larger patch or batch$"),
        ("instance", 2, "instance normalisation has one voxel .* a larger patch$"),
        ({"kind": "group", "groups": 4}, 1, "group normalisation has one voxel"),
        ("batch", 2, ""),
        ("layer", 1, ""),
    ],
)
def test_statistics_of_one_voxel(norm: Any, batch: int, words: str) -> None:
    net = load_network({"layers": [{"conv": {"channels": 4, "size": 3, "norm": norm}}]})
    if norm == "batch":  # predictions have the statistics of training
        refuse_single_values(net, fit(net, 1), None)
    if not words:
        refuse_single_values(net, fit(net, 1), batch)
        return
    for refuse in (
        lambda: refuse_single_values(net, fit(net, 1), batch),
        lambda: Model(net, 1, batch=batch, loss="square"),
    ):
        with pytest.raises(ShapeError, match=f"node 'output': its {words}"):
            refuse()
    with Model(net, 1, batch=batch, threads=1, training=False, loss="square"):
        pass
