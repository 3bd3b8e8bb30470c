"""Arrays that a model takes, and those that it refuses in words: as the command does with volumes."""

import re

import numpy as np
import pytest
from small_models import data, small

from znnpy import Hardware, Model, load_network
from znnpy.errors import ShapeError, ZnnpyError

NET = {"layers": [{"conv": {"channels": 3, "size": 3}}]}
OTHER = {
    "complex64": lambda a: a.astype(np.complex64),
    "datetime64": lambda a: a.astype("i8").astype("M8[s]"),
    "timedelta64": lambda a: a.astype("i8").astype("m8[s]"),
    "str": lambda a: a.astype("U4"),
    "bytes": lambda a: a.astype("S4"),
    "object": lambda a: a.astype(object),
    "void": lambda a: np.zeros(a.shape, [("a", "f4")]),
}
CALLS = ("forward", "predict", "step", "submit", "loss_and_gradients")


@pytest.fixture(scope="module")
def model():
    with small() as one:
        yield one


def called(model, call, x, target=None, weight=None):
    """A call of a model with these arrays in the places of good ones."""
    good = data(model)
    x, target = good[0] if x is None else x, good[1] if target is None else target
    return getattr(model, call)(*((x,) if call in CALLS[:2] else (x, target, weight)))


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("kind", OTHER)
def test_arrays_of_no_numbers_are_refused(model, call, kind):
    x, target = data(model)
    with pytest.raises(ZnnpyError, match=f"input of node 'x': an array of {kind}"):
        called(model, call, OTHER[kind](x))
    if call not in CALLS[:2]:
        with pytest.raises(ZnnpyError, match=f"target of node 'y': an array of {kind}"):
            called(model, call, x, OTHER[kind](target))
        with pytest.raises(ZnnpyError, match=f"weight of node 'y': an array of {kind}"):
            called(model, call, x, target, OTHER[kind](target))


def test_parameters_of_no_numbers_are_refused(model):
    for kind, other in OTHER.items():
        values = {name: other(array) for name, array in model.parameters.items()}
        with pytest.raises(ZnnpyError, match=f"parameter '.*': an array of {kind}"):
            model.set_parameters(values)
        states = {name: other(array) for name, array in model.optimizer_state.items()}
        with pytest.raises(ZnnpyError, match=f"parameter '.*': an array of {kind}"):
            model.set_optimizer_state(states)


@pytest.mark.parametrize("given", [[[1, 2], [3]], None, object(), "x", 3, [], {}, {1: 2}, {"z": 1}])
def test_what_is_no_array_is_refused(model, given):
    with pytest.raises(ZnnpyError, match=r"^input"):
        model.forward(given)
    with pytest.raises(ZnnpyError, match=r"^(parameter|no parameter|optimizer state)"):
        model.set_parameters({"z": 1} if given == {} else given)


@pytest.mark.parametrize("kind", ["?", "i1", "u8", "f2", ">f4", "f8"])
def test_numbers_of_any_type_and_layout_are_the_same_numbers(model, kind):
    x, target = data(model)
    x, target = np.round(4 * x), np.round(target)
    same = x.astype(kind).astype(np.float32)
    wanted = model.loss_and_gradients(same, target)
    found = model.loss_and_gradients(np.asfortranarray(x.astype(kind)), target.astype(kind)[::1])
    assert found[0] == wanted[0]
    assert all(np.array_equal(found[1][name], wanted[1][name]) for name in wanted[1])


def test_numbers_that_float32_does_not_hold_are_refused(model):
    x, _ = data(model)
    with pytest.raises(ZnnpyError, match="too large for float32"):
        model.forward(x.astype(np.float64) * 1e300)


WRONG = [
    ("binomial_cross_entropy", 255.0, "255 at .* takes values from 0 to 1"),
    ("binomial_cross_entropy", -0.1, "-0.1 at .* takes values from 0 to 1"),
    ("binomial_cross_entropy", np.nan, "nan at .* takes values from 0 to 1"),
    ({"kind": "malis"}, 2.0, "2 at .*malis takes values from 0 to 1"),
    ("dice", 3.0, "3 at .*dice takes"),
    ("softmax", 1.0, "channels that sum to 3 at .*softmax takes shares"),
    ("softmax", 0.0, "channels that sum to 0 at"),
    ("softmax", 5.0, "5 at .*softmax takes shares"),
    ("square", np.inf, "inf at .*square takes finite numbers"),
]


def trained(loss):
    """A model of three images for a loss."""
    name = loss if isinstance(loss, str) else loss["kind"]
    layer = {"channels": 3, "size": 3, "function": "logistic" if name == "dice" else "linear"}
    return Model({"layers": [{"conv": layer}]}, 3, loss=loss, threads=1, conv="direct")


