"""The registry of formats in which a run's network can be written, and how files of them come about."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from znnpy.atomic_files import explained, replacing
from znnpy.errors import ExportError
from znnpy.registry import Registry, resolved

if TYPE_CHECKING:  # the command line needs names of formats alone
    from znnpy.interop.export.trained import Trained

Write = Callable[[BinaryIO], object]
"""Writes a file's bytes."""


@dataclass(frozen=True, kw_only=True)
class ExportFormat:
    """One format; what it names as "module:name" is imported when it is needed.

    `summary`: for help. `suffixes`: of the files that are written, the one that users name first. `also`: others that
    users may name it by.
    `weights_alone`: not what is computed with them.
    `prepare(trained)`: returns a `Write` for each suffix; all that may be refused is refused there, by ExportError.
    """

    name: str
    summary: str
    suffixes: tuple[str, ...]
    prepare: Any
    also: tuple[str, ...] = ()
    weights_alone: bool = False

    @property
    def named(self) -> tuple[str, ...]:
        """Suffixes that users may name."""
        return (self.suffixes[0], *self.also)


FORMATS = Registry[ExportFormat](
    "export format",
    (
        ExportFormat(
            name="torch",
            summary="a module of plain torch.nn (.py) and its weights beside it (.pth)",
            suffixes=(".py", ".pth"),
            prepare="znnpy.interop.export.torch_files:module_files",
        ),
        ExportFormat(
            name="onnx",
            summary="a model of ONNX, float32 (.onnx); needs the extra znnpy[onnx]",
            suffixes=(".onnx",),
            prepare="znnpy.interop.export.onnx_model:onnx_files",
        ),
        ExportFormat(
            name="state-dict",
            summary="weights for torch.load (.pth), by the names of nnU-Net's class where the network is one, else of "
            "the module that torch writes",
            suffixes=(".pth",),
            also=(".pt",),
            prepare="znnpy.interop.export.weight_files:state_dict_files",
            weights_alone=True,
        ),
        ExportFormat(
            name="safetensors",
            summary="the same weights (.safetensors)",
            suffixes=(".safetensors",),
            prepare="znnpy.interop.export.weight_files:safetensors_files",
            weights_alone=True,
        ),
        ExportFormat(
            name="bioimageio",
            summary="a package of bioimage.io (.zip), for ONNX Runtime and PyTorch; needs the extra znnpy[onnx]",
            suffixes=(".zip",),
            prepare="znnpy.interop.export.bioimageio_package:package_files",
        ),
    ),
)


def format_named(path: Path) -> str:
    """Return the name of the format that a file's suffix stands for; ExportError names the choices."""
    suffix = path.suffix.lower()
    for name, it in FORMATS.items():
        if suffix in it.named:
            return name
    known = ", ".join(f"{' or '.join(it.named)} ({name})" for name, it in FORMATS.items())
    raise ExportError(f"{path}: a file is written by its suffix, {known}; or say --format")


def export(
    trained: Trained, name: str, path: Path | None, *, overwrite: bool = False
) -> list[Path]:
    """Write a run's network in the format of that name, and return what was written, the named file first.

    `path`: of the file; by default the run's name in the current folder. Raises ExportError for a suffix that is not
    the format's, files that are there already, networks that the format cannot say, and disks that fail; nothing is
    written before all of it is known.
    """
    if name not in FORMATS:
        raise ExportError(f"{name[:40]!r} is no format; there are {', '.join(FORMATS)}")
    chosen = FORMATS[name]
    wanted = chosen.suffixes[0]
    if path is None:
        path = Path(f"{trained.saved.path.resolve().name}{wanted}")
    if path.suffix.lower() not in chosen.named:
        ends = " or ".join(chosen.named)
        raise ExportError(f"{path}: the name of a file of format {name} ends in {ends}")
    paths = [path, *map(path.with_suffix, chosen.suffixes[1:])]
    _refuse_taken(paths, overwrite)
    writes: Sequence[Write] = resolved(chosen.prepare)(trained)
    with explained(path, ExportError), ExitStack() as stack:
        for place, write in zip(paths, writes, strict=True):
            new = stack.enter_context(replacing(place))
            with new.open("wb") as file:
                write(file)
        # All are complete: they get their names, the one that users name last.
    return paths


def _refuse_taken(paths: Sequence[Path], overwrite: bool) -> None:
    for path in paths:
        if path.is_dir():
            raise ExportError(f"{path} is a folder; name a file")
        if path.exists() and not overwrite:
            raise ExportError(f"{path} exists already; name another file, or add --overwrite")
