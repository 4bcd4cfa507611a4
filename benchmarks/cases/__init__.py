"""The cases, one module per topic."""