@pytest.mark.parametrize("call", CALLS[2:])
@pytest.mark.parametrize(("loss", "value", "said"), WRONG)
def test_targets_that_a_loss_does_not_take_are_refused_where_they_weigh(loss, value, said, call):
    with trained(loss) as model:
        x, good = np.ones((1, 1, 5, 5, 5)), np.zeros((1, 3, 3, 3, 3), np.float32)
        good[:, 0] = 1
        bad = good.copy()
        bad[0, :, 1, 2, 0] = value
        counts = np.ones((1, 1, 3, 3, 3))
        counts[0, 0, 1, 2, 0] = 0
        place = r"at \(sample, channel, z, y, x\) = \(0, 0, 1, 2, 0\)"
        with pytest.raises(ZnnpyError, match=f"target of node 'output': {said}") as refused:
            called(model, call, x, bad)
        assert re.search(place, str(refused.value))
        wanted = model.loss_and_gradients(x, good, counts)[0]
        assert model.loss_and_gradients(x, bad, counts)[0] == wanted
        hidden = np.broadcast_to(counts == 0, bad.shape)
        assert model.loss_and_gradients(x, np.ma.array(bad, mask=hidden))[0] == wanted


@pytest.mark.parametrize("value", [0.0, 1.0, 1.00005, True, np.uint8(1)])
def test_targets_that_volumes_may_have_are_taken(model, value):
    x, target = data(model)
    assert np.isfinite(model.loss_and_gradients(x, np.full_like(target, value))[0])


def test_shares_that_are_rounded_are_taken():
    with trained("softmax") as model:
        x, target = np.ones((1, 1, 5, 5, 5)), np.full((1, 3, 3, 3, 3), np.round(255 / 3) / 255)
        assert np.isfinite(model.step(x, target * 0.99))


def test_a_variance_below_0_is_refused():
    layers = [{"conv": {"channels": 2, "size": 3, "norm": "batch"}}]
    with Model({"layers": layers}, 3, threads=1, optimizer="adam") as model:
        name = next(name for name in model.parameters if name.endswith("running_variance"))
        for value in (-1.0, np.nan):
            with pytest.raises(ZnnpyError, match=f"{name}.*no variance"):
                model.set_parameters({name: [1.0, value]})
        states = model.optimizer_state
        name = next(name for name in states if name.endswith("/variance"))
        states[name] = states[name] - 1
        with pytest.raises(ZnnpyError, match=f"{name}.*no variance"):
            model.set_optimizer_state(states)


@pytest.mark.parametrize(
    "rate",
    [None, float("nan"), float("inf"), -1, "0.1", True, [0.1], 10**400, 1j, np.ones(2)],
    ids=lambda it: str(it)[:5],
)
def test_a_learning_rate_that_is_none_is_refused(model, rate):
    with pytest.raises(ZnnpyError, match="learning_rate: must be a finite number"):
        model.step(*data(model), learning_rate=rate)


@pytest.mark.parametrize("rate", [0, np.float32(0), np.int64(0), np.array(0.0)])
def test_a_learning_rate_may_be_numpys(model, rate):
    before = model.parameters
    model.step(*data(model), learning_rate=rate)
    assert all(np.array_equal(before[name], array) for name, array in model.parameters.items())


@pytest.mark.parametrize("number", [-1, 2**63, 1.0, None, True])
def test_an_iteration_that_is_none_is_refused(model, number):
    with pytest.raises(ZnnpyError, match="iteration: must be a whole number"):
        model.iteration = number


def test_float32_of_another_shape_is_refused():
    with trained("square") as model:
        x, target = np.ones((1, 1, 5, 5, 5), np.float32), np.ones((1, 3, 3, 3, 3), np.float32)
        for wrong in (x[..., :4], np.ones((1, 1, 5, 5, 6), np.float32)):
            with pytest.raises(ShapeError, match="input"):
                model.forward(wrong)
        with pytest.raises(ShapeError, match="target"):
            model.step(x, target[:, :2])


def test_one_array_is_none_for_two_outputs_of_its_shape():
    conv = {"kind": "conv", "source": "input", "size": 1}
    node = {"kind": "transfer", "channels": 1}
    nodes = {"input": {"kind": "input", "channels": 1}, "a": node, "b": node}
    net = load_network(
        {"nodes": nodes, "edges": {f"to_{it}": conv | {"target": it} for it in "ab"}}
    )
    one = np.ones((1, 1, 3, 3, 3), np.float32)
    with Model(net, 3, loss="square", threads=1, conv="direct") as model:
        with pytest.raises(ShapeError):
            model.step(one, one)
        assert np.isfinite(model.step(one, {"a": one, "b": one}))


@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_all_of_a_target_is_looked_at_and_nothing_beside_it(precision):
    layer = {"channels": 3, "size": 3, "function": "logistic"}
    with Model(
        {"layers": [{"conv": layer}]}, 3, loss="dice", threads=1, conv="direct",
        hardware=Hardware(precision=precision),
    ) as model:  # fmt: skip
        x = np.ones((1, 1, 5, 5, 5), precision)
        # Read as float32, half of a float64 may be any number.
        between = np.full((1, 3, 3, 3, 6), np.nan, precision)
        between[..., ::2] = 0.1
        assert np.isfinite(model.step(x, between[..., ::2]))
        assert np.isfinite(model.step(x, between[..., ::2].copy()))
        last = np.zeros(between.shape, precision)
        last[0, 2, 2, 2, 4] = np.nan
        for target in (last[..., ::2], last[..., ::2].copy()):
            with pytest.raises(ZnnpyError, match="target"):
                model.step(x, target)
