"""Reads files of weights that other programs wrote, without trusting them: PyTorch's, safetensors."""
