"""The layers that exist: an entry for each edge kind and activation function, with keys, sizes and float64 meaning.

`edges.py` lists the kinds, `activation_functions.py` the functions. An entry knows no network, no task and no kernel;
its float32 tasks are bound in `znnpy/engine/emit.py`, its kernels are in `znnpy_kernels`.
"""
