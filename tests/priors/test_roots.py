"""Roots of covariances and gradients through them: equal eigenvalues, zero ones, kernels singular to rounding."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ppl_sgp as sgp
from ppl_sgp.priors.roots import symmetric_root
from tests.builders import by_lane

M = 8
GRID = np.linspace(0, 1, M)[:, None]


def lane(array):
    return jnp.asarray(array, jnp.result_type(float))


def smooth(lengthscale, points=GRID):
    """A kernel matrix that is singular to rounding for lengthscales of 1 and more."""
    return sgp.SquaredExponential(lengthscale)(lane(points))


DIRECTION = np.cos(np.arange(M * M).reshape(M, M) ** 2.0) / 4
DIRECTION = DIRECTION + DIRECTION.T
#: Covariances as functions of one number, and where to differentiate.
COVARIANCES = {
    "identity, moved off": (lambda t: jnp.eye(M) + t * lane(DIRECTION), 0.0),
    "identity, scaled": (lambda t: t**2 * jnp.eye(M), 0.7),
    "two equal pairs": (lambda t: jnp.diag(lane([1.0, 1, 4, 4, 2, 3, 5, 6])) + t * lane(DIRECTION), 0.0),
    "rank three": (lambda t: _outer(lane(DIRECTION[:, :3]) * jnp.exp(t)), 0.3),
    "rank three, turning": (lambda t: _outer(lane(DIRECTION[:, :3]) + t * lane(DIRECTION[:, 3:6])), 0.3),
    "smooth kernel": (smooth, 0.3),
    "smooth kernel, singular": (smooth, 3.0),
    "all ones": (lambda t: t**2 * jnp.ones((M, M)), 1.3),
}
every = pytest.mark.parametrize("name", COVARIANCES)


def _outer(half):
    return half @ half.T


def along(function, t):
    """Value and derivative of a function of one number."""
    t = lane(t)
    return jax.jvp(function, (t,), (jnp.ones_like(t),))


@every
def test_the_root_is_one_and_its_derivative_solves_the_sylvester_equation(name):
    covariance, t = COVARIANCES[name]
    (C, dC), (F, dF) = along(covariance, t), along(lambda t: symmetric_root(covariance(t)), t)
    size, change = float(jnp.abs(C).max()), float(jnp.abs(dC).max())
    np.testing.assert_allclose(F, F.T, atol=by_lane(1e-14, 1e-5) * size)
    np.testing.assert_allclose(F @ F, C, atol=by_lane(1e-14, 1e-5) * size)
    np.testing.assert_allclose(F @ dF + dF @ F, dC, atol=by_lane(1e-12, 1e-4) * max(change, size))


@every
@pytest.mark.float64_only
def test_gradients_equal_finite_differences(name):
    covariance, t = COVARIANCES[name]
    z = lane(np.sin(np.arange(M))[:, None])

    def total(t):
        return jnp.sum(jnp.sin(3 * symmetric_root(covariance(t)) @ z))

    # Roots of zero eigenvalues are known to √ε only, so differences are to be wide, and of high order.
    near, far = ((total(t + h) - total(t - h)) / (2 * h) for h in (1e-3, 2e-3))
    np.testing.assert_allclose(jax.jit(jax.grad(total))(t), (4 * near - far) / 3, rtol=1e-4, atol=2e-5)


@pytest.mark.float64_only
def test_second_derivatives():
    z = lane(np.sin(np.arange(M))[:, None])

    def slope(t):
        return jax.grad(lambda t: jnp.sum(jnp.sin(symmetric_root(jnp.eye(M) + t * lane(DIRECTION)) @ z)))(t)

    differences = (slope(1e-5) - slope(-1e-5)) / 2e-5
    np.testing.assert_allclose(jax.grad(slope)(0.0), differences, rtol=1e-8)
    np.testing.assert_allclose(jax.jit(jax.jacfwd(slope))(0.0), differences, rtol=1e-8)


def test_no_variance_has_a_root_and_no_slope():
    root, slope = along(lambda t: symmetric_root(t * jnp.zeros((3, 3))), 1.0)
    np.testing.assert_array_equal(root, 0)
    np.testing.assert_array_equal(slope, 0)


def _lower(t):
    return jnp.tril(lane(DIRECTION)) * t + jnp.eye(M)


def _priors():
    """Priors as functions of one number, singular and with equal eigenvalues; and where to differentiate."""
    half = GRID[: M // 2]
    yield "diagonal", lambda t: sgp.DiagonalPrior(t * jnp.ones(M)), 0.7
    yield "dense, a multiple of the identity", lambda t: sgp.DensePrior(t * jnp.eye(M)), 0.7
    yield "dense, singular", lambda t: sgp.DensePrior(smooth(t)), 3.0
    yield "dense, identity as a factor", lambda t: sgp.DensePrior(scale_tril=t * jnp.eye(M)), 0.7
    yield "dense, any factor", lambda t: sgp.DensePrior(scale_tril=_lower(t)), 0.7
    yield "kronecker", lambda t: sgp.KroneckerPrior([smooth(t, half), t * jnp.eye(2)]), 2.0
    yield "block", lambda t: sgp.BlockPrior([sgp.DensePrior(smooth(t, half)), sgp.DiagonalPrior(t * jnp.ones(4))]), 2.0
    yield "householder", lambda t: sgp.HouseholderPrior(jnp.ones(M), t + lane(DIRECTION[:2])), 0.5


PRIORS = {name: case for name, *case in _priors()}
every_prior = pytest.mark.parametrize("name", PRIORS)


@every_prior
def test_roots_of_priors_give_their_covariance(name):
    make, t = PRIORS[name]
    prior = make(lane(t))
    F = prior.apply_root(jnp.eye(M))
    np.testing.assert_allclose(F @ F.T, prior.covariance, atol=by_lane(1e-13, 2e-5) * float(prior.variance.max()))
    np.testing.assert_allclose(jnp.diagonal(prior.covariance), prior.variance, rtol=by_lane(1e-13, 1e-5))
    np.testing.assert_allclose(prior.apply(jnp.eye(M)), prior.covariance, rtol=by_lane(1e-13, 1e-5))


@every_prior
def test_gradients_through_draws_of_latent_functions(name):
    """A functional of the draw ``w = Fz``, as likelihoods are, and one of the law alone."""
    make, t = PRIORS[name]
    z, A = lane(np.sin(np.arange(M))[:, None]), lane(DIRECTION)

    def of_draw(t):
        return jnp.sum(jnp.sin(make(t).apply_root(z)))

    def of_law(t):  # E wᵀAw = tr AC, whatever the root
        F = make(t).apply_root(jnp.eye(M))
        return jnp.sum(F * (A @ F))

    def exact(t):
        return jnp.sum(A * make(t).covariance)

    t = lane(t)
    gradient = jax.jit(jax.grad(of_draw))(t)
    np.testing.assert_allclose(
        jax.grad(of_law)(t), jax.grad(exact)(t), rtol=by_lane(1e-8, 2e-3), atol=by_lane(1e-8, 2e-3)
    )
    h = by_lane(1e-3, 1e-2)
    near, far = ((of_draw(t + step) - of_draw(t - step)) / (2 * step) for step in (h, 2 * h))
    # In float32 differences of roots of zero eigenvalues are noise of √ε/h: two digits are asked for.
    np.testing.assert_allclose(gradient, (4 * near - far) / 3, rtol=by_lane(1e-5, 0.05), atol=by_lane(2e-5, 0.05))


def test_the_given_factor_is_the_root():
    L = np.tril(DIRECTION) - np.eye(M)  # with a negative diagonal: as good a factor as any
    prior = sgp.DensePrior(scale_tril=lane(L + np.triu(np.ones((M, M)), 1)))
    np.testing.assert_array_equal(prior.apply_root(jnp.eye(M)), lane(L))
    w = np.sin(np.arange(M))
    expected = sgp.DensePrior(lane(L @ L.T)).distribution().log_prob(lane(w))
    np.testing.assert_allclose(prior.distribution().log_prob(lane(w)), expected, rtol=by_lane(1e-10, 1e-3))
    with pytest.raises(ValueError, match="singular to rounding"):
        sgp.DensePrior(scale_tril=np.diag([1.0, 0.0])).distribution()
    for bad, message in ((np.ones((2, 3)), r"\(m, m\); got \(2, 3\)"), (np.full((2, 2), np.nan), "must be finite")):
        with pytest.raises(ValueError, match=message):
            sgp.DensePrior(scale_tril=bad)
