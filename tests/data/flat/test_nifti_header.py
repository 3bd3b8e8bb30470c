"""Headers of NIfTI images: what nibabel writes is understood as nibabel understands it, and the other way round."""

from __future__ import annotations

from typing import Any

import nibabel
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from znnpy.data.flat.nifti_header import LONGEST, TYPES, affine_of, magic_of, new_header, parsed

HEADERS = {348: nibabel.Nifti1Header, 540: nibabel.Nifti2Header}
numbers = st.floats(-1, 1, width=16)


@st.composite
def affines(draw: Any) -> Any:
    """A matrix (4, 4) of a rotation, sizes and a place, turned over and sheared or not."""
    a, b, c, d = draw(st.tuples(*[numbers] * 4).filter(lambda q: sum(v * v for v in q) > 0.1))
    turn = nibabel.quaternions.quat2mat((a, b, c, d))
    sizes = draw(st.tuples(*[st.floats(0.01, 100)] * 3))
    shear = np.eye(3)
    shear[0, 1] = draw(st.sampled_from([0.0, 0.2]))
    found = np.eye(4)
    found[:3, :3] = turn @ shear * sizes * [1, 1, draw(st.sampled_from([1, -1]))]
    found[:3, 3] = draw(st.tuples(*[st.floats(-1000, 1000)] * 3))
    return found


@given(affine=affines(), size=st.sampled_from([348, 540]), order=st.sampled_from("<>"))
def test_what_nibabel_says(affine: Any, size: int, order: str) -> None:
    theirs = HEADERS[size](endianness=order)
    theirs.set_data_shape((3, 4, 5))
    theirs.set_qform(affine, 1, strip_shears=True)
    for code in (0, 2):  # the rotation alone, then a matrix that is taken before it
        theirs.set_sform(affine @ np.diag([1, 2, 3, 1]), code)
        header = parsed(theirs.binaryblock, order)
        found = affine_of(header)
        assert found is not None
        np.testing.assert_allclose(found, theirs.get_best_affine()[:3], rtol=1e-5, atol=1e-4)
        assert magic_of(header)[:2] == b"n+"
        assert header["dim"].tolist() == theirs["dim"].tolist()


@given(
    affine=affines(),
    shape=st.tuples(*[st.integers(1, 300)] * 3) | st.just((LONGEST + 1, 2, 1)),
    channels=st.sampled_from([(), (2,)]),
    dtype=st.sampled_from([np.dtype(kind) for kind in TYPES.values()]),
)
def test_what_nibabel_is_told(affine: Any, shape: Any, channels: Any, dtype: Any) -> None:
    ours = new_header(shape + channels, dtype, affine[:3])
    theirs = HEADERS[ours.nbytes](ours.tobytes())  # which it checks
    assert ours.nbytes == (348 if max(shape) <= LONGEST else 540)
    assert theirs.get_data_shape() == shape + channels
    assert theirs.get_data_dtype() == dtype
    assert theirs.get_slope_inter() == (1, 0)
    assert theirs.get_xyzt_units()[0] == "mm"
    np.testing.assert_allclose(theirs.get_sform(), affine, rtol=1e-5, atol=1e-4)
    wanted = HEADERS[ours.nbytes]()
    wanted.set_qform(affine, 1, strip_shears=True)
    np.testing.assert_allclose(theirs.get_qform(), wanted.get_qform(), rtol=1e-4, atol=1e-3)
    np.testing.assert_allclose(theirs.get_zooms()[:3], wanted["pixdim"][1:4], rtol=1e-5)


def test_what_is_no_place() -> None:
    header = new_header((3, 4, 5), np.dtype("u1"), np.eye(4)[:3])
    header["sform_code"] = 0
    header["pixdim"][0] = 0  # taken as 1
    np.testing.assert_array_equal(affine_of(header), np.eye(4)[:3])
    header["quatern"] = [0.8, 0.8, 0]
    with pytest.raises(ValueError, match=r"square of 1\.28, above 1"):
        affine_of(header)
    header["pixdim"][2] = -1
    with pytest.raises(ValueError, match="below 0"):
        affine_of(header)
    header["qform_code"] = 0
    assert affine_of(header) is None
    with pytest.raises(KeyError):
        new_header((3, 4, 5), np.dtype("f2"), np.eye(4)[:3])
