"""Values of outputs that tasks bring into the caller's arrays: batches, microbatches, several outputs, planar ones."""

from __future__ import annotations

import numpy as np
import pytest
from model_settings import model_of

from znnpy import load_network, reference
from znnpy.geometry import fit
from znnpy.network.types import Network


def two_outputs() -> Network:
    """One output of three blocks, the last of which is not full, and one of two channels."""
    return load_network(
        {
            "nodes": {
                "input": {"kind": "input", "channels": 2},
                "a": {"kind": "transfer", "channels": 20, "function": "relu"},
                "wide": {"kind": "transfer", "channels": 37},
                "narrow": {"kind": "transfer", "channels": 2},
            },
            "edges": {
                "first": {"kind": "conv", "from": "input", "to": "a", "size": 2},
                "second": {"kind": "conv", "from": "a", "to": "wide", "size": [1, 2, 2]},
                "third": {"kind": "conv", "from": "a", "to": "narrow", "size": [1, 2, 2]},
            },
        }
    )


def test_arrays_outlive_an_interrupt(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tasks that Ctrl-C leaves running still write to them."""
    with model_of(two_outputs(), (3, 5, 19), threads=2) as model:
        engine = model._engine
        x = np.zeros((1, 2, *model.input_shape), np.float32)

        def interrupted(name: str) -> None:
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(engine._graphs, "run", interrupted)
            with pytest.raises(KeyboardInterrupt):
                model.forward(x)
        assert [set(arrays) for arrays in engine._filled] == [{"wide", "narrow"}]
        model.forward(x)
        assert not engine._filled


@pytest.mark.parametrize(("batch", "microbatch"), [(1, 1), (3, 3), (5, 1)])
@pytest.mark.parametrize("training", [True, False])
def test_outputs_of_each_sample(batch: int, microbatch: int, training: bool) -> None:
    net, shape, rng = two_outputs(), (3, 5, 19), np.random.default_rng(batch)
    geometry = fit(net, shape)
    x = rng.standard_normal((batch, 2, *geometry.input_shapes["input"])).astype(np.float32)
    with model_of(net, shape, batch=batch, microbatch=microbatch, threads=2, seed=1, training=training,
                  loss="square") as model:  # fmt: skip
        first, second = model.forward(x), model.forward(x)
        parameters = model.parameters
    wanted = reference.forward(net, geometry, parameters, {"input": x})
    for name, array in first.items():
        assert array is not second[name]
        np.testing.assert_array_equal(array, second[name])
        np.testing.assert_allclose(array, wanted[name], rtol=1e-4, atol=1e-5)
