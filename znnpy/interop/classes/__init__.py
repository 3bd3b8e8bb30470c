"""Networks that are known by their class: built from its keyword arguments and state dict, without its code."""
