"""Expands the `unet` key of a config into nodes and edges.

Names: levels count from 0, the one of the input's size. Level 2 of the encoder has the edges `down2.pool`,
`down2.conv1`, `down2.conv2` and the nodes `down2.pooled`, `down2.layer1`, `down2.layer2`; level 2 of the decoder
has `up2.grow`, `up2.skip`, `up2.join`, `up2.conv1`, `up2.layer1` ...; several blocks of a level are
`down2.block1.conv1` ... Filters are named after edges and biases after nodes, as in any network.
"""

from znnpy.network.unet.levels import unet

__all__ = ["unet"]
