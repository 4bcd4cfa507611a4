"""Checks of the theory, and claims about trained models."""

import numpy as np

from experiments._frame.report import Check, Claim
from experiments.mechanisms.config import Config, Kernels
from experiments.mechanisms.found import MechanismFindings

# Mean squared errors of an independent simulation, 60 draws: rbf attention on rbf data.
REFERENCE = {1: 0.755, 3: 0.682, 10: 0.647, 100: 0.6357, 1000: 0.6355}
REFERENCE_DRAWS = 60


def checks(config: Config, found: MechanismFindings) -> list[Check]:
    """Checks the statements of the theory."""
    made = []
    for K, one in found.balanced.items():
        made += [
            Check(
                f"K={K}: steps to Attn = 1/2, descent over closed form",
                one.half[0] / one.half[1],
                1.0,
                "within",
                0.01,
            ),
            Check(f"K={K}: relative error of t(u), path", one.time_error, 0.01, "<="),
            Check(f"K={K}: relative error of L(t), path", one.loss_error, 0.01, "<="),
            Check(f"K={K}: largest |A + (K-1) B|", one.drift, 1e-10, "<="),
        ]
    phases = found.imbalanced.phases
    ratio = float(phases.learned[0] / np.min(phases.learned[1:]))
    made.append(Check("dominant over rare: steps to learn", ratio, 0.5, "<="))
    shed = np.asarray(found.imbalanced.path.logits[:, 1, :2])
    before = float(np.max((shed[1:50, 0] + shed[1:50, 1])[10:]))
    made.append(
        Check(
            "rare query, steps 11 to 49: A_k + B_k1 (it sheds first)", before, 0, "<="
        )
    )
    for kernel, gap in found.forms.items():
        made.append(Check(f"three forms, {kernel}: difference", gap, 1e-12, "<="))
    made += _error_checks(config, found)
    return made + _circuit_checks(found)


def _error_checks(config: Config, found: MechanismFindings) -> list[Check]:
    made = []
    for data, (by_kernel, best) in found.errors.items():
        if data not in by_kernel:
            continue
        ends = {kernel: float(one.mean[-1]) for kernel, one in by_kernel.items()}
        # Overflowed errors are not compared.
        rivals = [x for k, x in ends.items() if k != data and np.isfinite(x)]
        others = min(rivals, default=np.inf)
        made.append(
            Check(
                f"{data} data: matched kernel over the best other, deepest",
                ends[data] / others,
                1.0,
                "<=",
            )
        )
        made.append(
            Check(
                f"{data} data: matched kernel minus kriging, deepest",
                ends[data] - float(best.mean[0]),
                0.0,
                "within",
                2e-3,
            )
        )
    return made + _reference_checks(config.kernels, found)


def _reference_checks(config: Kernels, found: MechanismFindings) -> list[Check]:
    """Checks errors against an independent simulation, within three standard errors."""
    same = Kernels(draws=config.draws, depths=config.depths)
    if config != same:
        return []
    rbf, made = found.errors["rbf"][0]["rbf"], []
    for depth in set(REFERENCE).intersection(config.depths):
        at = config.depths.index(depth)
        parts = 1 / config.draws + 1 / REFERENCE_DRAWS
        close = 3 * float(rbf.one[at]) * parts**0.5
        numbers = float(rbf.mean[at]), REFERENCE[depth]
        made.append(Check(f"rbf on rbf data, depth {depth}", *numbers, "within", close))
    return sorted(made, key=lambda check: -check.reference)


def _circuit_checks(found: MechanismFindings) -> list[Check]:
    one = found.circuit
    return [
        Check("circuit: prefix score of layer 2", one.prefix[1], 1.0, "within", 1e-6),
        Check("circuit: prefix score of layer 1", one.prefix[0], 0.0, "within", 1e-6),
        Check("circuit: previous token, layer 1", one.previous[0], 1, "within", 1e-6),
        Check(
            "uniform causal attention: prefix score",
            one.uniform,
            one.expected_uniform,
            "within",
            1e-6,
        ),
        Check("copying of I", one.copying[0], 1.0, "within", 1e-6),
        Check("copying of -I", one.copying[1], -1.0, "within", 1e-6),
        Check("copying at random, of 20", one.copying[2], 0.0, "within", 0.15),
        Check("circuit: copying ratio", one.ratio, 1.0, "within", 1e-6),
        Check("circuit: next-token accuracy", one.accuracy, 1.0, "within", 0.0),
    ]


def claims(config: Config, found: MechanismFindings) -> list[Claim]:
    """Claims about trained models, and whether they hold."""
    lm, reg = found.language, found.regression
    n = config.gpt2.num_points // 2
    best = float(lm.repeated.prefix_matching.max())
    colon = float(lm.colons.prefix_matching.max())
    loss, error = lm.label_score
    lookup, start = (float(s.prefix_matching.max()) for s in reg[:2])
    return [
        Claim(
            claim="small LM: an induction head on random repeated words",
            expected="largest prefix-matching score above three times uniform",
            measured=f"{best:.3f}; uniform {float(lm.repeated.uniform):.3f}",
            held=best > 3 * float(lm.repeated.uniform),
        ),
        Claim(
            claim="small LM: heads that look from a colon to the label words before",
            expected="largest score at colons above three times uniform",
            measured=f"{colon:.3f}; uniform {float(lm.colons.uniform):.3f}",
            held=colon > 3 * float(lm.colons.uniform),
        ),
        Claim(
            claim="small LM: of these label words the right one gets more",
            expected="largest share above the share by count by 0.1",
            measured=f"{float(lm.right.max()):.3f}; by count {lm.by_count:.3f}",
            held=float(lm.right.max()) > lm.by_count + 0.1,
        ),
        Claim(
            claim="small LM: context lowers the loss of labels",
            expected=f"label {len(lm.labels)} minus label 2 below 0 by three standard "
            "errors",
            measured=f"{loss:.3f} ({error:.3f})",
            held=loss < -3 * error,
        ),
        Claim(
            claim="GPT-2 on regression: a head looks up the label of an input seen "
            "before",
            expected="largest prefix-matching score above three times uniform",
            measured=f"{lookup:.3f}; untrained {start:.3f}, uniform "
            f"{float(reg.trained.uniform):.3f}",
            held=lookup > 3 * float(reg.trained.uniform),
        ),
        Claim(
            claim="GPT-2 on regression: an input seen before is answered better",
            expected=f"error / d at inputs 1 to {n} again below that of a fresh input",
            measured=f"{reg.again:.4f} against {reg.fresh:.4f}",
            held=reg.again < reg.fresh,
        ),
    ]
