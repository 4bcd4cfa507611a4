"""All statements, in the order of the papers."""

from experiments.ledger.li_cot import LI_COT
from experiments.ledger.li_icl import LI_ICL
from experiments.ledger.li_related import LI_RELATED
from experiments.ledger.others import OTHERS
from experiments.ledger.statement import Statement as Statement
from experiments.ledger.yao_bounds import BOUNDS
from experiments.ledger.yao_pruning import PRUNING
from experiments.ledger.yao_trajectories import TRAJECTORIES
from experiments.ledger.zhang_flow import FLOW
from experiments.ledger.zhang_ltb import ZHANG_LTB
from experiments.ledger.zhang_rates import RATES

__all__ = ["STATEMENTS", "Statement"]

STATEMENTS = (
    *TRAJECTORIES,
    *BOUNDS,
    *PRUNING,
    *OTHERS,
    *ZHANG_LTB,
    *FLOW,
    *RATES,
    *LI_ICL,
    *LI_COT,
    *LI_RELATED,
)
