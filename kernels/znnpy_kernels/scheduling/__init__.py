"""The worker loop and what it is made of: deques, parking, convergent sums; its serial twin, its simulation."""
