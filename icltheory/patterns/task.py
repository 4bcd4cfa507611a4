"""The data of Li et al.: patterns, tasks on them, and prompts."""

import copy
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Real

from icltheory._checks import (
    Check,
    check_integer,
    check_key,
    check_nonnegative_int,
    check_positive_int,
    check_shape,
    checked,
    finite,
    nonnegative,
    positive,
    real,
    unit,
)
from icltheory._core import Record, exact_products
from icltheory._typing import Array, Bool, Float, Int, PRNGKey, Scalar
from icltheory.patterns.shift import (
    is_feasible,
    out_of_domain_patterns,
    random_orthogonal,
)
from icltheory.patterns.task_sets import all_tasks, held_out_tasks, read_tasks


class PatternPrompt(Record):
    r"""A batch of prompts of equation (6), tokens as rows.

    .. math:: p_i = (x_i;\, y_i q) , \qquad p_{query} = (x_{query};\, 0) .

    ``pattern`` and ``query_pattern`` are numbers of relevant patterns, ``pair`` is the
    task (a, b), ``z`` the label of the query, and ``feasible`` says whether patterns of
    this coefficient sum exist.

    Example:
        >>> from icltheory.patterns import PatternTask
        >>> prompt = PatternTask(6, 24, 2.0).sample(jax.random.key(0), 20, 5)
        >>> prompt.P.shape, prompt.X.shape, prompt.num_examples
        ((5, 20, 60), (5, 20, 30), 20)

    Source: Li et al. (2024), equation (6).
    """

    P: Float[Array, "*B l D"]
    P_query: Float[Array, "*B D"]
    y: Float[Array, "*B l"]
    z: Float[Array, "*B"]
    pattern: Int[Array, "*B l"]
    query_pattern: Int[Array, "*B"]
    pair: Int[Array, "*B 2"]
    feasible: Bool[Array, "*B"]
    dim: int = eqx.field(static=True)

    @property
    def num_examples(self) -> int:
        """Number l of contexts."""
        return self.P.shape[-2]

    @property
    def X(self) -> Float[Array, "*B l d"]:
        """Features of the contexts."""
        return self.P[..., : self.dim]

    @property
    def x_query(self) -> Float[Array, "*B d"]:
        """Features of the query."""
        return self.P_query[..., : self.dim]

    @property
    def y_query(self) -> Float[Array, "*B"]:
        """Label of the query, by the name that regression has for it."""
        return self.z

    @property
    def same(self) -> Bool[Array, "*B l"]:
        """Which contexts share the query's pattern."""
        return self.pattern == self.query_pattern[..., None]

    @property
    def missed(self) -> Bool[Array, "*B"]:
        """Whether no context shares the query's pattern."""
        return ~jnp.any(self.same, axis=-1)


Number = float | int | Real[ArrayLike, ""]
_one = Check(lambda share: share == 1, "1 where there are two patterns")


