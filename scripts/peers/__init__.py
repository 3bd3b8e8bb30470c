"""Parts of the peer benchmark: cases, both contestants, and how they are timed."""
