"""Names of :mod:`experiments.frame` for experiments that are not one file yet."""
