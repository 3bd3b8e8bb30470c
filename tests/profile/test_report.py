"""The report and the command: files, figures, nothing from outside; a browser finds no fault."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from znnpy_kernels.simd.lanes import LANES

from znnpy.cli import main
from znnpy.cli.profile import _print
from znnpy.engine.tasks.task_identity import Kind, Pass
from znnpy.graph.policies import POLICIES
from znnpy.pictures.svg import seconds
from znnpy.profile import command
from znnpy.profile.report import _layers, write_report
from znnpy.profile.roofline import roofline

CONFIG = """
network:
  name: "<b>small</b> & odd"
  layers:
    - conv: {channels: 4, size: 3, function: relu}
    - max_pool: 2
    - conv: {channels: 3, size: 3}
    - upsample: 2
data: {train: [{image: none.h5:raw, labels: none.h5:labels}]}
training: {iterations: 1, output_shape: 8, conv: spectral}
run: {directory: run, threads: 2}
"""
FIGURES = {"cores": 64, "bandwidth": 3e11, "cache": 2.0**28, "domains": 8}
SECTIONS = {
    "advice", "gantt", "losses", "workers", "layers", "levels", "rates", "grain", "path", "scaling", "policies",
    "ranks", "roofline", "changes",
}  # fmt: skip
BROWSER = shutil.which("chromium") or shutil.which("chromium-browser")
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--enable-logging=stderr",
    "--v=0",
]


class Page(HTMLParser):
    """Elements, their classes and ids, and every address that an element would load."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.tags: list[str] = []
        self.loads: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note what matters."""
        self.tags.append(tag)
        for name, value in attrs:
            if name == "id":
                self.ids.add(value or "")
            if name in ("src", "href", "data", "action", "srcset", "poster"):
                self.loads.append(value or "")


@pytest.mark.parametrize(("passes", "rate"), [(1, 2.0), (2, 4.0)])
def test_tasks_of_two_passes_are_compared_with_both(passes: int, rate: float) -> None:
    task = {"layer": "conv1", "pass": Pass.BACKWARD, "kind": Kind.WINOGRAD, "passes": passes}
    run = {"names": [task | {"seconds": 2.0}], "work": 2.0}
    (row,) = _layers(run, {"layers": ["conv1"], "convolution_flops": {"conv1": 4e9}, "plan": {}})
    assert row["gflops"] == rate


def test_layers_that_take_nothing_to_speak_of_are_one_row() -> None:
    """As shifts of norms, of which a U-Net has as many as layers."""
    task = {"pass": Pass.UPDATE, "kind": Kind.UPDATE, "passes": 1}
    times = {"conv1": 1.0, "shift1": 1e-4, "conv2": 2.0, "shift2": 2e-4}
    names = [task | {"layer": layer, "seconds": seconds} for layer, seconds in times.items()]
    summary: dict[str, Any] = {"layers": [*times], "convolution_flops": {}, "plan": {}}
    found = _layers({"names": names, "work": 3.0003}, summary)
    assert [row["layer"] for row in found] == ["conv1", "conv2", "2 others"]
    assert [row["seconds"] for row in found] == pytest.approx([1.0, 2.0, 3e-4])
    alone = _layers({"names": names[:3], "work": 3.0001}, summary)
    assert [row["layer"] for row in alone] == ["conv1", "shift1", "conv2"]


@pytest.fixture(scope="module")
def profiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that the command leaves, all policies compared, as if nothing had disturbed the measurement."""
    folder = tmp_path_factory.mktemp("profiled")
    (folder / "config.yaml").write_text(CONFIG)
    words = ["profile", str(folder / "config.yaml"), "--updates", "4", "--policy", "all"]
    words += ["--ranks", "2,4", "--bandwidth", "1", "--latency", "30"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(command, "find_doubts", lambda *_: [])
        with pytest.raises(SystemExit) as done:
            main([*words, "--out", str(folder / "out")])
    assert done.value.code in (0, None)
    return folder / "out"


def with_everything(folder: Path) -> Path:
    """The report with the sections whose numbers others provide."""
    from recorded import recorded

    summary: dict[str, Any] = json.loads((folder / "summary.json").read_text())
    summary["simulation"] = {
        "workers": [1, 2, 4, 64],
        "seconds": [1.0, 0.5, 0.3, 0.1],
        "brent_lower": [1.0, 0.5, 0.25, 0.08],
        "brent_upper": [1.1, 0.6, 0.35, 0.11],
        "least": [1.0, 0.5, 0.28, 0.09],
        "most": [1.2, 0.7, 0.4, 0.2],
        "bytes": [1e9, 1e9, 9e8, 1e8],
        "waits": [{}, {}, {"pool": 0.1}, {"pool": 2.0, "transform": 1.0}],
        "memory": FIGURES,
        "error": {"1": 0.01},
    }
    summary["doubts"] = []
    kinds = {kind: {"touched": 2e9, "moved": 1e8} for kind in summary["runs"][-1]["kinds"]}
    summary["roofline"] = roofline(summary["runs"][-1], FIGURES | {"kinds": kinds}, 60.0)
    summary["what_if"] = {
        "workers": [16, 64],
        "seconds": [0.2, 0.1],
        "changes": [
            {"change": "kind", "name": "product", "seconds": [0.15, 0.1]},
            {"change": "layer", "name": "conv1", "seconds": [0.2, 0.05]},
        ],
    }
    for policy in summary["policies"]:
        policy["simulated"] = {"64": 0.1, "2": 0.5}
    summary["sums"] = [
        {"name": "tree", "seconds_in_sums": 0.1, "seconds_waiting": 0.0, "seconds": 1.0,
         "simulated_64": None},
    ]  # fmt: skip
    write_report(summary, recorded(2), folder / "full.html")
    return folder / "full.html"


def test_files_and_summary(profiled: Path) -> None:
    names = {path.name for path in profiled.iterdir()}
    assert names >= {"report.html", "summary.json", "graph.dot"}
    assert names >= {"trace.json.gz", "trace-1.json.gz", "trace-2.json.gz"}
    summary = json.loads((profiled / "summary.json").read_text())
    assert [run["threads"] for run in summary["runs"]] == [1, 2]
    assert [policy["name"] for policy in summary["policies"]] == list(POLICIES)
    assert all(policy["measured_seconds"] > 0 for policy in summary["policies"])
    flops = [entry["flops"] for entry in summary["runs"][-1]["names"] if entry["kind"] == "product"]
    assert flops
    assert all(flops)


@pytest.mark.parametrize("doubts", [[], ["The measurement was disturbed."]])
def test_a_doubtful_recording_is_not_scaled(
    profiled: Path, capsys: pytest.CaptureFixture[str], doubts: list[str]
) -> None:
    from recorded import recorded

    summary = json.loads((profiled / "summary.json").read_text()) | {"doubts": doubts}
    _print(summary, profiled)
    said = " ".join(capsys.readouterr().out.split())
    assert ("2 workers are " in said) == (not doubts)
    assert ("times as fast that is cannot be said" in said) == bool(doubts)
    assert ("from a doubtful recording" in said) == bool(doubts)
    write_report(summary, recorded(2), profiled / "doubted.html")
    text = (profiled / "doubted.html").read_text()
    assert text.count("The measurement was disturbed.") == len(doubts)
    assert ("Speed-up over one worker, by number of workers." in text) == (not doubts)
    assert "Would more cores help?" in text
    assert ("<b>?</b><span>times as fast on 2 as on 1" in text) == bool(doubts)


def test_ranks_are_simulated_from_the_recorded_run(profiled: Path) -> None:
    summary = json.loads((profiled / "summary.json").read_text())
    found, run = summary["ranks"], summary["runs"][-1]
    assert (found["bandwidth"], found["latency"]) == (pytest.approx(125e6), pytest.approx(30e-6))
    # Ranks send what lies in memory: filters and biases padded to lanes.
    assert found["bytes"] == 4 * LANES * (27 + 1 + 4 * 27 + 1)
    assert found["alone"] == pytest.approx(run["seconds"], rel=1)
    ways = {(row["ranks"], row["strategy"], row["colors"]) for row in found["rows"]}
    assert ways == {
        *((count, name, 1) for count in (2, 4) for name in ("tree", "allreduce", "blocking")),
        (2, "multicolor", 2), (4, "multicolor", 2), (4, "multicolor", 4),
    }  # fmt: skip
    assert all(row["seconds"] > 0 and row["wire"] > 0 for row in found["rows"])


def test_what_has_nothing_to_add_up_has_no_ranks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "config.yaml").write_text(CONFIG)
    with pytest.raises(SystemExit) as done:
        main(["profile", str(tmp_path / "config.yaml"), "--ranks", "2", "--policy", "layers"])
    assert done.value.code not in (0, None)
    assert "choose another" in capsys.readouterr().err


