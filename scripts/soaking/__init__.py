"""The parts of `scripts/soak`: jobs that are disturbed, faults, and what must hold after each."""
