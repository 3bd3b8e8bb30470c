"""run.html: there while a run trains and after; whole whatever ends the run; never a reason to end one."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import time
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from small_run import Forked, write_config, znnpy

from znnpy.config import load_config
from znnpy.errors import RunError
from znnpy.train.display import page_writer
from znnpy.train.display.history import History
from znnpy.train.display.page import Facts, render, smoothed
from znnpy.train.display.page_writer import PageWriter
from znnpy.train.progress import Quiet
from znnpy.train.session import train

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser")
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--enable-logging=stderr"]


class Parsed(HTMLParser):
    """Headings, and every address that an element would load."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.tags: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.loads += [value or "" for name, value in attrs if name in ("src", "href", "action")]


class Heard(Quiet):
    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("displayed")
    znnpy("train", write_config(folder))
    return folder / "run"


def test_the_page_of_a_run_is_whole_and_loads_nothing(trained: Path) -> None:
    text = (trained / "run.html").read_text()
    page = Parsed(text)
    assert all(it.startswith("data:") for it in page.loads)
    assert not re.search(r"url\(|@import|https?://", text)
    assert "default-src 'none'" in text
    assert 'http-equiv="refresh"' not in text
    for heading in (
        "Loss", "Voxel error", "Learning rate", "Living channels", "Norm of the weights",
        "Norm of the gradients", "A validation patch over time", "Filters by layer",
    ):  # fmt: skip
        assert f"<h2>{heading}</h2>" in text
    assert "finished, as of" in text
    assert page.tags.count("svg") >= 12
    assert "iteration 30" in text
    assert "adapted Rand error" in text


def test_names_are_no_markup() -> None:
    facts = Facts("<b>odd</b>", 10)
    history = History()
    history.take({"iteration": 1, "loss": 1.0, "validation": {"<i>": 1.0}})
    history.take({"iteration": 1, "changed": "<u>"})
    history.take({"iteration": 1, "weights": {"": 1.0, "<s>": 2.0}})
    text = render(facts, history, {}, "<em>", training=True)
    assert not set(Parsed(text).tags) & {"b", "i", "u", "s", "em"} - {"b", "i"}
    assert "<b>odd" not in text
    assert 'http-equiv="refresh"' in text


def test_a_page_of_nothing_is_a_page(tmp_path: Path) -> None:
    assert "</html>" in render(Facts("new", 10), History(), {}, "training", run=tmp_path)


def test_a_smooth_curve_of_a_constant_is_that(trained: Path) -> None:
    assert [y for _, y in smoothed([(n, 0.25) for n in range(500)])] == pytest.approx([0.25] * 500)
    steps = smoothed([(n, float(n >= 400)) for n in range(800)])
    assert steps[399][1] == 0
    assert 0.6 < steps[420][1] < 0.7  # 1 - 1 / e after a fortieth of all


def test_a_run_of_one_update_has_a_log_and_a_page(tmp_path: Path) -> None:
    run = tmp_path / "run"
    sets = ["training.iterations=1", "run.log_every=1000", "data.validation=[]"]
    znnpy("train", write_config(tmp_path), *(word for it in sets for word in ("--set", it)))
    (record,) = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    assert record["iteration"] == 1
    assert abs(record["time"] - time.time()) < 3600
    assert "<h2>Loss</h2>" in (run / "run.html").read_text()


def test_a_resumed_run_keeps_its_curves_and_slices(tmp_path: Path) -> None:
    config, run = write_config(tmp_path), tmp_path / "run"
    znnpy("train", config, "--set", "training.iterations=30", "--set", "training.schedule=constant")
    before = json.loads((run / "slices.json").read_text())
    more = ("training.iterations=60", "training.schedule=constant", "training.learning_rate=0.001")
    znnpy("train", config, *(word for it in more for word in ("--set", it)))
    after = json.loads((run / "slices.json").read_text())
    assert set(before) == {"30"}
    assert set(after) == {"30", "60"}
    looks = [json.loads(line)["iteration"] for line in (run / "looks.jsonl").open()]
    assert looks == sorted(set(looks))
    assert looks[0] == 0
    assert looks[-1] == 60
    text = (run / "run.html").read_text()
    assert "iteration 30" in text
    assert "iteration 60" in text
    assert "What changed" in text


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_whatever_ends_a_run_its_page_is_whole(
    tmp_path: Path, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page_writer, "INTERVAL", 0.02)
    monkeypatch.setattr(page_writer, "SHARE", 1.0)
    page = tmp_path / "run" / "run.html"
    line = ["train", write_config(tmp_path), "--set", "training.iterations=100000"]
    with Forked(*line) as process:
        until = time.monotonic() + 300
        while process.poll() is None and time.monotonic() < until and not page.exists():
            time.sleep(0.005)
        time.sleep(0.2)
        text = page.read_text()
        assert 'http-equiv="refresh"' in text
        assert "training, as of" in text
        assert text.endswith("</html>")
        process.send_signal(number)
        process.communicate()
    text = page.read_text()
    assert text.endswith("</html>")
    assert number == signal.SIGKILL or ("stopped at" in text and 'http-equiv="refresh"' not in text)