@pytest.mark.slow
def test_forward_passes_of_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from train.small_run import write_config

    monkeypatch.chdir(tmp_path)
    config = write_config(tmp_path, iterations=2)
    for words in (
        ["train", str(config)],
        ["profile", "--predict", "run", "--patch", "6,8,8", "--updates", "3", "--threads", "2,3"],
    ):
        with pytest.raises(SystemExit) as done:
            main(words)
        assert done.value.code in (0, None)
    summary = json.loads((tmp_path / "profile" / "summary.json").read_text())
    assert summary["what"] == "forward pass"
    assert summary["many"] == "forward passes"
    assert summary["output"] == "6x8x8"
    assert [run["threads"] for run in summary["runs"]] == [1, 2, 3]
    passes = {entry["pass"] for entry in summary["runs"][0]["names"]}
    assert passes - {"order"} == {"forward"}
    assert (tmp_path / "profile" / "trace-3.json.gz").is_file()


def test_wrong_use_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "c.yaml").write_text(CONFIG)
    config = ["profile", "c.yaml"]
    for words in (
        ["profile"], ["profile", "none.yaml"], [*config, "--threads", "0"],
        [*config, "--ranks", "two"], [*config, "--bandwidth", "0"],
        [*config, "--l3", "much"], [*config, "--memory-bandwidth", "0"],
        [*config, "--cores", "0"], [*config, "--cores", "4097"],
        [*config, "--ranks", "2,99999"], [*config, "--ranks", "2", "--latency", "inf"],
        [*config, "--ranks", "2", "--bandwidth", "1e10"], [*config, "--domains", "none"],
    ):  # fmt: skip
        with pytest.raises(SystemExit) as done:
            main(words)
        assert done.value.code not in (0, None)
        said = capsys.readouterr().err
        assert "Traceback" not in said
        assert all(option in said for option in words[2:][-2:-1])


