"""What kernels need of the machine: their signature, raw memory, atomics, the cache of compiled code."""
