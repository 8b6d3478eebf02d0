"""The basis of ``numpyro.contrib.hsgp`` in one dimension, as a ``ppl_sgp`` basis, for benchmarks; not one itself."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.contrib.hsgp.laplacian import eigenfunctions
from numpyro.contrib.hsgp.spectral_densities import diag_spectral_density_squared_exponential

import ppl_sgp as sgp

HALF_WIDTH = 0.75  # of HSGP's domain, around inputs in [0, 1]


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class LaplaceEigenfunctions(sgp.Basis):
    """``sin(j π (x − ½ + L) / 2L) / √L`` for j = 1..m, L the half width."""

    order: Any

    num_features = property(lambda self: self.order.shape[-1])
    input_dim = property(lambda self: 1)

    def features(self, X, xp):
        phase = xp.asarray(self.order, dtype=X.dtype) * (X - 0.5 + HALF_WIDTH) * (np.pi / (2 * HALF_WIDTH))
        return xp.sin(phase) / HALF_WIDTH**0.5

    def weight_prior(self, kernel):
        frequencies = jnp.asarray(self.order)[:, None] / (4 * HALF_WIDTH)
        return sgp.DiagonalPrior.from_log_scale(kernel.log_spectral_density(frequencies) / 2)


def laplace_eigenfunctions(m: int) -> LaplaceEigenfunctions:
    """The first m, after a check that features and prior variances are those of ``numpyro.contrib.hsgp``."""
    basis, X = LaplaceEigenfunctions(np.arange(1.0, m + 1)), np.linspace(0, 1, 11)[:, None]
    np.testing.assert_allclose(basis.host_features(X), eigenfunctions(X - 0.5, HALF_WIDTH, m), atol=1e-10)
    theirs = diag_spectral_density_squared_exponential(0.7**2, 0.3, HALF_WIDTH, m, 1)
    np.testing.assert_allclose(basis.weight_prior(sgp.SquaredExponential(0.3, 0.7)).variance, theirs, atol=1e-12)
    return basis
