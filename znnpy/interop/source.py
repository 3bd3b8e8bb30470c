"""The registry of programs whose models can be taken over."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from znnpy.errors import ModelFileError
from znnpy.interop.model import ImportedModel
from znnpy.registry import Registry, resolved


@dataclass(frozen=True, kw_only=True)
class Source:
    """One program; what it names as "module:name" is imported when it is needed.

    `knows(path)`: whether a file or folder is one of its models, by names of files alone. `read(path)`: returns the
    `ImportedModel`; raises ModelFileError, naming what is not supported. `wants`: what users name, for errors.
    """

    name: str
    title: str
    wants: str
    knows: Any
    read: Any


SOURCES = Registry[Source](
    "source of models",
    (
        Source(
            name="nnunet",
            title="nnU-Net",
            wants="a folder of nnU-Net v2 with plans.json, dataset.json and fold_0/checkpoint_final.pth",
            knows="znnpy.interop.nnunet.folder:is_model",
            read="znnpy.interop.nnunet.folder:read_model",
        ),
        Source(
            name="onnx",
            title="ONNX",
            wants="an ONNX file (.onnx)",
            knows="znnpy.interop.onnx.model:is_model",
            read="znnpy.interop.onnx.model:read_model",
        ),
        Source(
            name="monai",
            title="MONAI",
            wants="a bundle of MONAI (a folder with configs/inference.json and models/model.pt)",
            knows="znnpy.interop.monai.source:is_model",
            read="znnpy.interop.monai.source:read_model",
        ),
        Source(
            name="bioimageio",
            title="bioimage.io",
            wants="a package of bioimage.io (a .zip, or a folder with rdf.yaml)",
            knows="znnpy.interop.bioimageio.source:is_model",
            read="znnpy.interop.bioimageio.source:read_model",
        ),
        Source(
            name="checkpoint",
            title="checkpoint",
            wants="a checkpoint of torch-em (best.pt), or of pytorch-3dunet or PanSeg (best_checkpoint.pytorch) with "
            "its config beside it; a file of weights with --architecture",
            knows="znnpy.interop.checkpoints.source:is_model",
            read="znnpy.interop.checkpoints.source:read_model",
        ),
    ),
)


SOME = 50  # names of a folder that are looked at for one that was meant


def read_model(path: Path, architecture: Path | None = None) -> ImportedModel:
    """Return the model of a file or folder; raise ModelFileError where no source knows it.

    `architecture`: a YAML file that names the class of the net and its arguments, for files of weights alone.
    """
    if architecture is not None:
        from znnpy.interop.checkpoints.source import read_with

        return read_with(path, architecture)
    for source in SOURCES.values():
        if resolved(source.knows)(path):
            found: ImportedModel = resolved(source.read)(path)
            return found
    if not path.exists():
        raise ModelFileError(f"{path} does not exist")
    if (near := _near(path)) is not None:
        raise ModelFileError(f"{path} is no model that can be taken over; did you mean {near}?")
    wanted = "; ".join(source.wants for source in SOURCES.values())
    raise ModelFileError(f"{path} is no model that can be taken over: name {wanted}")


def _near(path: Path) -> Path | None:
    """Return a model above a path, or one or two folders below it, of the first folders there; None without one."""
    if not path.is_dir():
        return None
    try:
        inner = [it for it in sorted(path.iterdir())[:SOME] if it.is_dir()]
        deeper = [it for one in inner for it in sorted(one.iterdir())[:SOME] if it.is_dir()]
        return next((it for it in (path.parent, *inner, *deeper) if is_model(it)), None)
    except (OSError, ModelFileError):
        return None


def is_model(path: Path) -> bool:
    """Return whether some source knows a file or folder."""
    return any(resolved(source.knows)(path) for source in SOURCES.values())
