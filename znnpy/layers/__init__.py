"""What layers there are: each edge kind and each function is one entry that all other rooms read.

`edges.py` lists the kinds, `activation_functions.py` the functions. An entry knows no network, no task and no kernel;
what the float32 engine makes of it is bound in `znnpy/engine/emit.py` and `znnpy_kernels`.
"""
