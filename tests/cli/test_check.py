"""`znnpy check`: volumes first, measuring only when asked, tables that can be read."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import h5py
import numpy as np
import pytest
from called import status_of

from znnpy.cli import config_summary
from znnpy.config import load_config
from znnpy.engine import autotune, timing
from znnpy.engine.kept import folder, graphs
from znnpy.infer.config_model import training_model
from znnpy.network import trained_network
from znnpy.plan.choose import candidates, estimated_costs
from znnpy.plan.types import SHARED
from znnpy.train.patch_sources import open_sampler

CONFIG = """\
network:
  layers:
    - conv: {channels: 16, size: 3, function: relu}
    - conv: {channels: 16, size: 3, function: relu}
    - conv: {channels: 1, size: 1}
data:
  train:
    - {image: data.h5:raw, labels: data.h5:labels}
    - {image: data.h5:raw, labels: data.h5:labels}
  validation:
    - {image: data.h5:raw, labels: data.h5:labels}
  test:
    - {image: data.h5:raw}
training: {output_shape: 12}
run: {threads: 2}
"""
Check = Callable[..., tuple[int, str, str]]


@pytest.fixture
def check(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Check:
    """Runs the command on a machine without wisdom; `known` is what was measured."""
    rng = np.random.default_rng(0)
    with h5py.File(tmp_path / "data.h5", "w") as file:
        file["raw"] = rng.integers(3, 99, (20, 24, 24)).astype(np.uint8)
        file["labels"] = rng.integers(0, 7, (20, 24, 24)).astype(np.uint32)
        file["floats"] = rng.random((20, 24, 24)).astype(np.float32)
        file["mask"] = rng.integers(0, 2, (20, 24, 24)).astype(np.uint8) * 255
        file["none"] = np.zeros((20, 24, 24), np.uint8)
        file["small"] = np.ones((5, 24, 24), np.uint8)
        file["nan"] = np.full((20, 24, 24), np.nan, np.float32)
    monkeypatch.chdir(tmp_path)
    known: dict[str, dict[str, float]] = {}
    monkeypatch.setattr(autotune, "recall", lambda key, _: known.get(key))
    monkeypatch.setattr(autotune, "remember", lambda key, costs, _: known.setdefault(key, costs))
    monkeypatch.setattr(autotune, "compile_all", lambda *_: None)
    monkeypatch.setattr(
        timing, "timed", lambda shape, methods, *_, **__: estimated_costs(shape, methods)
    )

    def run(*words: str, config: str = CONFIG) -> tuple[int, str, str]:
        Path("config.yaml").write_text(config)
        return status_of("check", "config.yaml", *words), *capsys.readouterr()

    return run


def test_volumes_are_shown(check: Check) -> None:
    code, out, _ = check()
    assert code == 0
    for word in ("train.1.labels", "data.h5:raw", "1x20x24x24", "uint8", "3 to 98", "405"):
        assert word in out
    assert "exact and seamless" in out
    volumes = json.loads(check("--json")[1])["volumes"]
    assert [volume["key"] for volume in volumes] == [
        *(f"data.{place}.{what}" for place in ("train.0", "train.1", "validation.0") for what in ("image", "labels")),
        "data.test.0.image",
    ]  # fmt: skip
    assert volumes[0]["positions"] == 5 * 9 * 9
    assert volumes[-1]["positions"] == 16 * 20 * 20


def test_all_that_is_wrong_with_volumes_is_told_before_anything_is_measured(
    check: Check, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(autotune, "measure_all", lambda *_: pytest.fail("measures"))
    rest = "labels: data.h5:labels}"
    wrong = CONFIG
    for source in ("data.h5:rwa", "data.h5:small", "other.h5", "data.h5:nan"):
        wrong = wrong.replace(f"data.h5:raw, {rest}", f"{source}, {rest} ", 1)
    wrong = wrong.replace("  test:\n    -", "  test:\n    - {image: data.h5:nan}\n    -")
    code, out, errors = check("--measure", config=wrong)
    assert (code, out) == (1, "")
    lines = errors.splitlines()
    assert len(lines) == 4
    assert lines[0].startswith("znnpy: data.train.0.image: ")
    assert "did you mean raw" in lines[0]
    assert "data.train.1: data.h5:" not in lines[1]
    assert "data.train.1: " in lines[1]
    assert "must be equal" in lines[1]
    assert "data.validation.0.image: " in lines[2]
    assert "does not exist" in lines[2]
    assert "data.test.0.image: " in lines[3]
    assert "finite" in lines[3]


@pytest.mark.quick(4)
@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("output_shape: 12", "output_shape: 17", ["no patch fits", "(16, 17, 17)"]),
        ("h5:labels", "h5:floats", ["data.train.0", "data.train.1", "float32", "integer labels"]),
        (
            "labels: data.h5:labels",
            "mask: data.h5:labels",
            ["data.train.0", "labels", "comes without labels"],
        ),
        ("  test:", "  target: labels\n  test:", ["from 0 to", "kind: mask"]),
        ("  test:", "  target: mask\n  test:", []),
        ("{image: data.h5:raw}", "{image: data.h5:small}", []),
        ("h5:labels}", "h5:labels, mask: data.h5:none}", ["data.train.0.mask", "no voxel counts"]),
        ("{image: data.h5:raw}", "{image: data.h5:small, labels: data.h5:raw}", ["data.test.0"]),
    ],
)
def test_whether_volumes_suit_the_run(check: Check, old: str, new: str, words: list[str]) -> None:
    code, _, errors = check(config=CONFIG.replace(old, new))
    assert code == (1 if words else 0), errors
    for word in words:
        assert word in errors


def test_a_target_of_another_number_of_images_is_told_with_its_line(check: Check) -> None:
    config = CONFIG.replace("channels: 1,", "channels: 2,").replace(
        "  test:", "  target: boundary\n  test:"
    )
    code, _, errors = check(config=config)
    assert code == 1
    assert "config.yaml:12: data.target: output 'output' has 2 channel(s), but" in errors


def test_labels_that_are_all_the_same_are_told(check: Check) -> None:
    code, _, errors = check(config=CONFIG.replace("data.h5:labels", "data.h5:none", 1))
    assert code == 0
    assert "data.h5:none: all labels that count are 0: they tell nothing apart" in errors
    assert errors.count("nothing apart") == 1


def test_numbers_of_objects_without_a_0_are_no_mask(check: Check, tmp_path: Path) -> None:
    with h5py.File(tmp_path / "data.h5", "r+") as file:
        file["objects"] = np.where(file["none"][...] == 0, 3, 0)
        file["objects"][0] = 7
        file["some"] = file["objects"][...]
        file["some"][-1] = 0
    masks = CONFIG.replace("  test:", "  target: mask\n  test:")
    code, _, errors = check(config=masks.replace("data.h5:labels", "data.h5:objects", 1))
    assert code == 0
    assert "all labels that count are 3 to 7, none is 0: they tell nothing apart" in errors
    code, _, errors = check(config=masks.replace("data.h5:labels", "data.h5:some", 1))
    assert (code, "nothing apart" in errors) == (0, False)


def test_labels_that_are_all_the_same_or_ignored_are_told(check: Check) -> None:
    two = CONFIG.replace("channels: 1,", "channels: 2,").replace("h5:labels", "h5:mask")
    target = "  target: {kind: labels, ignore: 255}\n  test:"
    loss = two.replace("training: {", "training: {loss: softmax, ")
    code, _, errors = check(config=loss.replace("  test:", target))
    assert code == 0
    assert (
        "data.h5:mask: all labels that count are 0, as data.target ignores 255: they tell" in errors
    )
    assert errors.count("nothing apart") == 1
    assert "nothing apart" not in check(config=loss.replace("  test:", target.replace("5", "4")))[2]


def test_places_of_a_large_volume_tell_nothing_of_the_rest(
    check: Check, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"WHOLE": 1, "LONGEST": 4, "SHALLOWEST": 4}.items():
        monkeypatch.setattr(f"znnpy.data.values.sampled_range.{name}", value)
    aside = np.zeros((20, 24, 24), np.uint8)
    aside[:4, 16:] = 1  # beside the diagonal
    with h5py.File(tmp_path / "data.h5", "a") as file:
        file["aside"] = aside
    code, out, errors = check(config=CONFIG.replace("labels}", "aside, mask: data.h5:aside}", 1))
    assert code == 0, errors
    assert "data.h5:aside" in out
    assert "nothing apart" not in errors


def test_windows_are_of_the_output_that_predicts(check: Check) -> None:
    """Not of the coarser ones, which help to train."""
    network = CONFIG[: CONFIG.index("data:")]
    unet = "network:\n  unet: {widths: [2, 2, 2], supervise: 1}\n"
    code, out, _ = check(config=CONFIG.replace(network, unet))
    assert code == 0
    assert "in windows of 12x12x12, overlap" in out
    assert "output1" in out


def test_windows_of_a_network_that_has_none_are_told(check: Check) -> None:
    code, out, errors = check(config=CONFIG + "inference: {overlap: 0.25}\n")
    assert code == 0
    assert "config.yaml:16: inference: not used: " in " ".join((out + errors).split())
    assert "not used" not in "".join(check(config=CONFIG + "inference: {overlap: 0.5}\n")[1:])


def test_a_config_that_cannot_train_is_said_to(check: Check) -> None:
    """In the words with which training refuses it; what is known of the network is shown."""
    volumes = CONFIG[CONFIG.index("data:") : CONFIG.index("training:")]
    kept = volumes.replace(volumes[volumes.index("  train:") : volumes.index("  validation:")], "")
    for less in ("", kept):
        code, out, _ = check(config=CONFIG.replace(volumes, less))
        assert code == 0
        assert "warning: data.train names no volume; training needs at least one" in out
    assert "needs at least one" not in check()[1]


def test_labels_that_look_drawn_by_hand_are_warned_of(check: Check) -> None:
    with h5py.File("data.h5", "a") as file:
        file["drawn"] = np.zeros((20, 24, 24), np.uint8)
        file["drawn"][10, 4:20, 8], file["drawn"][3, 5, 2:12] = 1, 2
        file["vessels"] = file["drawn"][:] > 0
    config = CONFIG.replace("data.h5:labels", "data.h5:drawn")
    affinity = config.replace("data:", "data:\n  target: affinity").replace(
        "channels: 1,", "channels: 3,"
    )
    classes = config.replace("data:", "data:\n  target: labels").replace(
        "channels: 1,", "channels: 3,"
    )
    classes = classes.replace("output_shape: 12}", "output_shape: 12, loss: softmax}")
    told = ((config, "boundary"), (affinity, "belonging to no object"), (classes, "class 0"))
    for changed, taught in told:
        code, _, errors = check(config=changed)
        assert code == 0
        assert "drawn: 99.8% of the labels are 0 and the others thin or few" in errors
        assert f"all these zeros are taught as {taught}. If" in errors
        assert "`mask:` (not 0)" in errors
    loaded = load_config("config.yaml")
    trained = loaded, trained_network(loaded), loaded.data.train, "data.train"
    with ExitStack() as stack, pytest.warns(UserWarning, match="drawn: 99.8% of the labels are 0"):
        open_sampler(stack, *trained)
    masked = config.replace("data.h5:drawn}", "data.h5:drawn, mask: data.h5:drawn}")
    assert "drawn by hand" not in check(config=masked)[2]
    first = classes.replace("target: labels", "target: {kind: labels, ignore: 0}")
    assert "drawn by hand" not in check(config=first)[2]
    assert "drawn by hand" not in check(config=classes.replace("h5:drawn", "h5:vessels"))[2]
    assert "drawn by hand" not in check()[2]


@pytest.mark.parametrize(("channels", "warned"), [(2, False), (3, True)])
def test_classes_that_no_voxel_has_are_warned_of(check: Check, channels: int, warned: bool) -> None:
    with h5py.File("data.h5", "a") as file:
        file["classes"] = np.random.default_rng(0).integers(0, 3, (20, 24, 24)).astype(np.uint8)
    config = CONFIG.replace("data.h5:labels", "data.h5:classes").replace(
        "data:", "data:\n  target: {kind: labels, first: 1}"
    )
    config = config.replace("channels: 1,", f"channels: {channels},")
    config = config.replace("output_shape: 12}", "output_shape: 12, loss: softmax}")
    assert check(config=config)[0] == 0
    loaded, told = load_config("config.yaml"), list[str]()
    with ExitStack() as stack, pytest.MonkeyPatch.context() as patched:
        patched.setattr("warnings.warn", lambda text, **_: told.append(text))
        open_sampler(stack, loaded, trained_network(loaded), loaded.data.train, "data.train")
    assert len(told) == warned
    for text in told:
        assert "has 3 channels, for classes 1 to 3, but the highest label found is 2" in text
        assert "it needs 2 channels" in text


def test_who_is_refused_for_memory_by_estimates_is_told_so(check: Check) -> None:
    config = CONFIG.replace("threads: 2", "threads: 2, max_memory: 2MiB")
    code, _, errors = check(config=config)
    assert code == 1
    assert "max_memory is 2.0 MiB" in errors
    assert "Algorithms are estimated here" in errors
    assert "estimated" not in check("--measure", config=config)[2]


def test_the_size_that_is_advised_is_possible(check: Check) -> None:
    """Of a valid U-Net, whose sizes are even; at least 17 less than the volume's."""
    network = CONFIG[: CONFIG.index("data:")]
    config = CONFIG.replace(
        network, "network:\n  unet: {widths: [2, 3], stem: 2, padding: valid}\n"
    )
    code, _, errors = check(config=config)
    assert code == 1
    assert "the largest that fits: output (2, 6, 6)" in errors
    assert check(config=config.replace("output_shape: 12", "output_shape: [2, 6, 6]"))[0] == 0


