"""Corners: odd networks against the reference, and a model that is misused, interrupted or dropped."""

import gc
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time

import numpy as np
import pytest
import random_networks as rn
from test_model import assert_close

from znnpy import reference
from znnpy.engine import Model
from znnpy.engine.memory.limits import least_bytes
from znnpy.errors import ZnnpyError
from znnpy.geometry import fit
from znnpy.graph.policies import POLICIES
from znnpy.network.types import Edge, Network, Node

LANE_CROSSING = 21  # images: more than a block of any CPU, and no multiple of one


def network(nodes, edges):
    """`name kind images function` and `kind source target`, with what else an edge has."""
    made = [
        Node(name, kind, images, **more)
        for name, kind, images, more in ((*node, {})[:4] for node in nodes)
    ]
    lines = [
        Edge(f"e{index}", kind, source, target, **more)
        for index, (kind, source, target, more) in enumerate((*edge, {})[:4] for edge in edges)
    ]
    return Network(tuple(made), tuple(lines))


def size(*triple, **more):
    return {"size": triple, **more}


NETWORKS = {
    "one conv": (
        network([("x", "input", 1), ("y", "transfer", 1)], [("conv", "x", "y", size(3, 3, 3))]),
        (1, 1, 1),
    ),
    "flat": (
        network(
            [("x", "input", 2), ("a", "transfer", 17, {"function": "relu"}), ("b", "sum", 17),
             ("y", "transfer", 3)],
            [("conv", "x", "a", size(1, 3, 3)),
             ("max_filter", "a", "b", size(1, 2, 2, sparsens=(1, 2, 2))),
             ("conv", "b", "y", size(1, 4, 3))],
        ),
        (1, 9, 7),
    ),
    "thin, cut along y": (
        network(
            [("x", "input", 3), ("a", "transfer", 18, {"function": "tanh"}), ("b", "sum", 18),
             ("c", "transfer", 5), ("d", "sum", 5), ("y", "transfer", 2)],
            [("conv", "x", "a", size(2, 3, 3)), ("crop", "a", "b", {"offset": (0, 1, 2)}),
             ("conv", "b", "c", size(2, 2, 3, stride=(1, 2, 3))),
             ("max_pool", "c", "d", size(1, 3, 2, stride=(1, 2, 1))),
             ("conv", "d", "y", size(1, 2, 2))],
        ),
        (2, 10, 5),
    ),
    "an input that feeds three kinds of edge": (
        network(
            [("x", "input", 1), ("m", "sum", 1), ("a", "transfer", 4),
             ("k", "concat", 6), ("y", "transfer", 2)],
            [("conv", "x", "a", size(2, 2, 2)), ("max_filter", "x", "m", size(2, 2, 2)),
             ("crop", "m", "k"), ("crop", "a", "k"), ("max_pool", "x", "k", size(2, 2, 2)),
             ("conv", "k", "y", size(2, 1, 3))],
        ),
        (4, 3, 5),
    ),
    "two edges between the same nodes": (
        network(
            [("x", "input", 2), ("a", "transfer", 19, {"function": "elu"}), ("b", "sum", 19),
             ("y", "transfer", 2)],
            [("conv", "x", "a", size(3, 3, 3)),
             ("conv", "x", "a", size(2, 2, 2, sparsity=(2, 2, 2))),
             ("max_filter", "a", "b", size(3, 1, 2)), ("max_filter", "a", "b", size(3, 1, 2)),
             ("conv", "b", "y", size(2, 2, 2)), ("conv", "b", "y", size(2, 2, 2)),
             ("conv", "b", "y", size(2, 2, 2))],
        ),
        (3, 4, 5),
    ),
    "concats that cross lanes, one of them twice the same node": (
        network(
            [("x", "input", 2), ("a", "transfer", LANE_CROSSING), ("b", "transfer", 13),
             ("k", "concat", 2 * LANE_CROSSING + 15), ("y", "concat", 2 * LANE_CROSSING + 28)],
            [("conv", "x", "a", size(2, 2, 2)), ("conv", "x", "b", size(2, 2, 2)),
             ("crop", "a", "k"), ("crop", "b", "k"), ("crop", "a", "k"),
             ("max_pool", "x", "k", size(2, 2, 2)),
             ("max_filter", "k", "y", size(1, 2, 1)), ("max_filter", "b", "y", size(1, 2, 1))],
        ),
        (3, 2, 4),
    ),
    "more than two blocks of images": (
        network(
            [("x", "input", 33), ("a", "transfer", 49, {"function": "logistic"}),
             ("y", "transfer", 37, {"function": "softmax"})],
            [("conv", "x", "a", size(2, 1, 2)), ("conv", "a", "y", size(1, 2, 2))],
        ),
        (3, 3, 4),
    ),
    "strides wider than filters": (
        network(
            [("x", "input", 2), ("a", "transfer", 6, {"function": "tanh"}), ("b", "transfer", 7),
             ("y", "transfer", 2, {"bias": False})],
            [("conv", "x", "a", size(2, 1, 2, stride=(3, 2, 2))),
             ("conv", "a", "b", size(1, 2, 3, stride=(2, 3, 1), sparsity=(1, 2, 3))),
             ("conv", "b", "y", size(2, 2, 1, stride=(1, 2, 2)))],
        ),
        (2, 3, 3),
    ),
    "outputs of different size that share a node": (
        network(
            [("x", "input", 1), ("a", "transfer", 5, {"function": "relu"}),
             ("y", "transfer", 2), ("z", "transfer", 3), ("w", "sum", 5)],
            [("conv", "x", "a", size(3, 2, 3)), ("conv", "a", "y", size(2, 2, 2)),
             ("conv", "a", "z", size(4, 1, 3)), ("crop", "a", "w", {"offset": (1, 0, 2)})],
        ),
        {"y": (4, 4, 5), "z": (2, 5, 4), "w": (3, 5, 2)},
    ),
    "outgoing convs on one and on several grids": (
        network(
            [("x", "input", 1), ("a", "transfer", 5, {"function": "tanh"}), ("b", "transfer", 4),
             ("c", "transfer", 4), ("d", "sum", 5), ("y", "transfer", 2)],
            [("conv", "x", "a", size(2, 2, 2)), ("conv", "a", "b", size(3, 3, 3)),
             ("conv", "a", "c", size(1, 3, 1)), ("crop", "a", "d", {"offset": (1, 1, 1)}),
             ("conv", "b", "y", size(3, 1, 3)), ("conv", "c", "y", size(5, 1, 5)),
             ("conv", "d", "y", size(3, 1, 3))],
        ),
        (3, 6, 3),
    ),
}  # fmt: skip


