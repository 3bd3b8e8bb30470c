"""The kinds of files that commands read, each small, with the reader that a command calls."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import struct
import zipfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import h5py
import mrcfile
import nibabel
import nrrd
import numpy as np
import onnx
import onnx_files
import SimpleITK
import tifffile
import torch_files
from bioimage_packages import state, written, zipped
from chunked_files import write_n5, write_precomputed
from class_states import SHAPES, VALUES, drawn
from damage import CUBE, write_image
from monai_bundles import NET, WINDOWS, before, bundle
from mutations import Kind
from nnunet_model import folder_of
from nnunet_plans import Recipe
from PIL import Image

from znnpy.config import dump, load_config
from znnpy.config.models import Config
from znnpy.config.template import template
from znnpy.data.opening import open_volume
from znnpy.data.writing.destination import Destination
from znnpy.data.writing.n5_output import write_n5 as write_own_n5
from znnpy.data.writing.precomputed_output import write_precomputed as write_own
from znnpy.interop.bioimageio.normalising import normalize_key
from znnpy.interop.bioimageio.package import opened
from znnpy.interop.bioimageio.steps import applied
from znnpy.interop.bioimageio.tensors import tensors
from znnpy.interop.bioimageio.weights import net_of
from znnpy.interop.run import write_run
from znnpy.interop.source import read_model
from znnpy.network import initial_parameters, trained_network
from znnpy.train import checkpoint as checkpoints
from znnpy.train.environment import versions
from znnpy.train.log import RunLog, drop_after, up_to
from znnpy.train.progress import Quiet
from znnpy.train.run_directory import CONFIG, LOG, PLAN, VERSIONS, RunDirectory, write_json
from znnpy.train.start import contents_of, look, read_run
from znnpy.weights.safetensors import read_safetensors
from znnpy.weights.stored_tensor import Tensor
from znnpy.weights.torch_file import read_torch

OTHER = """\
network:
  nodes:
    raw: {kind: input, channels: 1}
    mid: {kind: transfer, channels: 2, function: elu}
    out: {kind: sum, channels: 2}
  edges:
    one: {kind: conv, from: raw, to: mid, size: [1, 3, 3], init: {kind: normal, std: 0.1}}
    two: {kind: max_filter, from: mid, to: out, size: 2, stride: 2}
    three: {kind: dropout, from: mid, to: out, keep: 0.5}
