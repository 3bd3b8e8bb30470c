"""Plans in files: read back, or refused by one line that names the file."""

from __future__ import annotations

import json
from contextlib import suppress

import numpy as np
import pytest

from znnpy.errors import PlanError
from znnpy.network import load_network
from znnpy.plan import PASSES, LayerPlan, Method, Plan, fftw
from znnpy.plan.record import MOST_BYTES, read_plan, saved_plan, to_text

NETWORK = load_network({"input": 1, "layers": [{"conv": {"channels": 2, "size": 3}}]})
PLAN = Plan({"conv1": LayerPlan("fft", "direct", "fft", "because")})
HEAD = "(fftw-3.3.5 fftwf_wisdom #x706526c0 #x2f8b6c85 #x8cd1bb1a #x7c96e03d"
ENTRY = (
    "\n  (fftwf_codelet_r2cb_14 2 #x11bdd #x11bdd #x0 #x68fe88cd #x28b635dc #x1fc8d642 #x2b744446)"
)


@pytest.fixture
def path(tmp_path, monkeypatch):
    monkeypatch.setattr(fftw, "_pinned", None)
    return tmp_path / "plan.json"


def test_what_is_saved_is_read_back(path):
    fftw.plan_forward((4, 6, 10))
    path.write_text(to_text(saved_plan(PLAN)))
    found = read_plan(path, NETWORK)
    assert Plan.from_record(found.layers, NETWORK) == PLAN
    assert found.fftw == fftw.known()
    fftw.pin(found.fftw)
    assert fftw.known() == found.fftw
    path.write_text(json.dumps(PLAN.to_record()))  # as a run's plan.json has it
    assert read_plan(path, NETWORK) == saved_plan(PLAN).__class__(PLAN.to_record())
    assert saved_plan(Plan({"conv1": LayerPlan("direct", "direct", "direct")})).fftw is None


def test_marches_that_were_measured_are_saved():
    """Plans without any are as they were."""
    joined, plain = Method("winograd", march="joined"), Method("winograd")
    plan = Plan({"conv1": LayerPlan.of(Method("winograd", march="apart"), joined, plain)})
    record = plan.to_record()
    assert record == {
        "conv1": dict.fromkeys(PASSES, "winograd")
        | {"forward_march": "apart", "gradient_march": "joined", "reason": ""}
    }
    assert Plan.from_record(record, NETWORK) == plan


LAYER = {"forward": "direct", "gradient": "direct", "weight": "direct"}
WRONG = [
    "",
    "{",
    "[]",
    "7",
    "null",
    "[" * 100_000,
    '{"layers": {}}',
    '{"layers": 7}',
    '{"layers": {"d": {"forward": "direct"}}}',
    '{"layers": {"conv1": {"forward": "direct"}}}',
    '{"layers": {"conv1": []}}',
    json.dumps({"layers": {"conv1": LAYER | {"forward": "quick"}}}),
    json.dumps({"layers": {"conv1": LAYER | {"forward": ["direct"]}}}),
    json.dumps({"layers": {"conv1": LAYER | {"forward": "spectral", "forward_tile": [8, 8, 9e9]}}}),
    json.dumps({"layers": {"conv1": LAYER | {"reason": 7}}}),
    json.dumps({"layers": {"conv1": LAYER | {"weight_march": "joined"}}}),
    json.dumps({"layers": {"conv1": LAYER | {"weight": "winograd", "weight_march": ["joined"]}}}),
    json.dumps({"layers": {"conv1": LAYER | {"weight": "winograd", "weight_march": "quick"}}}),
    json.dumps({"layers": {"conv1": LAYER}, "more": 1}),
    json.dumps({"layers": {"conv1": LAYER}, "fftw": 7}),
    json.dumps({"layers": {"conv1": LAYER}, "fftw": "(fftw-3.3.5 fftw_wisdom)"}),
    json.dumps({"layers": {"conv1": LAYER}, "fftw": f"{HEAD}{ENTRY}"}),
    json.dumps({"layers": {"conv1": LAYER}, "fftw": f"{HEAD}{ENTRY})\0"}),
    json.dumps({"layers": {"conv1": LAYER}, "fftw": f"{HEAD}\n ({'a' * 64} 2 {'#x0 ' * 7}))"}),
]


@pytest.mark.parametrize("text", WRONG)
def test_malformed_plans_are_one_line_with_the_file(path, text):
    path.write_text(text)
    with pytest.raises(PlanError, match=r"training\.plan: .*plan\.json is no plan of this") as told:
        read_plan(path, NETWORK)
    assert len(str(told.value).splitlines()) == 1
    assert len(str(told.value)) < 600


def test_files_that_are_missing_or_too_large(path):
    with pytest.raises(PlanError, match=r"cannot read .*plan\.json: No such file"):
        read_plan(path, NETWORK)
    with pytest.raises(PlanError, match="cannot read"):
        read_plan(path.parent, NETWORK)
    with path.open("wb") as file:
        file.truncate(MOST_BYTES + 1)
    with pytest.raises(PlanError, match="16 MiB"):
        read_plan(path, NETWORK)


def test_random_damage_is_an_error_or_another_valid_plan(path):
    text = to_text(saved_plan(PLAN)).encode()
    rng = np.random.default_rng(0)
    for _ in range(300):
        damaged = bytearray(text)
        for place in rng.integers(0, len(text), rng.integers(1, 4)):
            damaged[place] = rng.integers(0, 256)
        path.write_bytes(
            damaged[: rng.integers(1, len(text) + 1)] if rng.random() < 0.3 else damaged
        )
        with suppress(PlanError):
            Plan.from_record(read_plan(path, NETWORK).layers, NETWORK)


def test_wisdom_of_another_version_is_passed_over(path):
    other = f"{HEAD.replace('3.3.5', '2.1.3').replace('#x70', '#x71')}{ENTRY})"
    with pytest.warns(RuntimeWarning, match="another version"):
        fftw.pin(other)
    fftw.plan_forward((4, 6, 14))
