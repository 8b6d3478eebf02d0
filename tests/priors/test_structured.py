"""Dense, Kronecker, block and reflected priors, each against matrices formed in full."""

from __future__ import annotations

import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import multivariate_normal

import ppl_sgp as sgp
from tests.builders import IdentityBasis, by_lane

RTOL = by_lane(1e-12, 1e-5)
M = 6


def random_covariance(rng, m, rank=None):
    root = rng.standard_normal((m, rank or m))
    return root @ root.T / m


def reflection(v):
    return np.eye(len(v)) - 2 * np.outer(v, v) / (v @ v)


def lane(array):
    return jnp.asarray(array, jnp.result_type(float))


def cases():
    """(prior, covariance formed in full, mean) of each structure; the covariances are singular in two."""
    rng = np.random.default_rng(0)
    mean = rng.standard_normal(M)
    C, singular = random_covariance(rng, M), random_covariance(rng, M, rank=2)
    yield "dense", sgp.DensePrior(lane(C), mean=lane(mean)), C, mean
    yield "dense-singular", sgp.DensePrior(lane(singular)), singular, 0 * mean
    L = np.tril(rng.standard_normal((M, M)))
    yield "dense-tril", sgp.DensePrior(scale_tril=lane(L)), L @ L.T, 0 * mean
    A, B = random_covariance(rng, 2), random_covariance(rng, 3)
    yield "kronecker", sgp.KroneckerPrior([lane(A), lane(B)], lane(mean)), np.kron(A, B), mean
    scale = np.exp(rng.standard_normal(M))
    factors = [sgp.DiagonalPrior(lane(scale[:2])), sgp.DensePrior(lane(B))]
    yield "kronecker-of-dense-and-diagonal", sgp.KroneckerPrior(factors), np.kron(np.diag(scale[:2] ** 2), B), 0 * mean
    block = np.zeros((M, M))
    block[:2, :2], block[2:, 2:] = A, np.diag(scale[2:] ** 2)
    blocks = [sgp.DensePrior(lane(A)), sgp.DiagonalPrior(lane(scale[2:]), lane(mean[2:]))]
    yield "block", sgp.BlockPrior(blocks), block, np.r_[0, 0, mean[2:]]
    V = rng.standard_normal((3, M))
    U = reflection(V[0]) @ reflection(V[1]) @ reflection(V[2])
    yield "householder", sgp.HouseholderPrior(lane(scale), lane(V), lane(mean)), U @ np.diag(scale**2) @ U.T, mean
    U = np.eye(M)
    U[:4, :4] = reflection(V[0, :4])
    yield "householder-part", sgp.HouseholderPrior(lane(scale), lane(V[:1, :4])), U @ np.diag(scale**2) @ U.T, 0 * mean


CASES = {name: case for name, *case in cases()}
every = pytest.mark.parametrize("name", CASES)


@every
def test_products_with_the_covariance_and_a_root_of_it(name, rng):
    prior, C, mean = CASES[name]
    vectors = rng.standard_normal((M, 3))
    atol = RTOL * np.abs(C).max() * 10
    np.testing.assert_allclose(prior.covariance, C, rtol=RTOL, atol=atol)
    np.testing.assert_allclose(prior.variance, np.diag(C), rtol=RTOL, atol=atol)
    np.testing.assert_allclose(prior.apply(lane(vectors)), C @ vectors, rtol=RTOL, atol=10 * atol)
    F = np.asarray(prior.apply_root(jnp.eye(M)), dtype=np.float64)
    np.testing.assert_allclose(F @ F.T, C, rtol=RTOL, atol=100 * atol)
    np.testing.assert_allclose(np.zeros(M) if prior.mean is None else prior.mean, mean, rtol=by_lane(1e-15, 1e-6))
    assert prior.num_weights == M and prior.batch_shape == ()


@every
def test_priors_are_pytrees_that_pickle(name):
    prior = CASES[name][0]
    for copy in (pickle.loads(pickle.dumps(prior)), jax.tree.map(lambda x: x, prior), jax.jit(lambda p: p)(prior)):
        np.testing.assert_allclose(copy.covariance, prior.covariance, rtol=by_lane(1e-12, 1e-5), atol=1e-6)


@pytest.mark.parametrize(
    "make",
    [
        lambda ones: sgp.DiagonalPrior(ones, ones),
        lambda ones: sgp.DensePrior(jnp.diag(ones), mean=ones),
        lambda ones: sgp.DensePrior(scale_tril=jnp.diag(ones), mean=ones),
        lambda ones: sgp.KroneckerPrior([jnp.diag(ones[:2]), jnp.diag(ones[:3])], ones),
        lambda ones: sgp.HouseholderPrior(ones, ones[None], ones),
    ],
)
def test_priors_of_arrays_made_outside_are_made_inside_jit(make):
    """A model's program may hold arrays that were made outside it: they can be read, but not with JAX."""
    ones = jnp.ones(M)
    variance = jax.jit(lambda noise: make(ones).variance * noise)(lane(2.0))
    np.testing.assert_allclose(variance, 2 * np.asarray(make(ones).variance), rtol=RTOL)


