"""Compiled functions on raw buffers; every kernel has the signature `void kernel(int64* args, int64 worker)`."""
