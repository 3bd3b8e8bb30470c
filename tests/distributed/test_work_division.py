"""Jobs that ranks divide: each is done once, all know what came out, and what was warned of."""

from __future__ import annotations

import json
import warnings

import pytest
from launched import launched

from znnpy.distributed.errors import DistributedError
from znnpy.distributed.work_division import divided
from znnpy.distributed.world import World

SCRIPT = """
import json, warnings
from znnpy.distributed.work_division import divided
from znnpy.distributed.world import World

done = []
def job(number):
    done.append(number)
    if number % 2:
        warnings.warn(f"{number} is odd")
    warnings.warn("of a library", DeprecationWarning)
    return [number / 3, None]
with World.open() as world, warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    found = divided(world, {f"job {n}": (lambda n=n: job(n)) for n in range(5)})
    told = [done, list(found.items()), [str(it.message) for it in said]]
    print(json.dumps(told), flush=True)
"""


@pytest.mark.quick(1)
@pytest.mark.parametrize("ranks", [2, 3])
def test_each_job_is_done_once_and_known_to_all(ranks: int) -> None:
    lines = [json.loads(line) for line in launched(ranks, SCRIPT)]
    assert sorted(n for done, *_ in lines for n in done) == [0, 1, 2, 3, 4]
    assert all(done for done, *_ in lines)
    for _, found, said in lines:
        assert found == [[f"job {n}", [n / 3, None]] for n in range(5)]
        assert said == ["1 is odd", "3 is odd"]


def test_alone_all_are_done_and_warn_as_they_do() -> None:
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        assert divided(World(), {"a": lambda: warnings.warn("b", stacklevel=1) or 1}) == {"a": 1}  # type: ignore[func-returns-value]
    assert [str(it.message) for it in said] == ["b"]


def test_ranks_with_other_jobs_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def exchange(_: World, told: dict[str, object]) -> list[object]:
        return [told, told | {"names": ["a.h5 (1, 2, 3)", "b.h5 (4, 5, 7)"]}]

    world = World()
    world.size = 2
    monkeypatch.setattr(World, "exchange", exchange)
    words = r"rank 0 sees b\.h5 \(4, 5, 6\), but rank 1 sees b\.h5 \(4, 5, 7\); the same files"
    with pytest.raises(DistributedError, match=words):
        divided(world, dict.fromkeys(["a.h5 (1, 2, 3)", "b.h5 (4, 5, 6)"], lambda: 1))


def test_ranks_with_more_or_fewer_jobs_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    world.size = 2
    monkeypatch.setattr(World, "exchange", lambda _, told: [told, told | {"names": ["a.h5"]}])
    with pytest.raises(DistributedError, match=r"rank 0 sees b\.h5, but rank 1 sees no more;"):
        divided(world, dict.fromkeys(["a.h5", "b.h5"], lambda: 1))
