"""Kernels of all layers but convolution: pooling, activation functions, normalisation, dropout, losses, optimisers."""
