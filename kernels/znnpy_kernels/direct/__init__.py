"""Direct convolution: forward, gradients, packed filters."""
