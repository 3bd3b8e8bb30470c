"""The yardstick of `scripts/bench_peers.py --unets` beside PyTorch's own float64: outputs and gradients."""

from __future__ import annotations

import sys
from copy import deepcopy
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))
from peers.taps import by_taps  # noqa: E402


@pytest.mark.parametrize(
    ("size", "stride", "padding", "bias"),
    [
        (3, 1, 1, True),
        ((1, 5, 5), 1, (0, 2, 2), False),
        (3, (1, 2, 2), 1, True),
        ((3, 2, 1), (2, 1, 3), (1, 0, 2), False),
    ],
)
def test_layers(size: object, stride: object, padding: object, bias: bool) -> None:
    torch.manual_seed(0)
    theirs = nn.Sequential(nn.Conv3d(2, 3, size, stride, padding, bias=bias), nn.Sigmoid()).double()
    ours = deepcopy(theirs)
    by_taps(ours)
    image = torch.randn(1, 2, 6, 7, 9, dtype=torch.float64)
    for net in (ours, theirs):
        net.image = image.clone().requires_grad_()
        net.output = net(net.image)
        net.output.square().sum().backward()
    torch.testing.assert_close(ours.output, theirs.output)
    torch.testing.assert_close(ours.image.grad, theirs.image.grad)
    for found, expected in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(found.grad, expected.grad)


@pytest.mark.parametrize(
    "words",
    [
        {"groups": 2},
        {"dilation": (1, 2, 1)},
        {"padding_mode": "reflect", "padding": 1},
        {"padding": "same"},
    ],
    ids=str,
)
def test_what_is_not_done_by_taps_is_refused(words: dict[str, object]) -> None:
    (name,) = [name for name in words if len(words) == 1 or name == "padding_mode"]
    with pytest.raises(ValueError, match=rf"takes {name}"):
        by_taps(nn.Sequential(nn.Conv3d(2, 4, 3, **words)))


def test_one_sample_alone_is_taken() -> None:
    net = nn.Conv3d(2, 4, 3).double()
    by_taps(net)
    with pytest.raises(ValueError, match="takes one sample, not 2"):
        net(torch.zeros(2, 2, 4, 4, 4, dtype=torch.float64))
