"""napari's widget that predicts a layer with a run: values as an image, and objects or classes as labels."""

from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from numpy.typing import NDArray

from znnpy.config.models import AffinityTarget
from znnpy.data.volume import ArrayVolume, Triple64
from znnpy.errors import VolumeError
from znnpy.infer.scan_job import scan_model, scan_values
from znnpy.interactive.objects import segment
from znnpy.interactive.run import Run
from znnpy.interop.run import run_of
from znnpy.train.members import members_of
from znnpy.train.progress import Notes
from znnpy.train.start import SavedRun, read_run

if TYPE_CHECKING:
    import napari

LayerData = tuple[Any, dict[str, Any], str]
_KINDS = {"boundary": "boundary", "affinity": "affinity", "mask": "foreground"}
"""By target, the kind of prediction that objects are made of."""
# The widget's annotations are values, or texts of full names: napari looks these up without this module.
_ALONE = Lock()  # a prediction at a time, as each takes all cores


def predict_layer(
    layer: "napari.layers.Image",
    run: Annotated[Path, {"mode": "d", "label": "run"}],
    objects: bool = True,
    min_size: int = 50,
) -> "napari.qt.threading.FunctionWorker[list[napari.types.LayerDataTuple]]":
    """Predict an image layer with a run, or with another program's model, while napari goes on.

    `objects`: labels as well, of objects of `min_size` voxels and more, or of classes. Layers are added, and
    errors told, in napari's own thread: no other may touch its window.
    """
    from napari.qt.threading import create_worker

    return create_worker(
        _alone,
        layer,
        run,
        objects,
        min_size,
        _start_thread=True,
        _progress={"desc": f"predicting {layer.name}"},
    )


def _alone(layer: Any, run: Path, objects: bool, min_size: int) -> list[LayerData]:
    with _ALONE:
        return predicted(layer, run, objects, min_size)


def predicted(
    layer: Any, run: str | Path, objects: bool = True, min_size: int = 50
) -> list[LayerData]:
    """Return the layers that predicting a layer of an image gives: where it lies, voxel for voxel.

    Up to its borders, as `znnpy predict --borders mirror` does. Scans that a run prepares become labels alone. Raises
    ZnnpyError and its kin for what the command refuses.
    """
    image, resolution = image_of(layer)
    with run_of(Path(run).expanduser()) as path:
        saved = read_run(path, Notes(), states=False)
        if saved.config.data.prepare is not None:
            labels = _scanned(saved, image, resolution, layer.name)
            return [_placed(layer, labels, "labels", f"{layer.name} labels")]
        opened = Run(saved)
    title, target = f"{layer.name} prediction", saved.config.data.target
    values = opened.predict(image, borders="mirror", resolution=resolution, quiet=True)
    found = [_placed(layer, values, "image", title)]
    if objects and target.kind == "labels":
        classes = opened.predict(
            image, borders="mirror", resolution=resolution, labels=True, quiet=True
        )
        found.append(_placed(layer, classes, "labels", f"{layer.name} classes"))
    elif objects and target.kind in _KINDS:
        offsets = target.offsets if isinstance(target, AffinityTarget) else None
        made = segment(
            values,
            kind=_KINDS[target.kind],  # type: ignore[arg-type]
            offsets=offsets,
            min_size=min_size,
            resolution=resolution,
        )
        found.append(_placed(layer, made.labels, "labels", f"{layer.name} objects"))
    return found


def image_of(layer: Any) -> tuple[NDArray[Any], Triple64]:
    """Return a layer's image (c, z, y, x) at its finest level, and its voxel size z, y, x in nanometres.

    Lengths without a unit are taken for nanometres. Raises VolumeError for what is no image.
    """
    data = layer.data[0] if getattr(layer, "multiscale", False) else layer.data
    array = np.asarray(data)
    if getattr(layer, "rgb", False):
        array = np.moveaxis(array, -1, 0)
        array = array[:, None] if array.ndim == 3 else array
    elif array.ndim in (2, 3):
        array = array[(None,) * (4 - array.ndim)]
    if array.ndim != 4:
        raise VolumeError(
            f"layer {layer.name}: must have axes y, x, or z, y, x, or channels before them; found {array.ndim}"
        )
    scale = [abs(float(step)) for step in layer.scale[-3:]]  # below 0 where an axis is shown turned
    units = [_nanometres(unit) for unit in tuple(getattr(layer, "units", ()) or ())[-3:]]
    sizes = [a * b for a, b in zip(scale, units or [1.0] * len(scale), strict=True)]
    z, y, x = [sizes[0]] * (3 - len(sizes)) + sizes
    return array, (z, y, x)


def _nanometres(unit: Any) -> float:
    """Return a unit of pint in nanometres; 1 of pixels and all that is no length."""
    try:
        return float((1 * unit).to("nm").magnitude)
    except Exception:  # of a library that is not imported here
        return 1.0


def _scanned(saved: SavedRun, image: NDArray[Any], size: Triple64, name: str) -> NDArray[Any]:
    weights = saved.weights
    volume = ArrayVolume(image, name, size)
    with scan_model(weights, members_of(saved), extent=volume.extent) as model:
        return scan_values(model, volume, weights)


def _placed(layer: Any, values: NDArray[Any], kind: str, name: str) -> LayerData:
    """Return values as a layer that lies where another one does, without z where that has none."""
    flat = values[..., 0, :, :] if layer.scale.size == 2 else values
    axes = 2 if layer.scale.size == 2 else 3
    named: dict[str, Any] = {
        "name": name,
        "scale": layer.scale[-axes:],
        "translate": layer.translate[-axes:],
    }
    if units := tuple(getattr(layer, "units", ()) or ())[-axes:]:
        named["units"] = units
    affine = _affine(layer, axes)
    if not np.allclose(affine, np.eye(axes + 1)):
        named["affine"] = affine
    if kind == "labels":
        return flat.astype(np.int64, copy=False), named, kind
    if len(flat) == 1:
        return flat[0], named, kind
    names = [f"{name} {channel}" for channel in range(len(flat))]
    return flat, {**named, "name": names, "channel_axis": 0}, kind


def _affine(layer: Any, axes: int) -> NDArray[Any]:
    """Return what a layer's last axes go through behind scale and translation: turns, shears and its own affine map."""
    scale, shift = (np.asarray(it, float)[-axes:] for it in (layer.scale, layer.translate))
    # The images of the origin and of a step along each axis.
    steps = np.eye(len(layer.scale))[-axes:]
    corner, *ends = (np.asarray(layer.data_to_world(it))[-axes:] for it in (0 * steps[0], *steps))
    found = np.eye(axes + 1)
    found[:-1, :-1] = np.stack([end - corner for end in ends], axis=1) / scale
    found[:-1, -1] = corner - found[:-1, :-1] @ shift
    return found
