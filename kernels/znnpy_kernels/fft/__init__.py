"""Fourier transforms of lines and images, and convolution of whole images by them."""
