"""Memory of the engine: one arena, and the feature maps, parameters, staged data and scratch that lie in it."""
