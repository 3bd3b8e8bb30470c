"""MONAI's SegResNet, taken over, copies nothing along its identity edges: neither in training nor in prediction."""

from __future__ import annotations

import pytest

import znnpy
from znnpy.engine.tasks.task_identity import Part, identities

torch = pytest.importorskip("torch")
nets = pytest.importorskip("monai.networks.nets")


@pytest.mark.parametrize("training", [False, True])
def test_no_pass_over_memory(training: bool) -> None:
    module = nets.SegResNet(
        spatial_dims=3, init_filters=16, in_channels=1, out_channels=2,
        blocks_down=(1, 2), blocks_up=(1,),
    ).eval()  # fmt: skip
    example = torch.zeros(1, 1, 16, 16, 16)
    with znnpy.from_torch(module, example, training=training, conv="direct") as model:
        edges = [edge for edge in model.network.edges if edge.kind == "identity"]
        parts = {it.part for it in identities(model.task_graph)}
    assert len(edges) >= 8
    assert not parts & {Part.COPY, Part.SPLIT}
