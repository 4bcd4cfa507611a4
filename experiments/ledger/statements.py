"""All statements, in the order of the papers."""

from experiments.ledger.li_cot import LI_COT
from experiments.ledger.li_figures import LI_FIGURES
from experiments.ledger.li_icl import LI_ICL
from experiments.ledger.li_related import LI_RELATED
from experiments.ledger.others import OTHERS
from experiments.ledger.statement import Statement as Statement
from experiments.ledger.yao_bounds import BOUNDS
from experiments.ledger.yao_figures import YAO_FIGURES
from experiments.ledger.yao_pruning import PRUNING
from experiments.ledger.yao_trajectories import TRAJECTORIES
from experiments.ledger.zhang_appendix import APPENDIX
from experiments.ledger.zhang_flow import FLOW
from experiments.ledger.zhang_ltb import ZHANG_LTB
from experiments.ledger.zhang_rates import RATES

__all__ = ["STATEMENTS", "Statement"]

STATEMENTS = (
    *TRAJECTORIES,
    *BOUNDS,
    *PRUNING,
    *YAO_FIGURES,
    *OTHERS,
    *ZHANG_LTB,
    *FLOW,
    *RATES,
    *APPENDIX,
    *LI_ICL,
    *LI_COT,
    *LI_FIGURES,
    *LI_RELATED,
)