def with_data(name, batch):
    net, output = NETWORKS[name]
    geometry = fit(net, output)
    arrays = [
        make(net, geometry, 4, batch)
        for make in (rn.random_inputs, rn.random_targets, rn.random_weights)
    ]
    return net, output, geometry, rn.random_parameters(net, 4), *arrays


def by_name(values, net):
    return values if isinstance(values, dict) else {net.outputs[0].name: values}


def mixed_plan(net, seed):
    """Another algorithm for every pass of every layer."""
    rng = np.random.default_rng(seed)
    plan = {}
    for edge in net.edges:
        if edge.kind == "conv":
            drawn = rng.choice(["direct", "fft"], 3).tolist()
            drawn = ["direct"] * 3 if max(edge.stride) > 1 else drawn
            plan[edge.name] = dict(zip(("forward", "gradient", "weight"), drawn, strict=True))
    return plan


@pytest.mark.parametrize("options", [{"conv": "direct"}, {"conv": "fft"}, {"plan": 1}, {"plan": 2}])
@pytest.mark.parametrize("name", NETWORKS)
def test_odd_networks_equal_the_reference(name, options):
    net, output, geometry, parameters, x, target, weight = with_data(name, batch=3)
    if "plan" in options:
        options = {"plan": mixed_plan(net, options["plan"])}
    loss = "softmax" if name.startswith("more") else "square"
    with Model(net, output, batch=3, threads=2, loss=loss, **options) as model:
        model.set_parameters(parameters)
        wanted, slopes = reference.gradients(net, geometry, parameters, x, target, weight, loss)
        values = reference.forward(net, geometry, parameters, x)
        for _ in range(2):
            for node, found in by_name(model.forward(x), net).items():
                assert_close(found, values[node])
            found, gradients = model.loss_and_gradients(x, target, weight=weight)
            assert found == pytest.approx(wanted, rel=3e-5)
            largest = max(np.abs(slope).max() for slope in slopes.values())
            for key, slope in slopes.items():
                assert_close(gradients[key], slope, max(np.abs(slope).max(), largest / 50))


