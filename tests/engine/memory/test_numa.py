"""Where pages of memory lie on machines of several NUMA nodes."""

from pathlib import Path

import pytest

from znnpy.engine.memory.arena import Arena, Sharing, aligned_bytes
from znnpy.engine.memory.numa import interleave
from znnpy.engine.memory.regions import Name, Use

MAPS = Path("/proc/self/numa_maps")
SHARED = 1 << 20


def interleaved(address: int) -> bool:
    """Whether the system says so of the mapping that begins there."""
    lines = MAPS.read_text().splitlines()
    return any(it.split()[0] == f"{address:x}" and " interleave:" in it for it in lines)


@pytest.mark.skipif(not MAPS.exists(), reason="the system does not tell where pages lie")
def test_what_stays_is_interleaved_and_feature_maps_are_not(monkeypatch):
    # The system takes nodes that it does not have out of the mask.
    monkeypatch.setattr("znnpy.engine.memory.arena.numa_nodes", lambda: [0, 1])
    name = Name(Use("maps"))
    arena = Arena.of(3 * SHARED, Sharing({name: 0}, SHARED, {}, []))
    first = arena.reserve(1, Use("parameters"))
    if not interleave(aligned_bytes(SHARED), [0, 1]):
        pytest.skip("the system refuses policies of memory")
    assert interleaved(-(-first // 4096) * 4096)
    assert not interleaved(first - SHARED)
    assert not arena.view(first, (1,)).any()


def test_one_node_is_left_alone():
    memory = aligned_bytes(SHARED)
    assert not interleave(memory, [])
    assert not interleave(memory, [0])
    assert not interleave(memory[:100], [0, 1])
    assert not interleave(memory, [0, 64])
