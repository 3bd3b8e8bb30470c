"""nnU-Net's model folders as runs: what the config says, where weights go, and what is refused by name."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from nnunet_model import folder_of, weights
from nnunet_plans import Recipe

from znnpy.config import load_config
from znnpy.errors import ModelFileError, RunError
from znnpy.interop.run import write_run
from znnpy.interop.source import is_model, read_model
from znnpy.network import parameter_shapes, trained_network
from znnpy.train import checkpoint
from znnpy.train.members import members_of
from znnpy.train.progress import Quiet
from znnpy.train.start import read_run

PLAIN = Recipe(folds=(0, 3))


def test_a_run_says_what_the_plans_say(tmp_path: Path) -> None:
    model = read_model(folder_of(PLAIN, tmp_path / "m"))
    assert model.title == "nnU-Net small, PlainConvUNet, fold_0, fold_3"
    write_run(model, tmp_path / "run")
    config = load_config(tmp_path / "run" / "config.yaml")
    unet = config.network.unet
    assert unet is not None
    assert [width for (width,) in unet.widths] == [8, 12, 16]
    assert unet.down == ((1, 2, 2), (2, 2, 2))
    assert unet.up_convs == (2, 1)  # from the finest level, nnU-Net's are from the coarsest
    assert (unet.outputs, unet.supervise) == (3, 1)
    prepare, inference = config.data.prepare, config.inference
    assert prepare is not None
    assert prepare.spacing == (1e6, 1e6, 1e6)
    assert (prepare.resample.order, prepare.restore.order) == (3, 1)
    assert inference.window == config.training.output_shape == (16, 32, 32)
    assert (inference.blend, inference.spread, inference.flips) == (
        "nnunet",
        "even",
        ("z", "y", "x"),
    )
    assert config.training.batch == 3  # inherits all but this
    assert config.training.outputs["output1"].weight == 0


def test_weights_lie_where_the_names_say(tmp_path: Path) -> None:
    write_run(read_model(folder_of(PLAIN, tmp_path / "m")), tmp_path / "run")
    saved = read_run(tmp_path / "run", Quiet())
    first, second = (read() for read in members_of(saved))
    theirs, other = weights(PLAIN, 0), weights(PLAIN, 3)
    for ours, name in (
        ("down1.conv2", "encoder.stages.1.0.convs.1.conv.weight"),
        ("down1.layer2", "encoder.stages.1.0.convs.1.conv.bias"),
        ("down1.layer2.scale", "encoder.stages.1.0.convs.1.norm.weight"),
        ("down1.layer2.shift", "encoder.stages.1.0.convs.1.norm.bias"),
        ("up0.grown", "decoder.transpconvs.1.bias"),
        ("output.conv", "decoder.seg_layers.1.weight"),
        ("output", "decoder.seg_layers.1.bias"),
    ):
        assert np.array_equal(first[ours], theirs[name])
        assert np.array_equal(second[ours], other[name])
    grow = theirs["decoder.transpconvs.1.weight"]
    assert np.array_equal(first["up0.grow"], grow.swapaxes(0, 1))
    # What came up is stacked first there, last here.
    joined = theirs["decoder.stages.1.convs.0.conv.weight"]
    assert np.array_equal(first["up0.conv1"][:, :8], joined[:, 8:])
    assert np.array_equal(first["up0.conv1"][:, 8:], joined[:, :8])
    assert saved.checkpoint.iteration == 0
    whole = saved.checkpoint.parameters
    assert np.array_equal(whole["output1.conv"], theirs["decoder.seg_layers.0.weight"])


@pytest.mark.parametrize("residual", [False, True])
@pytest.mark.parametrize("flat", [False, True])
def test_plans_without_an_architecture_say_the_same(
    tmp_path: Path, residual: bool, flat: bool
) -> None:
    sizes: Any = {"patch": (24, 32), "spacing": (1.0, 2.0), "mirrored": (1,)} if flat else {}
    new = Recipe(widths=(4, 8, 16), residual=residual, **sizes)
    found = [
        read_model(folder_of(replace(new, old=old), tmp_path / f"m{old}")) for old in (False, True)
    ]
    assert found[0].config == found[1].config
    if flat:
        config = found[0].config
        assert config["inference"]["window"] == [1, 24, 32]
        assert config["data"]["prepare"]["spacing"] == [None, 1e6, 2e6]
        assert config["network"]["unet"]["down"] == [[1, 2, 2], [1, 2, 2]]


def test_copies_of_a_parameter_are_one(tmp_path: Path) -> None:
    def copied(state: dict[str, np.ndarray]) -> None:
        for name in [name for name in state if name.startswith("encoder.")]:
            unit, part, what = name.rsplit(".", 2)
            number = {"conv": 0, "norm": 1}[part]
            state[f"{unit}.all_modules.{number}.{what}"] = state[name]
            state[f"decoder.{name}"] = state[name]
        for name in [*state]:
            state[f"module._orig_mod.{name}"] = state.pop(name)

    model = read_model(folder_of(Recipe(), tmp_path / "m", change=copied))
    plain = read_model(folder_of(Recipe(), tmp_path / "plain"))
    found, wanted = (it.members["fold_0"]() for it in (model, plain))
    assert all(np.array_equal(found[name], wanted[name]) for name in wanted)

    def differing(state: dict[str, np.ndarray]) -> None:
        copied(state)
        name = "module._orig_mod.decoder.encoder.stages.0.0.convs.0.conv.bias"
        state[name] = state[name] + 1

    with pytest.raises(ModelFileError, match="differ, and are one parameter"):
        read_model(folder_of(Recipe(), tmp_path / "other", change=differing)).members["fold_0"]()


def test_one_fold_by_its_checkpoint(tmp_path: Path) -> None:
    folder = folder_of(PLAIN, tmp_path / "m")
    best = (folder / "fold_3" / "checkpoint_final.pth").rename(
        folder / "fold_3" / "checkpoint_best.pth"
    )
    assert [*read_model(best).members] == ["fold_3"]
    assert [*read_model(folder).members] == ["fold_0"]
    assert is_model(folder)
    assert not is_model(tmp_path)
    (folder / "fold_0" / "checkpoint_final.pth").rename(folder / "fold_0" / "a.pth")
    assert [*read_model(folder).members] == ["fold_3"]
    best.unlink()
    with pytest.raises(ModelFileError, match="has no fold_"):
        read_model(folder)
    with pytest.raises(
        ModelFileError, match=r"no model that can be taken over; did you mean .*m\?"
    ):
        read_model(tmp_path)
    with pytest.raises(ModelFileError, match="does not exist"):
        read_model(tmp_path / "none")


def small(**keys: Any) -> Callable[[dict[str, Any]], None]:
    return lambda plans: plans["configurations"]["base"].update(keys)


def net(**keys: Any) -> Callable[[dict[str, Any]], None]:
    def change(plans: dict[str, Any]) -> None:
        architecture = plans["configurations"]["base"]["architecture"]
        name = keys.pop("network_class_name", architecture["network_class_name"])
        architecture["network_class_name"] = name
        architecture["arch_kwargs"].update(keys)

    return change


PLANS = {
    "cascade": (small(previous_stage="3d_lowres"), "second net of a cascade"),
    "preprocessor": (small(preprocessor_name="Own"), "preprocessor_name must be DefaultPreprocessor"),
    "resampling": (small(resampling_fn_data="resample_torch"), "resampling_fn_data must be"),
    "splines back": (small(resampling_fn_probabilities_kwargs={"order": 3}), "order must be 0 to 1"),
    "axes back": (lambda plans: plans.update(transpose_backward=[1, 0, 2]), "must undo transpose_forward"),
    "reader": (lambda plans: plans.update(image_reader_writer="Tiff3DIO"), "must be one of SimpleITKIO"),
    "label manager": (lambda plans: plans.update(label_manager="Own"), "label_manager must be"),
    "scheme": (small(normalization_schemes=["Own"]), "'Own' is not supported; known are ZScore"),
    "schemes": (small(normalization_schemes=["ZScoreNormalization"] * 2), "one for each of 1 channels"),
    "patch": (small(patch_size=[8]), "two or three sizes"),
    "loop": (small(inherits_from="small"), "inherits from itself"),
    "no configuration": (lambda plans: plans.update(configurations={}), "configurations: small must be"),
    "class": (net(network_class_name="monai.SwinUNETR"), "must be PlainConvUNet or ResidualEncoderUNet"),
    "attribute": (net(squeeze_excitation=True), "squeeze_excitation: true is not supported"),
    "dropout": (net(dropout_op="torch.nn.Dropout3d"), "dropout_op is not supported"),
    "norm": (net(norm_op="torch.nn.GroupNorm"), "norm_op must be InstanceNorm or BatchNorm"),
    "function": (net(nonlin="torch.nn.Mish"), "nonlin must be one of LeakyReLU"),
    "first stride": (net(strides=[[2, 2, 2]] * 3), "strides must begin with 1"),
    "stages": (net(kernel_sizes=[[3, 3, 3]]), "kernel_sizes must hold 3 sizes"),
    "dimensions": (net(conv_op="torch.nn.modules.conv.Conv1d"), "conv_op must be Conv2d or Conv3d"),
    "flat net": (net(conv_op="Conv2d", kernel_sizes=[3] * 3, strides=[1, 2, 2]), "must have the 2 dimensions"),
    "text": (net(n_stages="3"), "n_stages must be whole numbers above 0; found '3'"),
}  # fmt: skip


@pytest.mark.parametrize("name", PLANS)
def test_plans_that_are_refused(name: str, tmp_path: Path) -> None:
    change, words = PLANS[name]
    plans = json.loads(json.dumps(Recipe().plans))
    change(plans)
    with pytest.raises(ModelFileError, match=words) as error:
        read_model(folder_of(Recipe(), tmp_path / "m", plans=plans))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("dataset", "words"),
    [
        ({"labels": {"a": 1}}, "background must be 0"),
        ({"labels": {"background": 0, "a": 2}}, "must number the labels 0, 1, 2"),
        ({"labels": {"background": 0, "a": 1, "ignore": [2]}}, "ignore must be a label"),
        ({"labels": {"background": 0, "a": "1"}}, "a must be a label, or a list"),
        ({"labels": {"background": 0, "a": [1, 2]}, "regions_class_order": [1, 2]}, "must name 1 labels"),
        ({"channel_names": None}, "channel_names must be an object"),
    ],
)  # fmt: skip
def test_datasets_that_are_refused(dataset: dict[str, Any], words: str, tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match=words):
        read_model(folder_of(Recipe(), tmp_path / "m", dataset=Recipe().dataset | dataset))


def _without(name: str) -> Callable[[dict[str, np.ndarray]], Any]:
    return lambda state: state.pop(name)


BIAS = "decoder.transpconvs.0.bias"
WEIGHTS: dict[str, tuple[Callable[[dict[str, np.ndarray]], Any], str]] = {
    "missing": (_without(BIAS), f"{BIAS}: missing"),
    "unknown": (lambda state: state.update(other=np.ones(3, "<f4")), "other: which its plans"),
    "shape": (lambda state: state.update({BIAS: np.ones(3, "<f4")}), r"shape \(3,\), and \(12,\)"),
    "integers": (lambda state: state.update({BIAS: np.ones(12, "<i8")}), "int64, no floating"),
    "infinite": (lambda state: state[BIAS].fill(np.inf), "not finite"),
}


@pytest.mark.parametrize("name", WEIGHTS)
def test_weights_that_are_refused_leave_nothing(name: str, tmp_path: Path) -> None:
    change, words = WEIGHTS[name]
    model = read_model(folder_of(Recipe(), tmp_path / "m", change=change))
    with pytest.raises(ModelFileError, match=words):
        write_run(model, tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("before", [False, True])
@pytest.mark.parametrize("failure", [RunError("the disk is full"), KeyboardInterrupt()])
def test_a_run_that_ends_between_its_members_is_none(
    failure: BaseException, before: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would predict by the members that it has, without a word; the one before stays; the same command goes on."""
    model, run = read_model(folder_of(PLAIN, tmp_path / "m")), tmp_path / "run"
    if before:
        write_run(read_model(folder_of(Recipe(), tmp_path / "alone")), run)
    save, old = checkpoint.save, {path: path.read_bytes() for path in run.rglob("*.[jny]*")}

    def failing(directory: Path, *rest: Any) -> Path:
        if "members" in directory.parts:
            raise failure
        return save(directory, *rest)

    with monkeypatch.context() as patched:
        patched.setattr(checkpoint, "save", failing)
        with pytest.raises(type(failure)):
            write_run(model, run, overwrite=before)
    assert {path: path.read_bytes() for path in run.rglob("*.[jny]*")} == old
    assert not before or len(members_of(read_run(run, Quiet()))) == 1
    assert run.exists() == before
    write_run(model, run, overwrite=before)
    assert len(members_of(read_run(run, Quiet()))) == 2
    assert sorted(path.name for path in run.glob(".*")) == []


