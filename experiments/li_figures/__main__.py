"""``python -m experiments.li_figures``."""

from experiments._frame.program import run_program
from experiments.li_figures.main import main

run_program(main)
