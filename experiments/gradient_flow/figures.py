"""The figures of a run."""

from matplotlib.figure import Figure

from experiments.gradient_flow.config import Config
from experiments.gradient_flow.descents import Descents
from experiments.gradient_flow.drawing import (
    FlowPanel,
    FlowStarts,
    descents_beside_flow,
    fates_of_starts,
    flow_paths,
    flow_rates,
)
from experiments.gradient_flow.paths import FlowPath
from experiments.gradient_flow.starts import (
    FATES,
    Starts,
    fates,
    last_finite,
    problem_of,
)
from icltheory import regression as reg
from icltheory.statistics import proportion_interval


def figures(
    config: Config,
    paths: dict[str, FlowPath],
    descents: Descents,
    starts: dict[tuple[str, int, int], Starts],
) -> dict[str, Figure]:
    """Draws all figures by file name."""
    panels = {name: _panel(path) for name, path in paths.items()}
    of = f"d = {config.dim}, M = {config.num_examples}"
    title = f"Gradient flow of GD-beta stays below its proved bounds, {of}"
    beside = descents_beside_flow(
        descents.flow,
        {
            f"step {share:g} of the largest stable": path
            for share, path in descents.steps.items()
        },
        descents.sampled_times,
        {f"batches of {batch}": values for batch, values in descents.sampled.items()},
        f"GD-beta, H = Psi = I, d = {config.descent_dim}, M = {config.num_examples}: "
        f"descent beside the flow ({config.seeds} seeds)",
    )
    starts_by_fate = fates_of_starts(
        [_setting(config, *key, part) for key, part in starts.items()],
        f"Gradient flow of all weights from {config.num_starts} random starts "
        f"(entries of standard deviation {config.start_scale:g})\n"
        "lines: median of the starts that end alike; bands: 5 to 95 % of them",
    )
    return {
        "paths.png": flow_paths(panels, f"Gradient flow of GD-beta, {of}"),
        "rates.png": flow_rates(panels, title),
        "descents.png": beside,
        "starts.png": starts_by_fate,
    }


def _panel(path: FlowPath) -> FlowPanel:
    bounds, flow = path.bounds, path.trajectory
    curves = {
        r"$|P(\beta_t - \beta^*)|$": (
            path.start,
            {"sharp rate, 4/(M+2)": bounds.beta, "rate 2/(M+1)": bounds.beta_text},
        ),
        r"$\|P(\Gamma_t - \Gamma^*)P\|_F$": (
            path.preconditioner,
            {"Lemma G.6": bounds.Gamma},
        ),
        "excess risk": (flow.excess, {"from both bounds": bounds.excess}),
    }
    return FlowPanel(
        flow.times,
        flow.model.beta,
        flow.model.Gamma,
        path.limit.beta,
        path.limit.Gamma,
        curves,
    )


def _setting(config: Config, name: str, dim: int, M: int, part: Starts) -> FlowStarts:
    least = float(reg.optimum(reg.LTB, problem_of(config, name, dim), M).risk)
    return FlowStarts(
        label=f"{name}, d = {dim}, M = {M}",
        times=part.times,
        excess=part.excess,
        level=float(part.levels[0]),
        is_minimum=part.margin > 0,
        fates=fates(*last_finite(part.excess), part.levels, least),
        interval=proportion_interval(part.counts[FATES[0]], config.num_starts),
    )
