"""Ends that nobody wished for: models dropped, forked and interrupted."""

import copy
import gc
import os
import pickle
import signal
import subprocess
import sys
import textwrap
import threading
import time

import numpy as np
import pytest
from odd_networks import network, size
from small_models import data, small

from znnpy.engine import Model
from znnpy.errors import ZnnpyError


def test_a_model_that_nobody_holds_leaves_no_threads():
    before = set(threading.enumerate())  # of which some may be about to end
    for _ in range(3):
        model = small(threads=2)
        model.step(*data(model))
        del model
    gc.collect()
    limit = time.monotonic() + 300
    while (left := set(threading.enumerate()) - before) and time.monotonic() < limit:
        time.sleep(0.01)
    assert not left


@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, pickle.dumps])
def test_copies_say_how_to_have_another_one(again):
    """They would share threads, memory and the number of updates, or have none."""
    with small(threads=1) as model, pytest.raises(ZnnpyError, match="neither copied nor pickled"):
        again(model)


def run(script):
    """Exit status of a script in a process of its own, and what it wrote."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.slow
def test_memory_stays_until_an_update_of_a_dropped_model_is_over():
    status, output = run(
        """
        import gc
        import numpy as np
        from znnpy.engine import Model
        wide = {"conv": {"channels": 24, "size": 3, "function": "relu"}}
        layers = [wide] * 4 + [{"conv": {"channels": 2, "size": 3}}]
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


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_child_is_told_that_threads_do_not_survive():
    status, output = run(
        """
        import os, signal, warnings
        import numpy as np
        from znnpy.engine import Model
        from znnpy.errors import ZnnpyError
        warnings.simplefilter("ignore")
        layers = [{"conv": {"channels": 2, "size": 3}}]
        model = Model({"layers": layers}, (3, 3, 3), threads=2, conv="direct")
        x = np.ones((1, 1, 5, 5, 5))
        model.forward(x)
        child = os.fork()
        if child == 0:
            signal.alarm(300)
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


@pytest.mark.parametrize("started", [False, True])
@pytest.mark.parametrize(("threads", "quick"), [(0, False), (2, False), (2, True)])
def test_what_ctrl_c_kept_from_starting_is_not_waited_for(
    threads, quick, started, interrupt_after, monkeypatch
):
    """And what it did not is, wherever between the lines of Python it came."""
    with small(threads=threads) as model:
        x, target = data(model)
        wanted = [model.step(x, target, learning_rate=0.0) for _ in range(2)]
        engine = model._engine
        assert bool(threads) == bool(engine.quick and engine.quick.ready)
        if not quick:
            engine.quick = None
        place = (engine.quick, "_call") if quick else (engine._graphs.executor("update"), "release")
        start = getattr(*place)

        def interrupted(*given):
            if started:
                start(*given)
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(*place, interrupted)
            with pytest.raises(KeyboardInterrupt):
                model.step(x, target, learning_rate=0.0)
        assert model.iteration == 2 + started
        interrupt_after(300)  # what waits without end
        assert [model.step(x, target, learning_rate=0.0) for _ in range(4)] == 2 * wanted
        assert np.isfinite(model.forward(x)).all()


INTERRUPTED = {
    "forward": lambda m, x, t: m.forward(x),
    "gradients": lambda m, x, t: m.loss_and_gradients(x, t)[1]["e1"],
    "step": lambda m, x, t: (m.step(x, t, learning_rate=0.0), m.forward(x))[1],
}


@pytest.mark.slow
@pytest.mark.parametrize("threads", [0, 2])
@pytest.mark.parametrize("call", INTERRUPTED)
def test_an_interrupted_call_can_be_made_again(call, threads, interrupt_after):
    net = network(
        [("x", "input", 1), ("a", "transfer", 32, {"function": "relu"}),
         ("b", "transfer", 32, {"function": "relu"}), ("y", "transfer", 2)],
        [("conv", "x", "a", size(3, 3, 3)), ("conv", "a", "b", size(3, 3, 3)),
         ("conv", "b", "y", size(3, 3, 3))],
    )  # fmt: skip
    with Model(net, (32, 32, 32), threads=threads, conv="direct") as model:
        (x, target), (other, _) = data(model), data(model, 1)
        run_it = INTERRUPTED[call]
        run_it(model, x, target)
        begin = time.perf_counter()
        wanted = run_it(model, x, target)
        with pytest.raises(Interrupted):  # noqa: PT012
            interrupt_after((time.perf_counter() - begin) / 4)
            while True:  # the call that was timed may have had to wait for a core
                run_it(model, other, target)
        assert np.array_equal(run_it(model, x, target), wanted)
        model.step(x, target, learning_rate=0.0)
        assert np.array_equal(run_it(model, x, target), wanted)
