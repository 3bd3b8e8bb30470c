"""Lets test modules import the helpers that stand beside this file."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
