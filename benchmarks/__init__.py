"""Measured ratios: ours, what a user would run instead, and the floor."""
