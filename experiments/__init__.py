"""Experiments: ``python -m experiments.NAME``; nothing imports them."""
