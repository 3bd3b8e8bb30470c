"""Checkpoints of training programs: their network is said by a class and its arguments, within or beside them."""
