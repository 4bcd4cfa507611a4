"""Writes pruned models as checkpoints, dense or in factors, and counts the savings."""

from icltheory.bridge.export.factors import FactoredFolder, take_factors
from icltheory.bridge.export.save import save_checkpoint
from icltheory.bridge.export.size import MatrixSize, SizeReport, size_report

__all__ = [
    "FactoredFolder",
    "MatrixSize",
    "SizeReport",
    "save_checkpoint",
    "size_report",
    "take_factors",
]
