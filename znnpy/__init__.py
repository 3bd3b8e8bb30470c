"""znnpy: 3-D convolutional networks on many-core CPUs."""

__version__ = "0.1.0"
