"""Results for every figure whose setting is not published."""

import numpy as np

from experiments._frame.report import Claim
from experiments.li_figures.config import Config
from experiments.li_figures.levels import Level
from experiments.li_figures.limits import (
    balanced_size,
    least_attention_scale,
    least_factor,
    nearest_neighbour_error,
    pruned_error_bound,
    pruning_needs,
)
from experiments.li_figures.one_layer import Trained
from experiments.li_figures.published import (
    FIGURE_14,
    LARGE,
    LAYERS,
    MASS,
    NEIGHBOUR_LENGTHS,
    NEIGHBOURS,
    NORMS,
    PUBLISHED,
    PUBLISHED_LENGTHS,
    RANGES,
    TURNS,
)
from experiments.li_figures.stops import LayerStop, Stop, largest_rise, rise

# A level counts as reproduced within this typical factor, since figures can be read to
# about a tenth.
_MET = 1.5


def claims(
    config: Config,
    fits: list[Level],
    single: list[Trained],
    stops: list[Stop],
    stacks: list[LayerStop],
) -> list[Claim]:
    """Returns the claims in the order of the figures."""
    return [
        _norms(stops),
        _balance(config),
        _angle(config),
        *_pruning(config, single),
        *(_level(level) for level in fits),
        _mixture(),
        *_layers(stacks),
        *_neighbours(),
    ]


def _norms(stops: list[Stop]) -> Claim:
    best = min(stops, key=lambda stop: stop.factor)
    v = best.values
    shown = ", ".join(f"{name} {v[name]:.2f}" for name in (*NORMS, "size"))
    return Claim(
        claim="Figures 8, 10, 11, 14: some size of the second layer and stop has the "
        "norms 1.75, 1.47, .42, 1.2 and .48 to .51",
        measured=f"{shown} with a = +-{best.gain:g}/m, step size {best.step_size:g}, "
        f"{6 * len(best.shifts)} tasks, at step {best.step}; typical factor "
        f"{best.factor:.2f}",
        expected="a typical factor of at most 1.15",
        held=best.factor <= 1.15,
    )


def _balance(config: Config) -> Claim:
    ensemble = config.one_layer.ensemble
    excess = (
        ensemble.attention_scale**2 - ensemble.num_neurons * ensemble.neuron_scale**2
    )
    pairs = zip(RANGES["feature"], RANGES["label"], strict=True)
    low, high = (balanced_size(f, b, LARGE, excess) for f, b in pairs)
    return Claim(
        claim="Figures 10, 11 and 14 are of one network (balance of the last layers)",
        measured=f"the parts imply rows of W_O from {low:.2f} to {high:.2f}, published "
        f"{RANGES['size'][0]:g} to {RANGES['size'][1]:g}",
        expected="ranges that meet",
        held=low <= RANGES["size"][1] and high >= RANGES["size"][0],
    )


def _angle(config: Config) -> Claim:
    least = least_attention_scale(TURNS["label"], RANGES["label"][0], RANGES["size"][1])
    delta = config.one_layer.ensemble.attention_scale
    return Claim(
        claim="Figure 11: some setting ends at an angle of .165 pi between label parts "
        "and q",
        measured=f"needs delta >= {least:.2f}; the starts of Figures 11 and 14 give "
        f"{delta:g}",
        expected="delta at least that (proof for every setting)",
        held=delta >= least,
    )


