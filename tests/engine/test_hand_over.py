"""Updates that one compiled call starts: the same as those that take the long way, whatever comes between."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from znnpy import Model, Optimizer, Training, load_network
from znnpy.engine import hand_over
from znnpy.errors import ZnnpyError

Array = NDArray[np.float32]
BATCH = 3


def model(channels: int, optimizer: Optimizer | None = None, **given: Any) -> Model:
    """Of one channel inputs stay planar and are copied, of twenty they are packed from where they lie."""
    net = load_network({"input": channels, "layers": [
        {"conv": {"channels": 4, "size": [1, 3, 3], "function": "relu"}},
        {"conv": {"channels": 3, "size": 1}}]})  # fmt: skip
    return Model(net, output_shape=(1, 2, 3), batch=BATCH, conv="direct",
                 optimizer=optimizer, **{"loss": "softmax", "threads": 2} | given)  # fmt: skip


def data(channels: int, seed: int) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed)
    target = np.eye(3, dtype=np.float32)[rng.integers(0, 3, (BATCH, 1, 2, 3))]
    x = rng.normal(size=(BATCH, channels, 1, 4, 5)).astype(np.float32)
    return x, np.ascontiguousarray(np.moveaxis(target, -1, 1))


def quick(found: Model) -> hand_over.HandOver:
    way = found._engine.quick
    assert way is not None
    return way


def submitted(found: Model, x: Array, target: Array) -> float:
    """Of arrays that change behind the call."""
    x, target = x.copy(), target.copy()
    ticket = found.submit(x, target)
    x[...], target[...] = np.nan, np.nan
    return found.result(ticket).loss


CALLS: list[Callable[[Model, Array, Array], Any]] = [
    lambda m, x, t: m.step(x, t),
    lambda m, x, t: m.step(x, t),
    lambda m, x, t: m.step(x, t, learning_rate=0.02),
    lambda m, x, t: m.step(x, t),
    lambda m, x, t: [m.result(ticket) for ticket in [m.submit(x, t) for _ in range(4)]],
    submitted,
    lambda m, x, t: m.forward(x).sum(),
    submitted,
    lambda m, x, t: m.step(x, t),
    lambda m, x, t: m.loss_and_gradients(x, t)[0],
    lambda m, x, t: m.step(x, t),
    lambda m, x, t: m.step(x, t, np.full((BATCH, 1, 1, 2, 3), 0.5, np.float32)),
    lambda m, x, t: setattr(m, "iteration", 7),
    lambda m, x, t: m.step(x, t),
    lambda m, x, t: m.step(x, t),
    lambda m, x, t: [m.result(ticket) for ticket in range(12)],
]


@pytest.mark.parametrize("channels", [1, 20])
@pytest.mark.parametrize(
    "optimizer", [Optimizer("adam"), Optimizer(weight_decay=0.1, ema=0.9), Optimizer()]
)
def test_both_ways_give_the_same(channels: int, optimizer: Optimizer) -> None:
    with model(channels, optimizer) as one, model(channels, optimizer) as other:
        ways = set()
        for number, call in enumerate(CALLS):
            x, target = data(channels, number)
            found = call(one, x, target)
            other._engine.quick = None
            assert call(other, x, target) == found
            assert one.iteration == other.iteration
            ways.add(one._engine.quick and quick(one).ready)
        assert True in ways
        for name, value in other.averaged_parameters.items() if optimizer.ema else ():
            np.testing.assert_array_equal(value, one.averaged_parameters[name])
        for name, value in other.parameters.items():
            np.testing.assert_array_equal(value, one.parameters[name])


def test_what_it_does_not_take_is_converted_or_refused_as_ever() -> None:
    x, target = data(20, 0)
    with model(20) as found:
        loss = found.step(x, target, learning_rate=0.0)
        strided = np.repeat(x, 2, axis=-1)[..., ::2]
        for given in (strided, x.astype(np.float64), np.ma.masked_array(x)):
            assert quick(found).ready
            assert found.step(given, target, learning_rate=0.0) == loss
        for wrong in ((x[:1], target), (x, target * 3), (x, target[..., :1])):
            assert quick(found).ready
            with pytest.raises(ZnnpyError):
                found.step(*wrong, learning_rate=0.0)
            assert found.step(x, target, learning_rate=0.0) == loss
        assert found.iteration == 7
        assert quick(found).ready
        quick(found)._process += 1  # as in the child of a fork
        assert quick(found).start(x, target, 0.0, 7, borrow=True) is None


def test_who_has_other_arrays_is_not_asked_again() -> None:
    x, target = data(1, 0)
    with model(1) as found:
        for _ in range(1 + hand_over.MISFITS):
            assert found._engine.quick is None or quick(found).ready
            found.step(x.astype(np.float64), target)
        assert not quick(found).ready


@pytest.mark.parametrize(
    "given",
    [
        {"training": Training(microbatch=1)},
        {"loss": {"kind": "softmax", "class_weights": [1.0, 2.0, 3.0]}},
        {"threads": 0},
    ],
)
def test_what_needs_more_goes_the_long_way(given: Any) -> None:
    x, target = data(1, 0)
    with model(1, **given) as found:
        assert found.step(x, target) != found.step(x, target)
        assert found._engine.quick is None


def test_arrays_are_let_go_once_the_loss_is_known() -> None:
    """But for the last input, which is looked at for what is not finite."""
    with model(20) as found:
        alive = []
        for number in range(6):
            x, target = data(20, number)
            found.step(x, target, learning_rate=0.01)
            alive += [(weakref.ref(x), weakref.ref(target))]
            del x, target
        assert quick(found).ready
        assert [array() is not None for pair in alive for array in pair] == [
            *[False] * 10,
            True,
            False,
        ]
        x, target = data(20, 0)
        x[...] = np.nan
        found.step(x, target, learning_rate=0.0)
        del x
        assert found.non_finite_layer() == "input"


def test_inputs_of_which_voxels_are_left_out_are_held_until_their_update_is_complete() -> None:
    """These voxels are packed, too, and no loss waits for that."""
    net = load_network({"input": 8, "layers": [{"conv": {"channels": 3, "size": 1, "stride": 2}}]})
    with Model(net, output_shape=(2, 3, 4), threads=2, conv="direct", loss="softmax") as found:
        alive = []
        for _ in range(5):
            x = np.zeros((1, 8, *found.input_shape), np.float32)
            target = np.full((1, 3, 2, 3, 4), 1 / 3, np.float32)
            found.step(x, target, learning_rate=0.01)
            alive += [(weakref.ref(x), weakref.ref(target))]
            del x, target
        assert quick(found).ready
        inputs, targets = zip(*alive, strict=True)
        assert [array() is not None for array in inputs] == [False] * 3 + [True] * 2
        assert not any(array() is not None for array in targets)


def test_ctrl_c_loses_no_result_and_mixes_no_rates(monkeypatch: pytest.MonkeyPatch) -> None:
    """As soon as the call has ended that started an update, and while another rate's numbers are packed."""
    x, target = data(1, 0)

    class Packed:
        """Interrupted once it has packed."""

        @staticmethod
        def pack_into(*given: Any) -> None:
            form.pack_into(*given)
            raise KeyboardInterrupt

    def called(*given: Any) -> None:
        call(*given)
        raise KeyboardInterrupt

    with model(1) as found, model(1) as other:
        other.step(x, target)
        other._engine.quick = None
        wanted = [other.step(x, target) for _ in range(4)]
        found.step(x, target)
        first = found.submit(x, target)
        way = quick(found)
        form, call = way._form, way._call
        assert found.submit(x, target) == first + 1
        with monkeypatch.context() as patch:
            patch.setattr(way, "_call", called)
            with pytest.raises(KeyboardInterrupt):
                found.step(x, target)
        assert [found.result(first + number).loss for number in range(3)] == wanted[:3]
        assert found.step(x, target) == wanted[3]
        with monkeypatch.context() as patch:
            patch.setattr(way, "_form", Packed)
            with pytest.raises(KeyboardInterrupt):
                found.step(x, target, learning_rate=10.0)
        for _ in range(3):
            assert found.step(x, target) == other.step(x, target)
