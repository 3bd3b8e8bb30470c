"""Tasks in the making: what they touch, the order that follows, buffers that they share."""
