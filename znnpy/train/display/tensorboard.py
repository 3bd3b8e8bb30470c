"""Writes what is shown of a run as event files for TensorBoard, by the package tensorboardX."""

from __future__ import annotations

import base64
import importlib
import time
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

from znnpy.config.models import Config
from znnpy.errors import ConfigError
from znnpy.train.log import Record
from znnpy.train.run_directory import EVENTS

PACKAGE = "tensorboardX"


def refuse_missing(config: Config) -> None:
    """Raise ConfigError where a config wants event files and there is no package to write them."""
    if not config.run.tensorboard:
        return
    try:
        importlib.import_module(PACKAGE)
    except ImportError as error:
        raise ConfigError(
            f"{config.place('run', 'tensorboard')}: needs the package {PACKAGE}, which is not installed: "
            'pip install "znnpy[tensorboard]"'
        ) from error


class Events:
    """Event files in a folder of the run, a new one for each start; what an earlier one has of later steps is void."""

    def __init__(self, run: Path, iteration: int) -> None:
        module = importlib.import_module(PACKAGE)
        purge = iteration + 1 if iteration else None
        self._writer: Any = module.SummaryWriter(str(run / EVENTS), purge_step=purge)

    def take(self, record: Record) -> None:
        """Write the numbers of a record, those within another by "its name/theirs"."""
        step = record["iteration"]
        for name, value in record.items():
            if name == "iteration" or isinstance(value, str):
                continue
            inner = value.items() if isinstance(value, dict) else [("", value)]
            for key, number in inner:
                if isinstance(number, int | float):
                    self._writer.add_scalar(_tag(name, key), number, step, time.time())

    def picture(self, iteration: int, png: str) -> None:
        """Write slices, a PNG as base64."""
        from PIL import Image

        image = np.asarray(Image.open(BytesIO(base64.b64decode(png))))
        self._writer.add_image("slices", image, iteration, time.time(), dataformats="HWC")

    def close(self) -> None:
        """End the file."""
        self._writer.close()


def _tag(name: str, key: str) -> str:
    if name in ("weights", "gradients"):
        return f"{name}/{key or 'all'}"
    return f"{name}/{key}" if key else name
