"""Arrays in folders of chunks that are decoded here: N5, Neuroglancer precomputed."""
