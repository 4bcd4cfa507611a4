"""Which changes let Garg's training reach an error in fewer steps."""

from experiments.garg_recipe.config import PRESETS as PRESETS
from experiments.garg_recipe.config import Config as Config
from experiments.garg_recipe.main import main as main

__all__ = ["PRESETS", "Config", "main"]
