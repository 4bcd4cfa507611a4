"""Side effects of the import: two settings against a deadlock, and a warning.

1. ``OPENBLAS_NUM_THREADS=1``, unless it is set, as the package is imported. On a CPU,
   JAX spreads a batch of LAPACK calls over its own threads; where OpenBLAS starts
   threads inside each of them, the program hangs now and then (jax-ml/jax#39292). JAX
   loads SciPy's OpenBLAS with the first decomposition, which reads the variable then.
2. On two to four cores and jaxlib 0.10.0 to 0.11.0, a batched decomposition is lowered
   to a loop over its matrices, as the first package that uses JAX is imported. Those
   versions give parts of a batch to XLA's pool of threads, and wait for them on a
   thread of that pool. Where as many such calls run at once as the pool has threads,
   one a core, none is left for the parts: the program stops for ever. A call with one
   matrix gives nothing away, and other versions work through the batch where they are.
   With every core more the hang is rarer and the parts are worth more, so larger pools
   are left as they are.
3. A warning on jaxlib 0.10.2, which compiles sums of products over long axes to wrong
   numbers on CPUs (jax-ml/jax#39103). The package's metadata excludes it; an
   environment that was made otherwise can hold it.
"""

import math
import os
import warnings
from importlib.metadata import PackageNotFoundError, version

_FIRST, _CURED = (0, 10, 0), (0, 11, 1)
_MOST_THREADS = 4
_WRONG_SUMS = "0.10.2"
_NAMES = (
    "cholesky",
    "eig",
    "eigh",
    "geqp3",
    "geqrf",
    "hessenberg",
    "householder_product",
    "lu",
    "ormqr",
    "schur",
    "svd",
    "triangular_solve",
    "tridiagonal",
    "tridiagonal_solve",
)


def one_openblas_thread() -> None:
    """Restricts OpenBLAS to one thread; called by ``icltheory/__init__.py``."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


def hangs(jaxlib: str) -> bool:
    """Whether batched decompositions of this jaxlib version can deadlock."""
    numbers = [int(part) for part in jaxlib.split(".")[:3] if part.isdigit()]
    return _FIRST <= tuple(numbers) < _CURED


def one_at_a_time() -> None:
    """Runs batched decompositions one at a time; called before JAX is used."""
    installed = _jaxlib()
    # A single thread computes a whole batch itself and cannot deadlock.
    if installed and hangs(installed) and 1 < _threads() <= _MOST_THREADS:
        _replace_rules()


def warn_of_wrong_sums() -> None:
    """Warns of a jaxlib version with wrong sums of products on CPUs."""
    if _jaxlib() == _WRONG_SUMS:
        warnings.warn(
            f"jaxlib {_WRONG_SUMS} makes wrong sums of products on CPUs "
            "(jax-ml/jax#39103); install another version of jax and jaxlib",
            stacklevel=2,
        )


def _jaxlib() -> str:
    try:
        return version("jaxlib")
    except PackageNotFoundError:
        return ""


def _threads() -> int:
    """Returns the size of XLA's thread pool, by the same rule as XLA."""
    for name in ("PJRT_NPROC", "NPROC"):
        if os.environ.get(name, "").isdigit():
            return int(os.environ[name])
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on Linux
        return os.cpu_count() or 1


def _replace_rules() -> None:
    # These modules are not public, but exist in all affected versions, which are
    # released.
    from jax._src.interpreters import mlir
    from jax._src.lax import linalg

    rules = mlir._platform_specific_lowerings["cpu"]  # pyrefly: ignore
    for name in _NAMES:
        primitive = getattr(linalg, f"{name}_p", None)
        if primitive in rules and not hasattr(_rule(rules[primitive]), "one_at_a_time"):
            loop = _looped(mlir, primitive, _rule(rules[primitive]))
            mlir.register_lowering(primitive, loop, platform="cpu")


def _rule(entry):
    return getattr(entry, "rule", entry)


def _looped(mlir, primitive, rule):
    import jax

    def lower(ctx, *operands, **params):
        # The matrices are the last two axes of the first argument.
        batch = ctx.avals_in[0].shape[:-2]
        if not all(isinstance(size, int) for size in batch) or math.prod(batch) < 2:
            return rule(ctx, *operands, **params)

        def loop(*args):
            size = math.prod(batch)  # -1 would be unknown for empty matrices
            rows = [x.reshape(size, *x.shape[len(batch) :]) for x in args]
            found = jax.lax.map(lambda row: primitive.bind(*row, **params), rows)
            return jax.tree.map(lambda x: x.reshape(*batch, *x.shape[1:]), found)

        results = primitive.multiple_results
        return mlir.lower_fun(loop, multiple_results=results)(ctx, *operands)

    lower.one_at_a_time = True  # pyrefly: ignore[missing-attribute]
    return lower
