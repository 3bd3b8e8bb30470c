"""Model folders of nnU-Net v2: plans, labels, architecture and weights."""
