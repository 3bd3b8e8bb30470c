"""The header of a NIfTI image, versions 1 and 2: its fields as a record of NumPy, where voxels lie, and new ones.

Only fields that are read or written here have names; all others are 0 in new headers.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Matrix = npt.NDArray[np.float64]
Header = npt.NDArray[np.void]
"""A record without axes: `header["dim"]` is a field."""

_FIELDS: dict[int, dict[str, tuple[int, str]]] = {
    348: {
        "sizeof_hdr": (0, "i4"), "dim": (40, "8i2"), "datatype": (70, "i2"),
        "bitpix": (72, "i2"), "pixdim": (76, "8f4"), "vox_offset": (108, "f4"), "scl_slope": (112, "f4"),
        "scl_inter": (116, "f4"), "xyzt_units": (123, "u1"), "descrip": (148, "S80"), "qform_code": (252, "i2"),
        "sform_code": (254, "i2"), "quatern": (256, "3f4"), "qoffset": (268, "3f4"), "srow": (280, "(3,4)f4"),
        "magic": (344, "S4"),
    },
    540: {
        "sizeof_hdr": (0, "i4"), "magic": (4, "S8"), "datatype": (12, "i2"), "bitpix": (14, "i2"),
        "dim": (16, "8i8"), "pixdim": (104, "8f8"), "vox_offset": (168, "i8"), "scl_slope": (176, "f8"),
        "scl_inter": (184, "f8"), "descrip": (240, "S80"), "qform_code": (344, "i4"), "sform_code": (348, "i4"),
        "quatern": (352, "3f8"), "qoffset": (376, "3f8"), "srow": (400, "(3,4)f8"), "xyzt_units": (500, "i4"),
    },
}  # fmt: skip
"""By the bytes of a header, which are the version: where each field begins, and its type."""
MAGIC = {348: b"n+1\0", 540: b"n+2\0\r\n\x1a\n"}
"""What says that voxels follow in the same file; the second would be damaged by a transfer as text."""
FIRST = {348: 352, 540: 544}
"""The byte at which voxels begin where the header does not say: behind four more that say nothing follows."""
LONGEST = (1 << 15) - 1  # voxels along an axis of version 1; longer ones need version 2
MILLIMETRES = 2  # NIfTI's code of the unit
SCANNER = 1  # NIfTI's code of coordinates that a scanner, or microscope, knows
TYPES = {
    2: "u1", 4: "i2", 8: "i4", 16: "f4", 32: "c8", 64: "f8", 256: "i1", 512: "u2", 768: "u4", 1024: "i8",
    1280: "u8", 1792: "c16",
}  # fmt: skip
"""By NIfTI's number, the types of numbers that NumPy has everywhere."""
OTHERS = {
    1: "single bits",
    128: "colours",
    1536: "float128",
    2048: "complex256",
    2304: "colours",
}
"""By NIfTI's number, what else voxels may be."""
ROUNDINGS = 3  # by which the square of a quaternion may be wrong
_LARGER = 1e-5  # by which it may be too large: some programs round more


def _kind(size: int, order: str) -> np.dtype[np.void]:
    fields = _FIELDS[size]
    spans = {
        "names": list(fields),
        "formats": [kind for _, kind in fields.values()],
        "offsets": [at for at, _ in fields.values()],
        "itemsize": size,
    }
    # numpy's stubs know such a dictionary by its class alone, which it does not export.
    return np.dtype(spans).newbyteorder(order)  # type: ignore[call-overload,no-any-return]


def parsed(block: bytes, order: str) -> Header:
    """Return the fields of a header, all of whose bytes are given; `order`: `<` or `>`, as its first number says.

    Nothing is checked. ValueError where bytes are missing.
    """
    (header,) = np.frombuffer(block, _kind(len(block), order))
    return np.asarray(header)


def magic_of(header: Header) -> bytes:
    """Return the four magic bytes."""
    return bytes(header["magic"].tobytes()[:4])


