"""Compressed likelihoods against derivatives of all rows at once, averages on grids and brute-force evidences."""

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.infer.util import log_density
from scipy.special import logsumexp

import ppl_sgp as sgp
from tests.expansion import dense
from tests.expansion.rows import N, laplace, one_kernel

lik = sgp.likelihoods

FAMILIES = {"labels": (lik.Bernoulli(), dense.bernoulli), "counts": (lik.Poisson(), dense.poisson)}


@pytest.mark.parametrize("name", FAMILIES)
def test_at_the_mode_it_is_the_second_order_expansion(name, basis, X, prior, request, x64):
    y, (likelihood, family) = request.getfixturevalue(name), FAMILIES[name]
    stats = sgp.compress_likelihood(basis, X, y, likelihood, prior, method="mode")
    Phi, centre = basis.host_features(X), stats.centre.mean
    log_prob, gradient, curvature = family(Phi @ centre, y)
    A = (Phi * curvature[:, None]).T @ Phi
    np.testing.assert_allclose(stats.moments.gram, A, 1e-10, 1e-10)
    np.testing.assert_allclose(stats.moments.feature_output, Phi.T @ gradient + A @ centre, 1e-9, 1e-9)
    np.testing.assert_allclose(stats.log_likelihood(centre), log_prob.sum(), 1e-11 if x64 else 1e-5)
    precision = A + np.diag(1 / np.asarray(prior.variance, dtype=float))
    step = np.linalg.solve(precision, Phi.T @ gradient - centre / np.asarray(prior.variance, dtype=float))
    assert np.sqrt(step @ precision @ step) < 0.1  # of a standard deviation of the posterior
    assert stats.converged and stats.num_rows == N and stats.method == "mode"


@pytest.mark.parametrize("name", FAMILIES)
def test_averaged_it_is_the_average_over_the_gaussian_posterior(name, basis, X, prior, request):
    y, (likelihood, family) = request.getfixturevalue(name), FAMILIES[name]
    stats = sgp.compress_likelihood(basis, X, y, likelihood, prior)
    Phi, centre = basis.host_features(X), stats.centre
    covariance = centre.factor @ centre.factor.T
    variance = np.sum((Phi @ centre.factor) ** 2, axis=1)
    log_prob, gradient, curvature = dense.averaged(family, Phi @ centre.mean, variance, y)
    A = (Phi * curvature[:, None]).T @ Phi
    np.testing.assert_allclose(stats.moments.gram, A, 1e-5, 1e-5)  # variances of predictors are in float32
    np.testing.assert_allclose(stats.moments.feature_output, Phi.T @ gradient + A @ centre.mean, 1e-5, 1e-4)
    # The variational bound: the fixed point has the covariance (S₀ + A)⁻¹ and no step left.
    S = np.diag(1 / np.asarray(prior.variance, dtype=float))
    np.testing.assert_allclose(covariance @ (S + A), np.eye(len(S)), atol=0.02)
    step = np.linalg.solve(S + A, Phi.T @ gradient - S @ centre.mean)
    assert np.sqrt(step @ (S + A) @ step) < 0.1
    m = len(S)
    divergence = np.trace(S @ covariance) + centre.mean @ S @ centre.mean - m - np.linalg.slogdet(S @ covariance)[1]
    bound = log_prob.sum() - 0.5 * divergence
    np.testing.assert_allclose(sgp.log_evidence(stats, prior), bound, atol=2e-3, rtol=2e-6)


def test_softmax_couples_the_weights_of_classes(softmax, basis, X, classes, prior, x64):
    Phi = basis.host_features(X)
    eta = Phi @ softmax.weights_by_latent(softmax.centre.mean).T
    A = dense.softmax_curvature(Phi, eta)
    np.testing.assert_allclose(softmax.moments.gram, A, 1e-9, 1e-7)
    log_prob = eta[np.arange(N), classes] - logsumexp(eta, axis=1)
    np.testing.assert_allclose(softmax.log_likelihood(softmax.centre.mean), log_prob.sum(), 1e-10 if x64 else 1e-5)
    # The prior of m weights holds for each class: the evidence from dense matrices of all 3 m weights.
    C = np.kron(np.eye(3), np.diag(np.asarray(prior.variance, dtype=float)))
    r = softmax.moments.feature_output
    B = np.eye(len(A)) + C @ A
    evidence = softmax.log_likelihood_at_zero() + 0.5 * r @ np.linalg.solve(B, C @ r) - 0.5 * np.linalg.slogdet(B)[1]
    np.testing.assert_allclose(sgp.log_evidence(softmax, prior), evidence, 1e-9 if x64 else 1e-5)
    assert (softmax.num_features, softmax.num_weights, softmax.num_latents) == (7, 21, 3)


@pytest.mark.slow
@pytest.mark.float64_only
def test_free_parameters_are_integrated_out(basis, X, prior, counts):
    free = lik.NegativeBinomial(dist.LogNormal(0.5, 0.7))
    stats = sgp.compress_likelihood(basis, X, counts, free, prior, method="mode")
    given, w = stats.parameters, stats.centre.mean + 0.1 * stats.centre.factor[:, 0]
    grid = np.linspace(-6, 8, 4001)[:, None] + float(given.mean(w)[0])
    prior_density = dist.Normal(0.5, 0.7).log_prob(grid[:, 0])
    joint = stats.log_likelihood(np.broadcast_to(w, (len(grid), len(w))), grid) + prior_density
    assert logsumexp(joint) + np.log(14 / 4000) == pytest.approx(float(stats.log_likelihood(w)), abs=1e-4)
    # At the centre of the expansion, in weights and parameter, it is the log likelihood itself.
    eta = basis.host_features(X) @ stats.centre.mean
    at = jnp.atleast_1d(given.mean(stats.centre.mean))
    exact = jnp.sum(free.log_prob(jnp.asarray(eta), counts, at))
    # The centre of the parameter is a short step from its posterior mean.
    assert float(stats.log_likelihood(stats.centre.mean, at)) == pytest.approx(float(exact), abs=2e-3)


