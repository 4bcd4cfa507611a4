"""Runs the experiment as a program: ``python -m experiments.real_model``."""

from experiments._frame.program import run_program
from experiments.real_model.main import main

run_program(main)
