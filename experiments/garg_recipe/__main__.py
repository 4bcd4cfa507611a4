"""``python -m experiments.garg_recipe``."""

from experiments._frame.program import run_program
from experiments.garg_recipe.main import main

run_program(main)
