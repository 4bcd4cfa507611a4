"""Noise of the implicit gradient: contributions of demonstrations, and covariance.

A prompt of b of N demonstrations sees a noisy implicit gradient. Here is the share of
each demonstration, the covariance of what is left out and its spectrum, simulated paths
(the Gaussian noise that the theory assumes, and the b-shot prompt itself), and their
exact moments. Matrices are flattened row by row wherever ``vec`` appears, and layers
count from 0.

Stability: stable.
"""

from icltheory.noise.gradients import (
    demonstration_gradients,
    noise_covariance,
    without_replacement_factor,
)
from icltheory.noise.paths import (
    NoisyTrajectory,
    PathMoments,
    noisy_trajectory,
    path_moments,
)
from icltheory.noise.spectrum import NoiseSpectrum, noise_spectrum
from icltheory.noise.support import support_dims

__all__ = [
    "NoiseSpectrum",
    "NoisyTrajectory",
    "PathMoments",
    "demonstration_gradients",
    "noise_covariance",
    "noise_spectrum",
    "noisy_trajectory",
    "path_moments",
    "support_dims",
    "without_replacement_factor",
]
