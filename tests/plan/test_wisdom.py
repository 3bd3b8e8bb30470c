"""Measured costs survive processes and damage."""

import errno
import json
import os
import warnings
from pathlib import Path

import pytest
from znnpy_kernels.machine import cache, source_hash

from znnpy.engine.convolution.winograd import weight_gradients
from znnpy.errors import PlanError
from znnpy.plan import Method, fftw, wisdom

DIRECT = Method("direct")
TILED = Method("spectral", (8, 12, 16))
COSTS = {DIRECT: {"forward": 1.0, "weight": 2.0}, TILED: {"images": 0.5, "forward": 0.25}}


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("ZNNPY_CACHE", str(tmp_path / "cache"))
    cache.root.cache_clear()
    yield
    cache.root.cache_clear()


def test_the_first_measurement_stands():
    assert wisdom.recall("layer", COSTS) is None
    assert wisdom.remember("layer", COSTS, COSTS) == COSTS
    assert wisdom.remember("layer", {DIRECT: {"forward": 2.0}}, COSTS) == COSTS
    assert wisdom.recall("layer", COSTS) == COSTS


def test_the_file_is_parsed_again_once_it_is_another(monkeypatch):
    wisdom.remember("layer", COSTS, COSTS)
    assert wisdom.recall("layer", COSTS) == COSTS
    with monkeypatch.context() as patch:
        patch.setattr(wisdom.json, "loads", lambda text: pytest.fail("parsed again"))
        assert wisdom.recall("layer", COSTS) == COSTS
    file = wisdom.path()
    other = file.with_suffix(".new")
    other.write_text(file.read_text().replace("layer", "other"))
    other.chmod(0o600)
    other.replace(file)
    assert (wisdom.recall("layer", COSTS), wisdom.recall("other", COSTS)) == (None, COSTS)


def test_what_cannot_be_written_is_not_remembered(monkeypatch):
    """The next process would not know it, and choose otherwise."""
    wisdom.remember("layer", COSTS, COSTS)
    assert wisdom.recall("layer", COSTS) == COSTS
    with monkeypatch.context() as patch:
        full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        patch.setattr(Path, "write_text", lambda *_: (_ for _ in ()).throw(full))
        with pytest.raises(PlanError, match="disk is full"):
            wisdom.remember("other", COSTS, COSTS)
    assert wisdom.recall("other", COSTS) is None


def test_what_was_timed_by_other_tasks_is_measured_anew(tmp_path, monkeypatch):
    assert Path(weight_gradients.__file__) in wisdom.sources()
    for room in ("engine", "plan", "cli"):
        (tmp_path / room).mkdir()
        (tmp_path / room / "constants.py").write_text("PANEL_PAIRS = 1536")
    monkeypatch.setattr(wisdom, "HOME", tmp_path)
    found = []
    for room in ("cli", "engine", "plan", "fftw"):
        wisdom.version.cache_clear()
        wisdom.remember(room, COSTS, COSTS)
        if room == "fftw":
            monkeypatch.setattr(fftw, "version", lambda: "another")
        else:
            (tmp_path / room / "constants.py").write_text("PANEL_PAIRS = 768")
        wisdom.version.cache_clear()
        found.append(wisdom.recall(room, COSTS))
    wisdom.version.cache_clear()
    assert found == [COSTS, None, None, None]


CODE = """
def cut(width):
    return width // 8
"""
SAME = '''"""Cuts."""
# What is cut is planes.
WIDTHS = 8
"""Of a vector."""


def cut(width):
    """Return parts."""
    return (width
            // 8)  # whole ones
'''


def test_comments_docstrings_and_layout_measure_nothing_anew(tmp_path, monkeypatch):
    """Nor is what they were stripped of looked for at each start."""
    monkeypatch.setattr(wisdom, "HOME", tmp_path)
    (tmp_path / "engine").mkdir()
    found = []
    for text in ("WIDTHS = 8" + CODE, SAME, SAME.replace("// 8)", "// 4)"), "WIDTHS = 4" + CODE):
        (tmp_path / "engine" / "cuts.py").write_text(text)
        wisdom.version.cache_clear()
        found.append(wisdom.version())
    assert found[0] == found[1]
    assert len(set(found)) == 3
    monkeypatch.setattr(source_hash, "code", lambda text: pytest.fail("looked again"))
    wisdom.version.cache_clear()
    assert wisdom.version() == found[-1]
    wisdom.version.cache_clear()


def test_what_decides_bits_is_known_without_a_cache(monkeypatch):
    wisdom.version.cache_clear()
    known = wisdom.version()
    monkeypatch.setattr(cache, "made", lambda: (_ for _ in ()).throw(cache.CacheError("full")))
    wisdom.version.cache_clear()
    assert wisdom.version() == known


def test_what_a_cache_cannot_keep_is_not_chosen_by(monkeypatch):
    monkeypatch.setattr(cache, "read_only", lambda: True)
    with pytest.raises(cache.CacheError, match="is read-only and has no measured layer"):
        wisdom.remember("layer", COSTS, COSTS)
    assert wisdom.recall("layer", COSTS) is None


def test_files_name_method_and_part():
    """The form that files on users' disks have."""
    wisdom.remember("layer", COSTS, COSTS)
    named = {
        "direct forward": 1.0,
        "direct weight": 2.0,
        "spectral 8x12x16 forward": 0.25,
        "spectral 8x12x16 images": 0.5,
    }
    assert json.loads(wisdom.path().read_text()) == {"layer": named}


@pytest.mark.parametrize(
    "name",
    [
        *("gauss forward", "direct onward", "spectral 8x8 weight", "direct", ""),
        # Those of other layers, and those that no algorithm has.
        *("fft weight", "spectral 8x8x8 weight", "direct joined weight", "direct 8x12x16 weight"),
    ],
)
def test_what_this_version_does_not_know_is_measured_anew_and_the_rest_kept(name):
    wisdom.remember("other", COSTS, COSTS)
    known = json.loads(wisdom.path().read_text())
    wisdom.path().write_text(json.dumps(known | {"layer": {"direct forward": 1.0, name: 1.0}}))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert wisdom.recall("layer", COSTS) is None
        assert wisdom.remember("layer", COSTS, COSTS) == COSTS
    assert wisdom.recall("layer", COSTS) == wisdom.recall("other", COSTS) == COSTS


def test_what_others_could_have_written_is_not_read():
    wisdom.remember("layer", COSTS, COSTS)
    assert wisdom.path().stat().st_mode & 0o077 == 0
    wisdom.path().chmod(0o666)
    assert wisdom.recall("layer", COSTS) is None


COST = '{"layer": {"direct forward": %s}}'


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[1]",
        "[" * 100_000,
        "null",
        '{"layer": 3}',
        '{"layer": null}',
        '{"layer": {"a": "b"}}',
    ]
    + [COST % cost for cost in ("null", '"1.0"', "[]", "{}", "true", "NaN", "-Infinity", "-1.0")],
)
def test_damaged_wisdom_is_put_aside(text):
    wisdom.remember("layer", COSTS, COSTS)
    wisdom.path().write_text(text)
    with pytest.warns(UserWarning, match="damaged"):
        assert wisdom.recall("layer", COSTS) is None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert wisdom.remember("layer", COSTS, COSTS) == COSTS
