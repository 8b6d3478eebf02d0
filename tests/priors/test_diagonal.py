"""DiagonalPrior, and where default scales come from."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ppl_sgp as sgp
from ppl_sgp.kernels.hyperprior_scales import LOG_LENGTHSCALE_SPREAD, lengthscale_prior
from tests.builders import X64, by_lane

RTOL = by_lane(1e-14, 1e-6)


def test_scale_variance_and_mean_are_those_given():
    prior = sgp.DiagonalPrior([2.0, 0.5], mean=[1.0, -1.0])
    np.testing.assert_allclose(prior.scale, [2.0, 0.5], rtol=RTOL)
    np.testing.assert_allclose(prior.variance, [4.0, 0.25], rtol=RTOL)
    np.testing.assert_allclose(prior.log_scale, np.log([2.0, 0.5]), rtol=RTOL)
    np.testing.assert_array_equal(prior.mean, [1.0, -1.0])
    assert sgp.DiagonalPrior(2.0).mean is None


def test_logarithms_survive_where_scales_underflow():
    prior = sgp.DiagonalPrior.from_log_scale(jnp.array([-1e4, -1e4, -2e4]))
    np.testing.assert_array_equal(prior.scale, 0)
    np.testing.assert_array_equal(prior.log_scale, [-1e4, -1e4, -2e4])
    assert float(prior.effective_features) == pytest.approx(2, rel=by_lane(1e-9, 1e-5))


@pytest.mark.parametrize(
    ("scale", "mean", "shape"),
    [
        (1.0, None, ()),
        (np.ones(3), None, ()),
        (np.ones((4, 3)), None, (4,)),
        (np.ones((2, 1, 3)), np.zeros((4, 3)), (2, 4)),
        (1.0, np.zeros((5, 3)), (5,)),
        (np.ones((4, 1)), None, (4,)),
    ],
)
def test_batch_shape(scale, mean, shape):
    assert sgp.DiagonalPrior(scale, mean).batch_shape == shape


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64] if X64 else [jnp.float32])
def test_dtype_is_that_of_the_scale(dtype):
    assert sgp.DiagonalPrior(jnp.ones(3, dtype)).log_scale.dtype == dtype
    assert sgp.DiagonalPrior(np.ones(3)).log_scale.dtype == jnp.result_type(float)
    assert sgp.DiagonalPrior(2).log_scale.dtype == jnp.result_type(float)


@pytest.mark.parametrize("variance", [np.array([4.0, 4.0, 1.0]), np.full(7, 3.0), np.array([1.0, 1e-12, 1e-12])])
def test_effective_features(variance):
    value = sgp.DiagonalPrior(np.sqrt(variance)).effective_features
    np.testing.assert_allclose(value, variance.sum() ** 2 / (variance**2).sum(), rtol=by_lane(1e-12, 1e-5))


def test_effective_features_of_a_batch():
    scale = np.array([[1.0, 1.0, 1.0], [2.0, 1e-3, 1e-3]])
    value = sgp.DiagonalPrior(scale).effective_features
    assert value.shape == (2,)
    np.testing.assert_allclose(value, [3.0, (4 + 2e-6) ** 2 / (16 + 2e-12)], rtol=by_lane(1e-12, 1e-5))


@pytest.mark.parametrize("mean", [None, np.array([1.0, 2.0])])
def test_distribution_is_the_prior_over_the_weights(mean):
    prior = sgp.DiagonalPrior([0.5, 2.0], mean)
    w = np.array([0.3, -1.0])
    centred = (w - (0 if mean is None else mean)) / [0.5, 2.0]
    expected = -0.5 * centred @ centred - np.log(2 * np.pi) - np.log(0.5 * 2.0)
    distribution = prior.distribution()
    assert (distribution.batch_shape, distribution.event_shape) == ((), (2,))
    np.testing.assert_allclose(distribution.log_prob(jnp.asarray(w)), expected, rtol=by_lane(1e-12, 1e-5))


def test_distribution_of_one_scale_and_many_means():
    distribution = sgp.DiagonalPrior(2.0, np.zeros(3)).distribution()
    assert distribution.event_shape == (3,)
    assert distribution.sample(jax.random.key(0)).shape == (3,)


@pytest.mark.parametrize(
    ("scale", "message"),
    [
        (0.0, "got 0.0"),
        ([1.0, -1.0], "must be positive and finite"),
        (np.nan, "must be positive and finite"),
        (np.inf, "must be positive and finite"),
        (np.zeros(20), r"array of shape \(20,\) with minimum 0"),
        ("wide", "must be a positive number or array of numbers; got str"),
        (None, "got NoneType|must be positive"),
        ([[1.0], [1.0, 2.0]], "must be a positive number or array of numbers; got list"),
        (sgp.SquaredExponential(1.0), "got SquaredExponential"),
    ],
)
def test_bad_scales_are_refused(scale, message):
    with pytest.raises(
        ValueError, match=f"DiagonalPrior: `scale` must be.*{message}|DiagonalPrior: `scale`.*{message}"
    ):
        sgp.DiagonalPrior(scale)


@pytest.mark.parametrize("mean", [np.nan, [0.0, np.inf]])
def test_means_that_are_not_finite_are_refused(mean):
    with pytest.raises(ValueError, match="`mean` must be finite"):
        sgp.DiagonalPrior([1.0, 1.0], mean)


def test_scale_and_mean_of_different_sizes_are_refused():
    with pytest.raises(ValueError, match="`mean`"):
        sgp.DiagonalPrior(np.ones(3), np.ones(2))


def test_works_under_transformations():
    def total(scale):
        return jnp.sum(sgp.DiagonalPrior(scale).variance)

    np.testing.assert_allclose(jax.jit(jax.grad(total))(jnp.array([1.0, 3.0])), [2.0, 6.0], rtol=1e-5)
    batch = jax.vmap(lambda scale: sgp.DiagonalPrior(scale, scale))(jnp.array([[1.0, 2.0], [3.0, 4.0]]))
    assert batch.batch_shape == (2,)
    np.testing.assert_allclose(batch.scale, [[1.0, 2.0], [3.0, 4.0]], rtol=RTOL)
    # A prior without a mean keeps none.
    assert jax.jit(lambda prior: prior)(sgp.DiagonalPrior(1.0)).mean is None


def test_lengthscale_prior_scales_with_inputs_and_dimension():
    median, spread = lengthscale_prior(np.array([2.0, 0.5, 1.0]))
    np.testing.assert_allclose(median, np.array([2.0, 0.5, 1.0]) * 3**0.5 / 2, rtol=RTOL)
    assert spread == LOG_LENGTHSCALE_SPREAD
    np.testing.assert_allclose(lengthscale_prior(np.zeros(1))[0], [0.5], rtol=RTOL)


def test_one_scale_for_all_knows_no_size_and_says_so():
    shared = sgp.DiagonalPrior(2.0)
    assert shared.num_weights is None and shared.mean is None and shared.variance.shape == ()
    for use in (lambda: shared.covariance, shared.distribution):
        with pytest.raises(ValueError, match=r"needs the number of weights.*prior\.sized\(m\)"):
            use()
    three = shared.sized(3)  # the remedy
    assert three.num_weights == 3
    np.testing.assert_allclose(three.covariance, 4 * np.eye(3), rtol=RTOL)
    assert three.distribution().event_shape == (3,)
    np.testing.assert_allclose(three.variance, [4.0, 4.0, 4.0], rtol=RTOL)
    with pytest.raises(ValueError, match="the prior has 3 weights, but 4 are wanted"):
        three.sized(4)
    assert sgp.DensePrior(jnp.eye(2)).sized(2).num_weights == 2
    with pytest.raises(ValueError, match="DensePrior: the prior has 2 weights, but 3 are wanted"):
        sgp.DensePrior(jnp.eye(2)).sized(3)


def test_batches_have_distributions_but_no_one_covariance():
    batch = sgp.DiagonalPrior(jnp.array([[1.0], [2.0]]), mean=jnp.zeros((2, 3)))
    distribution = batch.distribution()
    assert (distribution.batch_shape, distribution.event_shape) == ((2,), (3,))
    with pytest.raises(ValueError, match=r"batch of shape \(2,\)"):
        _ = batch.covariance
    by_output = sgp.DiagonalPrior(jnp.array([[1.0], [2.0]])).sized(3)
    np.testing.assert_allclose(by_output.variance, [[1.0] * 3, [4.0] * 3], rtol=RTOL)
