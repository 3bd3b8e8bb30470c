"""Keys tell apart what tasks follow from, in every process alike, and know nothing of other packages."""

import json
import os
import subprocess
import sys
import time
from dataclasses import replace

import pytest
from random_networks import random_network
from small_models import small

from znnpy import Model, Optimizer
from znnpy.distributed.reduction_tree import Ranks
from znnpy.distributed.strategies import strategy
from znnpy.engine.communication.gradient_exchange import Party
from znnpy.engine.kept import keys
from znnpy.layers.activation_functions import FUNCTIONS
from znnpy.layers.edges import EDGE_KINDS
from znnpy.learning.losses import LOSSES
from znnpy.learning.optimizers import OPTIMIZERS
from znnpy.plan import Grain, LayerPlan, Plan

SETTINGS = (
    {},
    {"batch": 2},
    {"batch": 2, "microbatch": 1},
    {"threads": 2},
    {"conv": "spectral"},
    {"loss": "softmax"},
    {"loss": {"kind": "softmax", "label_smoothing": 0.1}},
    {"optimizer": {"kind": "sgd", "momentum": 0.0}},
    {"optimizer": {"kind": "adam"}},
    {"optimizer": Optimizer("adam", ema=0.9)},
    {"clip_norm": 1.0},
    {"policy": "fifo"},
    {"max_memory": 1 << 30},
    {"freeze": ["y"]},
    {"training": False},
    {"output": (3, 3, 4)},
)
ALIKE = (
    ({}, {"seed": 1}),
    ({}, {"optimizer": {"kind": "sgd", "momentum": 0.5, "nesterov": True, "weight_decay": 0.1}}),
    (
        {"optimizer": Optimizer("adam", ema=0.9)},
        {"optimizer": Optimizer("adam", ema=0.8, beta1=0.8, decoupled=True, weight_decay=0.1)},
    ),
    ({"clip_norm": 1.0}, {"clip_norm": 2.0}),
)
"""What tasks read where steps are staged."""
CHILD = """
from znnpy import Model, Training
from znnpy.engine.kept import keys

layers = [{"conv": {"channels": 2, "size": 1}}] * 6
training = Training(freeze=["conv[1-5]"])
with Model({"layers": layers}, 2, threads=1, conv="direct", training=training) as model:
    found = keys.key(model._layout, model._settings)
"""


def key_of(model):
    with model:
        return keys.key(model._layout, model._settings)


def of_network(seed):
    net, shape = random_network(seed)
    return key_of(Model(net, shape, threads=1, conv="direct", loss="square"))


def test_every_setting_and_network_has_a_key_of_its_own():
    found = [key_of(small(**given)) for given in SETTINGS]
    found += [of_network(seed) for seed in range(8)]
    assert None not in found
    assert len(set(found)) == len(found)
    assert key_of(small()) == found[0]


@pytest.mark.parametrize(("one", "other"), ALIKE)
def test_numbers_that_steps_are_staged_with_are_not_told(one, other):
    found = key_of(small(**one))
    assert found == key_of(small(**other)) is not None


def test_several_microbatches_tell_the_memory_that_decides_how_many_are_in_flight(monkeypatch):
    single, many = ({"batch": 2, "microbatch": size} for size in (2, 1))
    before = [key_of(small(**options)) for options in (single, many)]
    monkeypatch.setattr(keys, "room_for_replicas", lambda settings: 1 << 40)
    after = [key_of(small(**options)) for options in (single, many)]
    assert before[0] == after[0]
    assert before[1] != after[1]


def test_the_cpu_that_code_is_compiled_for_is_told(monkeypatch):
    with small() as model:
        found = keys.key(model._layout, model._settings)
        monkeypatch.setattr(keys.numba.config, "CPU_NAME", "another")
        assert keys.key(model._layout, model._settings) != found


def test_how_long_tasks_are_is_told(monkeypatch):
    found = key_of(small())
    monkeypatch.setattr(Grain, "of", classmethod(lambda cls, work, workers: cls(1.0)))
    assert key_of(small()) not in (None, found)


