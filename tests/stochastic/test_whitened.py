"""Whitened posteriors of inducing values: the bound, its derivatives, natural steps, against dense arithmetic."""

import itertools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy.integrate import quad
from scipy.stats import norm

import ppl_sgp as sgp
from ppl_sgp.stochastic.expectation import expected_log_prob
from ppl_sgp.stochastic.gaussian import GaussianNoise
from ppl_sgp.stochastic.natural import Natural, natural_step, row_sums
from ppl_sgp.stochastic.whitened import Whitened, point_features, rows_term

rng = np.random.default_rng(4)
n, m, noise = 30, 7, 0.3
X = rng.uniform(-2, 2, (n, 1))
y = np.sin(3 * X[:, 0]) + noise * rng.standard_normal(n)
classes = (y > 0).astype(float)
Z = np.linspace(-2, 2, m)[:, None]
kernel = sgp.Matern52(0.7, 1.1)
gaussian, log_noise = GaussianNoise(), np.array([np.log(noise)])
level = np.zeros(1)


def some_posterior(K=1):
    own = np.random.default_rng(5)
    root = np.tril(0.3 * own.standard_normal((K, m, m))) + 0.5 * np.eye(m)
    return Whitened(jnp.asarray(own.standard_normal((K, m))), jnp.asarray(root))


def bound(likelihood, q, y, parameters, kernel=kernel, Z=Z):
    return compiled_bound(likelihood, q, jnp.asarray(y), jnp.asarray(parameters), kernel, jnp.asarray(Z))


@jax.jit
def compiled_bound(likelihood, q, y, parameters, kernel, Z):
    terms = rows_term(likelihood, q, point_features(kernel, Z, jnp.asarray(X)), level, y, parameters)
    return jnp.sum(terms) - q.divergence()


def dense_posterior(q):
    """Means and covariance of f at the rows by explicit inverses, of one function."""
    L = np.linalg.cholesky(np.asarray(kernel(Z), np.float64) + 1e-10 * 1.21 * np.eye(m))
    A = np.asarray(kernel(X, Z), np.float64) @ np.linalg.inv(L @ L.T)
    S = L @ np.asarray(q.root[0] @ q.root[0].T, np.float64) @ L.T
    mean = A @ L @ np.asarray(q.loc[0], np.float64)
    return mean, np.asarray(kernel(X), np.float64) + A @ (S - L @ L.T) @ A.T


def stepped(likelihood, y, parameters, sizes, Z=Z, level=level):
    """From the prior, by steps over all rows."""
    natural = Natural.prior(likelihood.num_latents, len(Z))
    rows = jnp.asarray(y), jnp.asarray(parameters), jnp.asarray(Z), level
    for size in sizes:
        natural = one_step(likelihood, natural, size, *rows)
    return natural.whitened()


@jax.jit
def one_step(likelihood, natural, size, y, parameters, Z, level):
    features, q = point_features(kernel, Z, jnp.asarray(X)), natural.whitened()
    sums = row_sums(likelihood, q, features, level, y, parameters, 1.0)
    return natural_step(likelihood, natural, q, sums, size)


@pytest.mark.slow
def test_moments_and_divergence_are_the_dense_ones():
    q = some_posterior()
    mean, covariance = dense_posterior(q)
    found = q.moments(point_features(kernel, jnp.asarray(Z), jnp.asarray(X)))
    np.testing.assert_allclose(found[0][0], mean, atol=2e-3 if found[0].dtype == jnp.float32 else 1e-7)
    np.testing.assert_allclose(found[1][0], np.diag(covariance), atol=2e-3 if found[0].dtype == jnp.float32 else 1e-7)
    S = np.asarray(q.root[0] @ q.root[0].T)
    exact = 0.5 * (np.trace(S) + q.loc[0] @ q.loc[0] - m - np.linalg.slogdet(S)[1])
    np.testing.assert_allclose(q.divergence(), exact, rtol=1e-5)


