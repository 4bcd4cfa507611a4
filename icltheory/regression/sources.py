"""Prompts, and their sources: families of functions that label inputs."""
# ruff: noqa: D102  (a method that overrides one inherits its documentation)

import abc
import math
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import jax.numpy as jnp

from icltheory._checks import (
    check_key,
    check_nonnegative_int,
    check_positive_int,
    check_shape,
    checked,
    count,
    nonnegative,
    scalar,
)
from icltheory._core import Record, where_valid
from icltheory._typing import Array, Float, PRNGKey
from icltheory.regression._linalg import Number, default_dtype, einsum


class _Points(Record):
    X: Float[Array, "*B P d"]
    y: Float[Array, "*B P"]

    @property
    def dim(self) -> int:
        return self.X.shape[-1]


class PrefixPrompt(_Points):
    r"""A batch of prompts with one query per prefix (Garg et al. 2022, Section 2).

    .. math:: \hat y_k = f(x^{query}_k \mid x_1, y_1, \dots, x_k, y_k), \quad k < P.

    In a standard prompt the query after k examples is the next example; in a shifted
    one it may be any point. ``w`` holds the parameters of the tasks, in a pytree.

    Example:
        >>> X, y = jnp.eye(3)[None], jnp.ones((1, 3))
        >>> PrefixPrompt(X, y, X, y, jnp.ones((1, 3))).num_points
        3

    Source: Garg et al. (2022), Sections 2 and 4.
    """

    X_query: Float[Array, "*B P d"]
    y_query: Float[Array, "*B P"]
    w: Any

    @property
    def num_points(self) -> int:
        """Number of prefixes, k = 0 to ``num_points - 1``."""
        return self.X.shape[-2]

    def after(self, k: int) -> "Prompt":
        """The prompts of the first k examples and the query after them."""
        query = self.X_query[..., k, :], self.y_query[..., k]
        return Prompt(self.X[..., :k, :], self.y[..., :k], *query, self.w)


class Prompt(_Points):
    r"""A batch of prompts with one query after all N examples; labels have noise.

    .. math:: (x_1, y_1, \dots, x_N, y_N, x_{query}) \mapsto y_{query}.

    Example:
        >>> prompt = Prompt(jnp.eye(3), jnp.ones(3), jnp.ones(3), jnp.array(3.0), None)
        >>> [a.shape for a in prompt.points()]
        [(4, 3), (4,)]

    Source: Garg et al. (2022), Section 2.
    """

    x_query: Float[Array, "*B d"]
    y_query: Float[Array, "*B"]
    w: Any

    @property
    def num_examples(self) -> int:
        """Number of labelled examples N."""
        return self.X.shape[-2]

    def points(self) -> tuple[Float[Array, "*B P d"], Float[Array, "*B P"]]:
        """Examples with the query appended as the last point, P = N + 1."""
        X = jnp.concatenate([self.X, self.x_query[..., None, :]], axis=-2)
        y = jnp.concatenate([self.y, self.y_query[..., None]], axis=-1)
        return X, y

    def tokens(self) -> tuple[Float[Array, "*B N n"], Float[Array, "*B n"]]:
        r"""``H`` and ``h_query``: :math:`[x_i;\, y_i]`, :math:`[x_{N+1};\, 0]`."""
        H = jnp.concatenate([self.X, self.y[..., None]], axis=-1)
        empty = jnp.zeros_like(self.x_query[..., :1])
        return H, jnp.concatenate([self.x_query, empty], axis=-1)

    def prefixes(self) -> PrefixPrompt:
        """The standard prefix prompt, whose point k is the query after k examples."""
        X, y = self.points()
        return PrefixPrompt(X, y, X, y, self.w)


