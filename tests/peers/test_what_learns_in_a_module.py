"""What learns in a module of PyTorch learns in a model of it, and nothing else: values and an update."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from carried import shuffled  # noqa: E402
from torch import nn  # noqa: E402

import znnpy  # noqa: E402
from znnpy import Hardware, from_torch  # noqa: E402
from znnpy.errors import ArgumentError, ExportError  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")  # of other libraries


NORMS: dict[str, Callable[[], nn.Module]] = {
    "batch": lambda: nn.BatchNorm3d(4, bias=False),
    "instance": lambda: nn.InstanceNorm3d(4, affine=True, bias=False),
    "group": lambda: nn.GroupNorm(2, 4, bias=False),
}


def net_of(name: str) -> tuple[nn.Module, torch.Tensor]:
    torch.manual_seed(0)
    parts = (nn.Conv3d(1, 4, 3, padding=1), NORMS[name](), nn.Tanh(), nn.Conv3d(4, 2, 1))
    net = nn.Sequential(*parts)
    shuffled(net, 1)
    return net.eval(), torch.randn(1, 1, 4, 6, 5)


@pytest.mark.parametrize("name", NORMS)
def test_values_and_an_update(name: str) -> None:
    net, image = net_of(name)
    net, image = net.double(), image.double()
    with torch.no_grad():
        expected = net(image).numpy()
    wanted = np.random.default_rng(0).random(expected.shape)
    with from_torch(
        net, image, loss="square", threads=1, conv="direct", hardware=Hardware(precision="float64"),
        optimizer=znnpy.Optimizer("sgd", momentum=0.0),
    ) as model:  # fmt: skip
        # Weights are read as float32.
        assert np.abs(model.predict(image.numpy()) - expected).max() < 1e-5 * np.ptp(expected)
        model.step(image.numpy(), wanted, learning_rate=0.1)
        found = model.to_state_dict()
    net.train()
    torch.nn.functional.mse_loss(net(image), torch.from_numpy(wanted)).backward()
    torch.optim.SGD(net.parameters(), lr=0.1).step()
    for key, tensor in net.state_dict().items():
        if not key.endswith("num_batches_tracked"):
            np.testing.assert_allclose(found[key], tensor.numpy(), rtol=1e-4, atol=1e-5)


def test_what_the_module_has_not_cannot_go_back() -> None:
    net, image = net_of("batch")
    with from_torch(net, image, threads=1, conv="direct") as model:
        model.to_state_dict()
        (shift,) = (name for name in model.parameters if name.endswith(".shift"))
        model.set_parameters({**model.parameters, shift: np.ones(4)})
        with pytest.raises(ExportError, match=f"{shift} does not come from its tensors alone"):
            model.to_state_dict()


class Fixed(nn.Module):
    """Filters, a factor and a shift that are buffers, a norm that is frozen, and a single number."""

    def __init__(self, numbers: int = 4) -> None:
        super().__init__()
        self.register_buffer("filters", torch.randn(4, 1, 3, 3, 3))
        self.register_buffer("factor", torch.randn(1, 4, 1, 1, 1))
        self.register_buffer("shift", torch.randn(4, 1, 1, 1))
        self.norm, self.last = nn.BatchNorm3d(4).requires_grad_(False), nn.Conv3d(4, 2, 1)
        self.gamma = nn.Parameter(torch.randn(numbers, 1, 1, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = nn.functional.conv3d(x, self.filters, padding=1) * self.factor + self.shift
        return self.last(torch.tanh(self.norm(x) * self.gamma))


def test_buffers_and_frozen_layers_stay() -> None:
    torch.manual_seed(0)
    net, image = Fixed().eval(), torch.randn(1, 1, 4, 6, 5)
    before = {key: tensor.numpy().copy() for key, tensor in net.state_dict().items()}
    with from_torch(net, image, loss="square", threads=1, conv="direct") as model:
        model.step(image.numpy(), np.zeros((1, 2, 4, 6, 5)), learning_rate=0.1)
        found = model.to_state_dict()
    moved = {key for key, array in found.items() if not np.array_equal(array, before[key])}
    assert moved == {"gamma", "last.weight", "last.bias", "norm.running_mean", "norm.running_var"}


def test_numbers_that_could_not_learn_are_refused_for_training() -> None:
    net, image = Fixed(numbers=1).eval(), torch.randn(1, 1, 4, 6, 5)
    with pytest.raises(ArgumentError, match=r"learns one number .* requires_grad = False"):
        from_torch(net, image, threads=1)
    net.gamma.requires_grad_(False)
    from_torch(net, image, threads=1, conv="direct").close()
    with pytest.raises(ArgumentError, match="no parameter of the module learns"):
        from_torch(net.requires_grad_(False), image, threads=1)
    from_torch(net, image, threads=1, conv="direct", training=False).close()


class Sevens(nn.Module):
    """A shift that is subtracted learns; a bias and a constant that do not are -7."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.shift = nn.Conv3d(1, 2, 1), nn.Parameter(torch.ones(2, 1, 1, 1))
        self.conv.bias = nn.Parameter(torch.full((2,), -7.0), requires_grad=False)
        self.register_buffer("constant", torch.full((2, 1, 1, 1), -7.0), persistent=False)

    def get_extra_state(self) -> object:
        return {"not": "a tensor"}

    def set_extra_state(self, state: object) -> None:
        pass

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(torch.tanh(self.conv(x) / 7) + self.constant) - self.shift


def test_what_is_calculated_learns_and_constants_are_no_marks() -> None:
    torch.manual_seed(0)
    net, image = Sevens().double().eval(), torch.randn(1, 1, 4, 6, 5).double()
    target = np.zeros((1, 2, 4, 6, 5))
    sgd = znnpy.Optimizer("sgd", momentum=0.0)
    with from_torch(
        net, image, loss="square", threads=1, conv="direct", optimizer=sgd
    ) as model:  # fmt: skip
        before = model.parameters
        model.step(image.numpy(), target, learning_rate=0.1)
        after = model.parameters
    learning = [it for it in net.parameters() if it.requires_grad]
    torch.nn.functional.mse_loss(net(image), torch.from_numpy(target)).backward()
    torch.optim.SGD(learning, lr=0.1).step()
    moved = {name for name, it in after.items() if not np.array_equal(it, before[name])}
    assert moved == {"conv", "output"}
    np.testing.assert_allclose(-after["output"], net.shift.detach().numpy().ravel(), rtol=1e-5)


def test_constants_that_are_marks_stay_out_of_a_state_dict() -> None:
    net, image = Sevens().eval(), torch.randn(1, 1, 4, 6, 5)
    net.forward = lambda x: torch.tanh(net.conv(x)) + net.constant  # type: ignore[method-assign]
    net.requires_grad_(True)
    with from_torch(net, image, threads=1, conv="direct") as model:
        found = model.to_state_dict()
    wanted = {key: it.numpy() for key, it in net.state_dict().items() if key != "_extra_state"}
    assert [*found] == [*wanted]
    assert all(np.array_equal(found[key], it) for key, it in wanted.items())
