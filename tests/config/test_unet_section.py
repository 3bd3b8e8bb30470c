"""The `unet` key: what may be written, how it is read back, and one error for each mistake."""

from __future__ import annotations

from contextlib import suppress
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from znnpy.config import MalformedConfigError, config_from, dump, load_config, network_section_from
from znnpy.config.problems import Problem
from znnpy.config.unet_section import BlockSection, UnetSection, UpSection, each
from znnpy.errors import ConfigError, NetworkError
from znnpy.fields import Strict
from znnpy.geometry import trained_geometry
from znnpy.network import trained_network

CONFIG = """\
network:
  unet:
    widths: [4, 6, 8, 8]
    {}
training:
  output_shape: 8
"""
BELOW = "\n    "
# (lines of the unet, line, key below network.unet, words that the message must hold)
WRONG = [
    ("padding: full", 4, "padding", ["'full'", "same, valid"]),
    ("pools: max", 4, "pools", ["unknown key", "'pool'"]),
    ("norm: btch", 4, "norm", ["'btch'", "'batch'"]),
    ("down: [[1, 2, 2], 2]", 4, "down", ["each of the 3 steps", "one, z y x", "found 2"]),
    ("size: [3, 3, 3, 3, 3]", 4, "size", ["each of the 4 levels", "found 5"]),
    ("convs: [1, 2]", 4, "convs", ["each of the 4 levels", "found 2"]),
    ("convs: 0", 4, "convs", ["at least 1", "found 0"]),
    ("convs: []", 4, "convs", ["each of the 4 levels", "found 0"]),
    ("blocks: []", 4, "blocks", ["each of the 4 levels", "found 0"]),
    ("down: []", 4, "down", ["each of the 3 steps", "found 0"]),
    ("size: []", 4, "size", ["each of the 4 levels", "found 0"]),
    ("up_size: []", 4, "up_size", ["each of the 3 levels", "found 0"]),
    (f"convs: 64{BELOW}blocks: 64", 4, "convs", ["are 16,576 convolutions in all; at most 5,000"]),
    ("up_widths: [[], 6, 8]", 4, "up_widths.0", ["2 convolutions", "found 0"]),
    ("up_widths: [4, 4, 4, 4]", 4, "up_widths", ["each of the 3 levels", "found 4"]),
    ("up_widths: [[4, 4, 4], 6, 8]", 4, "up_widths.0", ["2 convolutions", "found 3"]),
    ("supervise: 3", 4, "supervise", ["at most 2", "found 3"]),
    ("block: residul", 4, "block", ["'residul'", "'residual'"]),
    ("block: {kind: plain, from: input}", 4, "block.from", ["only a residual block"]),
    ("block: {kind: residual, shortcut: average}", 4, "block.shortcut", ["from: input"]),
    (f"block: residual{BELOW}convs: 1", 5, "convs", ["needs another"]),
    (f"block: residual{BELOW}up_widths: [4, [6, 8], 8]", 5, "up_widths.1", ["one width"]),
    (f"block: residual{BELOW}padding: valid{BELOW}size: [1, 2, 3]", 6, "size", ["[1, 2, 3]"]),
    ("up: {kind: linear, channels: same, size: 3}", 4, "up.size", ["no convolution"]),
    (
        f"join: sum{BELOW}up: {{kind: linear, channels: same}}",
        5,
        "up.channels",
        ["6 channels to 4"],
    ),
    (
        f"size: 3{BELOW}pool: strided{BELOW}down: 3",
        4,
        "size",
        ["at least 4 along z", "steps of 3", "found 3 at level 1"],
    ),
    (
        f"first_size: [3, 1, 3]{BELOW}pool: strided",
        4,
        "first_size",
        ["at least 2 along y", "found 1"],
    ),
    (
        f"down: [1, 2, 2]{BELOW}up: {{kind: transposed, size: 2}}",
        5,
        "up.size",
        ["odd along z", "found 2"],
    ),
    (f"padding: valid{BELOW}border: reflect", 5, "border", ["needs padding: same"]),
    ("dropout: 1.5", 4, "dropout", ["at most 1", "found 1.5"]),
    ("function: rleu", 4, "function", ["'relu'"]),
]


@pytest.mark.parametrize(("lines", "line", "key", "words"), WRONG)
def test_one_error_with_line_and_key(
    tmp_path: Path, lines: str, line: int, key: str, words: list[str]
) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(CONFIG.format(lines))
    with pytest.raises(MalformedConfigError) as caught:
        load_config(path)
    (text,) = str(caught.value).splitlines()
    assert text.startswith(f"{path}:{line}: network.unet.{key}: ")
    assert all(word in text for word in words), text