def statistics(rng, n=20, m=M, q=None, rank=None):
    Phi = rng.standard_normal((n, m))
    if rank is not None:
        Phi = Phi[:, :rank] @ rng.standard_normal((rank, m))
    y = rng.standard_normal(n if q is None else (n, q))
    return sgp.sufficient_statistics(IdentityBasis(m), Phi, y), Phi, y


def dense_log_density(Phi, y, C, mean, noise_scale):
    K = Phi @ C @ Phi.T + noise_scale**2 * np.eye(len(y))
    return multivariate_normal.logpdf(y, Phi @ mean, K)


@every
@pytest.mark.float64_only
@pytest.mark.parametrize("shape", [dict(n=20), dict(n=4), dict(rank=3)], ids=["tall", "few_rows", "low_rank"])
def test_evidence_equals_the_dense_density(name, shape, rng):
    prior, C, mean = CASES[name]
    stats, Phi, y = statistics(rng, **shape)
    for noise_scale in (1.0, 0.03):
        expected = dense_log_density(Phi, y, C, mean, noise_scale)
        np.testing.assert_allclose(sgp.log_evidence(stats, prior, noise_scale), expected, rtol=1e-9)
        np.testing.assert_allclose(
            sgp.log_evidence(stats.rotate(), rotated(stats, C, mean), noise_scale), expected, rtol=1e-9
        )


def rotated(stats, C, mean):
    """The same prior on the weights of rotated features: w = W w̃."""
    W = np.linalg.inv(stats.rotate().basis.rotation)
    return sgp.DensePrior((W @ C @ W.T + W @ C.T @ W.T) / 2, mean=W @ mean)


