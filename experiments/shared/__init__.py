"""What several experiments share, one module per idea."""