@pytest.mark.slow
@pytest.mark.float64_only
def test_a_natural_step_of_size_one_gives_the_collapsed_bound_and_is_below_the_evidence():
    rows = sgp.rows(X, y)
    collapsed = sgp.inducing_evidence(rows, kernel, Z, noise)
    q = stepped(gaussian, y, log_noise, [1.0])
    np.testing.assert_allclose(bound(gaussian, q, y, log_noise), collapsed, rtol=1e-11)
    again = stepped(gaussian, y, log_noise, [0.3, 1.0])
    np.testing.assert_allclose(again.loc, q.loc, rtol=1e-8)
    assert bound(gaussian, some_posterior(), y, log_noise) < collapsed
    evidence = dist.MultivariateNormal(0.0, kernel(X) + noise**2 * np.eye(n)).log_prob(y)
    assert collapsed < evidence
    exact = stepped(gaussian, y, log_noise, [1.0], Z=X)
    np.testing.assert_allclose(bound(gaussian, exact, y, log_noise, Z=X), evidence, atol=1e-4)


def test_minibatch_estimates_are_unbiased():
    q, few = some_posterior(), slice(0, 5)
    X5, y5 = X[few], y[few]
    features = point_features(kernel, jnp.asarray(Z), jnp.asarray(X5))
    terms = rows_term(gaussian, q, features, level, jnp.asarray(y5), jnp.asarray(log_noise))
    estimates = [5 / 2 * float(terms[i] + terms[j]) for i, j in itertools.combinations(range(5), 2)]
    np.testing.assert_allclose(np.mean(estimates), float(jnp.sum(terms)), rtol=1e-5)


LIKELIHOODS = {
    "logit": (sgp.likelihoods.Bernoulli(), classes, ()),
    "counts": (sgp.likelihoods.Poisson(), np.round(np.exp(y)), ()),
    "laplace": (sgp.likelihoods.AsymmetricLaplace(0.3), y, (np.log(0.2),)),
    "student": (sgp.likelihoods.StudentT(), y, (np.log(0.5), np.log(4.0))),
    "gaussian": (gaussian, y, (np.log(0.2),)),
    "numpyro": (sgp.likelihoods.FromDistribution(lambda eta: dist.Laplace(eta, 0.4)), y, ()),
}


@pytest.mark.parametrize("name", LIKELIHOODS)
def test_expectations_are_integrals_and_their_derivatives_too(name):
    likelihood, outcomes, parameters = LIKELIHOODS[name]
    mean, variance = np.array([0.3, -0.4]), np.array([0.2, 0.5])
    two = outcomes[:2]

    def integral(i, mean=mean, variance=variance, parameters=parameters):
        scale = np.sqrt(variance[i])

        def integrand(eta):
            return float(likelihood.log_prob(eta, two[i], jnp.asarray(parameters))) * norm.pdf(eta, mean[i], scale)

        kink = two[i] if abs(two[i] - mean[i]) < 8 * scale else mean[i]
        return quad(integrand, mean[i] - 9 * scale, mean[i] + 9 * scale, points=[kink], limit=60)[0]

    def value(mean, variance, parameters):
        return expected_log_prob(likelihood, mean, variance, jnp.asarray(two), parameters)

    arguments = tuple(map(jnp.asarray, (mean, variance, np.array(parameters))))
    loose = {"numpyro": 0.03, "student": 2e-3}.get(name, 3e-4)  # a kink that quadrature does not know
    np.testing.assert_allclose(value(*arguments), [integral(0), integral(1)], rtol=loose, atol=loose)
    if arguments[0].dtype == jnp.float32 or name == "numpyro":
        return
    slopes = jax.grad(lambda *each: jnp.sum(value(*each)), argnums=(0, 1, 2))(*arguments)
    step = 1e-3
    for at, slope in enumerate(slopes[:2]):
        moved = [[*(mean, variance)], [*(mean, variance)]]
        moved[0][at], moved[1][at] = moved[0][at] + step, moved[1][at] - step
        numeric = [(integral(i, *moved[0]) - integral(i, *moved[1])) / (2 * step) for i in range(2)]
        np.testing.assert_allclose(slope, numeric, rtol=5e-3, atol=5e-3)
    for k in range(len(parameters)):
        up, down = (np.array(parameters) + sign * step * (np.arange(len(parameters)) == k) for sign in (1, -1))
        numeric = sum(integral(i, parameters=up) - integral(i, parameters=down) for i in range(2)) / (2 * step)
        np.testing.assert_allclose(slopes[2][k], numeric, rtol=5e-3, atol=5e-3)


