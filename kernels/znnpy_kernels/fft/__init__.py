"""Kernels of Fourier transforms of lines and whole images, and of convolution of whole images by them."""
