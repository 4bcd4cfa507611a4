"""Lowers programs for a GPU on a machine that has none."""

import jax
import pytest

LOWERING = pytest.mark.filterwarnings("ignore:The Pallas Triton backend is deprecated")


def lowered_for_gpu(run, *args):
    """Text of the program that a GPU would be given; newer JAX asks which GPU."""
    kind = jax.sharding.AbstractDevice("NVIDIA H200", num_cores=132, platform="gpu")
    auto = jax.sharding.AxisType.Auto
    mesh = jax.sharding.AbstractMesh(
        (1,), ("x",), axis_types=(auto,), abstract_device=kind
    )
    with jax.sharding.use_abstract_mesh(mesh):
        lowered = jax.jit(run).trace(*args).lower(lowering_platforms=("cuda",))
    return lowered.as_text()