def test_checkpoints_that_are_none(tmp_path: Path) -> None:
    for number, (beside, words) in enumerate((
        ({"network_weights": 3}, "no network_weights"),
        ({"init_args": {}}, "does not say its configuration"),
        ({"inference_allowed_mirroring_axes": (3,)}, "mirrors along axes"),
    )):  # fmt: skip
        with pytest.raises(ModelFileError, match=words):
            read_model(folder_of(Recipe(), tmp_path / str(number), **beside))


def test_a_run_that_is_there_stays(tmp_path: Path) -> None:
    model = read_model(folder_of(PLAIN, tmp_path / "m"))
    write_run(model, tmp_path / "run")
    with pytest.raises(ModelFileError, match="holds a run already"):
        write_run(model, tmp_path / "run")
    alone = read_model(folder_of(Recipe(), tmp_path / "alone"))
    write_run(alone, tmp_path / "run", overwrite=True)
    assert len(members_of(read_run(tmp_path / "run", Quiet()))) == 1
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "a.txt").touch()
    with pytest.raises(RunError, match="other files"):
        write_run(model, tmp_path / "other")


def test_regions_and_a_label_that_does_not_count(tmp_path: Path) -> None:
    regions = Recipe(labels={"background": 0, "all": [1, 2], "core": [2]}, regions=(7, 9))
    config = read_model(folder_of(regions, tmp_path / "regions")).config
    assert config["inference"]["regions"] == [7, 9]
    assert config["training"]["loss"]["kind"] == "bce_dice"
    ignoring = Recipe(labels={"background": 0, "a": 1, "b": 2, "ignore": 3})
    dataset = ignoring.dataset
    ignoring = replace(ignoring, labels={"background": 0, "a": 1, "b": 2})
    config = read_model(folder_of(ignoring, tmp_path / "ignoring", dataset=dataset)).config
    assert config["data"]["target"] == {"kind": "labels", "ignore": 3}


def test_batch_norms_have_running_statistics(tmp_path: Path) -> None:
    plans = json.loads(json.dumps(Recipe().plans))
    net(norm_op="torch.nn.BatchNorm3d", norm_op_kwargs={"eps": 1e-3})(plans)

    def change(state: dict[str, np.ndarray]) -> None:
        for name in [name for name in state if name.endswith("norm.weight")]:
            for part in ("running_mean", "running_var"):
                state[name.replace("weight", part)] = np.abs(state[name])
            state[name.replace("weight", "num_batches_tracked")] = np.array(7)

    model = read_model(folder_of(Recipe(), tmp_path / "m", plans=plans, change=change))
    config = write_run(model, tmp_path / "run")
    found = model.members["fold_0"]()
    assert set(found) == set(parameter_shapes(trained_network(config)))
    assert found["down0.layer1.running_variance"].min() >= 0
