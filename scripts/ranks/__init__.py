"""Parts of `scripts/bench_distributed.py`."""
