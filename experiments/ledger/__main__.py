"""``python -m experiments.ledger``."""

from experiments import frame
from experiments.ledger.main import main

frame.program(__name__, main)
