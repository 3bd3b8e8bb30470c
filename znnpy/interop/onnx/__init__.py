"""ONNX files as networks: read without running anything of them (`model.py`)."""
