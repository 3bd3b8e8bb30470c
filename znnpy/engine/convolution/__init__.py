"""Tasks of convolutions: a folder for each algorithm, padding, tiles; `passes.py` picks the algorithm of the plan."""
