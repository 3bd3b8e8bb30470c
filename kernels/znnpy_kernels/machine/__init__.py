"""The kernels' base: their signature, compilation and cache, raw memory, atomics, denormals, guards for tests."""