def affine_of(header: Header) -> Matrix | None:
    """Return the matrix (3, 4) from voxels x, y, z to places, in the header's unit; None where it knows none.

    The general one where there is one, else that of a rotation. ValueError for what is no rotation.
    """
    if int(header["sform_code"]) > 0:
        return header["srow"].astype(np.float64)
    if int(header["qform_code"]) <= 0:
        return None
    sizes = header["pixdim"].astype(np.float64)
    if (sizes[1:4] < 0).any():
        raise ValueError("sizes of voxels are below 0")
    # The first of them says whether the third axis is turned over; by the standard, 0 is taken as 1.
    steps = sizes[1:4] * [1, 1, -1 if sizes[0] < 0 else 1]
    tail = header["quatern"]
    turn = _rotation(tail.astype(np.float64), ROUNDINGS * float(np.finfo(tail.dtype).eps))
    return np.column_stack([turn * steps, header["qoffset"].astype(np.float64)])


def _rotation(tail: Matrix, rounding: float) -> Matrix:
    """Return the rotation of a quaternion of length 1, whose last three numbers are given.

    `rounding`: what may be left by it of a first number of 0, squared, which would turn by much more.
    """
    square = float(tail @ tail)
    if abs(1 - square) < rounding:
        tail, square = tail / np.sqrt(square), 1.0
    if square > 1 + _LARGER:
        raise ValueError(f"the quaternion of its place has a square of {square:g}, above 1")
    a, (b, c, d) = np.sqrt(max(0.0, 1 - square)), tail / max(1.0, np.sqrt(square))
    return np.array(
        [
            [a * a + b * b - c * c - d * d, 2 * (b * c - a * d), 2 * (b * d + a * c)],
            [2 * (b * c + a * d), a * a + c * c - b * b - d * d, 2 * (c * d - a * b)],
            [2 * (b * d - a * c), 2 * (c * d + a * b), a * a + d * d - b * b - c * c],
        ]
    )


def _quaternion(turn: Matrix) -> Matrix:
    """Return the quaternion (4), its first number not below 0, of a rotation."""
    (xx, xy, xz), (yx, yy, yz), (zx, zy, zz) = turn
    # Four times the products of its numbers with each other: rows are the quaternion, each times one of its numbers.
    products = np.array(
        [
            [1 + xx + yy + zz, zy - yz, xz - zx, yx - xy],
            [zy - yz, 1 + xx - yy - zz, xy + yx, xz + zx],
            [xz - zx, xy + yx, 1 - xx + yy - zz, yz + zy],
            [yx - xy, xz + zx, yz + zy, 1 - xx - yy + zz],
        ]
    )
    # The largest of the four: rounding matters least in what is divided by it.
    row = int(products.diagonal().argmax())
    found = products[row] / (2 * np.sqrt(products[row, row]))
    return np.asarray(found if found[0] >= 0 else -found)


def new_header(shape: tuple[int, ...], dtype: np.dtype[Any], affine: Matrix) -> Header:
    """Return the header of a new image, little-endian.

    `shape`: voxels along x, y, z, and of channels. `affine` (3, 4): from voxels x, y, z to places in millimetres,
    also written as the rotation that is nearest to it. KeyError for types that NIfTI has not.
    """
    numbers = {np.dtype(kind): number for number, kind in TYPES.items()}
    size = 348 if max(shape) <= LONGEST else 540
    header = np.zeros((), _kind(size, "<"))
    header["sizeof_hdr"], header["magic"], header["vox_offset"] = size, MAGIC[size], FIRST[size]
    header["datatype"] = numbers[dtype.newbyteorder("=")]
    header["bitpix"] = 8 * dtype.itemsize
    header["dim"] = [len(shape), *shape, *[1] * (7 - len(shape))]
    header["xyzt_units"], header["scl_slope"], header["descrip"] = MILLIMETRES, 1, b"znnpy"
    header["sform_code"] = header["qform_code"] = SCANNER
    header["srow"], header["qoffset"] = affine, affine[:, 3]
    sizes = np.linalg.norm(affine[:, :3], axis=0)
    directions = affine[:, :3] / sizes
    over = -1 if np.linalg.det(directions) < 0 else 1
    left, _, right = np.linalg.svd(directions * [1, 1, over])
    header["quatern"] = _quaternion(left @ right)[1:]
    header["pixdim"] = [over, *sizes, 1, 1, 1, 1]
    return header
