"""Predictions of labelled volumes: losses of finished values, scores, and the trivial baselines beside them."""
