"""Runs the command as `python -m znnpy`."""

from znnpy.cli import main

if __name__ == "__main__":
    main()
