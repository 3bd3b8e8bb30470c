"""SIMD vectors of LANES floats as values, and rows of them: the base of all other kernels."""
