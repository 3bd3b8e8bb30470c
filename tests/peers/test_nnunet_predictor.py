"""nnU-Net's own predictor with its network replaced: logits and labels are those of PyTorch's network."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from nnunet_plans import Recipe
from scipy.ndimage import gaussian_filter

torch = pytest.importorskip("torch")
inference = pytest.importorskip("nnunetv2.inference.predict_from_raw_data")

from nnunet_folder import written  # noqa: E402

from znnpy.backends.nnunet import replace_network  # noqa: E402
from znnpy.errors import ArgumentError, ModelFileError  # noqa: E402

RECIPES = {
    "two folds": Recipe(folds=(0, 1), mirrored=(0,)),
    "residual": Recipe(residual=True, mirrored=None),
    "flat": Recipe(patch=(24, 32), spacing=(1.0, 1.0), mirrored=(1,)),
    "without an architecture": Recipe(old=True, widths=(4, 8, 16), mirrored=None),
}


def predictor_of(recipe: Recipe, folder: Path) -> Any:
    predictor = inference.nnUNetPredictor(device=torch.device("cpu"), allow_tqdm=False)
    predictor.initialize_from_trained_model_folder(str(written(recipe, folder)), None)
    return predictor


@pytest.mark.quick(2)
@pytest.mark.parametrize("name", RECIPES)
def test_logits_and_labels_are_those_of_pytorch(name: str, tmp_path: Path) -> None:
    predictor = predictor_of(RECIPES[name], tmp_path)
    rng = np.random.default_rng(0)
    raw = gaussian_filter(rng.standard_normal((1, 20, 41, 37)), (0, 1, 2, 2)).astype(np.float32)
    given = {"spacing": [1.0, 1.0, 1.0]}
    data = torch.from_numpy(raw / raw.std())
    wanted = predictor.predict_logits_from_preprocessed_data(data).to(torch.float32)
    labels = predictor.predict_single_npy_array(raw, dict(given))
    theirs = predictor.network
    replace_network(predictor, threads=1)
    assert predictor.network is not theirs
    with predictor.network as network:
        found = predictor.predict_logits_from_preprocessed_data(data).to(torch.float32)
        ours = predictor.predict_single_npy_array(raw, dict(given))
        assert predictor.network is network
    # Both are added up in float16.
    assert wanted.std() > 0.3
    torch.testing.assert_close(found, wanted, atol=0.02, rtol=0.01)
    assert (ours != labels).mean() < 2e-3
    window = torch.randn((1, 1, *RECIPES[name].patch), generator=torch.Generator().manual_seed(1))
    replace_network(predictor, threads=1)
    with torch.no_grad(), predictor.network as network:
        for state in predictor.list_of_parameters:
            theirs.load_state_dict(state)
            network.load_state_dict(state)
            torch.testing.assert_close(network(window), theirs(window), atol=1e-4, rtol=1e-4)


def test_what_cannot_be_replaced_is_refused_and_stays(tmp_path: Path) -> None:
    empty = inference.nnUNetPredictor(device=torch.device("cpu"), allow_tqdm=False)
    with pytest.raises(ArgumentError, match="initialize_from_trained_model_folder"):
        replace_network(empty)
    predictor = predictor_of(Recipe(mirrored=None), tmp_path)
    theirs = predictor.network
    predictor.list_of_parameters[0]["encoder.more.weight"] = torch.zeros(3)
    with pytest.raises(ModelFileError, match=r"the predictor: encoder\.more\.weight"):
        replace_network(predictor)
    del predictor.list_of_parameters[0]["encoder.more.weight"]
    keys = predictor.configuration_manager.configuration["architecture"]["arch_kwargs"]
    keys["dropout_op"] = "torch.nn.Dropout3d"
    with pytest.raises(ModelFileError, match=r"the predictor's plans.*dropout_op"):
        replace_network(predictor)
    assert predictor.network is theirs
