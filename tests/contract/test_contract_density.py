"""``sample`` and ``log_prob`` of the sites describe one distribution, and it is the one of compressed rows."""

import math
from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

import ppl_sgp as sgp
from tests.contract.cases import CASES, QUADRATURE

NUM_DRAWS = 20_000
#: Below this a test of one coordinate fails; there are about 200 of them, all with fixed keys.
LEVEL = 1e-5


def moments_of_c(case):
    """Mean and covariance of c by the definition, float64: (batch, k), (batch, k, k)."""
    factor = case.statistics.compressed.factor
    R = np.diag(factor)[factor != 0] if factor.ndim == 1 else factor
    mean, scale = case.weight_moments
    covariance = (R * scale[..., None, :] ** 2) @ R.T + case.noise_scale[..., None, None] ** 2 * np.eye(len(R))
    return mean @ R.T, covariance


def present(case):
    """Entries of c that carry data (others exist for rotated statistics only, and are zero)."""
    factor = case.statistics.compressed.factor
    return factor != 0 if factor.ndim == 1 else np.ones(len(factor), bool)


@pytest.mark.parametrize("name", list(QUADRATURE))
def test_density_is_normalised(name, x64):
    """∫ p(c, rss) π^(ν/2)/Γ(ν/2) rss^(ν/2−1) dc d rss = Π ω^½: the density of rows integrates to one."""
    case = QUADRATURE[name]
    site, nu = case.make(), int(case.statistics.moments.num_rows - case.statistics.compressed.rank)
    mean, covariance = moments_of_c(case)
    # Gauss-Hermite would be exact by construction; a trapezium rule on a wide grid assumes only smooth decay.
    z = np.linspace(-7, 7, 41)
    grids = np.stack(np.meshgrid(*[z] * len(mean), indexing="ij"), axis=-1).reshape(-1, len(mean))
    root = np.linalg.cholesky(covariance)
    c, volume = mean + grids @ root.T, (z[1] - z[0]) ** len(mean) * np.prod(np.diag(root))
    padded = np.zeros((len(c), len(present(case))))
    padded[:, present(case)] = c
    if nu == 0:
        t, measure = np.zeros(1), np.ones(1)
    else:  # rss = t², so that the integrand is smooth also for ν = 1
        nodes, weights = np.polynomial.legendre.leggauss(32)
        t, span = (nodes + 1) / 2 * 8 * float(case.noise_scale), 8 * float(case.noise_scale) / 2
        measure = weights * span * 2 * t ** (nu - 1) * np.exp(nu / 2 * math.log(math.pi) - math.lgamma(nu / 2))
    density = jax.jit(jax.vmap(lambda value: jnp.exp(site.log_prob(value))))
    total = 0.0
    for node, weight in zip(t, measure, strict=True):
        values = np.column_stack([padded, np.full(len(padded), node**2)])
        total += weight * volume * np.sum(np.asarray(density(jnp.asarray(values)), dtype=np.float64))
    jacobian = 1.0 if case.data.row_weights is None else np.prod(np.sqrt(case.data.row_weights))
    assert total == pytest.approx(jacobian, rel=1e-8 if x64 else 2e-4)


@pytest.fixture(scope="module")
def draws():
    """Draws of every site by name, made once."""
    made = {}

    def of(name):
        if name not in made:
            case = CASES[name]
            # Not compiled as a whole: that would compile the χ² draws again for every case, in seconds.
            made[name] = np.asarray(case.make().sample(jax.random.key(3), (NUM_DRAWS,)), dtype=np.float64)
        return made[name]

    return of


@pytest.mark.parametrize("name", list(CASES))
def test_sample_moments_are_mean_and_variance(name, draws, x64):
    case, sample = CASES[name], draws(name)
    site = case.make()
    mean, variance = np.asarray(site.mean), np.asarray(site.variance)
    assert mean.shape == variance.shape == site.batch_shape + site.event_shape
    nu = float(case.statistics.moments.num_rows - case.statistics.compressed.rank)
    # Excess kurtosis of the entries: 0 for Gaussians, 12/ν for χ² with ν degrees of freedom.
    kurtosis = np.append(np.zeros(mean.shape[-1] - 1), 12 / max(nu, 1))
    rounding = 1e-12 if x64 else 1e-5
    assert np.all(np.abs(sample.mean(axis=0) - mean) <= 5 * np.sqrt(variance / NUM_DRAWS) + rounding)
    error = variance * np.sqrt((2 + kurtosis) / NUM_DRAWS)
    assert np.all(np.abs(sample.var(axis=0) - variance) <= 5 * error + rounding)


