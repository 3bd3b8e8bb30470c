"""Where everything lies: one arena, and the tensors, parameters and staged data in it."""
