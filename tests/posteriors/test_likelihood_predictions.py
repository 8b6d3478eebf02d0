"""Predictions and leave-one-out densities of compressed likelihoods, against dense quadrature, sampling and refits."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
import scipy.special
import scipy.stats

import ppl_sgp as sgp
from tests.builders import by_lane
from tests.posteriors.tiny_likelihoods import model, tiny

# NumPyro multiplies counts by floats.
pytestmark = pytest.mark.relaxed_promotion

#: Float32 rounds posteriors of weights to some 1e-6 of their size.
RTOL = by_lane(1e-7, 2e-3)
DRAWS = {"scale": np.array([0.7, 1.5])}


def softmax(eta):
    return dist.Categorical(logits=eta)


def overdispersed(eta, log_concentration):
    return dist.NegativeBinomial2(jnp.exp(eta), jnp.exp(log_concentration))


SOFTMAX = sgp.likelihoods.FromDistribution(softmax, num_latents=3)
OVERDISPERSED = sgp.likelihoods.FromDistribution(overdispersed, parameters={"log_concentration": (0.0, 1.0)})


@pytest.fixture(scope="module", params=["bernoulli", "poisson"])
def case(request):
    rows = tiny(request.param)
    return rows, rows.stats


def normal_at(stats, scale, X, outputs=None):
    """Mean and standard deviation of f at rows, in dense algebra."""
    A, r = stats.moments.gram, stats.moments.feature_output
    covariance = np.linalg.inv(A + np.eye(len(A)) / scale**2)
    Phi = stats.basis.host_features(X)
    return Phi @ covariance @ r, np.sqrt(np.sum(Phi @ covariance * Phi, axis=1))


def dense(stats, X, of):
    """The average over draws and f of a function of f, (n, f) to (…, n, f), by 4001 evenly spaced nodes."""
    z = np.linspace(-10, 10, 4001)
    weights = scipy.stats.norm.pdf(z) / scipy.stats.norm.pdf(z).sum()
    total = 0
    for scale in DRAWS["scale"]:
        mean, sd = normal_at(stats, scale, X)
        total = total + of(mean[:, None] + sd[:, None] * z) @ weights / 2
    return total


CONDITIONAL = {
    "bernoulli": lambda f: scipy.stats.bernoulli(1 / (1 + np.exp(-f))),
    "poisson": lambda f: scipy.stats.poisson(np.exp(f)),
}


@pytest.mark.slow
def test_predictions_against_dense_quadrature(case):
    rows, stats = case
    X, y = rows.X[:6], rows.y[:6]
    prediction = sgp.posterior(model, DRAWS, stats).predict(X)
    given = CONDITIONAL[rows.family]
    mean = dense(stats, X, lambda f: given(f).mean())
    second = dense(stats, X, lambda f: given(f).var() + given(f).mean() ** 2)
    np.testing.assert_allclose(prediction.mean, mean, rtol=RTOL)
    np.testing.assert_allclose(prediction.variance, second - mean**2, rtol=10 * RTOL)
    log_density = np.log(dense(stats, X, lambda f: given(f).pmf(y[:, None])))
    np.testing.assert_allclose(prediction.log_density(y), log_density, rtol=RTOL, atol=RTOL)
    np.testing.assert_allclose(
        prediction.distribution_function(y), dense(stats, X, lambda f: given(f).cdf(y[:, None])), rtol=RTOL
    )
    np.testing.assert_allclose(
        prediction.probabilities_of([0, 1])[:, 1], dense(stats, X, lambda f: given(f).pmf(1)), rtol=RTOL
    )
    for p, found in zip((0.2, 0.9), prediction.quantiles([0.2, 0.9]), strict=True):
        assert (dense(stats, X, lambda f, k=found: given(f).cdf(k[:, None])) >= p).all()
        assert (dense(stats, X, lambda f, k=found: given(f).cdf(k[:, None] - 1)) < p).all()


def test_probabilities_of_two_classes_are_those_of_zero_and_one(case):
    rows, stats = case
    prediction = sgp.posterior(model, DRAWS, stats).predict(rows.X)
    if rows.family == "poisson":
        with pytest.raises(ValueError, match="finitely many.*probabilities_of"):
            _ = prediction.probabilities
        return
    np.testing.assert_allclose(prediction.probabilities[:, 1], prediction.mean, rtol=1e-9)
    np.testing.assert_allclose(prediction.probabilities.sum(axis=1), 1, rtol=1e-9)


def test_draws_have_the_moments_and_dependence_of_the_prediction(case):
    rows, stats = case
    X = np.concatenate([rows.X[:3], rows.X[:1]])
    prediction = sgp.posterior(model, DRAWS, stats).predict(X)
    drawn = prediction.sample(jax.random.key(0), 20_000)
    error = np.sqrt(prediction.variance / len(drawn))
    np.testing.assert_array_less(np.abs(drawn.mean(axis=0) - prediction.mean), 5 * error)
    # The same f at the same inputs: the covariance of two outcomes there is the variance of their conditional mean.
    mean = dense(stats, X, lambda f: CONDITIONAL[rows.family](f).mean())
    shared = dense(stats, X, lambda f: CONDITIONAL[rows.family](f).mean() ** 2) - mean**2
    found = np.cov(drawn[:, 0], drawn[:, 3])[0, 1]
    assert abs(found - shared[0]) < 5 * prediction.variance[0] / np.sqrt(len(drawn))


def test_leaving_a_row_out_is_the_exact_refit_but_for_the_expansion(case):
    """The exact log p(y_i | y_-i, θ) from a grid of the two weights."""
    rows, stats = case
    found = sgp.posterior(model, DRAWS, stats).leave_one_out(rows.X, rows.y)
    w, total = rows.grid()
    of_rows = rows.rows_log_density(w)
    for scale, logs in zip(DRAWS["scale"], found, strict=True):
        joint = total - 0.5 * np.sum(w**2, axis=1) / scale**2
        without = scipy.special.logsumexp(joint[:, None] - of_rows, axis=0)
        exact = scipy.special.logsumexp(joint) - without
        # Forty rows and two weights: the expansion errs by 0.01 nats in the worst row.
        np.testing.assert_allclose(logs, exact, atol=0.02)


def several(likelihood, n=60):
    rng = np.random.default_rng(3)
    X = rng.uniform(-1, 1, (n, 1))
    if likelihood is SOFTMAX:
        eta = np.stack([X[:, 0], -X[:, 0], np.zeros(n)], axis=1)
        y = (eta + rng.gumbel(size=eta.shape)).argmax(axis=1).astype(float)
    else:
        y = rng.negative_binomial(2.0, 2.0 / (2.0 + np.exp(1 + X[:, 0]))).astype(float)
    return X, y


@pytest.fixture(scope="module", params=["softmax", "overdispersed"])
def joint(request):
    likelihood = {"softmax": SOFTMAX, "overdispersed": OVERDISPERSED}[request.param]
    X, y = several(likelihood)
    stats = sgp.compress_likelihood(sgp.LinearBasis(1), X, y, likelihood, sgp.DiagonalPrior(1.0))
    return X, y, stats


def draws_of(stats, X, count):
    """Predictors (count, n, K) and parameters (count, p) of the compressed posterior at the two draws, in NumPy."""
    rng, K = np.random.default_rng(4), stats.num_latents
    etas, parameters = [], []
    for scale in DRAWS["scale"]:
        A, r = stats.moments.gram, stats.moments.feature_output
        covariance = np.linalg.inv(A + np.eye(len(A)) / scale**2)
        w = rng.multivariate_normal(covariance @ r, covariance, count)
        etas.append(np.einsum("nm,skm->snk", stats.basis.host_features(X), w.reshape(count, K, -1)))
        if stats.parameters is not None:
            z = rng.standard_normal((count, stats.parameters.num_parameters))
            parameters.append(np.asarray(stats.parameters.mean(w)) + z @ np.asarray(stats.parameters.factor).T)
    return np.concatenate(etas), np.concatenate(parameters) if parameters else None


@pytest.mark.slow
def test_several_predictors_and_parameters_against_sampling(joint):
    X, y, stats = joint
    prediction = sgp.posterior(model, DRAWS, stats).predict(X[:5])
    eta, parameters = draws_of(stats, X[:5], 50_000)
    if parameters is None:
        mass = np.exp(eta - scipy.special.logsumexp(eta, axis=2, keepdims=True))
        found = prediction.probabilities
    else:
        size, mean = np.exp(parameters), np.exp(eta[..., 0])
        mass = scipy.stats.nbinom.pmf(np.arange(4), size[..., None], (size / (size + mean))[..., None])
        found = prediction.probabilities_of(np.arange(4))
    error = mass.std(axis=0) / np.sqrt(len(mass))
    np.testing.assert_array_less(np.abs(found - mass.mean(axis=0)), 5 * error + 1e-6)
    seen = y[:5].astype(int)
    known = seen < found.shape[1]
    expected = np.log(found[np.arange(5), np.minimum(seen, found.shape[1] - 1)])
    np.testing.assert_allclose(prediction.log_density(y[:5])[known], expected[known], rtol=1e-9)
    drawn = prediction.sample(jax.random.key(1), 20_000)
    share = np.stack([(drawn == k).mean(axis=0) for k in range(found.shape[1])], axis=1)
    np.testing.assert_array_less(np.abs(share - found), 5 * np.sqrt(found / len(drawn)) + 1e-4)


@pytest.mark.slow
def test_classes_have_no_mean():
    X, y = several(SOFTMAX, n=20)
    stats = sgp.compress_likelihood(sgp.LinearBasis(1), X, y, SOFTMAX, sgp.DiagonalPrior(1.0))
    with pytest.raises(ValueError, match="no mean.*probabilities"):
        sgp.posterior(model, DRAWS, stats).predict(X[:2]).variance.sum()


@pytest.mark.slow
@pytest.mark.parametrize("likelihood", [sgp.likelihoods.Poisson(), SOFTMAX], ids=["poisson", "softmax"])
@pytest.mark.parametrize("method", ["averaged", "mode"])
def test_the_row_that_is_left_out_is_taken_out_of_the_expansion_exactly(likelihood, method):
    """Statistics of the other rows, expanded around the same centre, are those without the row's quadratic term."""
    X, y = several(SOFTMAX, n=25)
    offset = 0.1 * np.sin(9 * X[:, 0])
    offset = offset if likelihood is not SOFTMAX else np.stack([offset, 0 * offset, -offset], axis=1)
    basis, prior = sgp.LinearBasis(1), sgp.DiagonalPrior(1.0)
    stats = sgp.compress_likelihood(basis, X, y, likelihood, prior, offset=offset, method=method)
    found = sgp.posterior(model, DRAWS, stats).leave_one_out(X, y, offset=offset, rows=[4, 7])
    for position, row in enumerate((4, 7)):
        rest = np.arange(len(y)) != row
        others = sgp.compress_likelihood(
            basis, X[rest], y[rest], likelihood, offset=offset[rest], centre=stats, method=method
        )
        for s, scale in enumerate(DRAWS["scale"]):
            one = sgp.posterior(model, {"scale": np.array([scale])}, others)
            expected = one.predict(X[[row]], offset=offset[[row]]).log_density(y[[row]])
            np.testing.assert_allclose(found[s, position], expected[0], rtol=by_lane(1e-5, 2e-3))


def test_rows_that_are_not_those_compressed_are_refused(case):
    rows, stats = case
    posterior = sgp.posterior(model, DRAWS, stats)
    with pytest.raises(ValueError, match="40 rows; got 39"):
        posterior.leave_one_out(rows.X[:-1], rows.y[:-1])
    with pytest.raises(ValueError, match="statistics do not keep their rows"):
        posterior.leave_one_out()
    with pytest.raises(ValueError, match="`row_weights` are of Gaussian noise"):
        posterior.predict(rows.X, row_weights=np.ones(40))
    with pytest.raises(ValueError, match="`offset` must have a value for each of 40 rows"):
        posterior.predict(rows.X, offset=np.ones(3))
