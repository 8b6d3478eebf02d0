"""NumPyro distributions over compressed data and weights."""
