"""Runs the experiment as a program: ``python -m experiments.real_model``."""

from experiments.frame import program
from experiments.real_model.main import main

program(__name__, main)
