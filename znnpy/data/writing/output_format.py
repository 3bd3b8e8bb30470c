"""The registry of formats that are written, by the suffixes of file names."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from znnpy.registry import Registry


@dataclass(frozen=True, kw_only=True)
class OutputFormat:
    """One format that is written; what it names as "module:name" is imported when it is needed.

    `blocks(destination, spec, *, attached)`: returns a `znnpy.data.writing.block_output.BlockOutput`.
    `whole(destination, array, attributes)`: writes an array (z, y, x) atomically. `owns(path)`: whether what
    stands there is of the format. `folder`: an output is a folder, not a file. `has_datasets`: an output without
    a dataset's name gets the usual one. `from_voxel_0`: storage units begin at voxel 0, so blocks lie on that grid.
    `wide`: holds uint64, as numbers of objects are. `types`: those that it holds, by NumPy's names; empty: any.
    `channels`: at most so many, None: any number. `ready()`: raises VolumeError where a package is missing.
    """

    name: str
    title: str
    suffixes: tuple[str, ...]
    blocks: Any
    whole: Any
    owns: Any
    folder: bool = False
    has_datasets: bool = True
    from_voxel_0: bool = False
    wide: bool = True
    types: tuple[str, ...] = ()
    channels: int | None = None
    ready: Any = None

    def holds(self, dtype: str, channels: int) -> bool:
        """Return whether it holds so many channels of a type."""
        few = self.channels is None or channels <= self.channels
        return few and (not self.types or dtype in self.types)


HDF5 = OutputFormat(
    name="hdf5",
    title="HDF5",
    suffixes=(".h5", ".hdf5", ".hdf"),
    blocks="znnpy.data.writing.hdf5_output:Hdf5Output",
    whole="znnpy.data.writing.hdf5_output:write_volume",
    owns="znnpy.data.hdf5.signature:is_hdf5",
)
ZARR = OutputFormat(
    name="zarr",
    title="OME-Zarr",
    suffixes=(".zarr",),
    blocks="znnpy.data.writing.zarr_output:ZarrOutput",  # takes a third of a second to import
    whole="znnpy.data.writing.zarr_output:write_zarr",
    owns="znnpy.data.zarr.store:is_zarr",
    folder=True,
    has_datasets=False,
    from_voxel_0=True,
)
N5 = OutputFormat(
    name="n5",
    title="N5",
    suffixes=(".n5",),
    blocks="znnpy.data.writing.n5_output:N5Output",
    whole="znnpy.data.writing.n5_output:write_n5",
    owns="znnpy.data.chunked.n5:has_attributes",
    folder=True,
    has_datasets=False,
    from_voxel_0=True,
)
PRECOMPUTED = OutputFormat(
    name="precomputed",
    title="precomputed",
    suffixes=(".precomputed",),
    blocks="znnpy.data.writing.precomputed_output:PrecomputedOutput",
    whole="znnpy.data.writing.precomputed_output:write_precomputed",
    owns="znnpy.data.chunked.precomputed:is_precomputed",
    folder=True,
    has_datasets=False,
    from_voxel_0=True,
)
NIFTI = OutputFormat(
    name="nifti",
    title="NIfTI",
    suffixes=(".nii", ".nii.gz"),
    blocks="znnpy.data.writing.nifti_output:NiftiOutput",
    whole="znnpy.data.writing.nifti_output:write_nifti",
    owns="znnpy.data.flat.nifti:is_nifti",
    ready="znnpy.data.flat.nifti:nibabel",
    has_datasets=False,
)
NRRD = OutputFormat(
    name="nrrd",
    title="NRRD",
    suffixes=(".nrrd",),
    blocks="znnpy.data.writing.nrrd_output:NrrdOutput",
    whole="znnpy.data.writing.nrrd_output:write_nrrd",
    owns="znnpy.data.flat.nrrd:is_nrrd",
    has_datasets=False,
)
METAIMAGE = OutputFormat(
    name="metaimage",
    title="MetaImage",
    suffixes=(".mha",),
    blocks="znnpy.data.writing.metaimage_output:MetaImageOutput",
    whole="znnpy.data.writing.metaimage_output:write_metaimage",
    owns="znnpy.data.flat.metaimage:is_metaimage",
    has_datasets=False,
)
MRC = OutputFormat(
    name="mrc",
    title="MRC",
    suffixes=(".mrc",),
    blocks="znnpy.data.writing.mrc_output:MrcOutput",
    whole="znnpy.data.writing.mrc_output:write_mrc",
    owns="znnpy.data.flat.mrc:is_mrc",
    ready="znnpy.data.flat.mrc:mrcfile",
    has_datasets=False,
    wide=False,
    types=("int8", "int16", "uint16", "float32"),
    channels=1,
)
TIFF = OutputFormat(
    name="tiff",
    title="OME-TIFF",
    suffixes=(".tif", ".tiff"),
    blocks="znnpy.data.writing.tiff_output:TiffOutput",
    whole="znnpy.data.writing.tiff_output:write_tiff",
    owns="znnpy.data.tiff.ome:is_tiff",
    has_datasets=False,
    wide=False,
)
PNG = OutputFormat(
    name="png",
    title="PNG",
    suffixes=(".png",),
    blocks="znnpy.data.writing.png_output:PngOutput",
    whole="znnpy.data.writing.png_output:write_png",
    owns="znnpy.data.writing.png_output:is_png",
    has_datasets=False,
    wide=False,
    types=("uint8", "uint16"),
    channels=1,
)
OUTPUTS = Registry[OutputFormat](
    "format", (HDF5, ZARR, N5, PRECOMPUTED, NIFTI, NRRD, METAIMAGE, MRC, TIFF, PNG)
)


def by_suffix(path: Path) -> OutputFormat | None:
    """Return the format of an output of this name; None where no format has its suffix."""
    name = path.name.lower()
    return next((it for it in OUTPUTS.values() if name.endswith(it.suffixes)), None)


def kept_suffix(suffix: str, dtype: str, channels: int, usual: str = HDF5.suffixes[0]) -> str:
    """Return the suffix of an input where so many channels of a type can be written so, else the usual one."""
    found = by_suffix(Path(f"a{suffix}"))
    return suffix if found is not None and found.holds(dtype, channels) else usual


def output_format(path: Path) -> OutputFormat:
    """Return the format of an output of this name: HDF5 without a suffix; others are refused before."""
    return by_suffix(path) or HDF5