data: {train: [{image: {raw: /a.h5:x}, labels: /b.h5, mask: /c.zarr}], target: {kind: affinity, offsets: [[-1, 0, 0]]}}
training: {output_shape: 4, optimizer: {kind: adam, eps: 1e-8}, schedule: {kind: step, every: 5, factor: 0.1}}
run: {max_memory: 8GiB, checkpoint: {every: 5}}
"""
RUN = """\
network: {layers: [{conv: {channels: 2, size: 3, function: relu}}, {conv: {channels: 1, size: 1}}]}
data: {train: [{image: /a.h5, labels: /a.h5}]}
training: {output_shape: 4, optimizer: adam, iterations: 9}
run: {threads: 1}
"""
TILED = {f"{step}{more}": value for step in ("forward", "gradient", "weight")
         for more, value in (("", "spectral"), ("_tile", [8, 8, 8]))}  # fmt: skip
DIRECT = {"forward": "direct", "gradient": "direct", "weight": "fft"}
PLANNED = {"conv1": {**TILED, "reason": "measured"}, "conv2": {**DIRECT, "reason": "small"}}
ITERATIONS = (3, 6)
RECORDS: list[dict[str, Any]] = [
    {"iteration": at, **more}
    for at in range(1, ITERATIONS[-1] + 1)
    for more in ({"loss": 0.5 / at, "voxel_error": 0.1}, {"validation": {"loss": 0.5}})
]


def _yaml(folder: Path) -> None:
    for name, text in (("template", template()), ("other", OTHER)):
        (folder / name).mkdir()
        (folder / name / "a.yaml").write_text(text)


def _read_yaml(folder: Path) -> None:
    config = load_config(folder / "a.yaml")
    trained_network(config)
    dump(config)


def _hdf5(folder: Path) -> None:
    options: list[dict[str, Any]] = [
        {},
        {"chunks": (2, 3, 4), "compression": "gzip", "shuffle": True},
        {"chunks": (2, 3, 4), "compression": "lzf", "fletcher32": True},
        {"chunks": (2, 3, 4)},
    ]
    for index, more in enumerate(options):
        for library in ("earliest", "latest"):
            (folder / f"{library}{index}").mkdir()
            with h5py.File(folder / f"{library}{index}/a.h5", "w", libver=library) as file:
                made = file.create_dataset("volumes/raw", data=CUBE, **more)
                made.attrs.update({"resolution": [4.0, 4.0, 4.0], "offset": [0, 0, 0]})


def _tiff(folder: Path) -> None:
    options: list[dict[str, Any]] = [
        {}, {"imagej": True}, {"compression": "zlib"}, {"ome": True}, {"bigtiff": True}, {"byteorder": ">"},
        {"compression": "zlib", "predictor": True, "tile": (16, 16)},
    ]  # fmt: skip
    for index, more in enumerate(options):
        (folder / str(index)).mkdir()
        path = folder / str(index) / "a.tif"
        tifffile.imwrite(path, CUBE, photometric="minisblack", metadata={"axes": "ZYX"}, **more)
    (folder / "levels").mkdir()
    with tifffile.TiffWriter(folder / "levels" / "a.ome.tif") as file:
        kept = {"photometric": "minisblack", "metadata": {"axes": "ZYX"}}
        file.write(CUBE, subifds=1, **kept)
        file.write(CUBE[:, ::2, ::2], subfiletype=1, **kept)


def _nifti(folder: Path) -> None:
    affine = np.diag([-0.5, 0.7, 2.0, 1.0])
    for index, kind in enumerate((nibabel.Nifti1Image, nibabel.Nifti2Image)):
        for suffix in ("nii", "nii.gz"):
            for axes, values in (("3", CUBE.T), ("4", CUBE.reshape(2, 2, 6, 8).T)):
                place = folder / f"{index}{suffix}{axes}"
                place.mkdir()
                image = kind(values.astype(np.int16), affine)
                image.header.set_slope_inter(0.5, 1)
                image.to_filename(place / f"a.{suffix}")


def _nrrd(folder: Path) -> None:
    more = {
        "space": "left-posterior-superior",
        "space directions": np.diag([0.5, 0.7, 2]),
        "space origin": [1, 2, 3],
    }
    for encoding in ("raw", "gzip", "bzip2"):
        for end in ("nrrd", "nhdr"):
            place = folder / f"{encoding}{end}"
            place.mkdir()
            nrrd.write(str(place / f"a.{end}"), CUBE.T, {**more, "encoding": encoding})


def _metaimage(folder: Path) -> None:
    image = SimpleITK.GetImageFromArray(CUBE)
    image.SetSpacing((0.5, 0.7, 2))
    for number, vector in enumerate((image, SimpleITK.Compose(image, image))):
        for packed in (False, True):
            for end in ("mha", "mhd"):
                place = folder / f"{number}{packed}{end}"
                place.mkdir()
                SimpleITK.WriteImage(vector, str(place / f"a.{end}"), useCompression=packed)


def _mrc(folder: Path) -> None:
    for kind in (np.int8, np.int16, np.float32):
        place = folder / np.dtype(kind).name
        place.mkdir()
        with mrcfile.new(place / "a.mrc") as file:
            file.set_data(CUBE.astype(kind))
            file.voxel_size = 4.0


def _npy(folder: Path) -> None:
    arrays = (CUBE, CUBE.astype(">f4"), np.asfortranarray(CUBE), CUBE > 9)
    for number, array in enumerate(arrays):
        (folder / str(number)).mkdir()
        np.save(folder / str(number) / "a.npy", array)


def _pictures(folder: Path) -> None:
    colours = np.moveaxis(CUBE[:3], 0, -1)
    grey = (CUBE[0], CUBE[0].astype(np.uint16) * 200, CUBE[0] > 100, colours)
    for number, array in enumerate(grey):
        for end in ("png", "jpg")[: 1 if array.dtype != np.uint8 else 2]:
            place = folder / f"{number}{end}"
            place.mkdir()
            Image.fromarray(array).save(place / f"a.{end}")
            several = folder / f"{number}{end}s" / "planes"
            several.mkdir(parents=True)
            for z in range(3):
                Image.fromarray(array).save(several / f"{z}.{end}")


def _zarr(folder: Path) -> None:
    for form in (2, 3):
        write_image(folder / str(form) / "a.zarr", form)


def _n5(folder: Path) -> None:
    for name, more in (
        ("raw", {"pixelResolution": {"unit": "nm", "dimensions": [4, 4, 40]}}),
        ("named", {"axes": ["x", "z", "y"], "units": ["nm"] * 3, "resolution": [4, 40, 4]}),
    ):
        write_n5(folder / name / "a.n5", CUBE, **more)
    for kind, pack in (("gzip", gzip.compress), ("bzip2", bz2.compress), ("xz", lzma.compress)):
        write_n5(folder / kind / "a.n5", CUBE, compression={"type": kind})
        block = folder / kind / "a.n5" / "0" / "0" / "0"
        content = block.read_bytes()
        block.write_bytes(content[:16] + pack(content[16:]))
    (folder / "own").mkdir()
    place = {"resolution": (40.0, 4.0, 4.0), "offset": (80.0, 0.0, 4.0)}
    write_own_n5(Destination(folder / "own" / "a.n5", ""), CUBE[None], place)


def _precomputed(folder: Path) -> None:
    write_precomputed(folder / "raw" / "a", CUBE)
    write_precomputed(folder / "offset" / "a", CUBE.astype(np.float32), voxel_offset=[0, 0, 0])
    # One block, whose labels are all 7.
    labels = np.full(CUBE.shape, 7, np.uint32)
    more = {"encoding": "compressed_segmentation", "compressed_segmentation_block_size": [64] * 3}
    write_precomputed(folder / "labels" / "a", labels, **more)
    (chunk,) = (folder / "labels" / "a" / "4_4_40").iterdir()
    chunk.write_bytes(struct.pack("<4I", 1, 2, 3, 7))
    (folder / "own").mkdir()
    write_own(Destination(folder / "own" / "a.precomputed", ""), CUBE[None])


def _read_volume(folder: Path) -> None:
    found = sorted(folder.iterdir())
    headers = [path for path in found if path.suffix in (".nhdr", ".mhd")]
    path = (headers or found)[0]
    with open_volume(path) as volume:
        assert len(volume.shape) == 4
        volume.read_all()
        volume.verify()


def _inside(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def _run(folder: Path) -> None:
    """A run directory as training leaves it, without training."""
    (folder / "run").mkdir()
    (folder / "run" / "config.yaml").write_text(RUN)
    config = load_config(folder / "run" / "config.yaml")
    parameters = dict(initial_parameters(trained_network(config), 0))
    kinds = contents_of(config).optimizer_state
    state = {name: np.zeros(kind.shape, kind.dtype) for name, kind in kinds.items()}
    with RunDirectory.open(config.run.directory) as run:
        run.begin(dump(config), versions(0))
        write_json(run / PLAN, PLANNED)
        for at in ITERATIONS:
            saved = checkpoints.Checkpoint(at, parameters, state, 0.01, 0, at)
            checkpoints.save(run.checkpoints, saved, 3)
        with RunLog(run / LOG, lambda: 0.0) as log:
            for record in RECORDS:
                log.write(record)


class OneLine(Quiet):
    def note(self, text: str) -> None:
        assert "\n" not in text


@cache
def _config(folder: Path) -> Config:
    """What a run was begun with: never mutated, and slow to read."""
    return load_config(folder / "config.yaml")


def _look(folder: Path) -> None:
    """As `train` does."""
    config = _config(folder)
    with RunDirectory.open(config.run.directory) as run:
        assert look(run, config, OneLine()).checkpoint


def _read_run(folder: Path) -> None:
    """As `predict` does."""
    assert read_run(folder / "run", OneLine()).checkpoint


def _read_checkpoint(folder: Path) -> None:
    """Each: what is read is what was written."""
    config, saved = _config(folder), folder / "run" / checkpoints.DIRECTORY
    contents, wanted = contents_of(config), initial_parameters(trained_network(config), 0)
    checkpoints.newest(saved, contents, OneLine().note)
    for path in checkpoints.listed(saved):
        found = checkpoints.load(path, contents)
        assert path == checkpoints.path_of(path.parent, found.next_sample)
        for name, array in found.parameters.items():
            assert array.tobytes() == wanted[name].tobytes()
        assert not any(array.any() for array in found.optimizer_state.values())


def _read_log(folder: Path) -> None:
    """A resume loses no whole line up to its checkpoint."""
    path, last = folder / "run" / LOG, ITERATIONS[-1]
    list(up_to(path, last))
    written = {json.dumps({**record, "time": 0.0}).encode() + b"\n" for record in RECORDS}
    sound = written & set(path.read_bytes().splitlines(keepends=True))
    drop_after(path, last)
    assert drop_after(path, last) == ""  # it is said once
    left = {
        line for file in path.parent.glob(f"{LOG}*") for line in file.read_bytes().splitlines(True)
    }
    assert sound <= left


TENSORS = {"a": np.ones((2, 3, 1), "<f4"), "b": np.arange(7), "c": np.ones(4, "<f2")}


def _torch(whole: Path) -> None:
    (whole / "whole").mkdir()
    torch_files.save(whole / "whole" / "a.pth", TENSORS, epoch=3, loss=[0.5, None, True])


def _pickle(whole: Path) -> None:
    """The pickle by itself, so that no checksum finds what was changed; its archive is written when it is read."""
    _torch(whole)
    with zipfile.ZipFile(whole / "whole" / "a.pth") as archive:
        (whole / "whole" / "pickle").write_bytes(archive.read("archive/data.pkl"))


def _safetensors(whole: Path) -> None:
    (whole / "whole").mkdir()
    parts, header = b"", {}
    for name, array in TENSORS.items():
        kind = {"<f4": "F32", "<i8": "I64", "<f2": "F16"}[array.dtype.str]
        ends = [len(parts), len(parts) + array.nbytes]
        header[name] = {"dtype": kind, "shape": list(array.shape), "data_offsets": ends}
        parts += array.tobytes()
    text = json.dumps(header).encode()
    (whole / "whole" / "a.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + parts)


def _nnunet(whole: Path) -> None:
    for name, old in (("new", False), ("old", True)):
        folder_of(Recipe(widths=(2, 3, 4), patch=(8, 8, 8), old=old), whole / name)


def _onnx(whole: Path) -> None:
    (whole / "whole").mkdir()
    onnx_files.written(whole / "whole" / "a.onnx", *onnx_files.NET)
    (whole / "apart").mkdir()
    onnx.save(
        onnx_files.model(*onnx_files.NET), whole / "apart" / "a.onnx", save_as_external_data=True,
        location="a.data", size_threshold=0,
    )  # fmt: skip


def _read_onnx(folder: Path) -> None:
    """As `import` does."""
    write_run(read_model(folder / "a.onnx"), folder / "run")


def _read_nnunet(folder: Path) -> None:
    """As `import` does."""
    write_run(read_model(folder), folder / "run")


def _described(folder: Path) -> list[Path]:
    return [folder / "plans.json", folder / "dataset.json"]


def _read_torch(folder: Path) -> None:
    _read_tensors(read_torch(folder / "a.pth"))


def _read_pickle(folder: Path) -> None:
    stored = {str(number): array.tobytes() for number, array in enumerate(TENSORS.values())}
    torch_files.write(folder / "a.pth", (folder / "pickle").read_bytes(), stored)
    _read_torch(folder)


def _read_safetensors(folder: Path) -> None:
    _read_tensors(read_safetensors(folder / "a.safetensors"))


def _read_tensors(value: Any) -> None:
    state = value.get("state", value) if isinstance(value, dict) else {}
    for tensor in state.values() if isinstance(state, dict) else ():
        if isinstance(tensor, Tensor):
            tensor.array().sum()


def _of_run(pattern: str) -> Callable[[Path], list[Path]]:
    return lambda folder: sorted((folder / "run").glob(pattern))


def _bundle(whole: Path) -> None:
    steps = (
        {"_target_": "Spacingd", "keys": ["image"], "pixdim": [1.0, 2.0, 2.0]},
        {"_target_": "ScaleIntensityRanged", "keys": "image", "a_min": 0, "a_max": 9, "b_min": 0, "b_max": 1},
    )  # fmt: skip
    after = before({"_target_": "Activationsd", "sigmoid": True})
    bundle(whole / "json", preprocessing=before(*steps), postprocessing=after)
    text = json.dumps({"network_def": NET, "classes": 3, "inferer": WINDOWS})
    bundle(whole / "yaml", text=text, name="inference.yaml")


def _package(whole: Path) -> None:
    for new in (True, False):
        folder = whole / str(new)
        folder.mkdir()
        arrays = {name: tensor.array() for name, tensor in drawn(SHAPES).items()}
        torch_files.save(folder / "net.pt", arrays, key="state_dict")
        image = np.zeros((1, 1, 4, 4, 4), np.float32)
        steps = [{"name": "scale_range", "kwargs": {"axes": "zyx"}}]
        weights = state("net.pt", "UNet3D", VALUES, new=new)
        written(folder, weights, image, [image], new=new, before=steps)
    (whole / "zip").mkdir()
    zipped(whole / "True").rename(whole / "zip" / "a.zip")


def _read_package(folder: Path) -> None:
    """As `import` does, but for running the net."""
    path = folder / "a.zip"
    with opened(path if path.exists() else folder) as package:
        sides = [tensors(package.said, side) for side in ("inputs", "outputs")]
        net, *_ = net_of(package)
        for tensor in (one for side in sides for one in side):
            values = tensor.solid(package.array(tensor.test, None, tensor.where))
            applied(values, tensor.steps)
            normalize_key(tensor.steps, values.shape[1], flat=False)
        assert net.parameters


KINDS = {
    "yaml": Kind(_yaml, _read_yaml, _inside),
    "hdf5": Kind(_hdf5, _read_volume, _inside),
    "tiff": Kind(_tiff, _read_volume, _inside),
    "nifti": Kind(_nifti, _read_volume, _inside),
    "nrrd": Kind(_nrrd, _read_volume, _inside),
    "metaimage": Kind(_metaimage, _read_volume, _inside),
    "mrc": Kind(_mrc, _read_volume, _inside),
    "npy": Kind(_npy, _read_volume, _inside),
    "pictures": Kind(_pictures, _read_volume, _inside),
    "zarr": Kind(_zarr, _read_volume, _inside),
    "n5": Kind(_n5, _read_volume, _inside),
    "precomputed": Kind(_precomputed, _read_volume, _inside),
    "checkpoint": Kind(
        _run, _read_checkpoint, _of_run("checkpoints/*.npz"), 64 << 20, one_line=True
    ),
    "plan": Kind(_run, _look, _of_run(PLAN), one_line=True),
    "versions": Kind(_run, _look, _of_run(VERSIONS), one_line=True),
    "config of a run": Kind(_run, _read_run, _of_run(CONFIG)),
    "pytorch": Kind(_torch, _read_torch, _inside, 64 << 20, one_line=True),
    "pytorch's pickle": Kind(
        _pickle, _read_pickle, lambda folder: [folder / "pickle"], 64 << 20, one_line=True
    ),
    "safetensors": Kind(_safetensors, _read_safetensors, _inside, 64 << 20, one_line=True),
    "nnunet": Kind(_nnunet, _read_nnunet, _described),
    "bundle": Kind(_bundle, _read_nnunet, _inside),
    "package": Kind(_package, _read_package, _inside),
    "onnx": Kind(_onnx, _read_onnx, _inside, 128 << 20, one_line=True),
    "log": Kind(_run, _read_log, _of_run(LOG), 64 << 20, one_line=True),
}
