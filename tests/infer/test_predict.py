import numpy as np
import pytest

from znnpy.config import config_from
from znnpy.data.scene import Scene
from znnpy.data.volume import ArrayVolume
from znnpy.errors import VolumeError
from znnpy.infer.build import prediction_of
from znnpy.infer.predict import predict_to_file
from znnpy.network import build_network, initial_parameters

LAYERS = [
    {"conv": {"images": 5, "size": [1, 3, 2], "function": "relu"}},
    {"max_filter": [1, 2, 2]},
    {"conv": {"images": 2, "size": [3, 2, 3]}},
]


def setup(border="valid", conv="direct", layers=None):
    config = config_from(
        {
            "network": {"layers": layers or LAYERS},
            "data": {"border": border},
            "training": {"output_shape": 4, "conv": conv},
            "run": {"threads": 2},
        }
    )
    network = build_network(config.network)
    rng = np.random.default_rng(0)
    volume = ArrayVolume(rng.integers(0, 255, (9, 17, 19)).astype(np.uint8), "raw")
    return config, network, initial_parameters(network, 1), Scene({"input": volume}, {})


def whole(parts, block=None):
    config, network, parameters, scene = parts
    with prediction_of(config, network, None, parameters, scene, block) as prediction:
        return prediction.whole()["output"]


@pytest.mark.parametrize("border", ["valid", "mirror"])
def test_blocks_equal_one_piece_bit_by_bit(border):
    parts = setup(border)
    one = whole(parts)
    assert one.shape == ((2, 9, 17, 19) if border == "mirror" else (2, 7, 12, 13))
    for block in ((2, 5, 4), (7, 1, 13), (3, 12, 2)):
        assert np.array_equal(whole(parts, block), one)


def test_blocks_equal_one_piece_by_fft():
    parts = setup(conv="fft")
    np.testing.assert_allclose(whole(parts, (3, 5, 6)), whole(parts), rtol=1e-4, atol=1e-5)


def test_strided_network_is_predicted_on_its_grid():
    layers = [*LAYERS[:1], {"max_pool": [1, 2, 2]}, *LAYERS[2:]]
    parts = setup(layers=layers)
    one = whole(parts)
    assert one.shape == (2, 7, 6, 7)
    assert np.array_equal(whole(parts, (3, 2, 4)), one)


def test_file_is_whole_or_absent_and_goes_on(tmp_path):
    config, network, parameters, scene = setup()
    path, calls = tmp_path / "out.h5", []

    def write(stop_after=None, **more):
        def finish(values):
            if len(calls) == stop_after:
                raise KeyboardInterrupt
            calls.append(1)
            return values

        with prediction_of(config, network, None, parameters, scene, (3, 5, 6)) as prediction:
            predict_to_file(prediction, "output", 2, path, "p", finish, key="k", **more)
            return len(prediction.starts)

    with pytest.raises(KeyboardInterrupt):
        write(stop_after=4)
    assert not path.exists()
    blocks = write()
    assert len(calls) == blocks
    assert [entry.name for entry in tmp_path.iterdir()] == ["out.h5"]
    h5py = pytest.importorskip("h5py")
    with h5py.File(path) as file:
        assert np.array_equal(file["p"], whole((config, network, parameters, scene), (3, 5, 6)))
    with pytest.raises(VolumeError, match="exists already"):
        write()
    write(overwrite=True)


def test_missing_folder_is_a_clear_error(tmp_path):
    config, network, parameters, scene = setup()
    with (
        prediction_of(config, network, None, parameters, scene) as prediction,
        pytest.raises(VolumeError, match="no folder"),
    ):
        predict_to_file(prediction, "output", 2, tmp_path / "a" / "b.h5", "p", lambda v: v)