def test_more_updates_than_can_be_recorded_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "c.yaml").write_text(CONFIG)
    words = ["profile", str(tmp_path / "c.yaml"), "--updates", "1" + 20 * "0"]
    with pytest.raises(SystemExit) as done:
        main([*words, "--output", str(tmp_path / "out")])
    assert done.value.code == 1
    found = re.search(r"--updates 10{20}: .* give at most ([\d,]+)", capsys.readouterr().err)
    assert found
    assert int(found[1].replace(",", "")) > 1000


def test_a_file_in_the_place_of_the_folder_is_refused_before_anything_is_recorded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "c.yaml").write_text(
        "network: {layers: [{conv: {channels: 1, size: 1}}]}\ntraining: {output_shape: 2}\n"
    )
    with pytest.raises(SystemExit) as done:
        main(["profile", str(tmp_path / "c.yaml"), "--output", str(tmp_path / "c.yaml")])
    assert done.value.code == 1
    errors = capsys.readouterr().err
    assert "c.yaml is a file; --output names a folder" in errors
    assert "recording" not in errors


def test_a_machine_that_cannot_be_is_refused_before_anything_is_recorded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "c.yaml").write_text(CONFIG)
    with pytest.raises(SystemExit) as done:
        main(["profile", str(tmp_path / "c.yaml"), "--cores", "2", "--domains", "4"])
    assert done.value.code == 1
    errors = capsys.readouterr().err
    assert "--domains 4: there are only 2 cores" in errors
    assert "recording" not in errors


def test_report_is_alone_and_whole(profiled: Path) -> None:
    text = with_everything(profiled).read_text()
    page = Page(text)
    assert page.ids >= SECTIONS | {"sums"}
    assert all(address.startswith("data:") for address in page.loads)
    assert not re.search(r"url\(|@import|https?://", text)
    assert "default-src 'none'" in text
    assert "<b>small" not in text
    assert "tasks of conv1 halved" in text
    assert "64 cores with 300 GB/s and 256 MiB of L3 in 8 domains" in text
    assert page.tags.count("svg") > 20
    assert page.tags.count("rect") > 50


@pytest.mark.slow
@pytest.mark.skipif(BROWSER is None, reason="needs chromium: apt-get install chromium")
@pytest.mark.parametrize("width", [1200, 480])
def test_a_browser_shows_it_without_complaint(profiled: Path, tmp_path: Path, width: int) -> None:
    page = with_everything(profiled)
    probe = tmp_path / "page.html"
    script = """<script>{
      const wide = document.documentElement.scrollWidth > innerWidth;
      const flat = [...document.querySelectorAll("svg")].filter(
        s => !s.closest("details:not([open])") && s.getBoundingClientRect().width < 1).length;
      zoom.value = 3; zoom.dispatchEvent(new Event("input"));
      const zoomed = document.querySelector(".gantt .scroll");
      document.title = `wide=${wide} flat=${flat} zoomed=${zoomed.scrollWidth > zoomed.clientWidth}`;
    }</script></body>"""
    probe.write_text(page.read_text().replace("</body>", script))
    assert BROWSER is not None
    done = subprocess.run(
        [
            BROWSER,
            *FLAGS,
            f"--user-data-dir={tmp_path / 'browser'}",
            f"--window-size={width},900",
            "--dump-dom",
            probe.as_uri(),
        ],
        capture_output=True,
        text=True,
        timeout=600,
        check=True,
    )
    assert "CONSOLE" not in done.stderr, done.stderr
    assert "<title>wide=false flat=0 zoomed=true</title>" in done.stdout, re.findall(
        "<title>.*?</title>", done.stdout
    )


@pytest.mark.parametrize(
    ("value", "text"),
    [(2.5, "2.5 s"), (-2.5, "-2.5 s"), (-0.00679, "-6.79 ms"), (3e-6, "3 us"), (0.0, "0 us")],
)
def test_times_for_people(value: float, text: str) -> None:
    assert seconds(value) == text
