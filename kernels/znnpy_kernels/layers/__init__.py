"""All that is not convolution: pooling, transfer functions, losses, optimisers."""
