"""Do a wheel and an sdist hold what they should? Run in a checkout with no changed files:

    python -m build --outdir FOLDER . && python scripts/packed.py FOLDER

The wheel: each file of the packages, the command, the licence, where napari finds its plugin, and nothing else. The
sdist: each file of git's, and nothing else. Ends with 1 and the names where one differs.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
NOTES = re.compile(r"(?:kernels/)?\w+/.*\.md")
PACKAGES = re.compile(r"(?:kernels/)?(znnpy(?:_kernels)?/.+)")


def main() -> int:
    folder = Path(sys.argv[1])
    (wheel,) = folder.glob("znnpy-*.whl")
    (sdist,) = folder.glob("znnpy-*.tar.gz")
    differences = {
        path.name: sorted(expected ^ found)
        for path, expected, found in (
            (wheel, expected_of_wheel(wheel), set(zipfile.ZipFile(wheel).namelist())),
            (sdist, {"PKG-INFO", *tracked()}, names_of_sdist(sdist)),
        )
    }
    for name, files in differences.items():
        print(f"{name}: {f'missing or too many: {files}' if files else 'as it should be'}")
    return int(any(differences.values()))


def tracked() -> list[str]:
    return subprocess.check_output(["git", "ls-files"], cwd=ROOT, text=True).splitlines()


def expected_of_wheel(wheel: Path) -> set[str]:
    """Names in the wheel: packages without the notes for developers, the command, what says whose it is."""
    name = "-".join(wheel.name.split("-")[:2])
    files = ("METADATA", "WHEEL", "RECORD", "entry_points.txt", "licenses/LICENSE")
    about = {f"{name}.dist-info/{it}" for it in files}
    inside = [PACKAGES.fullmatch(it) for it in tracked() if not NOTES.fullmatch(it)]
    return about | {f"{name}.data/scripts/znnpy"} | {match[1] for match in inside if match}


def names_of_sdist(sdist: Path) -> set[str]:
    """Names in the sdist, from its one folder on."""
    with tarfile.open(sdist) as file:
        return {it.name.partition("/")[2] for it in file.getmembers() if it.isfile()}


if __name__ == "__main__":
    sys.exit(main())