def _pruning(config: Config, single: list[Trained]) -> list[Claim]:
    ensemble = config.one_layer.ensemble
    along = NORMS["feature"] * np.cos(np.pi * TURNS["feature"])
    along *= ensemble.scale / ensemble.num_relevant**0.5
    ratio = along / (NORMS["label"] * np.cos(np.pi * TURNS["label"]))
    shift = float(ratio * config.one_layer.coefficient_sum)
    bound = pruned_error_bound(MASS, shift)
    needs = pruning_needs(FIGURE_14["random"], MASS)
    most = largest_rise(single, 0.02)
    v = most.values
    return [
        Claim(
            claim="Figure 14: a network with the norms of Figures 10, 11 and the "
            "attention of Figure 9 errs on .044 of the prompts after pruning",
            measured=f"at most {bound:.4f}, whatever is pruned (c S_1 = {shift:.2f}; "
            f".044 needs {needs:.2f})",
            expected="a bound of .044 or more (proof for every setting)",
            held=bound >= FIGURE_14["random"],
        ),
        Claim(
            claim="Figures 14, 15: at some setting and stop the 0-1 error rises at "
            f"R = {config.one_layer.pruned:g}",
            measured=f"by {rise(most):.4f} at most, from {v['error']:.4f} (a = "
            f"+-{most.gain:g}/m, step size {most.step_size:g}, step {most.step}, "
            f"attention {v['attention']:.2f}), of the stops with an error of at most "
            ".02 before",
            expected="a rise of .02 or more; in the figure .023 and .037",
            held=rise(most) >= 0.02,
        ),
    ]


def _level(level: Level) -> Claim:
    return Claim(
        claim=f"{level.name}: some task has the published level",
        measured=f"typical factor {level.fresh.typical:.2f}, largest "
        f"{level.fresh.largest:.2f}, on fresh prompts",
        expected=f"a typical factor of at most {_MET:g}",
        held=level.fresh.typical <= _MET,
    )


def _mixture() -> Claim:
    curves = PUBLISHED["alpha'"]
    factors = [
        least_factor(curves, PUBLISHED_LENGTHS, falling=falling)
        for falling in (True, False)
    ]
    return Claim(
        claim="Figure 17: some error that depends on the number of votes alone has "
        "exactly its 20 values",
        measured=f"none within a factor of {factors[0]:.2f}; none within "
        f"{factors[1]:.2f} even if more votes may do harm",
        expected="a factor of 1 (linear program over all tasks)",
        held=factors[1] <= 1.001,
    )


def _layers(stacks: list[LayerStop]) -> list[Claim]:
    norms = min(stacks, key=lambda stop: stop.factor)
    turns = max(stacks, key=lambda stop: stop.ratio)
    run = norms.run
    shown = " ".join(f"{x:.3f}" for x in run.norm[norms.place])
    return [
        Claim(
            claim=f"Figures 24 to 26: label parts grow from {LAYERS[0]:g} to "
            + ", ".join(f"{x:g}" for x in LAYERS[1]),
            measured=f"{shown} from {run.norm[0].mean():.3f} ({run.rule}, step size "
            f"{run.step_size:g}, scale {run.scale:g}, step {run.steps[norms.place]}, "
            f"hinge {run.hinge[norms.place]:.2f}); typical factor {norms.factor:.2f}",
            expected=f"a typical factor of at most {_MET:g}, at a stop with a hinge "
            "error of at most .1",
            held=norms.factor <= _MET,
        ),
        Claim(
            claim="Figures 24 to 26: label parts turn in one layer only",
            measured=f"largest turn at most {turns.ratio:.2f} times the next "
            f"({turns.run.rule}, step size {turns.run.step_size:g}, scale "
            f"{turns.run.scale:g})",
            expected="three times the next at some stop",
            held=turns.ratio >= 3,
        ),
    ]


def _neighbours() -> list[Claim]:
    stated = []
    for fraction, errors in NEIGHBOURS.items():
        nearest = [nearest_neighbour_error(fraction, n) for n in NEIGHBOUR_LENGTHS]
        below = sum(a < b for a, b in zip(errors, nearest, strict=True))
        stated.append(
            Claim(
                claim=f"Figures 27/28, alpha' = {fraction:g}: in-context learning errs "
                "less than 1-NN on prompts of equation (6)",
                measured="never, by proof; the published curve is below the exact "
                f"error of 1-NN at {below} of {len(errors)} lengths "
                f"(n = 6: {errors[0]:g} and {nearest[0]:.3f})",
                expected="impossible for one layer",
                held=False,
            )
        )
    return stated
