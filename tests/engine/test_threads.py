"""One model that several threads of Python call: each call is whole, or refused in words."""

import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from small_models import data, small

from znnpy.engine.thread_safety import Turn, in_turn
from znnpy.errors import ZnnpyError

CALLERS = 8
RUNS = int(os.environ.get("ZNNPY_CALLERS", "2"))  # of 40 calls by each of them


@pytest.fixture(scope="module")
def model():
    with small(threads=2) as one:
        one.step(*data(one))
        yield one


def at_once(call, callers=CALLERS):
    """What so many threads return that begin at the same time."""
    gate = threading.Barrier(callers)

    def begin(caller):
        gate.wait()
        return call(caller)

    with ThreadPoolExecutor(callers) as pool:
        return list(pool.map(begin, range(callers)))


@pytest.mark.parametrize("threads", [0, 2])
def test_each_thread_gets_the_values_of_its_own_inputs(threads):
    with small(threads=threads) as shared:
        inputs = [data(shared, caller)[0] for caller in range(CALLERS)]
        wanted = [shared.predict(x) for x in inputs]

        def call(caller):
            return [shared.predict(inputs[caller]) for _ in range(40 * RUNS)]

        for caller, found in enumerate(at_once(call)):
            assert all(np.array_equal(values, wanted[caller]) for values in found)


@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_all_updates_of_all_threads_are_made(precision):
    """With a learning rate of 0, so that each loss is that of its own batch."""
    with small(threads=2, precision=precision) as shared:
        batches = [data(shared, caller) for caller in range(CALLERS)]
        wanted = [shared.step(*batch, learning_rate=0.0) for batch in batches]
        # In float64 an update ends within its call.
        updates = 10 * RUNS if precision == "float32" else 10

        def call(caller):
            batch, found = batches[caller], []
            for number in range(updates):
                if number % 2:
                    found.append(shared.step(*batch, learning_rate=0.0))
                else:
                    ticket = shared.submit(*batch, learning_rate=0.0)
                    found.append(shared.result(ticket).loss)
            return found

        for caller, found in enumerate(at_once(call)):
            assert found == [wanted[caller]] * len(found)
        assert shared.iteration == CALLERS * (1 + updates)


def test_calls_of_all_kinds_at_once_leave_the_bits_of_one_thread():
    with small(threads=2) as shared:
        x, target = data(shared)
        state = shared.parameters, shared.forward(x), shared.loss_and_gradients(x, target)[0]
        calls = [
            lambda: np.array_equal(shared.forward(x), state[1]),
            lambda: shared.loss_and_gradients(x, target)[0] == state[2],
            lambda: shared.step(x, target, learning_rate=0.0) == state[2],
            lambda: all(np.array_equal(v, state[0][k]) for k, v in shared.parameters.items()),
            lambda: shared.set_parameters(state[0]) is None,
            lambda: shared.set_optimizer_state(shared.optimizer_state) is None,
            lambda: shared.non_finite_layer() is None,
            lambda: shared.drain() is None and bool(shared.recording()),
        ]
        assert all(at_once(lambda caller: all(calls[caller]() for _ in range(5 * RUNS))))


def test_results_outlive_updates_of_other_threads(model):
    x, target = data(model)
    tickets = [model.submit(x, target, learning_rate=0.0) for _ in range(20)]
    assert len({model.result(ticket) for ticket in tickets}) == 1


@pytest.mark.parametrize("ticket", [-1, 10**6, 2.0, None, "0"])
def test_a_ticket_that_there_is_not_is_refused(model, ticket):
    with pytest.raises(ZnnpyError, match="ticket"):
        model.result(ticket)


def test_what_two_threads_have_staged_is_run_by_neither(model):
    x, _ = data(model)
    wanted = model.forward(x)

    def attempt(_):
        model.staged()["x"][...] = x
        both.wait()  # until both have staged
        try:
            return model.run()["y"].copy()
        except ZnnpyError as error:
            return str(error)

    both = threading.Barrier(2)
    assert all("hold a lock over `staged` and `run`" in found for found in at_once(attempt, 2))
    model.staged()["x"][...] = x
    assert np.array_equal(model.run()["y"], wanted)
    assert np.array_equal(model.run()["y"], wanted)


def test_threads_may_take_turns_at_what_is_staged(model):
    lock, x = threading.Lock(), data(model)[0]
    wanted = [model.forward(x * caller) for caller in range(CALLERS)]

    def attempt(caller):
        for _ in range(10):
            with lock:
                model.staged()["x"][...] = x * caller
                assert np.array_equal(model.run()["y"], wanted[caller])

    at_once(attempt)


def test_a_forward_pass_of_another_thread_spoils_what_is_staged(model):
    model.staged()
    at_once(lambda _: model.forward(data(model)[0]), 1)
    with pytest.raises(ZnnpyError, match="another thread"):
        model.run()


def test_closing_waits_for_the_calls_of_others():
    shared = small(threads=2)
    x, target = data(shared)
    wanted = shared.step(x, target, learning_rate=0.0)

    def call(caller):
        if caller == 0:
            time.sleep(0.02)
            shared.close()
            return True
        try:
            while True:
                assert shared.step(x, target, learning_rate=0.0) == wanted
        except ZnnpyError as error:
            return "closed" in str(error)

    assert all(at_once(call))


class Slow:
    """Something with calls that take as long as they are told."""

    def __init__(self):
        self._turn = Turn()

    @in_turn
    def call(self, what=lambda: None):
        return what()


def test_a_call_of_a_signal_handler_within_another_is_refused_and_does_not_wait():
    slow, said = Slow(), []

    def handler(*_):
        try:
            slow.call()
        except ZnnpyError as error:
            said.append(str(error))

    before = signal.signal(signal.SIGUSR1, handler)
    try:
        slow.call(lambda: (signal.raise_signal(signal.SIGUSR1), time.sleep(0)))
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert "in the middle of `call`" in said[0]
    assert slow.call(lambda: 3) == 3


def test_a_call_that_ctrl_c_ends_gives_its_turn_back():
    slow = Slow()

    def interrupted():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        slow.call(interrupted)
    assert at_once(lambda _: slow.call(lambda: 3), 1) == [3]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_the_child_of_a_fork_waits_for_no_thread_that_it_does_not_have():
    begun, go_on, slow, free = threading.Event(), threading.Event(), Slow(), Slow()
    thread = threading.Thread(target=slow.call, args=(lambda: (begun.set(), go_on.wait()),))
    thread.start()
    begun.wait()
    child = os.fork()
    if child == 0:
        signal.alarm(300)
        try:
            slow.call()
        except ZnnpyError as error:
            os._exit(0 if "fork" in str(error) and free.call(lambda: 3) == 3 else 1)
        os._exit(2)
    go_on.set()
    thread.join()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
