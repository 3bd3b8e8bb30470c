"""Kernels are compiled before all of the suite is run, by one process, and not before a few tests."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

SOURCE = pytest.Config.ArgsSource


@pytest.mark.parametrize(
    ("chosen", "first"),
    [
        ({}, True),
        ({"args_source": SOURCE.ARGS}, False),
        ({"keyword": "some"}, False),
        ({"collectonly": True}, False),
        ({"workerinput": {}}, False),
    ],
    ids=lambda it: next(iter(it), "all") if isinstance(it, dict) else "",
)
def test_where_none_are_named(
    chosen: dict[str, Any], first: bool, pytestconfig: pytest.Config
) -> None:
    given = {"keyword": "", "collectonly": False, "args_source": SOURCE.TESTPATHS, **chosen}
    config = SimpleNamespace(**given, option=SimpleNamespace(**given))
    (plugin,) = [it for it in pytestconfig.pluginmanager.get_plugins() if hasattr(it, "COMPILE")]
    assert plugin.whole_suite(config) is first