@pytest.mark.slow
def test_algorithms_are_measured_only_when_asked(check: Check) -> None:
    _, out, _ = check()
    assert "unmeasured" in out
    assert "--measure" in out
    assert re.search(r"^fingerprint +[0-9a-f]{16}, \d+ lanes, by estimates; --measure", out, re.M)
    assert re.search(r"^before that +up to .* to measure layers", out, re.M)
    rows = json.loads(check("--json")[1])["algorithms"]
    assert {row["why"] for row in rows} == {"unmeasured", "estimated"}
    assert {row["of_sgemm"] for row in rows} == {None}
    assert not re.search(r"^of sgemm", out, re.M)
    _, out, told = check("--measure")
    found = re.search(
        r"^fingerprint .*: machines that show the same one compute the same", out, re.M
    )
    assert found, told
    assert "before that" not in out
    assert "unmeasured" not in out
    assert "measured" in out
    assert re.search(r"^of sgemm +operations of direct convolution", out, re.M)
    for row in json.loads(check("--json")[1])["algorithms"]:
        # A share of what one core can do, or some times as much where an algorithm does fewer operations.
        assert row["of_sgemm"] is None if row["why"] == "estimated" else 0 < row["of_sgemm"] < 30
    _, out, _ = check()
    assert "unmeasured" not in out  # from wisdom
    assert found[0] in out


