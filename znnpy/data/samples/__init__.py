"""Reads files of many small images and their classes: idx, npz and CIFAR's binary files.

All become volumes whose slices along z are the images; such files are read whole when they are opened.
"""
