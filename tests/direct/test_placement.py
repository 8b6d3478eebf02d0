"""Normal priors: levels where the posterior is, on rotated features; and grids whose ends a fit presses against."""

import warnings

import jax
import numpy as np
import numpyro.distributions as dist
import pytest
import scipy.stats

import ppl_sgp as sgp
from ppl_sgp.direct.elbo import Variational
from ppl_sgp.direct.problem import Problem
from tests.builders import IdentityBasis
from tests.direct.brute import Case

pytestmark = pytest.mark.float64_only  # on the host, whatever the lane


def smooth(num_features, noise, n=60):
    """Rows of a smooth function of three inputs, through Fourier features; and new rows."""
    rng = np.random.default_rng(4)
    X = rng.uniform(-1, 1, size=(2 * n, 3))
    y = np.sin(3 * X[:, 0]) + X[:, 1] * X[:, 2] + noise * rng.normal(size=2 * n)
    kernel = sgp.SquaredExponential(0.8)
    basis = sgp.FourierBasis.sample(jax.random.key(1), kernel, num_features, 3)
    stats = sgp.sufficient_statistics(basis, X[:n], y[:n])
    return X, y, stats, basis.weight_prior(kernel), n


def gaussian_weights(X, y, stats, prior, noise, n):
    """Mean and variance of f at the new rows, and the log evidence, from n × n matrices."""
    Phi = np.asarray(stats.basis.host_features(X)) * np.asarray(prior.scale)
    K = Phi @ Phi.T
    inner = K[:n, :n] + noise**2 * np.eye(n)
    solved = np.linalg.solve(inner, K[:n, n:])
    evidence = scipy.stats.multivariate_normal(np.zeros(n), inner).logpdf(y[:n])
    return solved.T @ y[:n], np.diag(K[n:, n:]) - np.sum(K[:n, n:] * solved, axis=0), evidence


@pytest.mark.parametrize("num_features", [30, 300])
@pytest.mark.parametrize("noise", [0.3, 0.003])
def test_normal_priors_fit_as_gaussian_weights_do(num_features, noise):
    """With more features than rows, and with noise that is small, where levels of the given features fail."""
    X, y, stats, prior, n = smooth(num_features, noise)
    mean, variance, evidence = gaussian_weights(X, y, stats, prior, noise, n)
    result = sgp.direct.fit(stats, prior, noise_scale=noise)
    prediction = result.predict(X[n:])
    total = np.sqrt(variance + noise**2)
    np.testing.assert_array_less(np.abs(prediction.mean - mean), 0.1 * total)
    np.testing.assert_allclose(np.sqrt(prediction.variance + noise**2), total, rtol=0.05)
    expected = scipy.stats.norm.logpdf(y[n:], mean, total)
    assert np.mean(prediction.log_density(y[n:])) == pytest.approx(np.mean(expected), abs=0.05, rel=0.01)
    # Three standard deviations on both sides leave out 0.003 nats a weight, and up to half a step more on one side.
    assert 0 < evidence - result.elbo - result.log_prior_mass < 0.01 * num_features
    codes = result.quantize().predict(X[n:])
    error = np.sqrt(np.mean((mean - y[n:]) ** 2))
    assert np.sqrt(np.mean((codes - y[n:]) ** 2)) < 1.2 * error


@pytest.mark.parametrize("rotate", [True, False])
def test_elbo_is_that_of_the_prior_on_the_placed_levels(rotate, rng):
    """By enumeration. The prior is the density at the levels, normalised."""
    Phi, y = rng.normal(size=(9, 3)) @ (np.eye(3) + 0.5), rng.normal(size=9)
    stats, scale = sgp.sufficient_statistics(IdentityBasis(3), Phi, y), np.array([0.5, 1.0, 2.0])
    normal = dist.Normal(0.0, scale)
    result = sgp.direct.fit(stats, normal, noise_scale=0.4, num_levels=5, rotate=rotate)
    placed, prior = sgp.direct.place_levels(stats, normal, 0.4, num_levels=5, rotate=rotate)
    np.testing.assert_allclose(prior.levels, result.levels, rtol=1e-12)
    density = scipy.stats.norm.pdf(result.levels, 0.0, 1.0 if rotate else scale[:, None])
    np.testing.assert_allclose(prior.probs, density / density.sum(axis=1, keepdims=True), rtol=1e-9)
    small = Case(
        np.asarray(placed.basis.host_features(Phi)), y, placed, prior, 0.4, Problem.of(placed, prior, 0.4), None
    )
    q = Variational(np.zeros(1), result.log_probabilities, np.zeros(1))
    assert result.elbo == pytest.approx(small.elbo(q), abs=1e-9)
    gap = small.log_evidence() - result.elbo
    assert abs(gap) < 1e-9 if rotate else 0 < gap < 5  # one factorised distribution is exact for rotated weights
    steps = np.diff(result.levels, axis=1)
    np.testing.assert_allclose(steps, np.broadcast_to(steps[:, :1], steps.shape), rtol=1e-9)
    multiples = result.levels / steps[:, :1]
    np.testing.assert_allclose(multiples, np.rint(multiples), atol=1e-9)
    again = sgp.direct.fit(placed, prior, noise_scale=0.4)
    assert again.elbo == pytest.approx(result.elbo, abs=1e-6)