def test_a_row_per_layer_and_pass(check: Check) -> None:
    _, out, _ = check()
    table = out[out.index("algorithms") : out.index("receptive field")].splitlines()
    assert max(len(line.rstrip()) for line in table) <= 100
    assert "against" not in out
    rows = json.loads(check("--json")[1])["algorithms"]
    assert [(row["layer"], row["pass"]) for row in rows] == [
        ("conv1", "forward"),
        ("conv1", "weight"),
        *((f"conv{n}", step) for n in (2, 3) for step in ("forward", "gradient", "weight")),
    ]
    for row in rows:
        # Two may be equal, but for the last bit of their sums.
        assert row["next"] is None or 1.000001 * row["next_seconds"] >= row["seconds"] > 0
    assert rows[2]["next"]


def test_estimates_of_all_candidates_are_complete() -> None:
    from znnpy.plan import PASSES, ConvShape

    shape = ConvShape(16, 16, (3, 3, 3), (1,) * 3, (1,) * 3, (14,) * 3, (12,) * 3, 1)
    costs = estimated_costs(shape, candidates(shape))
    for method, parts in costs.items():
        assert set(PASSES) <= set(parts)
        assert bool(set(SHARED) & set(parts)) == bool(method.tile)


PADDED = CONFIG.replace("channels: 16, size: 3,", "channels: 16, size: 3, padding: same,")


