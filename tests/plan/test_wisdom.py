"""Measured costs survive processes and damage."""

import warnings

import pytest
from znnpy_kernels import cache

from znnpy.plan import wisdom


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("ZNNPY_CACHE", str(tmp_path / "cache"))
    cache.root.cache_clear()
    yield
    cache.root.cache_clear()


def test_the_first_measurement_stands():
    assert wisdom.recall("layer") is None
    assert wisdom.remember("layer", {"direct forward": 1.0}) == {"direct forward": 1.0}
    assert wisdom.remember("layer", {"direct forward": 2.0}) == {"direct forward": 1.0}
    assert wisdom.recall("layer") == {"direct forward": 1.0}


def test_what_others_could_have_written_is_not_read():
    wisdom.remember("layer", {"a": 1.0})
    assert wisdom.path().stat().st_mode & 0o077 == 0
    wisdom.path().chmod(0o666)
    assert wisdom.recall("layer") is None


@pytest.mark.parametrize("text", ["", "{", "[1]", '{"layer": 3}', '{"layer": {"a": "b"}}'])
def test_damaged_wisdom_is_put_aside(text):
    wisdom.remember("layer", {"a": 1.0})
    wisdom.path().write_text(text)
    with pytest.warns(UserWarning, match="damaged"):
        assert wisdom.recall("layer") is None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert wisdom.remember("layer", {"a": 2.0}) == {"a": 2.0}
