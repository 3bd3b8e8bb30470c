"""What is written for PyTorch: a module and its weights."""

from __future__ import annotations

from collections.abc import Sequence

from znnpy.interop.export.computation import Computation
from znnpy.interop.export.formats import Write
from znnpy.interop.export.torch_module import module_text
from znnpy.interop.export.trained import Trained, normalisation_words
from znnpy.weights.torch_writing import write_torch


def module_files(trained: Trained) -> Sequence[Write]:
    """Return what writes the module, and the weights that it loads."""
    return module_of(trained, trained.computation())


def module_of(trained: Trained, computation: Computation) -> Sequence[Write]:
    """Return the same of what the network was found to compute."""
    about = f"Images go in prepared: {normalisation_words(trained.saved.config.data)}.\n"
    text = module_text(computation, f"{trained.title}, written by znnpy.", about)
    return (
        lambda file: file.write(text.encode()),
        lambda file: write_torch(file, computation.tensors),
    )
