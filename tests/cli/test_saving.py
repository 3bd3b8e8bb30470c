"""`check --save-plan` writes what `training.plan` takes."""

from __future__ import annotations

import json

import h5py
import numpy as np
import pytest

from znnpy.cli import main

CONFIG = """
network:
  layers:
    - conv: {channels: 2, size: 3, function: relu}
    - conv: {channels: 1, size: 2}
data: {train: [{image: a.h5:raw, labels: a.h5:l}]}
training: {output_shape: 4, conv: spectral}
"""


def run(*words):
    with pytest.raises(SystemExit) as end:
        main([str(word) for word in words])
    return end.value.code or 0


def test_saved_plan_is_taken_and_another_refused(tmp_path, capsys):
    config, plan = tmp_path / "config.yaml", tmp_path / "plan.json"
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["raw"], file["l"] = np.zeros((2, 20, 20, 20), np.uint8)
        file["l"][5:] = 1
    config.write_text(CONFIG)
    assert run("check", config, "--save-plan", plan, "--json") == 0
    record = json.loads(plan.read_text())
    assert record["layers"]["conv2"]["forward"] == "spectral"
    config.write_text(CONFIG.replace("conv: spectral", "conv: direct, plan: plan.json"))
    capsys.readouterr()
    assert run("check", config, "--json") == 0
    edges = {edge["name"]: edge for edge in json.loads(capsys.readouterr().out)["edges"]}
    assert edges["conv2"]["algorithms"]["forward"] == "spectral"
    more = "size: 2, function: relu}\n    - conv: {channels: 1, size: 1}"
    config.write_text(config.read_text().replace("size: 2}", more))
    assert run("check", config) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert f"training.plan: {plan}" in line
    assert "conv3" in line
    assert run("check", config, "--save-plan", tmp_path / "none" / "plan.json") == 1