class PatternTask(Record):
    r"""In-context binary classification of noisy patterns (Li et al., 2024): a source.

    .. math:: x = \mu_j + \kappa \nu_k , \qquad \kappa \sim U(-K, K) , \qquad
        \langle \mu_i, \mu_j \rangle = \beta^2 \delta_{ij} , \quad
        \langle \nu_i, \nu_j \rangle = \beta^2 \delta_{ij} , \quad
        \langle \mu_i, \nu_j \rangle = 0 .

    A task (a, b) is +1 on the relevant pattern mu_a, -1 on mu_b, and a fair coin on the
    others. The query is of mu_a or mu_b, with equal odds. A context is of mu_a or mu_b
    with probability alpha / 2 each, of each other pattern with (1 - alpha) / (M1 - 2).
    The norm beta and K <= 1/2 are recollections of the paper, not read off it.

    Args:
        num_relevant: M1 >= 2.
        num_irrelevant: M2.
        scale: beta.
        noise: K.
        relevant_fraction: alpha; 0.8 if left out, and 1 where there are two patterns
            only, as it has to be.
        tasks: Ordered pairs (a, b) that prompts are drawn from; all if left out.
        num_shifted: Number M1' >= 2 of out-of-domain patterns; M1 // 2 if left out.
        dim: Width d_X >= M1 + M2 of the features; M1 + M2 if left out.
        label_dim: Width d_Y of the label embedding; d_X if left out.
        relevant: The patterns mu_j, used as they are; drawn if left out.
        irrelevant: The patterns nu_k, likewise.
        label_embedding: The unit vector q, likewise.
        feasible: Whether the patterns exist as asked for; see :meth:`out_of_domain`.
        key: Key or seed of what is drawn: orthogonal patterns, q on the sphere.

    Example:
        >>> from icltheory.patterns import circulant_tasks
        >>> task = PatternTask(6, 24, 2.0, tasks=circulant_tasks(6, [1, 2, 3]))
        >>> unseen = task.held_out()
        >>> len(task.tasks), len(unseen.tasks), task.relevant.shape
        (18, 12, (6, 30))
        >>> prompt = unseen.sample(jax.random.key(1), 20, 5)
        >>> prompt.P.shape, prompt.z.shape
        ((5, 20, 60), (5,))

    Source: Li et al. (2024), data and tasks.
    """

    num_relevant: int = eqx.field(static=True)
    num_irrelevant: int = eqx.field(static=True)
    scale: Scalar
    noise: Scalar
    relevant_fraction: Scalar
    tasks: tuple[tuple[int, int], ...] = eqx.field(static=True)
    num_shifted: int = eqx.field(static=True)
    dim: int = eqx.field(static=True)
    label_dim: int = eqx.field(static=True)
    dtype: Any = eqx.field(static=True)
    relevant: Float[Array, "M1 d"]
    irrelevant: Float[Array, "M2 d"]
    label_embedding: Float[Array, " q"]
    feasible: Bool[Array, ""]

    @exact_products
    def __init__(
        self,
        num_relevant: int,
        num_irrelevant: int,
        scale: Number,
        noise: Number = 0.5,
        relevant_fraction: Number | None = None,
        *,
        tasks: Any = None,
        num_shifted: int | None = None,
        dim: int | None = None,
        label_dim: int | None = None,
        dtype: Any = None,
        relevant: Any = None,
        irrelevant: Any = None,
        label_embedding: Any = None,
        feasible: Any = True,
        key: Any = 0,
    ):
        M1, M2 = num_relevant, num_irrelevant
        check_positive_int("num_irrelevant", M2)
        self.num_relevant, self.num_irrelevant = M1, M2
        self.tasks = all_tasks(M1) if tasks is None else read_tasks(tasks, M1)
        self.num_shifted = max(2, M1 // 2) if num_shifted is None else num_shifted
        self.dim = M1 + M2 if dim is None else dim
        self.label_dim = self.dim if label_dim is None else label_dim
        check_integer("num_shifted", self.num_shifted, 2)
        check_positive_int("dim", self.dim)
        check_positive_int("label_dim", self.label_dim)
        if self.dim < M1 + M2:
            expected = f"d_X >= M1 + M2 = {M1 + M2}"
            raise ValueError(f"dim: expected {expected}, got {self.dim}")
        self.dtype = np.dtype(jnp.result_type(float if dtype is None else dtype))
        self.scale = self._array("scale", scale, positive, ())
        self.noise = self._array("noise", noise, nonnegative, ())
        if relevant_fraction is None:
            relevant_fraction = 1.0 if M1 == 2 else 0.8
        self.relevant_fraction = self._share(relevant_fraction)
        seeded = isinstance(key, int | np.integer)
        first, second = jax.random.split(jax.random.key(key) if seeded else key)
        given = {"relevant": (relevant, M1), "irrelevant": (irrelevant, M2)}
        known = {
            name: self._array(name, value, finite, (number, self.dim))
            for name, (value, number) in given.items()
            if value is not None
        }
        self.relevant, self.irrelevant = self._patterns(first, known)
        q, shape = label_embedding, (self.label_dim,)
        if q is None:
            q = jax.random.normal(second, shape, self.dtype)
            q = q / jnp.linalg.norm(q)
        self.label_embedding = self._array("label_embedding", q, finite, shape)
        self.feasible = jnp.asarray(feasible)

    def _array(self, name, value, check, shape):
        value = real(name, value)
        check_shape(name, value, shape)
        return jnp.asarray(checked(name, value, check), self.dtype)

    def _share(self, value):
        value = real("relevant_fraction", value)
        check = unit & _one if self.num_relevant == 2 else unit
        return jnp.asarray(checked("relevant_fraction", value, check), self.dtype)

    def _patterns(self, key, known):
        """Both kinds of patterns; what is not known is orthogonal to what is."""
        if len(known) == 2:
            return known["relevant"], known["irrelevant"]
        M1, M2 = self.num_relevant, self.num_irrelevant
        basis = random_orthogonal(key, self.dim, self.dtype)
        if not known:
            basis = self.scale * basis
            return basis[:M1], basis[M1 : M1 + M2]
        (first,) = known.values()
        # Gram and Schmidt's method leaves the first ones' span to them.
        both = jnp.concatenate([first, basis]).T
        basis = jnp.roll(jnp.linalg.qr(both)[0].T, -len(first), axis=0)
        if "relevant" in known:
            return first, self.scale * basis[:M2]
        return self.scale * basis[:M1], first

    @property
    def width(self) -> int:
        """Width d_X + d_Y of a token."""
        return self.dim + self.label_dim

    def with_(
        self, *, tasks: Any = None, relevant_fraction: Any = None
    ) -> "PatternTask":
        """The same patterns with other tasks, or another share of relevant contexts.

        A stack of tasks remains one.
        """
        made, changes = copy.copy(self), {}
        if tasks is not None:
            changes["tasks"] = read_tasks(tasks, self.num_relevant)
        if relevant_fraction is not None:
            stack = np.shape(self.relevant_fraction)
            if np.shape(relevant_fraction) != stack:
                check_shape("relevant_fraction", relevant_fraction, ())
            share = jnp.broadcast_to(self._share(relevant_fraction), stack)
            changes["relevant_fraction"] = share
        for name, value in changes.items():
            object.__setattr__(made, name, value)
        return made

    def held_out(self) -> "PatternTask":
        r"""The same patterns with the unseen tasks, :math:`T \setminus T_{tr}`."""
        return self.with_(tasks=held_out_tasks(self.tasks, self.num_relevant))

    @exact_products
    def out_of_domain(
        self, coefficient_sum: Number, *, key: PRNGKey, tasks: Any = None
    ) -> "PatternTask":
        r"""Draws shifted patterns: M1' relevant ones, and rotated irrelevant ones.

        .. math:: \mu'_j = \sum_i k_{ji} \mu_i , \quad \sum_i k_{ji} = S_1 , \qquad
            \nu' = O \nu .

        ``tasks`` are pairs of the new patterns, all if left out. Where a traced S_1 is
        not feasible, ``feasible`` says so, there and on each of the prompts.

        Source: Li et al. (2024), Theorem 2.
        """
        check_key("key", key)
        S, num = coefficient_sum, self.num_shifted
        first, second = jax.random.split(key)
        rotation = random_orthogonal(second, self.num_irrelevant, self.dtype)
        return PatternTask(
            num,
            self.num_irrelevant,
            self.scale,
            self.noise,
            None if num == 2 else self.relevant_fraction,
            tasks=tasks,
            num_shifted=num,
            dim=self.dim,
            label_dim=self.label_dim,
            dtype=self.dtype,
            relevant=out_of_domain_patterns(self.relevant, num, S, key=first),
            irrelevant=rotation @ self.irrelevant,
            label_embedding=self.label_embedding,
            feasible=is_feasible(self.num_relevant, num, S),
        )

    def sample(
        self, key: PRNGKey, num_examples: int, num_prompts: int
    ) -> PatternPrompt:
        """Draws prompts of equation (6) with ``num_examples`` contexts, 0 or more."""
        check_key("key", key)
        check_nonnegative_int("num_examples", num_examples)
        check_positive_int("num_prompts", num_prompts)
        return _drawn(self, key, int(num_examples), int(num_prompts))


@eqx.filter_jit
def _drawn(task, key, l, B) -> PatternPrompt:
    """Prompts by one program: operation by operation they were seventy."""
    dtype = task.dtype
    keys = jax.random.split(key, 6)
    chosen = jax.random.randint(keys[0], (B,), 0, len(task.tasks))
    pair = jnp.asarray(task.tasks, jnp.int32)[chosen]
    alpha = jnp.asarray(task.relevant_fraction, dtype)
    pattern = _patterns(keys[1], pair, task.num_relevant, l, alpha)
    coin = jax.random.rademacher(keys[2], (B, l), dtype)
    a, b = pair[:, :1], pair[:, 1:]
    y = jnp.where(pattern == a, 1, jnp.where(pattern == b, -1, coin)).astype(dtype)
    z = jax.random.rademacher(keys[3], (B,), dtype)
    query_pattern = jnp.where(z > 0, pair[:, 0], pair[:, 1])
    P = _tokens(keys[4], task, pattern, y)
    P_query = _tokens(keys[5], task, query_pattern, jnp.zeros(B, dtype))
    feasible = jnp.broadcast_to(task.feasible, (B,))
    known = y, z, pattern, query_pattern, pair, feasible
    return PatternPrompt(P, P_query, *known, task.dim)


def _patterns(key, pair, num_relevant, num_examples, alpha):
    """Draws each context's pattern: one of the pair, or any of the others."""
    shape = (pair.shape[0], num_examples)
    first, second = jax.random.split(key)
    u = jax.random.uniform(first, shape, alpha.dtype)
    a, b = pair[:, :1], pair[:, 1:]
    if num_relevant == 2:  # there are no other patterns
        return jnp.where(u < 0.5, a, b)
    other = jax.random.randint(second, shape, 0, num_relevant - 2, pair.dtype)
    other = other + (other >= jnp.minimum(a, b))  # skips the pair
    other = other + (other >= jnp.maximum(a, b))
    return jnp.where(u < alpha / 2, a, jnp.where(u < alpha, b, other))


def _tokens(key, task, pattern, y):
    """Rows (mu_j + kappa nu_k; y q)."""
    first, second = jax.random.split(key)
    which = jax.random.randint(first, pattern.shape, 0, task.num_irrelevant)
    kappa = jax.random.uniform(second, pattern.shape, task.dtype, -1, 1)
    # A share that is wrong and was traced is NaN, which the choice of patterns hides.
    size = task.noise + 0 * task.relevant_fraction
    kappa = jnp.asarray(size, task.dtype) * kappa
    X = task.relevant[pattern] + kappa[..., None] * task.irrelevant[which]
    q = task.label_embedding.reshape((1,) * y.ndim + (-1,))
    return jnp.concatenate([X, y[..., None] * q], axis=-1)