@pytest.mark.slow
@pytest.mark.float64_only
@pytest.mark.parametrize("num_rows, averaged, mode", [(300, 0.012, 0.05), (1000, 0.008, 0.025)])
def test_posteriors_of_hyperparameters_are_those_of_brute_force(num_rows, averaged, mode):
    """Total variation over a grid of lengthscale and amplitude, as in the docs: averaged 0.005 and 0.003."""
    rng = np.random.default_rng(2)
    x = rng.uniform(-1, 1, num_rows)
    y = (rng.random(num_rows) < 1 / (1 + np.exp(-1.5 * np.sin(4 * x)))).astype(float)
    basis = sgp.stack(laplace(20), sgp.ConstantBasis(1))

    def prior(lengthscale, amplitude):
        kernel = sgp.SquaredExponential(np.float64(lengthscale), np.float64(amplitude))
        return basis.weight_prior((kernel, sgp.DiagonalPrior(np.float64(5.0))))

    Phi = basis.host_features(x[:, None])
    grid = [(lengthscale, a) for lengthscale in (0.2, 0.3, 0.45, 0.7) for a in (0.6, 1.0, 1.6, 2.6)]
    reference = prior(0.35, 1.5)
    found = {}
    for method in ("averaged", "mode"):
        stats = sgp.compress_likelihood(basis, x[:, None], y, lik.Bernoulli(), reference, method=method)
        found[method] = np.array([float(sgp.log_evidence(stats, prior(*point))) for point in grid])

    def log_likelihood(w):
        eta = w @ Phi.T
        return eta @ y - np.logaddexp(0, eta).sum(axis=1)

    exact, errors = [], []
    for point in grid:
        A, r = stats.moments.gram, stats.moments.feature_output
        value, error = dense.log_evidence(log_likelihood, A, r, np.asarray(prior(*point).variance), rng)
        exact.append(value), errors.append(error)
    exact = np.array(exact)
    share = np.exp(exact - logsumexp(exact))
    noise = 0.5 * np.sum(share * errors)  # of the truth, about 0.003
    for method, limit in (("averaged", averaged), ("mode", mode)):
        approximate = np.exp(found[method] - logsumexp(found[method]))
        assert 0.5 * np.abs(approximate - share).sum() < limit + noise, method
    # In the units of log p(y): comparable between bases and models. Nats are lost where the posterior is not, far from
    # the centre.
    assert np.abs(found["averaged"] - exact)[share > 0.01].max() < 0.15


def test_models_observe_it_without_noise(stats, prior, x64):
    def model(stats):
        sgp.observe("y", stats, prior)

    density = log_density(model, (stats,), {}, {})[0]
    np.testing.assert_allclose(density, sgp.log_evidence(stats, prior), 1e-10 if x64 else 1e-5)
    with pytest.raises(ValueError, match="no noise scale"):
        sgp.observe("y", stats, prior, 0.5)
    with pytest.raises(ValueError, match="no noise scale"):
        sgp.log_evidence(stats, prior, 0.5)
    with pytest.raises(ValueError, match="`noise_scale` was given"):
        with numpyro.handlers.seed(rng_seed=0):
            sgp.models.reweighted_basis(noise_scale=0.3)(stats)


def test_given_weights_the_site_has_the_density_of_the_expansion(stats, x64):
    w = stats.centre.mean + stats.centre.factor[:, 1]
    site = sgp.CompressedNormal(stats, jnp.asarray(w))
    tolerance = 1e-10 if x64 else 1e-5
    np.testing.assert_allclose(site.log_prob(stats.projection), stats.log_likelihood(w), tolerance)
    A, r = stats.moments.gram, stats.moments.feature_output
    by_sums = stats.log_likelihood_at_zero() + r @ w - 0.5 * w @ A @ w
    np.testing.assert_allclose(stats.log_likelihood(w), by_sums, tolerance)


@pytest.mark.float64_only
def test_rotated_it_is_the_same(stats, prior):
    rotated = stats.rotate(prior)
    assert rotated.evidence_cost == "O(m)" and not rotated.has_noise
    assert float(sgp.log_evidence(rotated, sgp.DiagonalPrior(1.0))) == pytest.approx(
        float(sgp.log_evidence(stats, prior)), abs=1e-9
    )
    at_centre = [float(each.log_likelihood(each.centre.mean)) for each in (stats, rotated)]
    assert at_centre[0] == pytest.approx(at_centre[1], abs=1e-8)


MODELS = {
    "a kernel": sgp.models.basis_gp(sgp.Matern52),
    "variances": sgp.models.reweighted_basis(),
    "relevance vectors": sgp.models.relevance_vector_machine(),
    "explicit weights": sgp.models.relevance_vector_machine(weights="explicit"),
}


@pytest.mark.parametrize("which", ["stats", "softmax"])
@pytest.mark.parametrize("name", MODELS)
def test_ready_models_run_on_it_without_a_noise_scale(name, which, basis, request, x64):
    if which == "softmax" and not x64 and name == "a kernel":
        pytest.skip("weights of a kernel that is no stack of this basis")
    stats = request.getfixturevalue(which)
    model = MODELS[name]
    if name == "a kernel":
        model = one_kernel
    with numpyro.handlers.seed(rng_seed=0):
        sites = numpyro.handlers.trace(model).get_trace(stats)
    assert "noise_scale" not in sites
    assert np.isfinite(sites["y"]["fn"].log_prob(stats.projection))
