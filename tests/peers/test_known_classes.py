"""Networks that are built from the arguments of their class, beside the class: outputs, and a step of training."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("monai")

from class_nets import KNOWN, LEARNED, Known  # noqa: E402

import znnpy  # noqa: E402
from znnpy import Hardware, Model  # noqa: E402
from znnpy.geometry import fit_input  # noqa: E402
from znnpy.interop.classes.origin import Origin  # noqa: E402
from znnpy.interop.operators.described import Described  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")  # of other libraries

NEAR = 1e-4
"""Of the range of an output."""


def solid(array: Any) -> Any:
    return array if array.ndim == 5 else array[:, :, None]


def outputs(net: Any, image: Any) -> list[Any]:
    with torch.no_grad():
        found = net(image)
    return [solid(one.numpy()) for one in ([found] if torch.is_tensor(found) else found)]


class Built(NamedTuple):
    """A class as the program has it, and as it is built here."""

    known: Known
    net: Any
    found: Described


@pytest.fixture(scope="module", params=KNOWN)
def built(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Built:
    """Once for all that only look at it."""
    known = KNOWN[request.param]
    net = known.module()
    return Built(known, net, known.taken(net, tmp_path_factory.mktemp("class")))


@pytest.mark.quick(9)
def test_outputs_are_those_of_the_class(built: Built) -> None:
    image, found = built.known.image(), built.found
    wanted, given = outputs(built.net, image), solid(image.numpy())
    shapes = fit_input(found.network, given.shape[2:]).output_shapes
    with Model(found.network, shapes, threads=2, training=False, loss="square") as model:
        model.set_parameters(found.parameters)
        values = model.forward(given)
    by_name = values if isinstance(values, dict) else {"output": values}
    assert len(by_name) == len(wanted)
    for number, array in enumerate(wanted):
        ours = by_name[f"output{number or ''}"]
        spare = [(a - b) // 2 for a, b in zip(ours.shape[2:], array.shape[2:], strict=True)]
        inner = tuple(slice(n, n + m) for n, m in zip(spare, array.shape[2:], strict=True))
        assert min(spare) >= 0
        assert array.std() > 1e-3
        assert np.abs(ours[(..., *inner)] - array).max() <= NEAR * np.ptp(array)


@pytest.mark.quick(9)
def test_weights_go_back_by_the_names_of_the_class(built: Built) -> None:
    _, net, found = built
    assert found.origin is not None
    tensors = Origin.read(found.origin).state_dict(found.parameters)
    wanted = net.state_dict()
    assert list(tensors) == list(wanted)
    for key, tensor in wanted.items():
        if not key.endswith("num_batches_tracked"):
            np.testing.assert_array_equal(tensors[key], tensor.numpy(), key)
    net.load_state_dict({key: torch.from_numpy(array) for key, array in tensors.items()})


@pytest.mark.quick(1)
@pytest.mark.parametrize("name", LEARNED)
def test_an_update(name: str, tmp_path: Path) -> None:
    """Every parameter after a step of SGD, in float64."""
    known = KNOWN[name]
    net, image = known.module().double(), known.image().double()
    found = known.taken(net.float(), tmp_path)
    net.double()
    wanted = np.random.default_rng(3).random(outputs(net, image)[0].shape)
    shapes = fit_input(found.network, solid(image.numpy()).shape[2:]).output_shapes
    with Model(
        found.network, shapes, loss="square", hardware=Hardware(precision="float64"),
        optimizer=znnpy.Optimizer("sgd", momentum=0.0),
    ) as model:  # fmt: skip
        model.set_parameters(found.parameters)
        ours = model.step(solid(image.numpy()), wanted, learning_rate=0.1)
        net.train()
        made = net(image)
        loss = torch.nn.functional.mse_loss(made, torch.from_numpy(wanted).reshape(made.shape))
        loss.backward()
        torch.optim.SGD(net.parameters(), lr=0.1).step()
        assert ours == pytest.approx(float(loss), rel=1e-6)
        after = known.taken(net.float(), tmp_path).parameters
        moved = model.parameters
        assert moved.keys() == after.keys()
        for key, array in after.items():
            np.testing.assert_allclose(moved[key], array, rtol=1e-4, atol=1e-5, err_msg=key)
