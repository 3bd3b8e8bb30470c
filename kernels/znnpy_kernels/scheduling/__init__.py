"""The compiled worker loop and its parts (deques, parking, convergent sums), a serial twin, and a simulation."""
