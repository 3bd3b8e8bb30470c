"""Packages of bioimage.io (formats 0.4 and 0.5): weights, preparation of images, and their own test tensors."""
