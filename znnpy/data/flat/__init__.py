"""Formats whose voxels are one run of bytes behind a header: NIfTI, NRRD, MetaImage, MRC, npy."""
