"""Kernels of direct convolution: forward, gradients, packed filters, epilogue, weight standardisation."""
