"""Benchmarks: our time, the time of the usual alternative, and the hardware limit."""
