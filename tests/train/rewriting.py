"""Checkpoints written again with other members, as damage or somebody's hand would leave them."""

from __future__ import annotations

import io
import json
import warnings
import zipfile

import numpy as np


def rewritten(path, change):
    """Write a checkpoint again with members (name, bytes) that `change` makes of its own."""
    with zipfile.ZipFile(path) as file:
        members = [(name, file.read(name)) for name in file.namelist()]
    changed = change(members)
    with warnings.catch_warnings(), zipfile.ZipFile(path, "w") as file:
        warnings.simplefilter("ignore")  # of names that are there twice
        for name, data in changed:
            file.writestr(name, data)


def with_array(name, array):
    """The members of a checkpoint with one array in the place of another."""

    def change(members):
        buffer = io.BytesIO()
        np.save(buffer, array)
        return [(n, buffer.getvalue() if n == f"{name}.npy" else data) for n, data in members]

    return change


def with_meta(**changes):
    """The members of a checkpoint with other numbers."""

    def change(members):
        meta = json.loads(str(np.load(io.BytesIO(dict(members)["meta.npy"]))))
        return with_array("meta", np.array(json.dumps(meta | changes)))(members)

    return change
