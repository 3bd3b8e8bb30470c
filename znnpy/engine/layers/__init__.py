"""Tasks of nodes and of edges that are not convolutions, of losses and of updates."""