class Source(Record):
    r"""A distribution over functions: draws inputs, parameters and labels.

    .. math:: x \sim D_X, \qquad w \sim D_W, \qquad y = f_w(x) + \text{noise}.

    A subclass says how parameters arise and label inputs, and has the static fields
    ``dim`` and ``dtype``. A sharded batch has the values of an unsharded one.

    Example:
        >>> class HeavyTails(Source):
        ...     dim: int = eqx.field(static=True)
        ...     dtype: Any = eqx.field(static=True, default=float)
        ...     def sample_inputs(self, key, num_points, num_prompts):
        ...         return jax.random.t(key, 5.0, (num_prompts, num_points, self.dim))
        ...     def sample_parameters(self, key, num_prompts, *, active_dims=None):
        ...         return jax.random.normal(key, (num_prompts, self.dim))
        ...     def evaluate(self, w, X):
        ...         return jnp.einsum("bd,bpd->bp", w, X)
        >>> HeavyTails(3).sample(jax.random.key(0), 8, 2).X.shape
        (2, 8, 3)
    """

    if TYPE_CHECKING:  # a dataclass would use an inherited property as a default

        @property
        def dim(self) -> int: ...

        @property
        def dtype(self) -> Any: ...

    def _read(self, *counts: str) -> None:
        """Checks the named counts and reads the dtype, ``None`` being JAX's default."""
        for name in counts:
            check_positive_int(name, getattr(self, name))
        self.dtype = default_dtype(self.dtype)  # pyrefly: ignore[read-only]

    @property
    def targets(self) -> str:
        """Kind of labels, ``"real"`` or ``"sign"``, for the choice of the loss."""
        return "real"

    def sample_inputs(
        self, key: PRNGKey, num_points: int, num_prompts: int
    ) -> Float[Array, "B P d"]:
        """Draws the inputs of prompts; standard normal unless the source says more."""
        return jax.random.normal(key, (num_prompts, num_points, self.dim), self.dtype)

    @abc.abstractmethod
    def sample_parameters(
        self, key: PRNGKey, num_prompts: int, *, active_dims: Any = None
    ) -> Any:
        """Draws the parameters of the prompts, as a pytree with a leading axis."""

    @abc.abstractmethod
    def evaluate(self, w: Any, X: Float[Array, "B P d"]) -> Float[Array, "B P"]:
        """Labels without noise."""

    def label(
        self, key: PRNGKey, w: Any, X: Float[Array, "B P d"]
    ) -> tuple[Float[Array, "B P"], Any]:
        """Noisy labels, and their parameters."""
        return self.evaluate(w, X), w

    def sample(
        self,
        key: PRNGKey,
        num_examples: int,
        num_prompts: int,
        *,
        active_dims: Any = None,
    ) -> Prompt:
        """Draws prompts of N >= 0 examples, a pure function of the key and the shapes.

        Coordinates of x from ``active_dims`` on are set to 0 before the labels are made
        (Garg's curriculum). It may be traced: out of range, the inputs are then NaN.
        """
        check_key("key", key)
        check_nonnegative_int("num_examples", num_examples)
        check_positive_int("num_prompts", num_prompts)
        key_x, key_w, key_noise = jax.random.split(key, 3)
        X = self.sample_inputs(key_x, num_examples + 1, num_prompts)
        if active_dims is not None:
            flag = count(1, self.dim)("active_dims", active_dims)
            mask = (jnp.arange(self.dim) < active_dims)[None, None]
            X = where_valid(jnp.where(mask, X, 0), flag)
        w = self.sample_parameters(key_w, num_prompts, active_dims=active_dims)
        y, w = self.label(key_noise, w, X)
        return Prompt(X[:, :-1], y[:, :-1], X[:, -1], y[:, -1], w)


class NoisyLinear(Source):
    """Linear functions with Gaussian noise; a subclass has the field ``noise_var``."""

    if TYPE_CHECKING:

        @property
        def noise_var(self) -> Number: ...

    def evaluate(self, w, X) -> Float[Array, "B P"]:
        return jnp.sum(X * w[:, None, :], axis=-1)

    def label(self, key, w, X) -> tuple[Float[Array, "B P"], Any]:
        """<w, x> plus noise, also drawn for 0 so that streams stay comparable."""
        y = self.evaluate(w, X)
        std = jnp.sqrt(jnp.asarray(self.noise_var, y.dtype))
        return y + std * jax.random.normal(key, y.shape, y.dtype), w


