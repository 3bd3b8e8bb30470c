"""Lets the tests of every room import the helpers that stand beside this file."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
