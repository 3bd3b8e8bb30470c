"""Image formats that are refused by name, with advice how to convert such a file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

_FIJI = "open it in Fiji and save it as TIFF"
_ITK = "SimpleITK.GetArrayFromImage(SimpleITK.ReadImage({file!r}))"
_PYTHON = {
    ".nii": ("a NIfTI image", "nibabel.load({file!r}).get_fdata().T"),
    ".nrrd": ("an NRRD image", "nrrd.read({file!r}, index_order='C')[0]"),
    ".nhdr": ("an NRRD image", "nrrd.read({file!r}, index_order='C')[0]"),
    ".mrc": ("an MRC image", "mrcfile.read({file!r})"),
    ".rec": ("an MRC image", "mrcfile.read({file!r})"),
    ".npy": ("an array of NumPy", "numpy.load({file!r})"),
    ".mat": ("a file of MATLAB", "scipy.io.loadmat({file!r})['NAME']"),
    ".mha": ("a MetaImage", _ITK),
    ".mhd": ("a MetaImage", _ITK),
    ".dcm": ("a DICOM image", _ITK),
    ".n5": ("an N5 folder", "z5py.File({file!r})['NAME'][:]"),
    ".raw": ("raw bytes without a shape", "numpy.fromfile({file!r}, TYPE).reshape(Z, Y, X)"),
}
"""By suffix: the format, and the Python expression that gives its array (z, y, x)."""
_MICROSCOPES = (".czi", ".nd2", ".lif", ".lsm", ".oib", ".oif", ".dm3", ".dm4", ".vsi")
_PICTURES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".jp2", ".webp")
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
        return None
    title, way = _KNOWN[suffix]
    return Other(title, way.format(file=str(path), h5=f"{plain_stem(path)}.h5"))


def plain_stem(path: Path) -> str:
    """Return a file name without the suffixes of such formats, and without its own."""
    stem = path.stem
    while Path(stem).suffix.lower() in _KNOWN:
        stem = Path(stem).stem
    return stem