def _nested(value: Any) -> list[dict[str, Any]]:
    """The value for every key of a `unet` and of the mappings in it."""
    blocks = {"kind": "residual", "from": "input", "shortcut": "average"}
    below = [
        ("block", blocks, BlockSection),
        ("up_block", blocks, BlockSection),
        ("up", {"kind": "transposed"}, UpSection),
        ("norm", {"kind": "group"}, None),
        ("dropout", {"keep": 0.5}, None),
    ]
    found = [{key: value} for key in _names(UnetSection)]
    for outer, base, section in below:
        names = _names(section) if section else [*base, "groups", "epsilon"]
        found += [{outer: base | {inner: value}} for inner in names]
    return found


def _names(section: type[Strict]) -> list[str]:
    return [field.alias or name for name, field in section.model_fields.items()]


VALUES = [
    0, -1, 1, 2, 3, 4, 5, 9, 2**20, 2**40, 10**18, 0.5, 1.5, 1e300, True, False, None, "", "same", "conv", "max",
    "residual", "valid", "strided", "nearest", "sum", "group", "prelu", [], [[]], [[[]]], [0], [2], [2, 2], [2, 3, 4],
    [3, 3, 3], [[1, 2, 2]], [[1, 2, 2], 2], [[1, 2], 2], [[1, 3, 3], [3, 3, 3], 3], [[2, 3], [2, 2], 4], [[[2]]], ["a"],
    [None], [{}], [1] * 40, {}, {"kind": "x"}, {"kind": []}, {"kind": {}}, {"kind": "residual"},
    {"kind": "linear"}, {"kind": "nearest", "channels": "same"},
    {"kind": "transposed", "size": 4}, {"keep": 0.5}, {1: 2},
]  # fmt: skip


@pytest.mark.quick(8)
@pytest.mark.parametrize("value", VALUES, ids=map(str, VALUES))
def test_any_value_of_any_key_is_taken_or_refused_by_name(value: Any) -> None:
    """Alone, and beside what other keys ask for; what is taken has nodes and sizes, or is refused in words."""
    beside: list[dict[str, Any]] = [{}, {"padding": "valid", "block": "residual", "norm": "batch"}]
    beside += [{"pool": "strided", "join": "sum", "up": "linear", "convs": [1, 2, 3]}]
    for changed, others in product(_nested(value), beside):
        section = {"widths": [2, 3, 4]} | others | changed
        data = {"network": {"unet": section}, "training": {"output_shape": 4}}
        problems: tuple[Problem, ...] = ()
        with suppress(ConfigError, NetworkError):
            try:
                config = config_from(data)
            except MalformedConfigError as error:
                problems = error.problems
            else:
                trained_geometry(config, trained_network(config))
        assert all(problem.key[:2] == ("network", "unet") for problem in problems)


def test_one_width_is_no_unet() -> None:
    with pytest.raises(MalformedConfigError, match="at least two levels"):
        _section(widths=[8])


def test_three_plain_numbers_are_one_size_and_lists_have_a_value_for_each() -> None:
    assert _section(widths=[4] * 4, down=[1, 2, 2]).down == ((1, 2, 2),)
    assert _section(widths=[4] * 4, down=[[1, 2, 2], 2, 3]).down == (
        (1, 2, 2),
        (2, 2, 2),
        (3, 3, 3),
    )
    section = _section(widths=[4, [4, 8]], size=[3, [1, 3, 3]], convs=2)
    assert section.widths == ((4,), (4, 8))
    assert [each(section.size, level) for level in range(2)] == [(3, 3, 3), (1, 3, 3)]


@pytest.mark.parametrize(
    "keys",
    [
        {"widths": [4, 8]},
        {
            "widths": [4, [4, 8]],
            "down": [1, 2, 2],
            "up": "nearest",
            "dropout": 0.5,
            "norm": "batch",
        },
        {"widths": [4, 8, 8], "down": [2, [1, 2, 2]], "convs": [1, 2, 3], "up_widths": [4, 4]},
        {
            "widths": [4, 8],
            "block": {"kind": "residual", "from": "input", "add": "norm", "shortcut": "average"},
            "up_block": "plain",
            "up": {"kind": "transposed", "size": 3},
            "norm": {"kind": "group", "groups": 2},
        },
    ],
)
def test_what_a_run_saves_says_the_same(tmp_path: Path, keys: dict[str, Any]) -> None:
    given = {"network": {"unet": keys}, "training": {"output_shape": 8}}
    config = config_from(given, tmp_path)
    (tmp_path / "saved.yaml").write_text(dump(config))
    assert load_config(tmp_path / "saved.yaml") == config


def test_it_is_a_form_of_its_own() -> None:
    with pytest.raises(MalformedConfigError, match="exactly one of layers, unet"):
        network_section_from({"unet": {"widths": [4, 8]}, "layers": [{"max_filter": 2}]})


def _section(**keys: Any) -> UnetSection:
    section = network_section_from({"unet": keys}).unet
    assert section is not None
    return section
