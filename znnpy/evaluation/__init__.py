"""Evaluates predictions of labelled volumes: losses, scores, and trivial baselines beside them."""
