"""Latent outcomes with a nugget: conditionals against dense ones, and chains against rejection sampling."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ppl_sgp as sgp
from ppl_sgp.inference.gibbs_rows import Sweep
from ppl_sgp.inference.latent_rows import _stride

L = sgp.likelihoods
BASIS, NOISE = sgp.PolynomialBasis(1, 3), 0.4


@sgp.pytree_dataclass
class Threshold(L.Likelihood):
    """``y = 1`` where the latent outcome is positive: with a nugget, a probit."""

    def log_prob(self, eta, y, parameters=()):
        eta, (y,) = self.aligned(eta, y)
        return jnp.where((eta > 0) == (y > 0), 0.0, -jnp.inf)

    def distribution(self, eta, parameters=(), y=None):
        raise NotImplementedError

    def check(self, y, first_row=0, owner=""):
        return np.asarray(y, np.float64)

    def start(self, y):
        return 10 * (2 * jnp.asarray(y) - 1)


def scaled_prior(kind, m):
    """A prior of m weights with its covariance and mean, dense."""
    scale, mean = np.linspace(1.0, 0.4, m), np.linspace(-0.3, 0.5, m)
    if kind == "dense":
        root = np.eye(m) + 0.3 * np.tri(m)
        return sgp.DensePrior(jnp.asarray(root @ root.T)), root @ root.T, np.zeros(m)
    return sgp.DiagonalPrior(jnp.asarray(scale), mean=jnp.asarray(mean)), np.diag(scale**2), mean


def made(num_rows, rotate=None, num_updates=None):
    X = np.linspace(-1, 1.2, num_rows)[:, None]
    rows = sgp.latent_rows(BASIS, X, np.arange(num_rows) % 3, L.Poisson(), rotate=rotate, num_updates=num_updates)
    return rows, np.asarray(rows.basis.host_features(X))


@pytest.mark.float64_only
@pytest.mark.parametrize("kind", ["diagonal", "dense", "rotated", "rotated dense"])
@pytest.mark.parametrize("num_rows", [2, 4, 9])
def test_conditionals_are_those_of_the_dense_precision(kind, num_rows):
    """For a block of rows, with fewer and with more rows than features (4)."""
    rows, Phi = made(num_rows, rotate=sgp.DiagonalPrior(np.array([1.0, 0.5, 2.0, 0.3])) if "rotated" in kind else None)
    prior, covariance, mean = scaled_prior(kind.removeprefix("rotated ").replace("rotated", "diagonal"), Phi.shape[1])
    latent = rows.start(jax.random.key(1))
    u = np.asarray(latent.values)
    precision = np.linalg.inv(Phi @ covariance @ Phi.T + NOISE**2 * np.eye(num_rows))
    block = np.array([num_rows - 1, 0])
    sweep = Sweep(prior, jnp.asarray(NOISE), jnp.zeros(4))
    ours, pull = rows._conditionals(jnp.asarray(rows.orthonormal)[block], latent.values[block], latent.projected, sweep)
    np.testing.assert_allclose(ours / NOISE**2, precision[np.ix_(block, block)], rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(pull / NOISE**2, (precision @ (u - Phi @ mean))[block], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("rotate", [False, True])
@pytest.mark.parametrize("num_rows", [3, 9])
def test_statistics_are_those_of_the_latent_outcomes(rotate, num_rows, x64):
    """Evidence of a fresh pass over (X, u), after sweeps that changed some of u; up to the constants of few rows."""
    reference = sgp.DiagonalPrior(np.array([1.0, 0.5, 2.0, 0.3]))
    rows, _ = made(num_rows, rotate=reference if rotate else None, num_updates=2)
    latent = rows.start(jax.random.key(1))
    sweep = Sweep(sgp.DiagonalPrior(jnp.ones(4)), jnp.asarray(NOISE), jnp.zeros(4))
    after = rows.updated(jax.random.key(2), latent, sweep)
    assert 1 <= np.sum(np.asarray(after.values) != np.asarray(latent.values)) <= 2
    X = np.linspace(-1, 1.2, num_rows)[:, None]
    for each in (latent, after):
        fresh = sgp.sufficient_statistics(BASIS, X, np.asarray(each.values, np.float64))
        for scale in (0.5, 2.0):
            truth = sgp.log_evidence(fresh, sgp.DiagonalPrior(jnp.asarray(scale * reference.scale)), NOISE)
            prior = sgp.DiagonalPrior(jnp.asarray(scale) if rotate else jnp.asarray(scale * reference.scale))
            ours = sgp.log_evidence(rows.statistics(each), prior, NOISE)
            assert float(ours) == pytest.approx(float(truth), rel=1e-8 if x64 else 2e-3, abs=1e-8 if x64 else 1e-2)


def test_every_row_is_updated_as_often():
    """Steps of the stride meet all rows before one again, in any number."""
    for n in (*range(1, 60), 1000, 99_991):
        assert math.gcd(_stride(n), n) == 1
    rows, _ = made(9, num_updates=9)
    latent = rows.start(jax.random.key(1))
    sweep = Sweep(sgp.DiagonalPrior(jnp.ones(4)), jnp.asarray(NOISE), jnp.zeros(4))
    assert np.all(np.asarray(rows.updated(jax.random.key(2), latent, sweep).values) != np.asarray(latent.values))


@pytest.mark.slow
def test_threshold_against_rejection_sampling():
    """Draws of three latent values given their signs, by rejection, keep their moments in eight sweeps."""
    X, y = np.array([[-0.5], [0.2], [1.0]]), np.array([0.0, 1.0, 1.0])
    rows = sgp.latent_rows(sgp.LinearBasis(1), X, y, Threshold(), num_updates=2)
    sweep = Sweep(sgp.DiagonalPrior(jnp.asarray([1.0, 1.4])), jnp.asarray(0.5), jnp.zeros(2))
    Phi = np.hstack([np.ones((3, 1)), X])
    covariance = Phi @ np.diag([1.0, 1.96]) @ Phi.T + 0.25 * np.eye(3)
    proposed = np.random.default_rng(0).multivariate_normal(np.zeros(3), covariance, 200_000)
    exact = proposed[((proposed > 0) == (y > 0)).all(axis=1)]
    count = 10_000
    start, others = exact[:count], exact[count:]

    def swept(key, u):
        latent = rows._latents(u, jnp.zeros(0))
        return jax.lax.fori_loop(
            0, 8, lambda i, latent: rows.updated(jax.random.fold_in(key, i), latent, sweep), latent
        ).values

    keys = jax.random.split(jax.random.key(1), count)
    after = np.asarray(jax.jit(jax.vmap(swept))(keys, jnp.asarray(start, jnp.result_type(float))), np.float64)
    for i in range(3):
        assert np.corrcoef(start[:, i], after[:, i])[0, 1] < 0.95
        for j in range(3):
            for function in (lambda u, i=i, j=j: u[:, i], lambda u, i=i, j=j: u[:, i] * u[:, j]):
                ours, truth = function(after), function(others)
                error = np.sqrt(ours.var() / len(ours) + truth.var() / len(truth))
                assert abs(ours.mean() - truth.mean()) < 4.5 * error