def updated(name, plan, updates=4, **options):
    net, output, geometry, parameters, *_ = with_data(name, batch=2)
    with Model(net, output, batch=2, plan=plan, loss="square", clip_norm=0.5, **options) as model:
        model.set_parameters(parameters)
        tickets = [
            model.submit(
                rn.random_inputs(net, geometry, update, 2),
                rn.random_targets(net, geometry, update, 2),
                learning_rate=0.05,
            )
            for update in range(updates)
        ]
        return model.parameters, [model.result(ticket).loss for ticket in tickets[-2:]]


@pytest.fixture
def finest_tasks(monkeypatch):
    """Cut finely, so that small images make many tasks."""
    monkeypatch.setattr(sys.modules["znnpy.plan.parts"], "TARGET_SECONDS", 5e-7)
    monkeypatch.setattr("znnpy.engine.convolution.fft.spectra.TARGET_SECONDS", 5e-7)
    monkeypatch.setattr("znnpy.engine.convolution.direct.SLAB_BYTES", 1 << 12)


@pytest.mark.parametrize("name", NETWORKS)
def test_every_order_that_the_graph_allows_gives_the_same_bits(name, finest_tasks, monkeypatch):
    """Tasks one by one, the most urgent ready one first: what is not declared shows without luck."""
    plan = mixed_plan(NETWORKS[name][0], 3)
    wanted = updated(name, plan, threads=0)
    for order, policy in enumerate(("lifo", "fifo", "random", "random", "random")):
        monkeypatch.setitem(
            POLICIES,
            "random",
            lambda _, cost, seed=order: np.random.default_rng(seed).permutation(len(cost)) * 1.0,
        )
        found = updated(name, plan, threads=0, policy=policy)
        assert found[1] == wanted[1]
        assert all(np.array_equal(found[0][key], wanted[0][key]) for key in wanted[0])


@pytest.mark.parametrize(
    "name", ["thin, cut along y", "outgoing convs on one and on several grids"]
)
def test_odd_networks_have_the_same_bits_on_eight_threads(name, finest_tasks):
    plan = mixed_plan(NETWORKS[name][0], 3)
    wanted = updated(name, plan, threads=0)
    for seed in range(4):
        found = updated(name, plan, threads=8, steal_seed=seed)
        assert found[1] == wanted[1]
        assert all(np.array_equal(found[0][key], wanted[0][key]) for key in wanted[0])


def small(output=(3, 3, 3), **options):
    net = network(
        [("x", "input", 1), ("a", "transfer", 4, {"function": "tanh"}), ("y", "transfer", 2)],
        [("conv", "x", "a", size(3, 3, 3)), ("conv", "a", "y", size(3, 3, 3))],
    )
    return Model(net, output, **{"threads": 1, "conv": "direct", **options})


