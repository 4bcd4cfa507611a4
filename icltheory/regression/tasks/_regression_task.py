"""Old names."""
