"""What a model takes for its settings: what a config would, and NumPy's numbers; all else is refused by name."""

from dataclasses import replace

import numpy as np
import pytest
from small_models import data, small

from znnpy import Hardware, Model, Optimizer, Training
from znnpy.errors import ConfigError, NetworkError, PlanError, ZnnpyError
from znnpy.learning.losses import LOSSES
from znnpy.learning.optimizers import OPTIMIZERS, Adam

MALIS = {"layers": [{"conv": {"channels": 2, "size": 3}}]}


def same(found, wanted):
    """Whether two models have made the same update."""
    with found, wanted:
        for model in (found, wanted):
            model.step(*data(model))
        ours, others = found.parameters, wanted.parameters
        return all(np.array_equal(ours[name], others[name]) for name in others)


@pytest.mark.parametrize("kind", [np.int32, np.uint8, np.int64, np.array])
def test_numbers_may_be_numpys(kind):
    sizes = {"batch": 4, "microbatch": 2, "seed": 7, "threads": 1, "steal_seed": 3, "record": 5}
    given = {name: kind(value) for name, value in sizes.items()}
    assert same(small(**given, clip_norm=np.float32(2)), small(**sizes, clip_norm=2.0))


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ("adam", Optimizer("adam")),
        ({"kind": "adam", "beta1": 0.5}, Optimizer("adam", beta1=0.5)),
        ({"kind": "sgd", "momentum": np.float64(0.5)}, Optimizer(momentum=0.5)),
        ("adamw", Optimizer("adamw", weight_decay=0.01)),
        (Adam(kind="adam", eps=1e-3), Optimizer("adam", eps=1e-3)),
        (None, Optimizer()),
    ],
)
def test_an_optimizer_may_be_given_as_in_a_config(given, wanted):
    assert Optimizer.of(given) == wanted
    assert same(small(optimizer=given), small(optimizer=wanted))


def test_an_optimizers_numbers_are_pythons():
    made = Optimizer("adam", beta1=np.float32(0.5), decoupled=np.True_)
    assert (type(made.beta1), made.beta1, made.decoupled) == (float, 0.5, True)


def test_memory_and_ranks_may_be_given_as_in_a_config():
    with small(max_memory="8GiB", distributed={"strategy": "tree", "chunk": "1KiB"}) as model:
        assert model._settings.max_memory == 8 << 30


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"optimizer": "adm"}, "optimizer.kind: is 'adm'; did you mean 'adam'"),
        ({"optimizer": {"kind": "sgd", "beta1": 0.1}}, "optimizer.beta1: unknown key"),
        ({"optimizer": 3}, "optimizer: must be a mapping of keys"),
        ({"max_memory": "8 gibs"}, "hardware.max_memory: must be bytes or a size such as 8GiB"),
        ({"max_memory": 1.5}, "hardware.max_memory"),
        ({"factors": [1]}, "training.factors: must be a mapping"),
        ({"factors": {"y": -1}}, "Model: training.factors.y: must be at least 0"),
        ({"factors": {"y": 0}}, "nothing is learned"),
        ({"factors": {1: 1}}, "training.factors"),
        ({"record": -1}, "execution.record: must be at least 0"),
        ({"record": 10**12}, "execution.record: must be at most"),
        ({"training": None}, "training: must be a Training, true or false"),
        ({"training": "no"}, "training: must be a Training, true or false"),
        ({"threads": ""}, "threads: must be a whole number"),
        ({"threads": 1.0}, "threads: must be a whole number"),
        ({"batch": 10**9}, "batch: must be at most 65536"),
        ({"batch": 2.0}, "batch: must be a whole number"),
        ({"seed": None}, "seed: must be a whole number"),
        ({"loss": None}, "loss: must be a mapping"),
        ({"loss": {"kind": ["square"]}}, "loss.kind"),
        ({"plan": "plan.json"}, "plan: must be a mapping"),
        ({"plan": [1]}, "plan: must be a mapping"),
        ({"report": 3}, "execution.report: must be a function"),
        ({"ranks": 2}, "hardware.ranks: must be a World"),
        ({"distributed": "tree"}, "hardware.distributed: must be a mapping"),
        ({"distributed": {"strategy": "star"}}, "hardware.distributed: strategy: is 'star'"),
    ],
)
def test_what_a_config_would_refuse_is_refused_by_name(given, said):
    with pytest.raises(ZnnpyError) as refused:
        small(**given)
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"max_memory": "8GiB"}, "no max_memory=; give hardware=Hardware(max_memory=...)"),
        ({"clip_norm": 1.0}, "no clip_norm=; give training=Training(clip_norm=...)"),
        ({"record": 4}, "no record=; give execution=Execution(record=...)"),
        ({"thread": 4}, "no thread=; did you mean threads?"),
        ({"micro_batch": 4}, "no micro_batch=; did you mean training.microbatch?"),
        ({"xyz": 4}, "no xyz=; it takes network, output_shape, batch, threads, "),
        ({"hardware": {"threads": 1}}, "hardware: must be a Hardware; found"),
        ({"training": Hardware()}, "training: must be a Training, true or false; found"),
        ({"execution": 3}, "execution: must be an Execution; found 3"),
    ],
)
def test_settings_go_into_their_groups(given, said):
    with pytest.raises(ZnnpyError) as refused:
        Model(MALIS, 3, **given)
    assert said in str(refused.value)


def test_an_unknown_name_is_a_type_error_and_a_training_one_may_go_without_settings():
    with pytest.raises(TypeError):
        Model(MALIS, 3, clip_norm=1.0)
    with small(training=Training()) as told, small(training=True) as one:
        assert told._layout.training == one._layout.training is True
    with small(training=np.False_) as model:
        assert not model._layout.training


@pytest.mark.parametrize("network", [None, 3, [], b"x.yaml", object(), True, 1.5])
def test_what_is_no_network_is_refused(network):
    with pytest.raises(ConfigError, match="a network is"):
        Model(network)


@pytest.mark.parametrize(
    ("offsets", "said"),
    [
        ([[0, 0, 0], [0, 0, 1]], "must not be 0, 0, 0"),
        ([[0, 0, 1], [0, 0, 1]], "is there already"),
        ([[0, 0, 1], [0, 0, 2**40]], "must be at most"),
        ([[0, 0, 1], [0, -3, 0]], r"joins voxels at offset \[0, -3, 0\], but a patch"),
        ([], "at least 1"),
    ],
)
def test_neighbours_that_no_voxel_has_are_refused(offsets, said):
    with pytest.raises(ZnnpyError, match=said):
        Model(MALIS, 3, loss={"kind": "malis", "offsets": offsets})
    with pytest.raises(ZnnpyError, match=r"loss\.offsets\.0"):
        Model(MALIS, 3, loss={"kind": "malis", "offsets": [[0, 0, 0]]})


def test_what_has_no_kernel_runs_in_float64_alone(monkeypatch):
    square = replace(LOSSES["square"], readings=dict.fromkeys(LOSSES["square"].readings))
    monkeypatch.setitem(LOSSES, "square", square)
    with pytest.raises(NetworkError, match=r"'y': loss square has no kernel .* float64 runs it"):
        small(loss="square")
    monkeypatch.setitem(OPTIMIZERS, "adam", replace(OPTIMIZERS["adam"], kernel=None))
    with pytest.raises(PlanError, match=r"optimizer adam has no kernel .* float64 runs it"):
        small(optimizer="adam")
    with small(loss="square", optimizer="adam", precision="float64") as model:
        assert model.step(*data(model)) > 0
    small(loss="square", training=False).close()