@pytest.mark.float64_only
def test_gradients_of_the_bound_are_those_of_differences():
    q, likelihood = some_posterior(), sgp.likelihoods.Bernoulli()

    def value(logs, Z):
        own = sgp.Matern52(jnp.exp(logs[0]), jnp.exp(logs[1]))
        return bound(likelihood, q, classes, (), kernel=own, Z=Z)

    at = jnp.log(jnp.array([0.7, 1.1])), jnp.asarray(Z)
    slopes, along = jax.jit(jax.grad(value, (0, 1)))(*at), [np.array([0.6, -0.8]), np.linspace(-1, 1, m)[:, None]]
    up, down = (value(*(part + sign * 1e-5 * way for part, way in zip(at, along, strict=True))) for sign in (1, -1))
    slope = sum(jnp.sum(part * way) for part, way in zip(slopes, along, strict=True))
    np.testing.assert_allclose(slope, (up - down) / 2e-5, rtol=1e-5)


@pytest.mark.slow
@pytest.mark.float64_only
@pytest.mark.parametrize("name", ["logit", "laplace", "student"])
def test_natural_steps_climb_to_where_the_gradient_vanishes(name):
    likelihood, outcomes, parameters = LIKELIHOODS[name]
    sizes = [0.2] * 150 if name == "student" else [0.5] * 40
    q = stepped(likelihood, outcomes, parameters, sizes)
    slopes = jax.jit(jax.grad(lambda q: bound(likelihood, q, outcomes, parameters)))(q)
    scale = jnp.linalg.norm(q.root[0], axis=0)
    assert float(jnp.max(jnp.abs(scale * (q.root[0].T @ slopes.loc[0])))) < 0.02
    before = stepped(likelihood, outcomes, parameters, sizes[:5])
    assert bound(likelihood, q, outcomes, parameters) > bound(likelihood, before, outcomes, parameters)


class ThreeClasses(NamedTuple):
    labels: np.ndarray = (y[:, None] > np.array([-0.4, 0.4])).sum(axis=1).astype(float)
    likelihood: sgp.likelihoods.Likelihood = sgp.likelihoods.Categorical(3)


@pytest.mark.slow
def test_several_functions_of_one_row_are_independent_in_q():
    three, q = ThreeClasses(), some_posterior(3)
    features = point_features(kernel, jnp.asarray(Z), jnp.asarray(X[:2]))
    terms = rows_term(three.likelihood, q, features, np.zeros(3), jnp.asarray(three.labels[:2]), jnp.zeros(0))
    mean, variance = (np.asarray(each) for each in q.moments(features))
    eta = mean.T[None] + np.sqrt(variance.T) * np.random.default_rng(0).standard_normal((40_000, 2, 3))
    sampled = np.asarray(three.likelihood.log_prob(jnp.asarray(eta), jnp.asarray(three.labels[:2]))).mean(axis=0)
    np.testing.assert_allclose(terms, sampled, atol=0.02)


@pytest.mark.slow
@pytest.mark.float64_only
def test_natural_steps_of_several_functions_climb():
    three, zeros = ThreeClasses(), np.zeros(3)
    values, features = [], point_features(kernel, jnp.asarray(Z), jnp.asarray(X))
    for count in range(6):
        q = stepped(three.likelihood, three.labels, np.zeros(0), [0.5] * count, level=zeros)
        terms = rows_term(three.likelihood, q, features, zeros, jnp.asarray(three.labels), jnp.zeros(0))
        values.append(float(jnp.sum(terms) - q.divergence()))
    assert (np.diff(values) > 0).all() and values[-1] > values[0] + 1
