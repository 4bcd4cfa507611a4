"""Runs the experiment as a program: ``python -m experiments.real_model``."""

from experiments import frame
from experiments.real_model.main import main

frame.program(__name__, main)
