"""Dump, schema, template, and which changes matter."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from znnpy.config import (
    Config,
    changes_of_training,
    changes_that_matter,
    config_from,
    described,
    dump,
    json_schema,
    load_config,
    template,
)
from znnpy.layers.activation_functions import FUNCTIONS
from znnpy.layers.edges import EDGE_KINDS
from znnpy.learning.losses import LOSSES

GRAPH = {
    "nodes": {
        "in": {"kind": "input", "channels": 1},
        "out": {
            "kind": "transfer",
            "channels": 2,
            "function": "elu",
            "slope": 0.2,
            "init": 0.5,
            "bias": False,
        },
        "true": {"kind": "sum", "channels": 2},
    },
    "edges": {
        "a b: c": {"kind": "conv", "from": "in", "to": "out", "size": 3, "init": "xavier"},
        "1e5": {"kind": "dropout", "from": "out", "to": "true", "keep": 1e-3},
        "😀\x85": {"kind": "crop", "from": "out", "to": "true", "offset": 0},
    },
}


def config(**sections: Any) -> Config:
    base = {
        "network": {"layers": [{"conv": {"channels": 2, "size": 3, "init": {"kind": "normal"}}}]},
        "training": {"output_shape": 8},
    }
    return config_from({**base, **sections})


def reload(tmp_path: Path, text: str) -> Config:
    path = tmp_path / "again.yaml"
    path.write_text(text, encoding="utf-8")
    return load_config(path)


@pytest.mark.parametrize(
    "sections",
    [
        {"run": {"directory": "/r"}},
        {"network": GRAPH, "run": {"directory": "/r u'n/\"#: x"}},
        {
            "run": {"directory": "/r", "max_memory": "3GB", "threads": 2},
            "data": {
                "train": [{"image": "/a.h5:raw", "labels": {"x": "/b.h5", "y": "/c.tif"}}],
                "target": "affinity",
                "in_memory": False,
                "resolution": [40, 4, 4.5],
            },
            "augment": {"flips": [], "swaps": "none"},
            "training": {
                "output_shape": [1, 2, 3],
                "optimizer": {"kind": "adam", "eps": 1e-12},
                "schedule": {"kind": "cosine", "every": 5},
                "clip_norm": 1e-5,
            },
        },
    ],
)
def test_a_dump_loads_back_equal(tmp_path: Path, sections: dict[str, Any]) -> None:
    first = config(**sections)
    again = reload(tmp_path, dump(first))
    assert again == first
    assert dump(again) == dump(first)


@given(st.text(min_size=1, max_size=30), st.floats(1e-300, 1e300))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_name_and_number_survive_a_dump(tmp_path: Path, name: str, rate: float) -> None:
    if any(0xD800 <= ord(letter) < 0xE000 for letter in name):
        return
    network = {"layers": [{"crop": 1}], "name": name}
    training = {"output_shape": 1, "learning_rate": rate}
    first = config(network=network, training=training, run={"directory": "/r"})
    assert reload(tmp_path, dump(first)) == first


def test_the_template_loads(tmp_path: Path) -> None:
    assert reload(tmp_path, template()).training.iterations == 1000


def test_the_template_names_all_functions_losses_and_layers() -> None:
    lines = template().splitlines()
    (functions,) = (line for line in lines if line.startswith("  #   function: linear"))
    named = functions.rpartition("# ")[2].split(", ")
    assert named == [name for name in FUNCTIONS if name != "linear"]
    assert f"  loss: binomial_cross_entropy     # {', '.join(LOSSES)}" in lines
    assert {f"  #   - {kind.example}" for kind in EDGE_KINDS.values() if kind.example} <= {*lines}


def keys(schema: Any) -> set[str]:
    if isinstance(schema, list):
        return set().union(*map(keys, schema)) if schema else set()
    if not isinstance(schema, dict):
        return set()
    here = set(schema.get("properties", {}))
    return here.union(*map(keys, schema.values()))


def test_every_key_of_the_schema_stands_in_the_template() -> None:
    missing = {k for k in keys(json_schema()) if not re.search(rf"\b{k}:", template())}
    assert missing <= {"path", "dataset"}, missing  # the parts of a Source, written path:dataset


def test_the_defaults_in_the_template_are_the_defaults(tmp_path: Path) -> None:
    written = reload(tmp_path, template())
    training = {"output_shape": [4, 32, 32]}
    default = config(training=training, run={"directory": written.run.directory.as_posix()})
    for section in ("data", "augment", "training", "run"):
        assert getattr(written, section) == getattr(default, section)


def test_every_field_of_the_schema_is_described() -> None:
    schema = json_schema()
    bare = [
        f"{name}.{key}"
        for name, model in {**schema["$defs"], "Config": schema}.items()
        for key, field in model.get("properties", {}).items()
        if not field.get("description")
    ]
    assert bare == []


def test_changes_that_matter() -> None:
    old = config()
    cases: list[tuple[dict[str, Any], list[str]]] = [
        ({}, []),
        ({"run": {"threads": 3, "directory": "/x", "policy": "lifo"}}, []),
        ({"training": {"output_shape": 8, "iterations": 9}}, []),
        ({"inference": {"overlap": 0.25, "blend": "linear"}}, []),
        ({"data": {"in_memory": True}}, []),
        ({"training": {"output_shape": [8, 8, 9]}}, ["training.output_shape"]),
        ({"training": {"output_shape": 8, "seed": 1}}, ["training.seed"]),
        ({"data": {"train": [{"image": "a.h5"}]}}, ["data.train.0.image", "data.train"]),
        ({"augment": {"enabled": False}}, []),
        ({"training": {"output_shape": 8, "learning_rate": 1.0, "schedule": "cosine"}}, []),
        ({"training": {"output_shape": 8, "clip_norm": 1.0}}, ["training.clip_norm"]),
    ]
    for sections, changed in cases:
        assert sorted(changes_that_matter(old, config(**sections))) == sorted(changed)


def test_iterations_matter_to_a_cosine_that_ends_with_them() -> None:
    def cosine(iterations: int, **schedule: Any) -> Config:
        schedule = {"kind": "cosine", **schedule}
        return config(training={"output_shape": 8, "iterations": iterations, "schedule": schedule})

    assert changes_of_training(cosine(5), cosine(6)) == ["training.iterations"]
    assert changes_of_training(cosine(5, every=4), cosine(6, every=4)) == []


@pytest.mark.parametrize("kind", ["poly", "one_cycle"])
def test_iterations_matter_to_others_that_end_with_them(kind: str) -> None:
    def ending(iterations: int, **keys: Any) -> Config:
        schedule = {"kind": kind, **keys}
        return config(training={"output_shape": 8, "iterations": iterations, "schedule": schedule})

    assert changes_of_training(ending(5), ending(6)) == ["training.iterations"]
    assert changes_of_training(ending(5, every=4), ending(6, every=4)) == []


def test_what_training_may_go_on_with_is_described() -> None:
    old = config(training={"output_shape": 8})
    training = {"output_shape": 8, "learning_rate": 0.5, "schedule": {"kind": "step", "every": 3}}
    training["base_batch"] = 4
    new = config(training=training, augment={"flips": ["x"]})
    assert set(described(changes_of_training(old, new), old, new)) == {
        "augment.flips (was ['z', 'y', 'x'], now ['x'])",
        "training.learning_rate (was 0.01, now 0.5)",
        "training.base_batch (was nothing, now 4)",
        "training.schedule.kind (was 'constant', now 'step')",
        "training.schedule.every (was nothing, now 3)",
        "training.schedule.factor (was nothing, now 0.1)",
    }


def test_the_order_of_edges_matters() -> None:
    edges = dict(reversed(GRAPH["edges"].items()))
    old, new = config(network=GRAPH), config(network={**GRAPH, "edges": edges})
    assert changes_that_matter(old, new) == ["network.edges.(order)"]