def test_a_run_goes_on_with_the_key_that_it_began_with():
    """By the plan that it has kept as JSON, in another order."""
    net, shape = random_network(3)
    options = {"threads": 1, "conv": "spectral", "loss": "square"}
    with Model(net, shape, **options) as model:
        layers = json.loads(json.dumps(model.plan_record)).items()
        found = keys.key(model._layout, model._settings)
    record = dict(reversed(layers))
    assert key_of(Model(net, shape, **options, plan=record)) == found


def test_another_process_finds_the_same_key():
    """Whose sets have another order."""
    own = {}
    exec(CHILD, own)
    command = [sys.executable, "-c", f"{CHILD}print(found)"]
    environment = os.environ | {"PYTHONHASHSEED": "7"}
    found = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert found.stdout.strip() == own["found"]


def test_sources_count_as_read_from_the_start_of_a_process_on():
    """Not from when the key's module is imported, which may be later than others."""
    script = "from znnpy.engine.kept import keys; print(keys.BEGAN)"
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as child:
        started = time.time()
        began, _ = child.communicate()
    assert float(began) <= started


def test_all_that_this_package_has_is_told():
    for registry in (LOSSES, OPTIMIZERS, EDGE_KINDS, FUNCTIONS):
        for entry in registry.values():
            assert keys._told(entry)


def test_what_others_add_has_no_key(monkeypatch):
    """Nothing tells which of their versions it is of."""

    def own(*_):
        """Of this module."""

    monkeypatch.setitem(FUNCTIONS, "tanh", replace(FUNCTIONS["tanh"], value=own))
    assert key_of(small()) is None


def test_layers_by_fftw_have_none():
    """Their words are addresses of what this process has planned."""
    with small() as model:
        layers = dict.fromkeys(model.plan.layers, LayerPlan("direct", "fft", "direct"))
        layout = replace(model._layout, plan=Plan(layers))
        assert keys.key(layout, model._settings) is None


@pytest.fixture
def sources(tmp_path, monkeypatch):
    """Sources in place of this package's, older than this process."""
    monkeypatch.setattr(keys, "HOME", tmp_path)
    monkeypatch.setattr(keys, "BEGAN", time.time() + 60)
    (tmp_path / "tasks.py").write_text("1")
    yield tmp_path
    keys._code.cache_clear()


def test_other_sources_have_other_keys(sources):
    found = set()
    for text in ("1", "2"):
        (sources / "tasks.py").write_text(text)
        keys._code.cache_clear()
        found.add(key_of(small()))
    assert len(found) == 2
    assert None not in found


@pytest.mark.parametrize("written", ["now", "long ago"])
def test_sources_that_are_newer_than_this_process_are_not_what_it_runs(
    sources, written, monkeypatch
):
    """Though they be of before: who installs them may keep their times."""
    keys._code.cache_clear()
    assert key_of(small())
    # Of the kernels' sources, which are this package's.
    monkeypatch.setattr(keys.source_hash, "FOLDER", sources)
    monkeypatch.setattr(keys, "BEGAN", (sources / "tasks.py").stat().st_ctime + 1e-3)
    keys._code.cache_clear()
    assert key_of(small())
    time.sleep(0.02)  # longer than times of files are apart
    (sources / "new.py").write_text("2")
    if written == "long ago":
        os.utime(sources / "new.py", (0, 0))
    keys._code.cache_clear()
    assert key_of(small()) is None


def test_ranks_are_told_apart():
    """By their number and place, how they add up, and whose memory each reads."""
    tree, colors = strategy("tree"), strategy("multicolor")
    parties = (
        None,
        Party(Ranks.of(4, 2), tree, 0),
        Party(Ranks.of(4, 2), tree, 1),
        Party(Ranks.of(4, 2), colors, 0),
        Party(Ranks.of(4, 2), strategy("tree", chunk=4096), 0),
        Party(Ranks.of(4, 2), tree, 0, near=frozenset({1})),
        Party(Ranks.of(4, 3), tree, 0),
    )
    with small(batch=4, microbatch=1) as model:
        settings = [replace(model._settings, party=party) for party in parties]
        found = [keys.key(model._layout, it) for it in settings]
    assert None not in found
    assert len(set(found)) == len(found)
