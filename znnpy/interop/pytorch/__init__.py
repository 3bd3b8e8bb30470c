"""Modules of PyTorch as models, by `torch.export`; PyTorch is imported only where a user has it."""
