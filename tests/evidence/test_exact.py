"""Every path of the evidence against 60-digit arithmetic, at the edges of rank and precision."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ppl_sgp as sgp
from tests import exact_cases
from tests.builders import IdentityBasis
from tests.reference import exact_log_density, exact_log_evidence

CASES = 40  # of each prior and method
M = 8
float64_only = pytest.mark.float64_only


@float64_only
@pytest.mark.parametrize("prior", exact_cases.PRIORS)
def test_random_cases_by_default(prior):
    """Of data and priors perturbed by rounding the evidence is known to no more digits than this."""
    for seed in range(CASES):
        case = exact_cases.random_case(seed, M, prior)
        for path, (found, exact) in exact_cases.evidences(case, "auto").items():
            assert abs(found - exact) <= 1e-6 * max(1, abs(exact), len(case.y)), (seed, path, found, exact)


@float64_only
@pytest.mark.parametrize("prior", exact_cases.PRIORS)
@pytest.mark.filterwarnings("ignore:log_evidence. about")
def test_random_cases_by_products(prior):
    """What is wrong by more than half of its digits has been announced, and what is beyond them is refused."""
    for seed in range(CASES):
        case = exact_cases.random_case(seed, M, prior)
        try:
            found = exact_cases.evidences(case, "gram")
        except ValueError as error:
            assert 'method="qr"' in str(error)
            continue
        lost = sgp.evidence.rounding_error(case.statistics("gram"), case.prior, case.noise_scale)
        for path, (value, exact) in found.items():
            known = 1e-4 if "rotate" in path else 1e-6  # rotated sums have lost what the sums were off by
            assert abs(value - exact) <= known * max(1, abs(exact), len(case.y)) + 30 * lost, (seed, path, value, exact)


@pytest.mark.parametrize("method", ["auto", "gram"])
def test_random_cases_in_float32(method):
    """At the numbers as float32 has them, within a tenth of a nat where the guard lets data pass."""
    tried = 0
    for seed in range(2 * CASES):
        case = exact_cases.random_case(seed, M, "diagonal")
        prior, noise_scale = exact_cases.in_float32(case.prior), jnp.float32(case.noise_scale)
        stats = case.statistics(method)
        try:
            value = sgp.SparseGP(stats, prior, noise_scale).log_prob(jnp.asarray(stats.projection, jnp.float32))
        except ValueError as error:
            assert "enable_x64" in str(error)
            continue
        f_scale = np.sqrt(np.max(case.Phi**2 @ np.exp(2 * np.asarray(case.prior.log_scale))))
        if f_scale > 1e6 * case.noise_scale:  # some seven digits are between the prior and the noise
            continue
        exact = exact_log_evidence(case.Phi, case.y, prior, float(noise_scale), case.row_weights)
        # Noise far below that of the data makes large values, which are no posterior; they keep four digits.
        assert abs(float(value) - exact) <= 0.1 + 1e-3 * abs(exact), (seed, value, exact)
        tried += 1
    assert tried > CASES / 2


# What outsiders found -------------------------------------------------------------------------------------------------


def fourier_of_rank_n():
    """16 rows through 40 smooth features: the weakest of 16 directions is at rounding in the Gram matrix."""
    rng = np.random.default_rng(334)
    X = rng.uniform(0, 5, (int(rng.integers(8, 22)), 1))
    y = np.sin(2 * X[:, 0]) + 0.2 * rng.normal(size=len(X))
    return sgp.FourierBasis.from_data(jax.random.key(334), X, 40), X, y, 0.8


def fourier_of_twenty_rows():
    rng = np.random.default_rng(1414)
    rng.choice([10, 20, 40]), rng.choice([40, 60, 100]), rng.integers(1, 3)
    X = rng.uniform(0, 1, (20, 1))
    y = np.sin(6 * X[:, 0]) + 0.3 * rng.normal(size=20)
    return sgp.FourierBasis.from_data(jax.random.key(1414), X, 100), X, y, 0.3


@float64_only
@pytest.mark.parametrize("noise_scale", [0.3, 0.1, 0.02, 0.001])
@pytest.mark.parametrize("method", ["auto", "gram"])
@pytest.mark.parametrize("data", [fourier_of_rank_n, fourier_of_twenty_rows])
def test_nothing_of_y_is_lost_where_the_rank_is_the_number_of_rows(data, method, noise_scale):
    basis, X, y, lengthscale = data()
    stats = sgp.sufficient_statistics(basis, X, y, method=method)
    c, rss = stats.projection[:-1], stats.projection[-1]
    assert abs(y @ y - c @ c - rss) < 1e-13 * (y @ y)
    prior = basis.weight_prior(sgp.SquaredExponential(lengthscale))
    exact = exact_log_density(basis.host_features(X), y, np.asarray(prior.scale), 0.0, noise_scale)
    assert abs(sgp.log_evidence(stats, prior, noise_scale) - exact) < 1e-8 * max(1, abs(exact))


@float64_only
@pytest.mark.parametrize("y_noise", [0.0, 0.1])
@pytest.mark.parametrize("noise_scale", [1e-2, 1e-4, 1e-6, 1e-8])
def test_smooth_centred_functions_at_small_noise(noise_scale, y_noise):
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(100, 3))
    y = np.sin(3 * X[:, 0]) + X[:, 1] + y_noise * rng.normal(size=100)
    basis = sgp.CentredBasis.from_data(jax.random.key(0), X, num_centres=30, kernel=sgp.SquaredExponential(1.0))
    prior = sgp.DiagonalPrior(jnp.ones(basis.num_features))
    exact = exact_log_density(basis.host_features(X), y, 1.0, 0.0, noise_scale)
    found = sgp.log_evidence(sgp.sufficient_statistics(basis, X, y), prior, noise_scale)
    assert abs(found - exact) < 1e-8 * abs(exact)


@float64_only
def test_digits_that_products_lose_are_announced_with_a_remedy_that_works():
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(200, 3))
    y = np.sin(3 * X[:, 0]) + X[:, 1]
    basis = sgp.CentredBasis.from_data(jax.random.key(0), X, num_centres=60, kernel=sgp.SquaredExponential(1.0))
    prior = sgp.DiagonalPrior(jnp.ones(basis.num_features))
    stats = sgp.sufficient_statistics(basis, X, y, method="gram")
    root = sgp.sufficient_statistics(basis, X, y, method="qr")
    np.testing.assert_allclose(sgp.log_evidence(stats, prior, 1e-2), sgp.log_evidence(root, prior, 1e-2), rtol=1e-6)
    with pytest.warns(UserWarning, match='nats are rounding.*method="qr"'):
        sgp.log_evidence(stats, prior, 1e-5)
    with pytest.raises(ValueError, match='(?s)not finite.*method="qr"') as error:
        sgp.log_evidence(stats, prior, 1e-10)
    assert "enable_x64" not in str(error.value)
    compiled = jax.jit(lambda noise_scale: sgp.log_evidence(stats, prior, noise_scale))
    assert compiled(1e-10) == -jnp.inf
    assert jnp.isfinite(sgp.log_evidence(root, prior, 1e-10))
    assert sgp.evidence.rounding_error(root, prior, 1e-10) == 0


def test_a_vague_prior_of_a_feature_that_many_rows_determine_is_no_false_alarm(rng):
    X = np.concatenate([np.ones((3000, 1)), rng.standard_normal((3000, 4))], axis=1)
    stats = sgp.sufficient_statistics(IdentityBasis(5), X, X @ np.ones(5) + rng.standard_normal(3000), method="gram")
    sgp.log_evidence(stats, sgp.DiagonalPrior(np.array([1e7, 1.0, 1.0, 1.0, 1.0])), 1.0)  # a warning is an error here


@float64_only
def test_reflected_prior_with_a_mean_and_fewer_rows_than_features(rng):
    for _ in range(10):
        Phi, y = rng.standard_normal((9, 12)), rng.standard_normal(9)
        stats = sgp.sufficient_statistics(IdentityBasis(12), Phi, y).rotate(orthonormal=True)
        r = stats.num_orthonormal
        prior = sgp.HouseholderPrior(np.full(12, 30.0), rng.standard_normal((3, r)), 30 * rng.standard_normal(12))
        exact = exact_log_evidence(Phi @ stats.basis.rotation, y, prior, 0.3)
        assert abs(sgp.log_evidence(stats, prior, 0.3) - exact) < 1e-8 * abs(exact)
