"""What a layout's graphs do beside running: memory of the compiler that goes back."""

import pytest
from small_models import small
from znnpy_kernels.machine.abi import Kernel

from znnpy.engine import execution


@pytest.mark.parametrize(
    ("training", "loaded", "times"), [(False, False, 2), (False, True, 0), (True, False, 0)]
)
def test_pages_go_back_where_predictions_link_kernels(monkeypatch, training, loaded, times):
    """Not for each model of a process: all that is mapped is looked through, which takes longer than a small one."""
    given = []
    monkeypatch.setattr(execution, "give_back_libraries", lambda: given.append(None))
    small().close()
    if not loaded:
        monkeypatch.setattr(Kernel, "loaded", property(lambda kernel: False))
    with small(training=training) as model:
        model.forward([[[[[0.0] * 7] * 7] * 7]])
    assert len(given) == times