@every
@pytest.mark.float64_only
def test_gradients_match_finite_differences(name, rng):
    prior, _, _ = CASES[name]
    stats, _, _ = statistics(rng)
    leaves, tree = jax.tree.flatten(prior)

    def value(leaves, log_noise):
        return sgp.log_evidence(stats, jax.tree.unflatten(tree, leaves), jnp.exp(log_noise))

    directions = [rng.standard_normal(leaf.shape) for leaf in leaves]
    if "dense" in name or name in ("kronecker", "block"):
        directions = [d + d.T if d.ndim == 2 else d for d in directions]
    gradient, slope = jax.grad(value, argnums=(0, 1))(leaves, -1.0)
    eps = 1e-6
    up, down = ([leaf + s * eps * d for leaf, d in zip(leaves, directions, strict=True)] for s in (1, -1))
    along = sum(np.sum(g * d) for g, d in zip(gradient, directions, strict=True))
    np.testing.assert_allclose(along, (value(up, -1.0) - value(down, -1.0)) / (2 * eps), rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(slope, (value(leaves, -1 + eps) - value(leaves, -1 - eps)) / (2 * eps), rtol=1e-6)
    forward = jax.jvp(value, (leaves, -1.0), (directions, 0.0))[1]
    np.testing.assert_allclose(forward, along, rtol=1e-10)


@every
@pytest.mark.float64_only
def test_several_outputs_and_noise_scales(name, rng):
    prior, C, mean = CASES[name]
    stats, Phi, y = statistics(rng, q=2)
    noise = np.array([[0.3], [0.7]])
    expected = [[dense_log_density(Phi, y[:, j], C, mean, s) for j in range(2)] for s in noise[:, 0]]
    np.testing.assert_allclose(sgp.log_evidence(stats, prior, noise), expected, rtol=1e-9)


@every
@pytest.mark.float64_only
def test_posterior_of_the_weights(name, rng):
    prior, C, mean = CASES[name]
    stats, Phi, y = statistics(rng)
    posterior = sgp.weight_posterior(stats, prior, 0.4)
    gain = C @ Phi.T @ np.linalg.inv(Phi @ C @ Phi.T + 0.16 * np.eye(len(y)))
    np.testing.assert_allclose(posterior.mean, mean + gain @ (y - Phi @ mean), rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(posterior.covariance_matrix, C - gain @ Phi @ C, rtol=1e-8, atol=1e-10)


@every
@pytest.mark.float64_only
def test_moments_and_draws_of_the_site(name, rng):
    prior, C, mean = CASES[name]
    stats, _, _ = statistics(rng)
    site = sgp.SparseGP(stats, prior, 0.5)
    R = stats.compressed.factor
    covariance = R @ C @ R.T + 0.25 * np.eye(len(R))
    np.testing.assert_allclose(site.mean[:-1], R @ mean, atol=1e-10)
    np.testing.assert_allclose(site.variance[:-1], np.diag(covariance), rtol=1e-9)
    draws = np.asarray(site.sample(jax.random.key(0), (20_000,)))[:, :-1]
    whitened = np.linalg.solve(np.linalg.cholesky(covariance), (draws - R @ mean).T)
    # Means have standard error 0.007, (co)variances at most 0.01.
    np.testing.assert_allclose(whitened.mean(axis=1), 0, atol=0.03)
    np.testing.assert_allclose(whitened @ whitened.T / len(draws), np.eye(len(R)), atol=0.045)


@pytest.mark.parametrize("rank", [None, 4])
def test_reflections_cost_little_on_orthonormal_features(rng, rank):
    stats, Phi, y = statistics(rng, rank=rank)
    orthonormal = stats.rotate(orthonormal=True)
    r = orthonormal.num_orthonormal
    assert r == stats.rank
    Psi = orthonormal.basis.host_features(Phi)
    np.testing.assert_allclose(Psi.T @ Psi, np.diag(np.arange(M) < r), atol=1e-10)
    V, scale, mean = rng.standard_normal((2, r)), np.exp(rng.standard_normal(M)), rng.standard_normal(M)
    prior = sgp.HouseholderPrior(lane(scale), lane(V), lane(mean))
    assert sgp.evidence_cost(orthonormal, prior) == "O(k·m)"
    U = np.eye(M)
    U[:r, :r] = reflection(V[0]) @ reflection(V[1])
    expected = dense_log_density(Psi, y, U @ np.diag(scale**2) @ U.T, mean, 0.3)
    np.testing.assert_allclose(sgp.log_evidence(orthonormal, prior, 0.3), expected, rtol=by_lane(1e-9, 2e-4))
    gradient = jax.grad(lambda v: sgp.log_evidence(orthonormal, sgp.HouseholderPrior(lane(scale), v), 0.3))(lane(V))
    assert np.isfinite(np.asarray(gradient)).all() and np.abs(np.asarray(gradient)).max() > 0


@pytest.mark.float64_only
@every
def test_rotation_with_any_prior_is_exact_in_amplitude_and_noise(name, rng):
    prior, C, mean = CASES[name]
    stats, Phi, y = statistics(rng)
    if prior.mean is not None:
        with pytest.raises(ValueError, match="mean zero"):
            stats.rotate(prior)
        return
    fast = stats.rotate(prior)
    for amplitude, noise_scale in ((1.0, 0.5), (3.0, 0.1)):
        expected = dense_log_density(Phi, y, amplitude**2 * C, mean, noise_scale)
        np.testing.assert_allclose(
            sgp.log_evidence(fast, sgp.DiagonalPrior(amplitude), noise_scale), expected, rtol=1e-9
        )
    assert sgp.evidence_cost(fast, sgp.DiagonalPrior(1.0)) == "O(m)"


REFUSED = {
    "both": (lambda: sgp.DensePrior(np.eye(2), scale_tril=np.eye(2)), "exactly one"),
    "rectangular": (lambda: sgp.DensePrior(np.ones((2, 3))), r"square matrix .* got \(2, 3\)"),
    "asymmetric": (lambda: sgp.DensePrior([[1.0, 0.5], [0.0, 1.0]]), "symmetric"),
    "indefinite": (lambda: sgp.DensePrior([[1.0, 2.0], [2.0, 1.0]]), "positive semi-definite"),
    "not finite": (lambda: sgp.DensePrior([[np.nan, 0.0], [0.0, 1.0]]), "finite"),
    "mean size": (lambda: sgp.DensePrior(np.eye(2), mean=np.zeros(3)), r"`mean` must have shape \(2,\)"),
    "no factors": (lambda: sgp.KroneckerPrior([]), "at least one matrix"),
    "scalar block": (lambda: sgp.BlockPrior([sgp.DiagonalPrior(1.0)]), "one entry a weight"),
    "zero reflection": (lambda: sgp.HouseholderPrior(np.ones(2), np.zeros((1, 2))), "not zero"),
    "long reflection": (lambda: sgp.HouseholderPrior(np.ones(2), np.ones((1, 3))), r"1 <= r <= 2"),
    "scalar scale": (lambda: sgp.HouseholderPrior(1.0, np.ones((1, 3))), r"shape \(m,\)"),
}


@pytest.mark.parametrize("make, message", REFUSED.values(), ids=REFUSED)
def test_refusals(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_distributions_over_the_weights(rng):
    prior, C, mean = CASES["dense"]
    w = rng.standard_normal(M)
    expected = multivariate_normal.logpdf(w, mean, C)
    np.testing.assert_allclose(prior.distribution().log_prob(lane(w)), expected, rtol=by_lane(1e-9, 1e-3))
    with pytest.raises(ValueError, match="singular to rounding.*non-centred"):
        sgp.DensePrior(np.zeros((2, 2))).distribution()


def test_sizes_that_do_not_fit_the_statistics(rng):
    stats, _, _ = statistics(rng)
    with pytest.raises(ValueError, match="has 2 weights but the statistics have 6"):
        sgp.log_evidence(stats, sgp.DensePrior(np.eye(2)), 0.3)
    with pytest.raises(ValueError, match="either `prior` or `orthonormal"):
        stats.rotate(sgp.DiagonalPrior(1.0), orthonormal=True)


@pytest.mark.skipif(jax.config.jax_enable_x64, reason="float32 lane")
def test_float32_is_refused_with_the_remedy(rng):
    stats, _, _ = statistics(rng)
    with pytest.raises(ValueError, match=r"DensePrior needs float64.*enable_x64"):
        sgp.log_evidence(stats, sgp.DensePrior(np.eye(M, dtype=np.float32)), 0.3)
