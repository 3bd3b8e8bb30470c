"""Every format that is read keeps to the bound on what a file may declare."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import h5py
import mrcfile
import nibabel
import nrrd
import numpy as np
import pytest
import SimpleITK
import tifffile
import zarr
from chunked_files import write_n5, write_precomputed
from image_files import write_cifar, write_idx
from PIL import Image

from znnpy.data.formats import FORMATS
from znnpy.data.opening import open_volume
from znnpy.errors import VolumeError

IMAGES = np.random.default_rng(0).integers(0, 255, (4, 3, 32, 32)).astype(np.uint8)
STACK = IMAGES[:, 0]


def hdf5(path: Path) -> None:
    with h5py.File(path, "w") as file:
        file["raw"] = STACK


def planes(path: Path) -> None:
    path.mkdir()
    for z, plane in enumerate(STACK):
        tifffile.imwrite(path / f"{z}.tif", plane)


def cifar(path: Path) -> None:
    write_cifar(path, IMAGES, np.zeros(len(IMAGES), np.uint8))


def nifti(path: Path) -> None:
    nibabel.Nifti1Image(STACK.T, np.eye(4)).to_filename(path)


def metaimage(path: Path) -> None:
    SimpleITK.WriteImage(SimpleITK.GetImageFromArray(STACK), str(path), useCompression=True)


def mrc(path: Path) -> None:
    with mrcfile.new(path) as file:
        file.set_data(STACK.astype(np.int16))


def pictures(path: Path) -> None:
    path.mkdir()
    for z, plane in enumerate(STACK):
        Image.fromarray(plane).save(path / f"{z}.png")


WRITTEN: dict[str, tuple[str, Callable[[Path], object]]] = {
    "hdf5": ("a.h5", hdf5),
    "tiff": ("a.tif", lambda path: tifffile.imwrite(path, STACK, photometric="minisblack")),
    "planes": ("planes", planes),
    "zarr": ("a.zarr", lambda path: zarr.save_array(path, STACK)),
    "nifti": ("a.nii.gz", nifti),
    "nrrd": ("a.nrrd", lambda path: nrrd.write(str(path), STACK.T)),
    "metaimage": ("a.mha", metaimage),
    "mrc": ("a.mrc", mrc),
    "npy": ("a.npy", lambda path: np.save(path, STACK)),
    "png": ("a.png", lambda path: Image.fromarray(STACK[0]).save(path)),
    "jpeg": ("a.jpg", lambda path: Image.fromarray(STACK[0]).save(path)),
    "pictures": ("pictures", pictures),
    "idx": ("a.idx", lambda path: write_idx(path, STACK)),
    "gzip": ("a.gz", lambda path: write_idx(path, STACK)),
    "npz": ("a.npz", lambda path: np.savez_compressed(path, raw=STACK)),
    "cifar": ("a.bin", cifar),
    "n5": ("a.n5", lambda path: write_n5(path, STACK)),
    "precomputed": ("volume", lambda path: write_precomputed(path, STACK)),
}


@pytest.mark.parametrize("kind", FORMATS)
def test_no_format_passes_over_the_bound(tmp_path: Path, kind: str) -> None:
    name, write = WRITTEN[kind]
    write(tmp_path / name)
    with open_volume(tmp_path / name) as volume:
        assert volume.read_all().size
        # CIFAR counts the labels of its images, too
        size = volume.nbytes + (len(IMAGES) if kind == "cifar" else 0)
    open_volume(tmp_path / name, max_bytes=size).close()
    with pytest.raises(VolumeError, match=r"at most .* are accepted"):
        open_volume(tmp_path / name, max_bytes=size - 1)
