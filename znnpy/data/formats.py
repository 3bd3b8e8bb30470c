"""The registry of formats that are read, how each is recognised and opened; and formats that are refused by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from znnpy.data.chunked.n5 import MARK as N5_MARK
from znnpy.data.chunked.n5 import N5Volume, is_n5
from znnpy.data.chunked.precomputed import INFO, PrecomputedVolume, is_precomputed
from znnpy.data.flat.metaimage import SUFFIXES as METAIMAGE
from znnpy.data.flat.metaimage import is_metaimage, open_metaimage
from znnpy.data.flat.mrc import SUFFIXES as MRC
from znnpy.data.flat.mrc import is_mrc, open_mrc
from znnpy.data.flat.nifti import SUFFIXES as NIFTI
from znnpy.data.flat.nifti import is_nifti, open_nifti
from znnpy.data.flat.npy import MAGIC as NPY
from znnpy.data.flat.npy import open_npy
from znnpy.data.flat.nrrd import MAGIC as NRRD_MAGIC
from znnpy.data.flat.nrrd import SUFFIXES as NRRD
from znnpy.data.flat.nrrd import open_nrrd
from znnpy.data.hdf5.signature import is_hdf5
from znnpy.data.pictures.decoding import JPEG, PNG, SUFFIXES
from znnpy.data.pictures.volume import PictureFolder, open_picture, pictures_of
from znnpy.data.safety_limits import Trust
from znnpy.data.samples.cifar import SUFFIX as CIFAR
from znnpy.data.samples.cifar import open_cifar
from znnpy.data.samples.idx import GZIP, is_idx, open_idx
from znnpy.data.samples.npz import ZIP, open_npz
from znnpy.data.tiff.folder import TiffFolder, planes_of
from znnpy.data.volume import Volume
from znnpy.data.zarr.store import MARKS, is_zarr
from znnpy.registry import Registry

_TIFF = (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")


@dataclass(frozen=True)
class Asked:
    """A request to open a volume.

    `dataset`: by its name, else the first of the `usual` names that exists. `trust`: what the file is allowed.
    """

    path: Path
    dataset: str | None
    usual: tuple[str, ...]
    labels: bool
    trust: Trust


@dataclass(frozen=True, kw_only=True)
class Format:
    """One format of files, or of folders.

    `title`: its name in errors, "" if they do not list it. `knows(path, head)`: whether a file whose first 8 bytes
    are `head`, or a folder (`head` is empty), is one; formats are asked in their order. `opened(asked)`: returns the
    volume, which reads by region and refuses what an untrusted file may not do. `alone`: for errors, the name of a
    file of a format without datasets, "" where it may have some. `suffixes` of its names, in lower case. `marks`:
    files of metadata by which a folder is known that is read over the network; of formats without them none is.
    """

    name: str
    title: str
    knows: Callable[[Path, bytes], bool]
    opened: Callable[[Asked], Volume]
    folder: bool = False
    alone: str = ""
    suffixes: tuple[str, ...] = ()
    marks: tuple[str, ...] = ()


def _hdf5(asked: Asked) -> Volume:
    # These libraries take a tenth of a second and megabytes: only who reads such files imports them.
    from znnpy.data.hdf5.volume import Hdf5Volume

    return Hdf5Volume(asked.path, asked.dataset, asked.usual, asked.trust, labels=asked.labels)


def _tiff(asked: Asked) -> Volume:
    from znnpy.data.tiff.volume import TiffVolume

    trust = asked.trust
    return TiffVolume(asked.path, allow_external=trust.external, max_bytes=trust.max_bytes)


def _planes(asked: Asked) -> Volume:
    path, trust = asked.path, asked.trust
    planes = planes_of(path)
    return TiffFolder(path, planes, trust)


def _picture(asked: Asked) -> Volume:
    return open_picture(asked.path, asked.trust, labels=asked.labels)


def _pictures(asked: Asked) -> Volume:
    path = asked.path
    return PictureFolder(path, pictures_of(path), asked.trust, labels=asked.labels)


def _zarr(asked: Asked) -> Volume:
    # Takes a third of a second to import, so only those who read Zarr wait for it.
    from znnpy.data.zarr.volume import ZarrVolume

    return ZarrVolume(asked.path, asked.dataset, asked.usual, asked.labels, asked.trust)


def _idx(asked: Asked) -> Volume:
    return open_idx(asked.path, labels=asked.labels, trust=asked.trust)


def _npz(asked: Asked) -> Volume:
    return open_npz(asked.path, asked.dataset, asked.usual, labels=asked.labels, trust=asked.trust)


def _cifar(asked: Asked) -> Volume:
    return open_cifar(asked.path, asked.dataset, labels=asked.labels, trust=asked.trust)


def _is_cifar(path: Path, head: bytes) -> bool:
    return path.suffix.lower() == CIFAR and bool(head)


FORMATS = Registry[Format](
    "format",
    (
        Format(
            name="hdf5",
            title="HDF5",
            knows=lambda path, head: bool(head) and is_hdf5(path),
            opened=_hdf5,
            suffixes=(".h5", ".hdf5", ".hdf"),
        ),
        Format(
            name="tiff",
            title="TIFF",
            knows=lambda path, head: head[:4] in _TIFF,
            opened=_tiff,
            alone="a TIFF file",
            suffixes=(".tif", ".tiff"),
        ),
        Format(
            name="nifti",
            title="NIfTI",
            knows=lambda path, head: is_nifti(path) and bool(head),
            opened=lambda asked: open_nifti(asked.path, asked.trust),
            alone="a NIfTI image",
            suffixes=NIFTI,
        ),
        Format(
            name="nrrd",
            title="NRRD",
            knows=lambda path, head: (
                head.startswith(NRRD_MAGIC) or (path.suffix.lower() in NRRD and bool(head))
            ),
            opened=lambda asked: open_nrrd(asked.path, asked.trust),
            alone="an NRRD image",
            suffixes=NRRD,
        ),
        Format(
            name="metaimage",
            title="MetaImage",
            knows=lambda path, head: is_metaimage(path) and bool(head),
            opened=lambda asked: open_metaimage(asked.path, asked.trust),
            alone="a MetaImage",
            suffixes=METAIMAGE,
        ),
        Format(
            name="mrc",
            title="MRC",
            knows=lambda path, head: is_mrc(path) and bool(head),
            opened=lambda asked: open_mrc(asked.path, asked.trust),
            alone="an MRC image",
            suffixes=MRC,
        ),
        Format(
            name="npy",
            title="npy",
            knows=lambda path, head: head.startswith(NPY),
            opened=lambda asked: open_npy(asked.path, asked.trust, labels=asked.labels),
            alone="a file of one array",
            suffixes=(".npy",),
        ),
        Format(
            name="png",
            title="PNG",
            knows=lambda path, head: head == PNG,
            opened=_picture,
            alone="a picture",
            suffixes=SUFFIXES["PNG"],
        ),
        Format(
            name="jpeg",
            title="JPEG",
            knows=lambda path, head: head.startswith(JPEG),
            opened=_picture,
            alone="a picture",
            suffixes=SUFFIXES["JPEG"],
        ),
        Format(
            name="idx",
            title="idx",
            knows=lambda path, head: is_idx(head) and not _is_cifar(path, head),
            opened=_idx,
            alone="an idx file",
        ),
        Format(
            name="gzip",
            title="",
            knows=lambda path, head: (
                head[:2] == GZIP and not other_format(path) and not _is_cifar(path, head)
            ),
            opened=_idx,
            alone="compressed by gzip, which only idx files may be (unpack others),",
            suffixes=(".gz",),
        ),
        Format(
            name="npz",
            title="npz",
            knows=lambda path, head: head[:4] == ZIP,
            opened=_npz,
            suffixes=(".npz",),
        ),
        Format(
            name="cifar", title="CIFAR (.bin)", knows=_is_cifar, opened=_cifar, suffixes=(CIFAR,)
        ),
        Format(
            name="zarr",
            title="Zarr",
            knows=lambda path, head: is_zarr(path) or path.suffix.lower() == ".zarr",
            opened=_zarr,
            folder=True,
            suffixes=(".zarr",),
            marks=MARKS,
        ),
        Format(
            name="planes",
            title="",
            knows=lambda path, head: bool(planes_of(path)),
            opened=_planes,
            folder=True,
            alone="a folder of TIFF files",
        ),
        Format(
            name="pictures",
            title="",
            knows=lambda path, head: bool(pictures_of(path)),
            opened=_pictures,
            folder=True,
            alone="a folder of pictures",
        ),
        Format(
            name="n5",
            title="N5",
            knows=lambda path, head: is_n5(path),
            opened=lambda asked: N5Volume(asked.path, asked.dataset, asked.usual, asked.trust),
            folder=True,
            suffixes=(".n5",),
            marks=(N5_MARK,),
        ),
        Format(
            name="precomputed",
            title="Neuroglancer precomputed",
            knows=lambda path, head: is_precomputed(path),
            opened=lambda asked: PrecomputedVolume(asked.path, asked.dataset, asked.trust),
            folder=True,
            marks=(INFO,),
        ),
    ),
)


_FIJI = "open it in Fiji and save it as TIFF"
_ITK = "SimpleITK.GetArrayFromImage(SimpleITK.ReadImage({file!r}))"
_PAIR = "nibabel.load({file!r}).get_fdata().T"
_PYTHON = {
    ".hdr": ("the header of an Analyze image or of a pair of NIfTI files", _PAIR),
    ".img": ("half of an Analyze image or of a pair of NIfTI files", _PAIR),
    ".mat": ("a file of MATLAB", "scipy.io.loadmat({file!r})['NAME']"),
    ".dcm": ("a DICOM image", _ITK),
    ".raw": ("raw bytes without a shape", "numpy.fromfile({file!r}, TYPE).reshape(Z, Y, X)"),
}
"""By suffix: the format, and the Python expression that gives its array (z, y, x)."""
_MICROSCOPES = (".czi", ".nd2", ".lif", ".lsm", ".oib", ".oif", ".dm3", ".dm4", ".vsi")
_PICTURES = (".bmp", ".gif", ".jp2", ".webp")
_ARCHIVES = (".tar", ".tgz", ".zip", ".7z", ".xz", ".zst", ".bz2")
_KNOWN: Mapping[str, tuple[str, str]] = {
    **{
        suffix: (title, f"convert it, in Python: h5py.File({{h5!r}}, 'w')['raw'] = {code}")
        for suffix, (title, code) in _PYTHON.items()
    },
    **dict.fromkeys(_MICROSCOPES, ("a microscope's own file", _FIJI)),
    **dict.fromkeys(_PICTURES, ("a picture", _FIJI)),
    **dict.fromkeys(_ARCHIVES, ("an archive", "unpack it first")),
}


@dataclass(frozen=True)
class Other:
    """A format that is not read, such as "a NIfTI image", and how to convert a file of it."""

    title: str
    way: str


def other_format(path: Path) -> Other | None:
    """Return the unsupported format that a file's name indicates, or None; for .gz, that of the name without it."""
    name = path.name.lower()
    inner, outer = Path(name.removesuffix(".gz")).suffix, Path(name).suffix
    suffix = next((s for s in (inner, outer) if s in _KNOWN), None)
    if suffix is None:
        return _compressed(path, inner) if outer == ".gz" else None
    title, way = _KNOWN[suffix]
    return Other(title, way.format(file=str(path), h5=f"{plain_stem(path)}.h5"))


def _compressed(path: Path, inner: str) -> Other | None:
    """Return what a file is that gzip packed, though its format is read by region."""
    packed = next((it for it in FORMATS.values() if inner and inner in it.suffixes), None)
    if packed is None or inner == ".gz" or f"{inner}.gz" in packed.suffixes:
        return None
    return Other(f"{packed.title} compressed by gzip", f"unpack it first: gunzip {path}")


def plain_stem(path: Path) -> str:
    """Return a file name without the suffixes of such formats, and without its own."""
    stem, known = path.stem, {*_KNOWN, *NIFTI, *NRRD, *METAIMAGE, *MRC}
    while Path(stem).suffix.lower() in known:
        stem = Path(stem).stem
    return stem
