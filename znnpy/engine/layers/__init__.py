"""Tasks of everything but convolution: activation, pooling, normalisation, loss, optimiser, gradient accumulation."""
