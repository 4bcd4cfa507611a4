"""Config and presets of the experiment."""

import dataclasses

from experiments._frame.fields import check_at_least
from experiments.li_figures.layers import LayerGrid
from experiments.li_figures.one_layer import OneLayerGrid
from experiments.li_figures.votes import VoteGrid


@dataclasses.dataclass(frozen=True)
class Config:
    """The grids of settings that are searched.

    Attributes:
        votes: Tasks of Figures 17 to 19.
        fresh_prompts: Prompts on which the best of them are measured again.
        one_layer: Trainings of Figures 8 to 11, 14 and 15.
        three_layers: Trainings of Figures 24 to 26.
    """

    votes: VoteGrid = VoteGrid()
    fresh_prompts: int = 8_000
    one_layer: OneLayerGrid = OneLayerGrid()
    three_layers: LayerGrid = LayerGrid()

    def __post_init__(self):
        check_at_least(self, 2, "fresh_prompts")


PRESETS = {"cpu": Config()}
# Two minutes of processor time, or ten minutes on cores shared with other programs.
TIMES = {"cpu": "2 to 10 min, 2 cores"}