def test_how_a_volume_will_be_predicted_is_said(check: Check) -> None:
    said = json.loads(check("--json", config=PADDED)[1])["prediction"]
    assert said == (
        "in windows of 12x12x12, overlap 0.5, gaussian: values depend on the window by padding (conv1, conv2)"
    )
    pooled = PADDED.replace(
        "- conv: {channels: 1,", "- max_pool: 2\n    - upsample: 2\n    - conv: {channels: 1,"
    )
    code, _, error = check(config=pooled + "inference: {window: 7}\n")
    assert code != 0
    assert ": inference.window: output 7 x 7 x 7 (z, y, x) does not fit" in error
    assert "nearest possible sizes are 6 x 6 x 6 and 8 x 8 x 8" in error


@pytest.mark.slow
def test_microbatches_are_said_with_what_they_take(check: Check) -> None:
    several = CONFIG.replace("{output_shape: 12}", "{output_shape: 12, batch: 8, microbatch: 2}")
    assert "4 an update, 2 patches each, 2 in flight at once" in check(config=several)[1]
    found, whole = (
        json.loads(check("--json", config=config)[1])
        for config in (several, several.replace("microbatch: 2", "microbatch: 8"))
    )
    assert found["microbatches"] == {
        "patches": 2,
        "count": 4,
        "in_flight": 2,
        "chosen": False,
    }
    assert found["memory_bytes"] < 0.9 * whole["memory_bytes"]
    assert "microbatches" not in check()[1]


