"""What a layout's graphs do beside running: memory of the compiler that goes back."""

import numpy as np
import pytest
from small_models import small
from znnpy_kernels.machine.abi import Kernel

from znnpy import Model
from znnpy.engine import execution


@pytest.fixture
def given(monkeypatch):
    """How often pages went back, in a process that has linked all kernels and handed back what that took."""
    found = []
    monkeypatch.setattr(execution, "give_back_libraries", lambda: found.append(None))
    small().close()
    monkeypatch.setattr(execution, "_linked", False)
    return found


def predict():
    with small(training=False) as model:
        model.forward([[[[[0.0] * 7] * 7] * 7]])


def test_pages_do_not_go_back_for_each_model(given):
    """All that is mapped would be looked through, which takes longer than a small one."""
    predict()
    assert not given


@pytest.mark.parametrize("training", [False, True])
def test_pages_go_back_once_kernels_are_linked(given, monkeypatch, training):
    """Those that a model that trains has linked, too, but only when one predicts."""
    with monkeypatch.context() as patched:
        patched.setattr(Kernel, "loaded", property(lambda kernel: False))
        small().close() if training else predict()
    assert len(given) == 2 * (not training)
    predict()
    assert len(given) == 2
    predict()
    assert len(given) == 2


def test_what_one_thread_links_is_not_forgotten_by_another(given, monkeypatch):
    """Another thread's model hands back while this one links, and links while this one hands back."""
    compile_all = execution.compile_all

    def linking(*wanted):
        compile_all(*wanted)
        execution._linked = False

    with monkeypatch.context() as patched:
        patched.setattr(Kernel, "loaded", property(lambda kernel: False))
        patched.setattr(execution, "compile_all", linking)
        small().close()
    assert execution._linked
    monkeypatch.setattr(
        execution, "give_back_libraries", lambda: setattr(execution, "_linked", True)
    )
    predict()
    assert execution._linked


def test_graphs_are_declared_for_who_asks_for_them(monkeypatch):
    """A model that trains may never be asked for an update, which takes longest to declare."""
    declared, own = [], execution.declare
    monkeypatch.setattr(
        execution, "declare", lambda name, *given: declared.append(name) or own(name, *given)
    )
    with Model({"layers": [{"conv": {"channels": 1, "size": 1}}]}, 2, loss="square") as model:
        x = np.zeros((1, 1, *model.input_shape), np.float32)
        model.forward(x)
        assert set(declared) == {"derive", "forward"}
        model.loss_and_gradients(x, x)
        assert set(declared) == {"derive", "forward", "gradients"}
        model.step(x, x)
        assert declared.count("update") == 1
