"""Starting point of the flow of Zhang, Frei and Bartlett."""

import jax.numpy as jnp

from icltheory._calculators import calculator
from icltheory._noted import check_values
from icltheory._pytree import pytree
from icltheory.regression._linalg import Matrix, Number, as_floats, einsum
from icltheory.regression.blocks import EffectiveParameters
from icltheory.regression.rates.trained_attention import convergence_constants
from icltheory.regression.risks._population import Count

__all__ = ["AttentionWeights", "attention_start"]


@pytree
class AttentionWeights:
    r"""The two trained blocks of linear attention.

    .. math:: W^{PV} = \begin{pmatrix} 0 & 0 \\ 0 & u \end{pmatrix}, \qquad
        W^{KQ} = \begin{pmatrix} U & 0 \\ 0 & 0 \end{pmatrix}.

    Args:
        u: Label entry of the values.
        U: Input block of the scores.

    Returns:
        A frozen pytree.

    Example:
        >>> weights = AttentionWeights(jnp.array(2.0), 0.5 * jnp.eye(2))
        >>> step = weights.effective()  # one gradient step of size 1
        >>> float(step.predict(jnp.eye(2), jnp.array([2.0, 4.0]), jnp.ones(2)))
        3.0

    Source: Zhang, Frei and Bartlett (JMLR 2024), Section 4.
    """

    u: Number
    U: Matrix

    def effective(self) -> EffectiveParameters:
        """The same function as effective parameters, with v = u and the rest 0."""
        u, U = as_floats(self.u, self.U)
        zero = jnp.zeros(U.shape[-1], U.dtype)
        return EffectiveParameters(zero, zero, u, U, zero)


@calculator
def attention_start(
    input_cov: Matrix, num_examples: Count, Theta: Matrix, scale: Number
) -> AttentionWeights:
    r"""Returns the starting weights of Zhang, Frei and Bartlett.

    .. math:: u_0 = s, \qquad U_0 = s\, \Theta \Theta^\top, \qquad
        \|\Theta \Theta^\top\|_F = 1, \qquad s^2 \|G\| \sqrt d < 2.

    ``regression.rates`` has the limit and the constants of the flow from here.

    Args:
        input_cov: Lambda, positive definite.
        num_examples: Examples N >= 1.
        Theta: Shape of the start, |Theta Theta'|_F = 1.
        scale: Size s of the start.

    Returns:
        The weights at time 0; they are balanced, u^2 = ||U||_F^2.

    Example:
        >>> start = attention_start(jnp.eye(4), 3, jnp.eye(4) / 2**0.5, 0.5)
        >>> float(start.u), round(float(start.U[0, 0]), 6)
        (0.5, 0.25)

    Source: Zhang, Frei and Bartlett (JMLR 2024), Assumption 3.3.
    """
    constants = convergence_constants(input_cov, num_examples, Theta, scale)
    fits = constants.holds & (jnp.asarray(scale) > 0)
    check_values(
        "scale",
        fits,
        lambda fits: fits,
        "a number above 0 with scale^2 |G| sqrt(d) < 2",
        str(scale),
    )
    Theta, s = as_floats(Theta, scale)
    return AttentionWeights(s, s * einsum("ij,kj->ik", Theta, Theta))
