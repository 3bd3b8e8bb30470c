"""A package of bioimage.io as a config and weights, checked against its own test tensors."""

from __future__ import annotations

from pathlib import Path

from znnpy.errors import ModelFileError
from znnpy.geometry import fit_input
from znnpy.interop.assembled import assembled
from znnpy.interop.bioimageio.checking import checked, names_of
from znnpy.interop.bioimageio.endings import ended
from znnpy.interop.bioimageio.normalising import normalize_key
from znnpy.interop.bioimageio.package import Package, is_package, opened
from znnpy.interop.bioimageio.tensors import tensors
from znnpy.interop.bioimageio.weights import net_of
from znnpy.interop.described import Described
from znnpy.interop.learned import Learned
from znnpy.interop.model import ImportedModel
from znnpy.interop.operators.described import Described as Net

is_model = is_package


def read_model(path: Path) -> ImportedModel:
    """Return the model of a package's folder, zip or description; ModelFileError names what is not supported."""
    with opened(path) as package:
        return _read(package)


def _read(package: Package) -> ImportedModel:
    inputs, outputs = tensors(package.said, "inputs"), tensors(package.said, "outputs")
    if len(inputs) != 1 or not outputs:
        raise ModelFileError(
            f"{package.said.where}: nets of one input are supported; it has {len(inputs)}, and {len(outputs)} outputs"
        )
    found, kind, guessed = net_of(package)
    (image,) = found.network.inputs
    notes = [checked(package, found, inputs, outputs, guessed)]
    names = names_of([node.name for node in found.network.outputs], outputs)
    found, more = ended(found, names, outputs)
    notes += more
    flat = "z" not in inputs[0].axes
    normalize, more = normalize_key(inputs[0].steps, image.channels, flat)
    title = package.said.values.get("name")
    learned = _learned(package)
    try:
        training = learned.training(found.network)
    except ModelFileError as error:
        raise ModelFileError(f"{package.said.where}: config: znnpy: {error}") from error
    return assembled(
        f"bioimage.io {title if isinstance(title, str) else package.title}: {kind}"[:160], found,
        {"normalize": normalize, **learned.data()}, window=_window(found, inputs[0].fixed), training=training,
        notes=[*notes, *more],
        where=package.said.where,
    )  # fmt: skip


def _learned(package: Package) -> Learned:
    """Return what a package that `znnpy export` wrote says of targets and loss."""
    config = package.said.values.get("config")
    own = config.get("znnpy") if isinstance(config, dict) else None
    if not isinstance(own, dict) or "targets" not in own:
        return Learned()
    said = Described(own, f"{package.said.where}: config: znnpy")
    return Learned(said.listed("targets"), said.listed("losses") if "losses" in said else ())


def _window(found: Net, fixed: tuple[int, int, int] | None) -> tuple[int, int, int] | None:
    """Return the output's size where the input has one size alone."""
    if fixed is None:
        return None
    shapes = set(fit_input(found.network, fixed).output_shapes.values())
    return shapes.pop() if len(shapes) == 1 else None
