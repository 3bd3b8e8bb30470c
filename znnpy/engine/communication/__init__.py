"""Tasks of data-parallel training: post messages between ranks, wait for them, add up gradients (all-reduce)."""
