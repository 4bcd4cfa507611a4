"""Test vectors for other implementations, and what makes them."""
