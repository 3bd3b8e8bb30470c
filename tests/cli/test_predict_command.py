"""What the options of `znnpy predict` say."""

from __future__ import annotations

import pytest
import typer

from znnpy import load_network
from znnpy.cli.predict_sets import images_of

TWO = load_network(
    {
        "nodes": {
            "ct": {"kind": "input", "channels": 1},
            "mr": {"kind": "input", "channels": 1},
            "out": {"kind": "transfer", "channels": 1},
        },
        "edges": {
            "a": {"kind": "conv", "from": "ct", "to": "out", "size": 3},
            "b": {"kind": "conv", "from": "mr", "to": "out", "size": 3},
        },
    }
)


def test_inputs_are_named() -> None:
    assert images_of(TWO, ["mr=b.h5:raw", "ct=a.h5"]) == {
        "ct": "a.h5",
        "mr": "b.h5:raw",
    }


@pytest.mark.parametrize(
    "given", [["a.h5"], ["ct=a.h5"], ["ct=a.h5", "b.h5"], ["cd=a.h5", "mr=b.h5"]]
)
def test_inputs_without_names_are_refused_by_their_option(given: list[str]) -> None:
    with pytest.raises(
        typer.BadParameter, match="several inputs: give --input ct=FILE --input mr=FILE"
    ):
        images_of(TWO, given)