@pytest.mark.parametrize("name", [name for name in CASES if name.startswith("gp")])
def test_moments_are_those_of_the_model(name, x64):
    """Mean and variance against Rμ, RS⁻¹Rᵀ + σ²I and σ²χ², written out."""
    case = CASES[name]
    site, chosen = case.make(), present(case)
    mean, covariance = moments_of_c(case)
    nu = float(case.statistics.moments.num_rows - case.statistics.compressed.rank)
    tolerance = {"rtol": 1e-10 if x64 else 1e-4, "atol": 1e-10 if x64 else 1e-4}
    np.testing.assert_allclose(site.mean[..., :-1][..., chosen], mean, **tolerance)
    np.testing.assert_allclose(
        site.variance[..., :-1][..., chosen], np.diagonal(covariance, axis1=-2, axis2=-1), **tolerance
    )
    np.testing.assert_allclose(site.mean[..., -1], case.noise_scale**2 * nu, **tolerance)
    np.testing.assert_allclose(site.variance[..., -1], 2 * case.noise_scale**4 * nu, **tolerance)
    assert not np.any(np.asarray(site.variance)[..., :-1][..., ~chosen])


def features_of_a_sample(compressed, chosen):
    """Columns to compare between samples: c, rss, and products that see dependence between them."""
    c, rss = compressed[:, :-1][:, chosen], compressed[:, -1:]
    directions = np.random.default_rng(5).normal(size=(c.shape[1], 3))
    products = [c[:, i] * c[:, j] for i, j in pairwise(range(c.shape[1]))]
    columns = [c, rss, c @ directions, np.sum(c**2, axis=1, keepdims=True), np.sum(c**2, axis=1, keepdims=True) - rss]
    return np.column_stack(columns + products)


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.batch_shape == ()])
def test_draws_are_distributed_as_compressed_rows(name, draws):
    """Rows are simulated one by one, y = Φw + noise, and compressed: the two samples must not differ."""
    case, num_simulated = CASES[name], 5_000
    rng = np.random.default_rng(4)
    mean, scale = case.weight_moments
    w = mean + scale * rng.normal(size=(num_simulated, len(mean)))
    X, row_weights = case.data.X, case.data.row_weights
    noise_scale = case.noise_scale / (1.0 if row_weights is None else np.sqrt(row_weights))
    y = w @ case.data.Phi.T + noise_scale * rng.normal(size=(num_simulated, len(X)))
    basis = case.statistics.basis
    unrotated = getattr(basis, "basis", basis)
    # Simulations are columns of y: they share inputs, hence the factor. Rotated ones rotate together as well.
    simulated = sgp.sufficient_statistics(unrotated, X, y.T, row_weights=row_weights)
    if basis is not unrotated:
        simulated = simulated.rotate()
        np.testing.assert_allclose(simulated.basis.rotation, basis.rotation, rtol=0, atol=1e-12)
    chosen = present(case)
    pair = features_of_a_sample(simulated.projection, chosen), features_of_a_sample(draws(name), chosen)
    if float(case.statistics.moments.num_rows) == float(case.statistics.compressed.rank):
        assert not np.any(draws(name)[:, -1])
        pair = tuple(np.delete(columns, chosen.sum(), axis=1) for columns in pair)
    for left, right in zip(pair[0].T, pair[1].T, strict=True):
        assert scipy.stats.ks_2samp(left, right).pvalue > LEVEL


def test_the_comparison_can_fail(draws):
    """Noise larger by a tenth is seen at this level."""
    case = CASES["gp-dense"]
    wrong = case.make({**case.parameters, "noise_scale": 1.1 * case.parameters["noise_scale"]})
    rss = wrong.sample(jax.random.key(9), (NUM_DRAWS,))[:, -1]
    assert scipy.stats.ks_2samp(draws("gp-dense")[:, -1], rss).pvalue < LEVEL


@pytest.mark.parametrize("name", ["gp-two_outputs", "gp-batch", "weights-batch"])
def test_batch_elements_are_drawn_independently_from_their_own_distribution(name, draws):
    """Each element is compared with its own distribution, drawn alone; and elements are uncorrelated."""
    case, sample = CASES[name], draws(name)
    flat = sample.reshape(NUM_DRAWS, -1, sample.shape[-1])
    standard = (flat - flat.mean(axis=0)) / flat.std(axis=0)
    for i, j in pairwise(range(flat.shape[1])):
        correlation = standard[:, i].T @ standard[:, j] / NUM_DRAWS
        assert np.max(np.abs(correlation)) < 5 / np.sqrt(NUM_DRAWS)
    mean, covariance = moments_of_c(case)
    nu = float(case.statistics.moments.num_rows - case.statistics.compressed.rank)
    for index in np.ndindex(case.batch_shape):
        element = sample[(slice(None), *index)]
        white = np.linalg.solve(np.linalg.cholesky(covariance[index]), (element[:, :-1] - mean[index]).T)
        for row in white:
            assert scipy.stats.kstest(row, "norm").pvalue > LEVEL
        assert scipy.stats.kstest(element[:, -1] / case.noise_scale[index] ** 2, "chi2", (nu,)).pvalue > LEVEL
