"""Theory and simulation of in-context learning with linear transformers.

Conventions, fixed once for the whole package:

* **Tokens are rows.** Demonstrations ``H: (N, n)``, query ``h_query: (n,)``; regression
  data ``X: (N, d)``, ``y: (N,)``. Batches come from ``jax.vmap`` unless a function says
  that it takes them.
* **Weight matrices are (out, in)** and act on columns as in the papers, ``W @ h``; a
  stack has a leading layer axis, ``W_V: (L, n, n)``. ``vec`` is row-major.
* **The papers' 1/N (or 1/M) is an explicit argument**, never hidden in a weight.
* **Masks have names.** ``"demos"`` (the papers' M: nothing attends to the query),
  ``"causal"`` and ``"none"``.
* **Results are frozen pytrees** that keep every term.
* **The dtype follows the input.** Theory is tested in float64; enable it with
  ``jax.config.update("jax_enable_x64", True)``.
* **Products are exact.** Calculators of theory multiply at the highest precision on
  every device, and compute half precision in float32; models and sweeps do not.
* **Randomness.** Typed keys (``jax.random.key``); ``key`` comes first in samplers and
  is a keyword elsewhere.
* **Calculators compile themselves**, once for each shape, and can be traced as any
  other function.
* **No silent wrong answers.** An argument out of range is an error where its value is
  known and gives NaN where it is traced. Lists are arrays, integers become floats, and
  complex numbers are refused.

Packages are imported when they are first used, as ``icltheory.attention``. The
documentation of each ends with its stability. A public name of a **stable** package is
removed or changed only after one minor version in which it warns
(``DeprecationWarning``) and names what replaces it. A **provisional** package may
change in any minor version; the changelog says how.
"""

import importlib
import pkgutil
from importlib.metadata import PackageNotFoundError, version

from icltheory import _import_effects

_import_effects.one_openblas_thread()

_FOUND = (module.name for module in pkgutil.iter_modules(__path__))
_PACKAGES = tuple(sorted(name for name in _FOUND if not name.startswith("_")))

try:
    __version__ = version("icltheory")
except PackageNotFoundError:  # the source tree is not installed
    __version__ = "0.0.0"

__all__ = [*_PACKAGES, "__version__"]  # pyrefly: ignore


def __getattr__(name: str):
    if name in _PACKAGES:
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