class SparseLinearRegression(NoisyLinear):
    r"""Linear regression with s non-zero weights at random positions among d.

    .. math:: w = m \odot z, \quad z \sim N(0, I), \quad m \in \{0, 1\}^d,\ |m|_1 = s.

    With ``active_dims`` the positions are among the first ``active_dims``, and all of
    them where fewer than s are active. The paper has s = 3 and no noise.

    Example:
        >>> prompt = SparseLinearRegression(20).sample(jax.random.key(0), 40, 8)
        >>> jnp.count_nonzero(prompt.w, axis=1).tolist()
        [3, 3, 3, 3, 3, 3, 3, 3]

    Source: Garg et al. (2022), Section 5.
    """

    dim: int = eqx.field(static=True)
    sparsity: int = eqx.field(static=True, default=3)
    noise_var: Number = 0.0
    dtype: Any = eqx.field(static=True, default=None)

    def __post_init__(self):
        self._read("dim", "sparsity")
        if self.sparsity > self.dim:
            raise ValueError(
                f"sparsity: expected at most dim = {self.dim}, got {self.sparsity}"
            )
        self.noise_var = checked("noise_var", self.noise_var, scalar & nonnegative)

    def sample_parameters(self, key, num_prompts, *, active_dims=None) -> Array:
        key_z, key_m = jax.random.split(key)
        z = jax.random.normal(key_z, (num_prompts, self.dim), self.dtype)
        score = jax.random.uniform(key_m, (num_prompts, self.dim), self.dtype)
        most = self.dim if active_dims is None else active_dims
        active = jnp.arange(self.dim)[None] < most
        _, places = jax.lax.top_k(jnp.where(active, score, -1.0), self.sparsity)
        chosen = (places[:, :, None] == jnp.arange(self.dim)[None, None]).any(axis=1)
        return jnp.where(chosen & active, z, 0)


class LinearClassification(Source):
    r"""Classification by the sign of a random linear function.

    .. math:: y = \mathrm{sign} \langle w, x\rangle \in \{-1, 0, 1\}, \ w \sim N(0, I) ,

    where 0 only arises for an input that is 0. Garg's loss is logistic, of (y + 1) / 2.

    Example:
        >>> task = LinearClassification(3)
        >>> task.targets, jnp.unique(task.sample(jax.random.key(0), 9, 9).y).tolist()
        ('sign', [-1.0, 1.0])

    Source: Garg et al. (2022), published code.
    """

    dim: int = eqx.field(static=True)
    dtype: Any = eqx.field(static=True, default=None)

    def __post_init__(self):
        self._read("dim")

    @property
    def targets(self) -> str:
        return "sign"

    def sample_parameters(self, key, num_prompts, *, active_dims=None) -> Array:
        return jax.random.normal(key, (num_prompts, self.dim), self.dtype)

    def evaluate(self, w, X) -> Float[Array, "B P"]:
        return jnp.sign(jnp.sum(X * w[:, None, :], axis=-1))


class ReluNetwork(Source):
    r"""Two-layer ReLU networks with standard normal weights.

    .. math:: y = \sqrt{2 / h}\ W_2^\top \mathrm{relu}(W_1^\top x) ,

    whose variance is d, that of linear regression. The paper has h = 100. The ``w`` of
    its prompts is ``{"W1": (B, d, h), "W2": (B, h)}``.

    Example:
        >>> prompt = ReluNetwork(5, hidden=7).sample(jax.random.key(0), 4, 2)
        >>> prompt.w["W1"].shape, prompt.w["W2"].shape
        ((2, 5, 7), (2, 7))

    Source: Garg et al. (2022), Section 5.
    """

    dim: int = eqx.field(static=True)
    hidden: int = eqx.field(static=True, default=100)
    dtype: Any = eqx.field(static=True, default=None)

    def __post_init__(self):
        self._read("dim", "hidden")

    def sample_parameters(self, key, num_prompts, *, active_dims=None) -> dict:
        key_1, key_2 = jax.random.split(key)
        shape = (num_prompts, self.dim, self.hidden)
        W1 = jax.random.normal(key_1, shape, self.dtype)
        return {"W1": W1, "W2": jax.random.normal(key_2, shape[::2], self.dtype)}

    def evaluate(self, w, X) -> Float[Array, "B P"]:
        features = jax.nn.relu(einsum("bpd,bdh->bph", X, w["W1"]))
        return math.sqrt(2 / self.hidden) * einsum("bph,bh->bp", features, w["W2"])


