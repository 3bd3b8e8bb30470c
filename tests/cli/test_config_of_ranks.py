"""Ranks that were started with other values, or other files, train no network that nobody asked for."""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import pytest

from znnpy.cli.config_of_ranks import config_of_ranks
from znnpy.config import dump, load_config, template
from znnpy.distributed.world import World
from znnpy.errors import ConfigError


class Rank:
    """One of some threads that are told what all say."""

    def __init__(self, rank: int, told: list[Any], all_told: threading.Barrier) -> None:
        self.rank, self.size, self.exchanges = rank, len(told), 0
        self._told, self._all_told = told, all_told

    def exchange(self, value: Any) -> list[Any]:
        self.exchanges += 1
        self._told[self.rank] = json.loads(json.dumps(value))
        self._all_told.wait(20)
        found = list(self._told)
        self._all_told.wait(20)
        return found


def together(*lines: tuple[Path, list[str]]) -> tuple[list[str], list[int]]:
    """What each rank gets for its line, as text, or is told, and how often it exchanged."""
    told, barrier = [None] * len(lines), threading.Barrier(len(lines))
    ranks = [Rank(rank, told, barrier) for rank in range(len(lines))]

    def one(rank: Rank) -> str:
        try:
            return dump(config_of_ranks(*lines[rank.rank], cast("World", rank)))
        except ConfigError as error:
            return str(error)

    with ThreadPoolExecutor(len(lines)) as pool:
        return list(pool.map(one, ranks)), [rank.exchanges for rank in ranks]


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "config.yaml"
    path.write_text(template())
    return path


def test_ranks_that_mean_the_same_go_on(config: Path) -> None:
    copy = config.with_name("copy.yaml")
    copy.write_text(f"# in other words\n{config.read_text()}")
    line = ["training.batch=4"]
    found, exchanges = together((config, line), (copy, line), (config, ["training.batch=8", *line]))
    assert found == [dump(load_config(config, line))] * 3
    assert exchanges == [1, 1, 1]


def test_ranks_without_the_file_take_that_of_rank_0(
    config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Path, "exists", lambda _: False)  # rank 0 does not ask
    line = ["training.batch=4"]
    assert together((config, line), (config, line))[0] == [dump(load_config(config, line))] * 2
    for other in ((config, ["training.batch=2"]), (config.with_name("other.yaml"), line)):
        found, _ = together((config, line), other)
        assert found == [found[0]] * 2
        assert f"{other[0]} {other[1][0]}, not {config} {line[0]}" in found[0]


@pytest.mark.parametrize(
    ("other", "said"),
    [
        (["training.batch=2"], "training.batch (rank 0 has 4, rank 2 has 2)"),
        ([], "training.batch (rank 0 has 4, rank 2 has 1)"),
        (["training.batch=4", "run.threads=3"], "run.threads (rank 0 has nothing, rank 2 has 3)"),
    ],
)
def test_the_key_that_differs_is_told_by_all(config: Path, other: list[str], said: str) -> None:
    line = ["training.batch=4"]
    found, _ = together((config, line), (config, line), (config, other))
    assert found == [found[0]] * 3
    assert f"rank 2 was started with another config than rank 0: {said}" in found[0]


def test_ranks_in_other_folders_are_told_these(
    config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Path, "cwd", lambda: Path(f"/of-{threading.get_ident()}"))
    line = ["run.directory=run"]
    found, _ = together((config, line), (config, line))
    assert found == [found[0]] * 2
    assert "run.directory (rank 0 has" in found[0]
    assert "; they run in /of-" in found[0]