def data(model, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((model.batch, 1, *model.input_shape)).astype(np.float32)
    return x, rng.random((model.batch, 2, *model.output_shape)).astype(np.float32)


def test_nan_leaves_no_trace():
    with small(conv="fft", clip_norm=1.0) as model:
        x, target = data(model)
        start = model.parameters, model.optimizer_state
        wanted = model.forward(x), model.step(x, target), model.parameters
        bad = np.full_like(x, np.nan)
        model.forward(bad)
        model.step(bad, target)
        model.set_parameters(start[0])
        model.set_optimizer_state(start[1])
        model.iteration = 0
        assert np.array_equal(model.forward(x), wanted[0])
        assert model.step(x, target) == wanted[1]
        found = model.parameters
        assert all(np.array_equal(found[name], wanted[2][name]) for name in found)


# networks in which something has nothing to learn


def test_a_network_without_parameters_has_a_loss():
    net = network([("x", "input", 1), ("y", "sum", 1)], [("max_filter", "x", "y", size(2, 2, 2))])
    with Model(net, (3, 3, 3), threads=1, loss="square") as model:
        x = np.arange(64, dtype=np.float32).reshape(1, 1, 4, 4, 4)
        loss, gradients = model.loss_and_gradients(x, x[..., 1:, 1:, 1:] + 2)
        assert loss == pytest.approx(4)
        assert gradients == {}
        assert model.step(x, x[..., 1:, 1:, 1:] + 1) == pytest.approx(1)


def test_an_output_without_parameters_counts_beside_one_with_them():
    net = network(
        [("x", "input", 1), ("y", "transfer", 1), ("z", "sum", 1)],
        [("conv", "x", "y", size(2, 2, 2)), ("max_filter", "x", "z", size(2, 2, 2))],
    )
    with Model(net, (3, 3, 3), threads=1, loss="square", conv="direct") as model:
        x = np.arange(64, dtype=np.float32).reshape(1, 1, 4, 4, 4)
        values = model.forward(x)
        loss, gradients = model.loss_and_gradients(x, {**values, "z": values["z"] - 3})
        assert loss == pytest.approx(9)
        assert sorted(gradients) == ["e0", "y"]


# filters that FFT cannot do, words that mean nothing


def test_auto_runs_directly_what_fft_cannot():
    net = network(
        [("x", "input", 1), ("a", "transfer", 20), ("y", "transfer", 20)],
        [("conv", "x", "a", size(1, 1, 1)), ("conv", "a", "y", size(1, 65, 65))],
    )
    with Model(net, (1, 40, 40), threads=1, conv="auto", training=False) as model:
        assert model.plan_record["e1"]["forward"] == "direct"


@pytest.mark.parametrize(
    "options",
    [
        {"conv": "winograd"},
        {"precision": "float16"},
        {"loss": "softmaks"},
        {"policy": "random walk"},
        {"batch": 0},
        {"batch": True},
        {"threads": -1},
        {"threads": 100_000},
        {"seed": -1},
        {"steal_seed": 2**63},
        {"clip_norm": -1},
        {"clip_norm": float("nan")},
        {"max_memory": 0},
    ],
)
def test_unknown_words_and_impossible_counts_are_refused(options):
    with pytest.raises(ZnnpyError, match=next(iter(options))):
        small(**options)


def test_one_number_is_a_cube():
    with small(3) as one, small(np.int64(3)) as other:
        assert one.output_shape == other.output_shape == (3, 3, 3)
    net = network([("x", "input", 1), ("y", "transfer", 1)], [("conv", "x", "y", size(1, 1, 1))])
    with Model(net, {"y": 2}, threads=1) as model:
        assert model.input_shape == (2, 2, 2)


@pytest.mark.parametrize("shape", [0, 2.5, (3, 3), (3, 3, 2.5), "333", None])
def test_shapes_that_are_none_are_refused(shape):
    with pytest.raises(ZnnpyError, match="three sizes"):
        small(shape)


def test_softmax_of_one_image_is_refused():
    net = network([("x", "input", 1), ("y", "transfer", 1)], [("conv", "x", "y", size(1, 1, 1))])
    with pytest.raises(ZnnpyError, match="'y' has 1; binomial_cross_entropy"):
        Model(net, 2, loss="softmax", threads=1)
    Model(net, 2, loss="softmax", threads=1, training=False).close()


@pytest.mark.parametrize("training", [True, False])
def test_shapes_that_no_memory_holds_are_refused_before_planning(training, monkeypatch):
    def planned(*args):
        raise AssertionError("it is planned")

    monkeypatch.setattr("znnpy.engine.model.planned", planned)
    with pytest.raises(ZnnpyError, match=r"at least [\d.]+ TiB of memory; this machine has"):
        small(20_000, training=training)
    with pytest.raises(ZnnpyError, match=r"at least .* of memory; max_memory is 1.0 MiB"):
        small(64, training=training, max_memory=1 << 20)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("name", NETWORKS)
def test_no_plan_takes_less_than_the_least(name, training):
    net, output = NETWORKS[name]
    with Model(net, output, threads=1, conv="direct", training=training, loss="square") as model:
        assert least_bytes(net, model.geometry, 1, training) <= model.memory


def test_a_plan_that_runs_strides_by_fft_is_refused():
    net = network(
        [("x", "input", 1), ("y", "transfer", 1)],
        [("conv", "x", "y", size(2, 2, 2, stride=(2, 2, 2)))],
    )
    plan = {"e0": {"forward": "fft", "gradient": "fft", "weight": "fft"}}
    with pytest.raises(ZnnpyError, match="e0"):
        Model(net, (2, 2, 2), threads=1, plan=plan)


# calls in an unusual order


def test_a_result_outlives_gradients_asked_for_in_between():
    with small() as model:
        x, target = data(model)
        ticket = model.submit(x, target)
        wanted = model.result(ticket)
        model.loss_and_gradients(9 * x, 1 - target)
        assert model.result(ticket) == wanted


def test_the_bad_input_of_an_odd_step_is_named():
    with small() as model:
        x, target = data(model)
        model.step(x, target)
        model.step(np.full_like(x, np.nan), target)
        assert model.non_finite_layer() == "x"


CALLS = {
    "parameters": lambda m: m.parameters,
    "set_parameters": lambda m: m.set_parameters({}),
    "forward": lambda m: m.forward(data(m)[0]),
    "step": lambda m: m.step(*data(m)),
    "loss_and_gradients": lambda m: m.loss_and_gradients(*data(m)),
    "drain": lambda m: m.drain(),
}


@pytest.mark.parametrize("call", CALLS)
def test_a_closed_model_says_so(call):
    model = small()
    model.step(*data(model))
    model.close()
    model.close()
    with pytest.raises(ZnnpyError, match="closed"):
        CALLS[call](model)


# ends that nobody wished for


def test_a_model_that_nobody_holds_leaves_no_threads():
    before = threading.active_count()
    for _ in range(3):
        model = small(threads=2)
        model.step(*data(model))
        del model
    gc.collect()
    limit = time.monotonic() + 5
    while threading.active_count() > before and time.monotonic() < limit:
        time.sleep(0.01)
    assert threading.active_count() == before


def run(script):
    """Exit status of a script in a process of its own, and what it wrote."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def test_memory_stays_until_an_update_of_a_dropped_model_is_over():
    status, output = run(
        """
        import gc
        import numpy as np
        from znnpy.engine import Model
        wide = {"conv": {"images": 24, "size": 3, "function": "relu"}}
        layers = [wide] * 4 + [{"conv": {"images": 2, "size": 3}}]
        for _ in range(4):
            model = Model({"layers": layers}, (16, 16, 16), threads=2, conv="direct")
            model.submit(np.ones((1, 1, *model.input_shape)), np.ones((1, 2, 16, 16, 16)))
            del model
            gc.collect()
            taken = [np.ones(1 << 18) for _ in range(40)]
        assert all((array == 1).all() for array in taken)
        print("survived")
        """
    )
    assert (status, output) == (0, "survived\n")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_child_is_told_that_threads_do_not_survive():
    status, output = run(
        """
        import os, signal, warnings
        import numpy as np
        from znnpy.engine import Model
        from znnpy.errors import ZnnpyError
        warnings.simplefilter("ignore")
        layers = [{"conv": {"images": 2, "size": 3}}]
        model = Model({"layers": layers}, (3, 3, 3), threads=2, conv="direct")
        x = np.ones((1, 1, 5, 5, 5))
        model.forward(x)
        child = os.fork()
        if child == 0:
            signal.alarm(4)
            try:
                model.forward(x)
            except ZnnpyError as error:
                os._exit(0 if "fork" in str(error) else 1)
            os._exit(2)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        """
    )
    assert (status, output) == (0, "0\n")


class Interrupted(KeyboardInterrupt):
    """What the timer raises, so that no other Ctrl-C is taken for it."""


@pytest.fixture
def interrupt_after():
    def fire(*_):
        raise Interrupted

    before = signal.signal(signal.SIGALRM, fire)
    yield lambda seconds: signal.setitimer(signal.ITIMER_REAL, seconds)
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


INTERRUPTED = {
    "forward": lambda m, x, t: m.forward(x),
    "gradients": lambda m, x, t: m.loss_and_gradients(x, t)[1]["e1"],
    "step": lambda m, x, t: (m.step(x, t, learning_rate=0.0), m.forward(x))[1],
}


@pytest.mark.parametrize("threads", [0, 2])
@pytest.mark.parametrize("call", INTERRUPTED)
def test_an_interrupted_call_can_be_made_again(call, threads, interrupt_after):
    net = network(
        [("x", "input", 1), ("a", "transfer", 32, {"function": "relu"}),
         ("b", "transfer", 32, {"function": "relu"}), ("y", "transfer", 2)],
        [("conv", "x", "a", size(3, 3, 3)), ("conv", "a", "b", size(3, 3, 3)),
         ("conv", "b", "y", size(3, 3, 3))],
    )  # fmt: skip
    with Model(net, (48, 48, 48), threads=threads, conv="direct") as model:
        (x, target), (other, _) = data(model), data(model, 1)
        run_it = INTERRUPTED[call]
        run_it(model, x, target)
        begin = time.perf_counter()
        wanted = run_it(model, x, target)
        with pytest.raises(Interrupted):  # noqa: PT012
            interrupt_after((time.perf_counter() - begin) / 4)
            for _ in range(100):  # the call that was timed may have had to wait for a core
                run_it(model, other, target)
        assert np.array_equal(run_it(model, x, target), wanted)
        model.step(x, target, learning_rate=0.0)
        assert np.array_equal(run_it(model, x, target), wanted)
