"""The manifest of the napari plug-in: its commands are there, and npe2 takes it."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
import yaml
from blocks import ROOT

import znnpy.backends
from znnpy.backends.napari_reader import FILES
from znnpy.data.formats import FORMATS
from znnpy.registry import resolved

MANIFEST = Path(znnpy.backends.__file__).with_name("napari.yaml")
READ = yaml.safe_load(MANIFEST.read_text())


def test_commands_are_functions_and_used() -> None:
    commands = {it["id"]: it["python_name"] for it in READ["contributions"]["commands"]}
    assert all(callable(resolved(name)) for name in commands.values())
    used = [it["command"] for kind in ("readers", "widgets") for it in READ["contributions"][kind]]
    assert sorted(used) == sorted(commands)


def test_patterns_are_of_the_formats_that_are_read() -> None:
    (reader,) = READ["contributions"]["readers"]
    known = {end for name in (*FILES, "zarr", "n5") for end in FORMATS[name].suffixes}
    assert {pattern.removeprefix("*") for pattern in reader["filename_patterns"]} <= known
    assert reader["accepts_directories"]


def test_the_package_names_it() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    room, _, file = project["entry-points"]["napari.manifest"]["znnpy"].partition(":")
    assert room == "znnpy.backends"
    assert file == MANIFEST.name


def test_npe2_takes_it() -> None:
    npe2 = pytest.importorskip("npe2")
    manifest = npe2.PluginManifest.from_file(MANIFEST)
    assert manifest.name == READ["name"]
    manifest.validate_imports()
