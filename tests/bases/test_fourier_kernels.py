"""What φᵀS⁻¹φ of a Fourier basis is: the kernel, exactly, within Monte Carlo error, or re-weighted."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ppl_sgp as sgp
from tests.builders import by_lane

SE, M12, M32, M52 = sgp.SquaredExponential, sgp.Matern12, sgp.Matern32, sgp.Matern52
METHODS = ("iid", "orthogonal", "quasi_random")
X = np.array([[0.0, 0.0], [0.3, -0.1], [0.8, 0.5], [-0.4, 1.3], [2.0, -1.0]])


log_scales = jax.jit(lambda basis, kernel: basis.weight_prior(kernel).log_scale)


def approximation(basis, kernel, X):
    """φᵀS⁻¹φ in float64 from the weight prior."""
    Phi = basis.host_features(X)
    return (Phi * np.exp(2 * np.asarray(log_scales(basis, kernel), np.float64))) @ Phi.T


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("kernel", [SE(0.5, 3.0), M12(0.7, 0.2), M52([0.5, 2.0], 1.5)])
@pytest.mark.float64_only
def test_precision_is_m_over_twice_the_variance_if_target_is_proposal(kernel, method, key):
    basis = sgp.FourierBasis.sample(key, kernel, 14, 2, method)
    np.testing.assert_allclose(
        basis.weight_prior(kernel).variance, 2 * kernel.amplitude**2 / 14, rtol=by_lane(1e-12, 1e-5)
    )
    # cos² + sin² = 1 makes the prior variance of f exact then.
    np.testing.assert_allclose(np.diag(approximation(basis, kernel, X)), kernel.amplitude**2, rtol=by_lane(1e-12, 1e-5))


# (target, proposal or proposals): weights have finite variance in all.
PAIRS = {
    "SE": (SE(0.8, 1.3), SE(0.8)),
    "Matern12": (M12(0.8, 1.3), M12(0.8)),
    "Matern32": (M32(0.8), M32(0.8)),
    "Matern52": (M52(0.8), M52(0.8)),
    "RQ": (sgp.RationalQuadratic(0.8, alpha=1.5), sgp.RationalQuadratic(0.8, alpha=1.5)),
    "ARD": (SE([0.5, 2.0]), SE([0.5, 2.0])),
    "longer": (SE(1.2, 2.0), SE(0.8)),
    "a little shorter": (SE(0.9), SE(1.0)),
    "smoother": (SE(0.8), M32(0.6)),
    "Matern from Matern": (M52(1.0), M32(0.8)),
    "mixture": (SE(0.9), [SE(0.5), SE(0.8), SE(1.5)]),
    "mixture of families": (M52(0.8), [SE(0.5), M32(0.8)]),
    "sum": (SE(0.5) + M32(2.0, 0.5), SE(0.5) + M32(2.0, 0.5)),
    "sum from mixture": (SE(0.5) + M32(2.0, 1.5), [SE(0.5), M32(1.8)]),
    "product": (SE(1.0) * M32(1.5), SE(1.0) * M32(1.5)),
}


def cycle(names):
    """Each name with one of the methods in turn."""
    return [(name, METHODS[i % len(METHODS)]) for i, name in enumerate(names)]


@pytest.mark.parametrize(("name", "method"), cycle(PAIRS))
@pytest.mark.float64_only
def test_unbiased_over_keys(name, method):
    kernel, proposal = PAIRS[name]
    bases = [sgp.FourierBasis.sample(jax.random.key(seed), proposal, 32, 2, method) for seed in range(20)]
    draws = np.array([approximation(basis, kernel, X) for basis in bases])
    error = draws.mean(axis=0) - np.asarray(kernel(X), np.float64)
    # Five standard errors; where an entry never varies, the rounding of the lane.
    bound = 5 * draws.std(axis=0, ddof=1) / len(draws) ** 0.5 + by_lane(1e-10, 1e-4)
    assert np.all(np.abs(error) < bound)


@pytest.mark.parametrize(
    ("name", "method"), cycle(["SE", "Matern12", "longer", "mixture", "sum from mixture", "product", "RQ"])
)
@pytest.mark.float64_only
def test_the_error_falls_with_the_number_of_features(name, method, key):
    kernel, proposal = PAIRS[name]
    bases = [sgp.FourierBasis.sample(key, proposal, m, 2, method) for m in (32, 20_000)]
    errors = [np.sqrt(np.mean((approximation(b, kernel, X) - np.asarray(kernel(X))) ** 2)) for b in bases]
    # Plain Monte Carlo gains a factor 25; half of that leaves room for a lucky small basis.
    assert errors[1] < errors[0] / 8
    assert errors[1] < 0.05 * float(kernel.variance)


@pytest.mark.slow
@pytest.mark.float64_only
def test_quasi_random_points_beat_independent_ones_in_one_dimension():
    kernel, x = M52(0.5), np.linspace(-1, 1, 21)[:, None]

    def mean_square(method):
        bases = [sgp.FourierBasis.sample(jax.random.key(seed), kernel, 64, 1, method) for seed in range(20)]
        return np.mean([(approximation(b, kernel, x) - np.asarray(kernel(x))) ** 2 for b in bases])

    assert mean_square("quasi_random") < mean_square("iid") / 4


@pytest.mark.slow
@pytest.mark.float64_only
def test_orthogonal_points_beat_independent_ones_in_five_dimensions(rng):
    kernel, x = SE(2.0), rng.standard_normal((15, 5))

    def mean_square(method):
        bases = [sgp.FourierBasis.sample(jax.random.key(seed), kernel, 40, 5, method) for seed in range(40)]
        return np.mean([(approximation(b, kernel, x) - np.asarray(kernel(x))) ** 2 for b in bases])

    assert mean_square("orthogonal") < mean_square("iid")


@pytest.mark.parametrize("method", METHODS)
def test_importance_weights_of_a_mixture_are_bounded_by_its_size(method, key):
    kernels = [SE(0.1), SE(1.0), M32(0.5), M12(3.0)]
    basis = sgp.FourierBasis.sample(key, kernels, 400, 1, method)
    for kernel in kernels:
        weights = np.asarray(basis.weight_prior(kernel).variance, np.float64) * 200
        assert weights.max() <= len(kernels) * (1 + by_lane(1e-12, 1e-5))
        assert abs(weights.mean() / 2 - 0.5) < 0.3  # they average one


def test_components_of_a_sum_are_drawn_by_their_share_of_the_variance(key):
    kernel = SE(0.01, amplitude=3.0) + SE(100.0, amplitude=1.0)
    basis = sgp.FourierBasis.sample(key, kernel, 400, 1)
    # Spectra four orders of magnitude apart: 90% of points belong to the first.
    assert np.sum(np.abs(basis.frequencies) > 0.05) == pytest.approx(180, abs=3)


def test_weights_of_far_lengthscales_keep_their_logarithm(key):
    basis = sgp.FourierBasis.sample(key, SE(0.01), 10, 1)
    prior = basis.weight_prior(SE(5.0))
    expected = np.log(2 / 10 * 500) - (2 * np.pi * basis.frequencies[:, 0]) ** 2 * (25 - 1e-4) / 2
    np.testing.assert_allclose(2 * prior.log_scale, np.tile(expected, 2), rtol=by_lane(1e-10, 1e-5))
    assert float(jnp.min(prior.variance)) == 0


def test_weight_prior_is_differentiable_and_traceable(key):
    basis = sgp.FourierBasis.sample(key, SE(0.5), 10, 2)
    slope = jax.jit(jax.jacobian(lambda log_l: basis.weight_prior(SE(jnp.exp(log_l))).log_scale))(
        jnp.log(jnp.array(0.7))
    )
    # d/d log ℓ of log γ^½ for d = 2: (2 − (2πℓ|ξ|)²)/2.
    expected = 1 - 0.5 * (2 * np.pi * 0.7) ** 2 * np.sum(basis.frequencies**2, axis=1)
    np.testing.assert_allclose(slope, np.tile(expected, 2), rtol=1e-4, atol=1e-4)


# Effective features --------------------------------------------------------------------------------------------------


@pytest.mark.float64_only
def test_effective_features_are_those_of_the_formula(key):
    basis = sgp.FourierBasis.sample(key, M32(0.5), 40, 1)
    variance = np.asarray(basis.weight_prior(SE(0.7)).variance, np.float64)
    expected = variance.sum() ** 2 / (variance**2).sum()
    np.testing.assert_allclose(basis.effective_features(SE(0.7)), expected, rtol=1e-5)
    np.testing.assert_allclose(basis.effective_features(M32(0.5, 7.0)), 40, rtol=1e-5)


@pytest.mark.parametrize("ratio", [0.8, 1.5, 3.0])
def test_effective_fraction_of_squared_exponentials(ratio, key):
    # Expectation of the squared weight for Λ = ℓ²: Λ₂/√(Λ₁(2Λ₂−Λ₁)); Sobol points integrate it to about 1%.
    basis = sgp.FourierBasis.sample(key, SE(1.0), 2**14, 1, "quasi_random")
    fraction = float(basis.effective_features(SE(ratio**0.5))) / 2**14
    assert fraction == pytest.approx((2 * ratio - 1) ** 0.5 / ratio, rel=0.02)


def test_two_features_are_left_far_from_the_proposal(key):
    # The cosine and the sine of the slowest frequency. Logarithms of variances are of order -1e6 there.
    basis = sgp.FourierBasis.sample(key, SE(0.01), 100, 1)
    assert float(basis.effective_features(SE(100.0))) == pytest.approx(2, rel=1e-3)