def test_a_microbatch_that_does_not_divide_the_batch_is_refused(check: Check) -> None:
    wrong = CONFIG.replace("{output_shape: 12}", "{output_shape: 12, batch: 8, microbatch: 3}")
    code, _, errors = check(config=wrong)
    assert code == 1
    words = "training.microbatch: must divide batch, which is 8; 2 would; found 3"
    assert errors == f"znnpy: config.yaml:14: {words}\n"


def test_tasks_that_an_earlier_start_has_connected_are_counted_and_told(
    check: Check, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many they are: they need not be declared."""
    monkeypatch.setattr(folder, "home", lambda: tmp_path / "graphs")
    monkeypatch.setattr(graphs, "LEAST_CALLS", 1)
    monkeypatch.setattr(config_summary, "MOST_TASKS", 0)
    text = CONFIG.replace("output_shape: 12", "output_shape: 12, freeze: [conv1], clip_norm: 1")
    code, out, _ = check("--measure", "--json", config=text)
    counted = json.loads(out)
    assert (code, counted["connected"]) == (0, False)
    config = load_config(Path("config.yaml"))
    for before in (False, True):
        with training_model(config, trained_network(config), None) as model:
            assert model.connected_before == before
            assert model.task_graph
    code, out, _ = check("--json", config=text)
    found = json.loads(out)
    assert (code, found["connected"]) == (0, True)
    for key in ("counted", "memory_bytes", "memory_uses", "memory_kept_bytes", "again_seconds"):
        assert found[key] == counted[key], key
    assert "connected by an earlier start" in check(config=text)[1]