@pytest.mark.slow
def test_noise_is_that_of_gaussian_weights():
    """Of a grid of levels; with levels of the given features the largest is chosen, and the fit says so."""
    X, y, stats, prior, n = smooth(300, 0.1)
    scales = np.geomspace(0.01, 0.3, 9)
    evidence = np.array([gaussian_weights(X, y, stats, prior, scale, n)[2] for scale in scales])
    probs = np.exp(evidence - np.logaddexp.reduce(evidence))
    result = sgp.direct.fit(stats, prior, noise_scale=(scales, np.zeros(9)))
    assert probs.argmax() == result.noise_probabilities.argmax()
    assert result.noise_variance**0.5 == pytest.approx(np.sqrt(probs @ scales**2), rel=0.15)
    relaxed = sgp.DiscreteRelaxation(dist.Normal(0.0, prior.scale))
    with pytest.warns(UserWarning, match="noise sits on the largest of its levels"):
        given = sgp.direct.fit(stats, relaxed, noise_scale=(scales, np.zeros(9)))
    assert given.noise_probabilities.argmax() == 8


@pytest.mark.slow
def test_weights_that_press_against_the_end_of_their_grid_are_reported(rng):
    Phi = rng.normal(size=(80, 4))
    y = Phi @ [1.0, 0.05, -1.0, 0.0] + 0.1 * rng.normal(size=80)
    stats, normal = sgp.sufficient_statistics(IdentityBasis(4), Phi, y), dist.Normal(0.0, 0.1)
    with pytest.warns(UserWarning, match="2 of 4 weights sit on their outermost level.*Pass the normal prior itself"):
        result = sgp.direct.fit(stats, sgp.DiscreteRelaxation(normal), noise_scale=0.1)
    np.testing.assert_array_equal(result.outermost, [True, False, True, False])
    # The remedies, followed: nothing is reported, and the weights are found.
    for prior in (normal, sgp.DiscreteRelaxation(normal, support=np.linspace(-1.5, 1.5, 61))):
        other = sgp.direct.fit(stats, prior, noise_scale=0.1)
        assert not other.outermost.any()
        np.testing.assert_allclose(other.predict(Phi).mean, Phi @ [1.0, 0.05, -1.0, 0.0], atol=0.2)
    # Levels with probabilities of their own are the prior: nothing lies beyond them.
    ternary = sgp.DiscreteRelaxation.from_logits([-0.5, 0.0, 0.5], np.zeros(3))
    assert not sgp.direct.fit(stats, ternary, noise_scale=0.1).outermost.any()


@pytest.mark.parametrize("ratio", [1e3, 1e7, 1e9, 1e12])
def test_noise_far_below_the_prior_is_no_error(ratio, rng):
    Phi = rng.normal(size=(20, 30))
    stats = sgp.sufficient_statistics(IdentityBasis(30), Phi, Phi[:, 0])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # levels this far apart may have no end in sight
        coarse = sgp.direct.fit(stats, sgp.DiscreteRelaxation(dist.Normal(0.0, 1.0)), noise_scale=1 / ratio)
    assert np.isfinite(coarse.elbo)
    placed = sgp.direct.fit(stats, dist.Normal(0.0, 1.0), noise_scale=1 / ratio)
    np.testing.assert_allclose(placed.predict(Phi).mean, Phi[:, 0], atol=1e-6 + 10 / ratio)


def test_normal_priors_may_be_given_in_several_ways(rng):
    stats = sgp.sufficient_statistics(IdentityBasis(2), rng.normal(size=(9, 2)), np.ones(9))
    normal = dist.Normal(0.0, 0.7)
    bounds = [
        sgp.direct.fit(stats, each, noise_scale=0.5).elbo
        for each in (normal, normal.expand([2]), normal.expand([2]).to_event(1), dist.Normal(0.0, np.full(2, 0.7)),
                     sgp.DiagonalPrior(0.7), sgp.DensePrior(0.49 * np.eye(2)))
    ]  # fmt: skip
    np.testing.assert_allclose(bounds, bounds[0], rtol=1e-6)


def test_refusals(rng):
    stats = sgp.sufficient_statistics(IdentityBasis(2), rng.normal(size=(5, 2)), np.ones(5))
    relaxed, dense = sgp.DiscreteRelaxation(dist.Normal(0.0, 1.0)), sgp.DensePrior(np.eye(2))
    for match, call in {
        "must have mean zero": lambda: sgp.direct.fit(stats, dist.Normal(1.0, 1.0), noise_scale=1.0),
        "are for Gaussian priors": lambda: sgp.direct.fit(stats, relaxed, noise_scale=1.0, num_levels=7),
        "pass `statistics.rotate": lambda: sgp.direct.fit(stats, relaxed, noise_scale=1.0, rotate=True),
        "a factorised prior is needed": lambda: sgp.direct.fit(stats, dense, noise_scale=1.0, rotate=False),
        "an integer of 3 or more; got 2": lambda: sgp.direct.fit(
            stats, dist.Normal(0.0, 1.0), noise_scale=1.0, num_levels=2
        ),
        "an integer of 3 or more; got True": lambda: sgp.direct.place_levels(
            stats, dist.Normal(0.0, 1.0), 1.0, num_levels=True
        ),
        "must be a normal or a weight prior": lambda: sgp.direct.place_levels(stats, relaxed, 1.0),
        "too far apart for float64": lambda: sgp.direct.fit(stats, dist.Normal(0.0, 1e80), noise_scale=1e-80),
        "noise of 1e-80, too far apart": lambda: sgp.direct.fit(
            stats, sgp.DiscreteRelaxation(dist.Normal(0.0, 1e80)), noise_scale=1e-80
        ),
        "must have 2 weights; got 3": lambda: sgp.direct.fit(stats, dist.Normal(0.0, 1.0).expand([3]), noise_scale=1.0),
        "must be positive": lambda: sgp.direct.place_levels(stats, dist.Normal(0.0, 1.0), -1.0),
        "one output": lambda: sgp.direct.place_levels(np.ones(3), dist.Normal(0.0, 1.0), 1.0),
    }.items():
        with pytest.raises(ValueError, match=match):
            call()
