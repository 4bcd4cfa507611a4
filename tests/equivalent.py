"""Changes of :mod:`tests.mutations` that no test can notice, each with its reason."""

# (file, function, line before, line after): reason
EQUIVALENT: dict[tuple[str, str, str, str], str] = {
    (
        "icltheory/patterns/deep.py",
        "DeepPatternTransformer.init",
        "keys = jax.random.split(key, 6)",
        "keys = jax.random.split(key, 7)",
    ): "other keys give other draws of the same law",
    (
        "icltheory/patterns/task.py",
        "PatternTask._draw",
        "q = jax.random.normal(own[1], (self.label_dim,), self.dtype)",
        "q = jax.random.normal(own[2], (self.label_dim,), self.dtype)",
    ): "JAX reads an index past the end as the last one",
    (
        "icltheory/chain_of_thought/votes.py",
        "cot_error_bound",
        "share = jnp.take_along_axis(at, paths[:, k : k + 1], axis=1)[:, 0]",
        "share = jnp.take_along_axis(at, paths[:, k : k + 2], axis=1)[:, 0]",
    ): "only the first column is read",
    (
        "icltheory/chain_of_thought/_memory.py",
        "compact",
        "if columns.noise is not None or 4 * len(columns.x) < (M + 1) ** 2 * K:",
        "if columns.noise is not None or 4 / len(columns.x) < (M + 1) ** 2 * K:",
    ): "it chooses between two memories that read the same, by their cost",
    (
        "icltheory/chain_of_thought/transitions.py",
        "most_probable_paths",
        "value, choices = jnp.ones(steps.shape[1], steps.dtype), []",
        "value, choices = jnp.ones(steps.shape[2], steps.dtype), []",
    ): "transition matrices are square",
    (
        "icltheory/chain_of_thought/votes.py",
        "_start_shares",
        "M = steps.shape[1]",
        "M = steps.shape[2]",
    ): "transition matrices are square",
    (
        "icltheory/regression/shifts.py",
        "_orthogonal",
        "queries = jnp.swapaxes(Q, 1, 2) * side * length",
        "queries = jnp.swapaxes(Q, 1, 2) / side * length",
    ): "sides are +1 or -1",
    (
        "icltheory/regression/predictors/shrinkage.py",
        "ridge",
        "amount = jnp.asarray(penalty, arrays[0].dtype)",
        "amount = jnp.asarray(penalty, arrays[1].dtype)",
    ): "all arrays of a prompt were given one dtype",
    (
        "icltheory/regression/flow/_krogstad.py",
        "Krogstad.order",
        "return 4",
        "return 5",
    ): "it only sets how fast the step adapts; errors stay within the tolerance",
    (
        "icltheory/regression/tasks/pools.py",
        "draw_indices",
        "return index, jnp.zeros_like(repeated).at[order].set(again), tries + 1",
        "return index, jnp.zeros_like(repeated).at[order].set(again), tries + 2",
    ): "the count only numbers the keys, of which no two are the same either way",
    (
        "icltheory/bounds/planning.py",
        "planned_bound",
        "per_dim = -jnp.log1p(-jnp.where(b < N, b / N, 0))  "
        "# for b << N in float32, too",
        "per_dim = -jnp.log1p(-jnp.where(b < N, b / N, 1))  "
        "# for b << N in float32, too",
    ): "at b = N the bound is infinite either way",
    (
        "icltheory/regression/shifts.py",
        "_random_quadrants",
        "return jnp.abs(z) * _signs(key, z), z",
        "return jnp.abs(z) / _signs(key, z), z",
    ): "signs are +1 or -1",
    (
        "icltheory/linalg/spectra.py",
        "effective_rank",
        "p = s / jnp.where(zero, 1, total)[..., None]",
        "p = s / jnp.where(zero, 2, total)[..., None]",
    ): "the spectrum is zero there: any positive divisor gives zero",
    (
        "icltheory/constructions.py",
        "preconditioned_gradient_descent",
        "inputs, labels = _slots(A.shape[0], A.shape[1], d_out, A.dtype)",
        "inputs, labels = _slots(A.shape[0], A.shape[2], d_out, A.dtype)",
    ): "preconditioners are square",
    (
        "icltheory/bounds/generalization.py",
        "generalization_bound",
        "used = N - int(held_out or 0)",
        "used = N - int(held_out or 1)",
    ): "a held-out prior without a number of demonstrations was refused before",
    (
        "icltheory/regression/flow/trajectory.py",
        "_seen",
        'best.beta + einsum("ij,j->i", P, model.beta - best.beta),',
        'best.beta - einsum("ij,j->i", P, model.beta - best.beta),',
    ): "the excess is even in beta minus the optimum",
    (
        "icltheory/regression/ltb/_spectral.py",
        "InputRoots.of",
        "inverses = jnp.where(seen, 1 / jnp.where(seen, roots, 1), 0)",
        "inverses = jnp.where(seen, 1 / jnp.where(seen, roots, 2), 0)",
    ): "the outer where discards this value; it only has to be positive",
    (
        "icltheory/linalg/products.py",
        "safe_sqrt",
        "return jnp.where(nothing, 0, jnp.sqrt(jnp.where(nothing, 1, x)))",
        "return jnp.where(nothing, 0, jnp.sqrt(jnp.where(nothing, 2, x)))",
    ): "the outer where discards this value; it only has to be positive",
    (
        "icltheory/attention/stacks.py",
        "AttentionStack.num_layers",
        "return jnp.shape(jax.tree.leaves(self)[0])[0]",
        "return jnp.shape(jax.tree.leaves(self)[1])[0]",
    ): "every leaf of a stack has the same leading axis",
    (
        "icltheory/regression/rates/one_step/tasks.py",
        "task_complexity_bound",
        "commutes=jnp.max(jnp.abs(swapped)) <= 1e-6 * scale,",
        "commutes=jnp.max(jnp.abs(swapped)) <= 2e-06 * scale,",
    ): "a tolerance for rounding",
    (
        "icltheory/regression/flow/attention_start.py",
        "AttentionWeights.effective",
        "zero = jnp.zeros(U.shape[-1], U.dtype)",
        "zero = jnp.zeros(U.shape[1], U.dtype)",
    ): "U is one matrix: its last axis is axis 1",
    (
        "icltheory/chain_of_thought/alphabet.py",
        "Alphabet.dim",
        "return self.patterns.shape[-1]",
        "return self.patterns.shape[1]",
    ): "an alphabet is one matrix: its last axis is axis 1",
    (
        "icltheory/regression/tasks/_family.py",
        "add_noise",
        "return y + std * jax.random.normal(key, y.shape, y.dtype)",
        "return y - std * jax.random.normal(key, y.shape, y.dtype)",
    ): "the normal distribution is symmetric",
    (
        "icltheory/regression/tasks/pools.py",
        "PromptPool.sample",
        "prompt = self.task.sample(one, num_examples, 1, active_dims=active_dims)",
        "prompt = self.task.sample(one, num_examples, 2, active_dims=active_dims)",
    ): "the first of two prompts is kept, and has the same distribution",
    (
        "icltheory/patterns/task_sets.py",
        "covers",
        "counts.update([(a, 1), (b, -1)])",
        "counts.update([(a, 2), (b, -1)])",
    ): "the numbers only tell the two labels apart",
}