class DecisionTree(Source):
    r"""Full binary trees that branch on the sign of one coordinate per node.

    .. math:: i \leftarrow 2 i + 1 + [x_{c_i} > 0] \quad (\text{depth times}),
        \qquad y = v_{i - (2^{depth} - 1)},

    with coordinates c uniform on 0..d-1 and leaf values v from N(0, 1). The ``w`` of
    its prompts is ``{"coordinates": (B, 2^depth - 1), "values": (B, 2^depth)}``.

    Example:
        >>> task = DecisionTree(2, depth=1)
        >>> tree = {"coordinates": jnp.array([[1]]), "values": jnp.array([[5.0, 7.0]])}
        >>> task.evaluate(tree, jnp.array([[[9.0, -1.0], [-9.0, 1.0]]])).tolist()
        [[5.0, 7.0]]

    Source: Garg et al. (2022), Section 5.
    """

    dim: int = eqx.field(static=True)
    depth: int = eqx.field(static=True, default=4)
    dtype: Any = eqx.field(static=True, default=None)

    def __post_init__(self):
        self._read("dim", "depth")

    def sample_parameters(self, key, num_prompts, *, active_dims=None) -> dict:
        key_c, key_v = jax.random.split(key)
        leaves = (num_prompts, 2**self.depth)
        inner = (num_prompts, 2**self.depth - 1)
        return {
            "coordinates": jax.random.randint(key_c, inner, 0, self.dim),
            "values": jax.random.normal(key_v, leaves, self.dtype),
        }

    def evaluate(self, w, X) -> Float[Array, "B P"]:
        right = (X > 0).astype(jnp.int32)

        def descend(_, node):
            coordinate = jnp.take_along_axis(w["coordinates"], node, axis=1)
            step = jnp.take_along_axis(right, coordinate[:, :, None], axis=2)[:, :, 0]
            return 2 * node + 1 + step

        start = jnp.zeros(X.shape[:2], jnp.int32)
        node = jax.lax.fori_loop(0, self.depth, descend, start, unroll=True)
        return jnp.take_along_axis(w["values"], node - (2**self.depth - 1), axis=1)


class Functions(Source):
    r"""Functions of one's own: a new one for each prompt, of standard normal inputs.

    .. math:: x \sim N(0, I) , \qquad y = f(x) , \quad f \sim \mathtt{draw}

    ``draw(key, X)`` draws a function and returns its labels ``(P,)`` at inputs
    ``(P, d)``, with noise if there is any, in jax.numpy.

    Example:
        >>> def sines(key, X):
        ...     return jnp.sin(X @ jax.random.normal(key, X.shape[1:]))
        >>> prompt = Functions(3, sines).sample(jax.random.key(0), 10, 8)
        >>> prompt.X.shape, prompt.y_query.shape
        ((8, 10, 3), (8,))
    """

    dim: int = eqx.field(static=True)
    draw: Any = eqx.field(static=True)
    dtype: Any = eqx.field(static=True, default=None)

    def __post_init__(self):
        self._read("dim")
        if not callable(self.draw):
            raise ValueError(f"draw: expected a function (key, X), got {self.draw!r}")

    def sample_parameters(self, key, num_prompts, *, active_dims=None) -> Any:
        """A key for each prompt, which draws its function."""
        return jax.random.split(key, num_prompts)

    def evaluate(self, w: Any, X: Float[Array, "B P d"]) -> Float[Array, "B P"]:
        y = jax.vmap(self.draw)(w, X)
        check_shape("what draw returns", y, X.shape[:2])
        return jnp.asarray(y, X.dtype)
