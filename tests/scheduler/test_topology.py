"""Which cores share a last-level cache, and in which order workers take them."""

from pathlib import Path

import pytest

from znnpy.scheduler.topology import (
    LastLevelCache,
    by_caches,
    last_level_caches,
    neighbours,
    numa_nodes,
)

TWO = [LastLevelCache(2**24, (0, 2, 4)), LastLevelCache(2**24, (1, 3))]


def caches_at(folder: Path) -> None:
    """Four cores, each with two caches of its own, two by two with a third."""
    for cpu in range(4):
        for index, (level, size, shared) in enumerate(
            (
                (1, "48K", f"{cpu}"),
                (2, "1024K", f"{cpu}"),
                (3, "16M", f"{cpu // 2 * 2}-{cpu // 2 * 2 + 1}"),
            )
        ):
            index_folder = folder / f"cpu{cpu}" / "cache" / f"index{index}"
            index_folder.mkdir(parents=True)
            for name, text in (("level", str(level)), ("size", size), ("shared_cpu_list", shared)):
                (index_folder / name).write_text(text + "\n")


def test_the_caches_of_the_highest_level_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    caches_at(tmp_path)
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: {0, 1, 2})
    assert last_level_caches(tmp_path) == [(2**24, (0, 1)), (2**24, (2,))]
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: {1})
    assert last_level_caches(tmp_path) == [(2**24, (1,))]
    assert last_level_caches(tmp_path / "none") == []


def test_workers_of_one_cache_follow_each_other() -> None:
    cores = by_caches([0, 1, 2, 3, 4, 9], TWO)
    assert cores == [0, 2, 4, 1, 3, 9]
    assert neighbours(cores, TWO) == [(0, 3)] * 3 + [(3, 5)] * 2 + [(5, 6)]


def test_nobody_is_nearer_where_one_cache_serves_all() -> None:
    assert neighbours([0, 2], TWO) == [(0, 0)] * 2
    assert neighbours([5, 6], []) == [(0, 0)] * 2


def test_only_nodes_of_this_process_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for node, cores in enumerate(("0-1,6-7", "2-3", "4", "")):
        (tmp_path / f"node{node}").mkdir()
        (tmp_path / f"node{node}" / "cpulist").write_text(cores + "\n")
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: {3, 4, 7})
    assert numa_nodes(tmp_path) == [0, 1, 2]
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: {4})
    assert numa_nodes(tmp_path) == [2]
    assert numa_nodes(tmp_path / "none") == []
