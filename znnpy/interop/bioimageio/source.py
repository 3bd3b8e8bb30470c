"""A package of bioimage.io as a config and weights, checked against its own test tensors."""

from __future__ import annotations

from pathlib import Path

from znnpy.errors import ModelFileError
from znnpy.geometry import fit_input
from znnpy.geometry.shape_inference import smallest
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
    own = _own(package)
    learned = _learned(own)
    try:
        training = learned.training(found.network)
    except ModelFileError as error:
        raise ModelFileError(f"{package.said.where}: config: znnpy: {error}") from error
    return assembled(
        f"bioimage.io {title if isinstance(title, str) else package.title}: {kind}"[:160], found,
        {"normalize": normalize, **learned.data()}, window=_window(found, inputs[0].fixed, own), training=training,
        notes=[*notes, *more],
        where=package.said.where,
    )  # fmt: skip


def _own(package: Package) -> Described:
    """Return what a package that `znnpy export` wrote says of its run, nothing of others."""
    config = package.said.values.get("config")
    own = config.get("znnpy") if isinstance(config, dict) else None
    return Described(own if isinstance(own, dict) else {}, f"{package.said.where}: config: znnpy")


def _learned(own: Described) -> Learned:
    if "targets" not in own:
        return Learned()
    said = ("targets", "losses", "loss_weights")
    return Learned(*(own.listed(key) if key in own else () for key in said))


def _window(
    found: Net, fixed: tuple[int, int, int] | None, own: Described
) -> tuple[int, int, int] | None:
    """Return the run's window, or the output's size where the input has one size alone."""
    if fixed is not None:
        shapes = set(fit_input(found.network, fixed).output_shapes.values())
        return shapes.pop() if len(shapes) == 1 else None
    if "window" not in own:
        return None
    sizes = own.integers("window")
    if len(sizes) != 3:
        raise own.wrong("window", "must be three sizes, z, y, x")
    z, y, x = sizes
    return smallest(found.network, (z, y, x))
