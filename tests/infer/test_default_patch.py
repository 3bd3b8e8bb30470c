"""A run takes one patch for a stack, whatever memory is free; another only where a limit forces it."""

from __future__ import annotations

import pytest
from jobs import small

from znnpy.data.scene import Scene
from znnpy.infer import default_patch, memory
from znnpy.infer.blocks import Region

MIB = 1 << 20
EXTENT = (40, 60, 60)


def planned(tiny, patches=None, **changes):
    with tiny.scene().reference as volume:
        scene = Scene({"input": volume}, {})
        return tiny.job(scene, patch=None, patches=patches or {}, **changes)


def test_free_memory_does_not_change_the_patch(tmp_path, monkeypatch):
    tiny, found = small(tmp_path, extent=EXTENT), []
    monkeypatch.setattr(memory, "total_memory", lambda: 600 * MIB)
    for free in (20 * MIB, 1 << 40):
        monkeypatch.setattr(default_patch, "available_memory", lambda free=free: free)
        for module in (memory, default_patch):
            monkeypatch.setattr(module, "rss", lambda free=free: min(free, 500 * MIB))
        found.append(planned(tiny))
    scarce, plenty = found
    assert scarce.patch == plenty.patch
    assert scarce.candidate.plan.to_record() == plenty.candidate.plan.to_record()
    assert "only 20.0 MiB are free now" in scarce.notes[0]
    assert not plenty.notes


def test_remembered_patch_holds_on_a_machine_with_other_memory(tmp_path, monkeypatch):
    tiny = small(tmp_path, extent=EXTENT)
    first = planned(tiny)
    assert first.patch == EXTENT
    (name,) = first.usual
    less = {name: {"patch": [20, 30, 30], "plan": first.usual[name]["plan"]}}
    for changes in ({}, {"processes": 4}):
        again = planned(tiny, less, **changes)
        assert again.patch == (20, 30, 30)
        assert again.usual is None
        assert not again.notes
    monkeypatch.setattr(memory, "total_memory", lambda: 460 * MIB)
    assert planned(tiny, first.usual).patch != EXTENT
    assert "by rounding" in planned(tiny, first.usual).notes[0]


def test_limit_that_the_usual_patch_does_not_fit_is_said(tmp_path, monkeypatch):
    monkeypatch.setattr(memory, "rss", lambda: 300 * MIB)  # whatever was planned or freed before
    usual_job = planned(small(tmp_path, extent=EXTENT))
    needed = usual_job.memory
    roomy = planned(small(tmp_path, extent=EXTENT, max_memory=4 * needed))
    assert roomy.patch == usual_job.patch
    assert roomy.usual == usual_job.usual
    tight = planned(small(tmp_path, extent=EXTENT, max_memory=needed - 10 * MIB))
    assert tight.patch != usual_job.patch
    assert tight.usual == usual_job.usual  # what is remembered does not depend on this limit
    (line,) = tight.notes
    assert "40 x 60 x 60" in line
    assert "by rounding" in line


def test_stacks_borders_and_regions_have_their_own_patches(tmp_path):
    tiny = small(tmp_path, extent=EXTENT)
    jobs = [
        planned(tiny),
        planned(tiny, mirror=False),
        planned(tiny, grid=True),
        planned(tiny, roi=Region((0, 0, 0), (9, 9, 9))),
    ]
    assert len({name for job in jobs for name in job.usual}) == 4


@pytest.mark.quick(3)
@pytest.mark.parametrize(
    "record",
    [
        7,
        [],
        {},
        {"patch": [4, 5], "plan": {}},
        {"patch": [4, 5, True], "plan": {}},
        {"patch": [4, 5, 10**9], "plan": {}},
        {"patch": [4, 5, 6], "plan": {}},
        {"patch": [4, 5, 6], "plan": 3},
        {"patch": [4, 5, 6], "plan": {"conv_0": 3}},
    ],
)
def test_damaged_record_is_one_line_and_the_patch_chosen_anew(tmp_path, record):
    tiny = small(tmp_path, extent=EXTENT)
    fresh = planned(tiny)
    (name,) = fresh.usual
    job = planned(tiny, {name: record})
    assert (job.patch, job.usual) == (fresh.patch, fresh.usual)
    (line,) = job.notes
    assert "chosen anew" in line


def test_damaged_plan_of_a_remembered_patch(tmp_path):
    tiny = small(tmp_path, extent=EXTENT)
    fresh = planned(tiny)
    (name,) = fresh.usual
    plan = fresh.usual[name]["plan"]
    layer = next(iter(plan))
    for wrong in (None, [], "direct", {"forward": ["direct"]}, plan[layer] | {"reason": 5}):
        job = planned(tiny, {name: {"patch": [4, 5, 6], "plan": plan | {layer: wrong}}})
        assert job.patch == fresh.patch
        assert "chosen anew" in job.notes[0]