def test_the_norm_of_all_weights_is_of_what_is_learned(trained: Path) -> None:
    look = json.loads((trained / "looks.jsonl").read_text().splitlines()[-1])
    newest = max((trained / "checkpoints").glob("iteration-*.npz"))
    with np.load(newest) as file:
        arrays = {name: file[name] for name in file.files if name.startswith("parameters/")}
    kept = [name for name in arrays if "running" in name]
    assert kept
    squares = sum(float(np.square(it).sum()) for name, it in arrays.items() if name not in kept)
    assert look["weights"][""] == pytest.approx(squares**0.5, rel=1e-5)


@pytest.mark.parametrize("broken", ["run.html", "slices.json", "looks.jsonl"])
def test_a_page_that_cannot_be_written_costs_one_line(tmp_path: Path, broken: str) -> None:
    """A folder stands where the file would be."""
    config = load_config(
        write_config(tmp_path),
        ("training.iterations=60", "run.threads=1", f"run.directory={tmp_path / 'run'}"),
    )
    (tmp_path / "run" / broken).mkdir(parents=True)
    reporter = Heard()
    assert train(config, reporter=reporter).finished
    said = [note for note in reporter.notes if broken in note and note.startswith("warning")]
    assert len(said) in (1, 2)  # at the end a last page is tried
    assert (tmp_path / "run" / "result.json").exists()


def test_a_page_that_cannot_be_drawn_is_told_once(tmp_path: Path) -> None:
    def fault() -> str:
        raise ValueError("odd")

    with PageWriter(tmp_path / "run.html", fault) as writer:
        writer.write()
        writer.write()
        assert "cannot be drawn: ValueError: odd; training goes on" in writer.problem()
        assert writer.problem() == ""


def test_reading_a_folder_for_a_log_is_an_error(tmp_path: Path) -> None:
    from znnpy.train.display.history import read_history

    (tmp_path / "timings.jsonl").mkdir()
    with pytest.raises(RunError, match="cannot read"):
        read_history(tmp_path)


@pytest.mark.slow
@pytest.mark.skipif(BROWSER is None, reason="needs chromium: apt-get install chromium")
@pytest.mark.parametrize("width", [1400, 390])
def test_a_browser_shows_it_whole(trained: Path, tmp_path: Path, width: int) -> None:
    probe = tmp_path / "page.html"
    text = (
        (trained / "run.html")
        .read_text()
        .replace("img-src data:", "img-src data:; script-src 'unsafe-inline'")
    )
    script = """<script>{
      const wide = document.documentElement.scrollWidth > innerWidth;
      const flat = [...document.querySelectorAll("svg, img")].filter(
        s => s.getBoundingClientRect().width < 1 || s.naturalWidth === 0).length;
      document.title = `wide=${wide} flat=${flat}`;
    }</script></body>"""
    probe.write_text(text.replace("</body>", script))
    assert BROWSER is not None
    words = [f"--user-data-dir={tmp_path / 'browser'}", f"--window-size={width},900", "--dump-dom"]
    done = subprocess.run(
        [BROWSER, *FLAGS, *words, probe.as_uri()],
        capture_output=True,
        text=True,
        timeout=600,
        check=True,
    )
    assert "CONSOLE" not in done.stderr, done.stderr
    assert "<title>wide=false flat=0</title>" in done.stdout, re.findall(
        "<title>.*?</title>", done.stdout
    )
