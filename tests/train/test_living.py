"""Channels are dead where a bias drowns them, and nowhere else; the look at them costs what is affordable."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from small_run import short

from znnpy.config import load_config
from znnpy.config.models import Config
from znnpy.network import initial_parameters, trained_network
from znnpy.train.display import live
from znnpy.train.display.finished import facts_of
from znnpy.train.display.live import Display
from znnpy.train.living import expected_seconds, has_relus, living_channels, share


@pytest.fixture
def config(tmp_path: Path) -> Config:
    short(tmp_path, tmp_path / "run")
    layers = "[{conv: {channels: 6, size: 3, function: relu}}, {conv: {channels: 1, size: 1}}]"
    return load_config(tmp_path / "config.yaml", (f"network.layers={layers}",))


def test_a_drowned_channel_is_dead(config: Config) -> None:
    network = trained_network(config)
    parameters = initial_parameters(network, 0)
    patch = {"input": np.random.default_rng(0).normal(size=(1, 1, 6, 14, 14)).astype(np.float32)}
    (alive,) = living_channels(config, network, parameters, [patch]).values()
    assert alive.all()
    (bias,) = (name for name, it in parameters.items() if it.shape == (6,))
    parameters[bias] = np.array([0, -1e6, 0, 0, -1e6, 0], np.float32)
    found = living_channels(config, network, parameters, [patch])
    assert next(iter(found.values())).tolist() == [True, False, True, True, False, True]
    assert share(found) == pytest.approx(4 / 6)
    assert has_relus(network)


def test_a_look_that_would_take_long_is_left_out(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    network = trained_network(config)
    assert 0 < expected_seconds(config, network) < 0.01
    patch = {"input": np.zeros((1, 1, 6, 14, 14), np.float32)}
    parameters = initial_parameters(network, 0)

    def looked(seconds: float) -> int:
        monkeypatch.setattr(live, "expected_seconds", lambda *_: seconds)
        run, notes = tmp_path / f"{seconds}", list[str]()
        run.mkdir()
        display = Display(run, facts_of(run, config), config, network, 0, notes.append, patch)
        display.look(0, parameters, {})
        display.close("stopped")
        assert not notes
        return (run / "looks.jsonl").read_text().count("living")

    assert looked(0.001) == 1
    assert looked(1.0) == 0
