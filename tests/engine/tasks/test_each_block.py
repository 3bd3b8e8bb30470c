"""Tasks that call one kernel for several blocks: words, regions and costs are those of the blocks one by one."""

from declared_tasks import buffer, declared
from hypothesis import given
from hypothesis import strategies as st
from znnpy_kernels.simd.rows import add_flat

from znnpy.engine.memory.regions import Filled
from znnpy.engine.tasks.step import Step
from znnpy.plan import Grain

A, GIVEN = buffer("a"), buffer("x", Filled.OUTSIDE)


@given(st.integers(0, 9), st.integers(1, 7), st.integers(-64, 64), st.integers(0, 8))
def test_words_and_regions_are_those_of_the_blocks(first, count, apart, last):
    blocks = range(first, first + count)

    def words(block):
        length = last if block == blocks[-1] else 8
        return {
            "first": 5,
            "second": 1000 + apart * block,
            "target": 32 * block,
            "length": length,
        }

    found = []
    for counting in (False, True):
        step = Step(counting=counting)
        step.add_each(
            add_flat, blocks, words, what=declared("t").what, cost=0.5,
            reads=lambda block: [GIVEN.region(), GIVEN.region(section=block)],
            writes=lambda block: [A.region(block, block + 1)],
        )  # fmt: skip
        found += step.tasks
    task, counted = found
    calls = [(task.kernel, task.arguments), *task.more]
    assert calls == [(add_flat, add_flat.arguments(**words(block))) for block in blocks]
    assert task.reads == (GIVEN.region(), *(GIVEN.region(section=b) for b in blocks if b))
    assert task.writes == (A.region(first, first + count),)
    assert task.cost == 0.5 * count
    assert len(counted.more) == count - 1
    assert counted.reads == task.reads


def test_few_workers_go_through_several_blocks():
    few, many = Grain(seconds=1e-3, least=2e-4), Grain(fewest=16)
    assert [*map(len, few.groups(40, 2e-3))] == [10] * 4
    assert few.groups(40, 1e-4) == [range(40)]
    assert few.groups(3, 1.0) == [range(1), range(1, 2), range(2, 3)]
    assert many.groups(40, 1e-5) == [range(block, block + 1) for block in range(40)]


def test_leaves_of_a_pass_are_taken_together_while_each_worker_has_its_tasks():
    grain = Grain(seconds=1e-3, joined=10)
    # Of a pass of 4 ms: tasks of 0.4 ms at most, here of 8 leaves of 0.05 ms.
    assert [*map(len, grain.together(40, 2e-3, 4e-3))] == [8] * 5
    # Of a long one: as long as tasks may be.
    assert [*map(len, grain.together(40, 2e-3, 1.0))] == [20] * 2
    assert [*map(len, grain.together(3, 1.0, 1.0))] == [1] * 3
    assert [*map(len, Grain(fewest=16).together(40, 1e-5, 1.0))] == [1] * 40
