"""Simulation-based calibration of likelihoods: outcomes of the exact one, and models of rows."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import ppl_sgp as sgp
from ppl_sgp.diagnostics.likelihood_calibration import _outcomes
from tests.posteriors.tiny_likelihoods import model

pytestmark = pytest.mark.relaxed_promotion
X = np.linspace(-1, 1, 150)[:, None]


def compress(y):
    return sgp.compress_likelihood(sgp.LinearBasis(1), X, y, sgp.likelihoods.Poisson(), sgp.DiagonalPrior(1.0))


@pytest.mark.slow
def test_outcomes_follow_the_likelihood():
    trials = np.stack([np.zeros(4000), np.full(4000, 5.0)], axis=1)
    rows = np.linspace(-1, 1, 4000)[:, None]
    y = np.stack([np.full(4000, 2.0), np.full(4000, 5.0)], axis=1)
    stats = sgp.compress_likelihood(sgp.LinearBasis(1), rows, y, sgp.likelihoods.Binomial(), sgp.DiagonalPrior(1.0))
    drawn = _outcomes(stats, np.full((4000, 1), 0.4), np.zeros(0), trials, jax.random.key(0))
    p = 1 / (1 + np.exp(-0.4))
    assert drawn.shape == (4000, 2) and (drawn[:, 1] == 5).all()
    assert abs(drawn[:, 0].mean() - 5 * p) < 5 * np.sqrt(5 * p * (1 - p) / 4000)


@pytest.mark.end_to_end
def test_a_compressed_likelihood_is_calibrated():
    ranks = sgp.likelihood_sbc(
        model, compress(np.ones(150)), X, jax.random.key(0), 100, compress=compress,
        num_warmup=200, num_draws=19, thinning=3,
    )  # fmt: skip
    assert sgp.rank_uniformity(ranks)["scale"] > 1e-3


@pytest.mark.end_to_end
def test_a_model_of_rows_is_calibrated():
    def counts(X, y=None):
        scale = numpyro.sample("scale", dist.LogNormal(0.0, 0.5))
        f = sgp.latent("f", sgp.LinearBasis(1), sgp.DiagonalPrior(scale))
        numpyro.sample("y", dist.Poisson(jnp.exp(f(X))), obs=y)

    rows = sgp.rows(X[::5], np.zeros(30))
    settings = {"num_warmup": 150, "num_draws": 19, "thinning": 2}
    ranks = sgp.simulation_based_calibration(counts, rows, jax.random.key(0), 100, **settings)
    assert sgp.rank_uniformity(ranks)["scale"] > 1e-3


def test_what_cannot_be_calibrated_is_refused():
    stats = sgp.sufficient_statistics(sgp.LinearBasis(1), X, X[:, 0])
    with pytest.raises(ValueError, match="must come from `sgp.compress_likelihood`"):
        sgp.likelihood_sbc(model, stats, X, jax.random.key(0))
