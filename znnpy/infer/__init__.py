"""Predicts whole volumes: patches or sliding windows, block by block, resumable, by one process or many."""
