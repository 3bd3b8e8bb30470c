"""What lies beyond an image is NumPy's padding, and gradients go back where it came from."""

import numpy as np
import pytest

from znnpy.layers.types import Numbers
from znnpy.layers.windows import MODES, folded, framed, sides

PADDING = ((2, 1), (0, 3), (1, 0))


@pytest.mark.parametrize("border", MODES)
def test_folding_is_the_adjoint_of_framing(border):
    rng = np.random.default_rng(0)
    image = rng.standard_normal((2, 3, 4, 5, 3))
    wide = framed(image, PADDING, border)
    np.testing.assert_array_equal(wide, np.pad(image, ((0, 0), (0, 0), *PADDING), MODES[border]))
    gradient = rng.standard_normal(wide.shape)
    back = folded(gradient, PADDING, border)
    assert back.shape == image.shape
    np.testing.assert_allclose(np.vdot(back, image), np.vdot(gradient, wide), rtol=1e-12)


def test_same_keeps_the_size_with_half_before():
    edge = Numbers(size=(1, 3, 4), padding="same")
    assert sides(edge, (1, 2, 1)) == ((0, 0), (2, 2), (1, 2))
