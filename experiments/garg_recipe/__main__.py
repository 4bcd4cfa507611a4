"""``python -m experiments.garg_recipe``."""

from experiments import _run
from experiments.garg_recipe.main import main

_run.main(main)
