"""Checkpoints of torch-em and pytorch-3dunet (PanSeg), and files of weights beside which an architecture is named."""

from __future__ import annotations

from pathlib import Path

from znnpy.errors import ModelFileError
from znnpy.interop.assembled import assembled
from znnpy.interop.checkpoints import pytorch3dunet, torch_em
from znnpy.interop.classes.origin import network_of
from znnpy.interop.classes.registry import CLASSES, class_of
from znnpy.interop.described import Described
from znnpy.interop.model import ImportedModel
from znnpy.interop.state_files import is_weights, read_contents, state_of

CHECKPOINTS = ("best_checkpoint.pytorch", "last_checkpoint.pytorch", "best.pt", "latest.pt")
"""Names in the folders of these programs, the better one first."""
NORMALIZE = "how images are normalised is not said: data.normalize is none, set it if the net expects another"


def checkpoint_in(path: Path) -> Path | None:
    """Return the checkpoint that a path is, or that its folder has under a usual name."""
    if is_weights(path):
        return path
    found = (path / name for name in CHECKPOINTS)
    return next((file for file in found if file.is_file()), None) if path.is_dir() else None


def is_model(path: Path) -> bool:
    """Return whether a path is a file of weights, or a folder with a checkpoint."""
    return checkpoint_in(path) is not None


def read_model(path: Path) -> ImportedModel:
    """Return the model of a checkpoint that says its network, or beside which that is said."""
    file = checkpoint_in(path) or path
    contents = read_contents(file)
    if (made := torch_em.read(contents, file)) is not None:
        return made
    if (made := pytorch3dunet.read(contents, file)) is not None:
        return made
    raise ModelFileError(
        f"{file} holds weights and does not say their network: name the class and its arguments in a YAML file, "
        "{class: monai.UNet, arguments: {...}}, and import it with --architecture FILE; or take a folder that has the "
        "config beside it"
    )


def read_with(path: Path, architecture: Path) -> ImportedModel:
    """Return the model of a file of weights whose network a YAML file says: `class`, `arguments`.

    Also there may be `normalize`, as `data.normalize` of a config, and `window`, z y x.
    """
    said = Described.of_yaml(architecture)
    said.only(("class", "arguments", "normalize", "window"))
    file = checkpoint_in(path)
    if file is None and not path.exists():
        raise ModelFileError(f"{path} does not exist")
    if file is None:
        raise ModelFileError(f"{path} is no file of weights; --architecture is for these")
    name = said.text("class")
    arguments = said.inside("arguments").values if "arguments" in said else {}
    found = class_of(name, f"{architecture}: class")
    net = network_of(found, arguments, state_of(read_contents(file), file), str(file))
    data = {"normalize": said.values["normalize"] if "normalize" in said else "none"}
    window = said.integers("window") if "window" in said else None
    if window is not None and len(window) != 3:
        raise said.wrong("window", "must hold three sizes, z y x")
    notes = [] if "normalize" in said else [NORMALIZE]
    return assembled(
        f"{file.name}: {CLASSES[found.name].title}", net, data, window=window, notes=notes, where=str(architecture)
    )  # fmt: skip
