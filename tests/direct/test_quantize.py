"""Integer weights: codes, packing, integer predictions."""

import jax
import numpy as np
import numpyro.distributions as dist
import pytest

import ppl_sgp as sgp
from ppl_sgp.direct.quantize import quantized
from tests.builders import IdentityBasis

pytestmark = [
    pytest.mark.float64_only,  # on the host, whatever the lane
    pytest.mark.filterwarnings("ignore:.*sit on their outermost level"),  # of small prior scales
]

RNG = np.random.default_rng(0)
PHI = RNG.normal(size=(40, 9))
STATS = sgp.sufficient_statistics(IdentityBasis(9), PHI, PHI @ [1.0, 0, 0, -0.5, 0, 2.0, 0, 0, 0.1] + 0.1)
NORMAL = dist.Normal(0.0, 1.0)
PRIORS = {
    "evenly spaced": sgp.DiscreteRelaxation(NORMAL),
    "even number, no zero": sgp.DiscreteRelaxation(NORMAL, num_levels=16),
    "powers of two": sgp.DiscreteRelaxation(NORMAL, support=[-2, -1, -0.5, -0.25, 0, 0.25, 0.5, 1, 2]),
    "a scale for each weight": sgp.DiscreteRelaxation(dist.Normal(np.zeros(9), np.arange(1, 10) / 5)),
    "away from zero": sgp.DiscreteRelaxation(dist.Normal(0.37, 1.0), num_levels=5),
}


@pytest.fixture(scope="module", params=PRIORS)
def fit(request):
    return sgp.direct.fit(STATS, PRIORS[request.param], noise_scale=0.3)


def test_codes_stand_for_levels(fit):
    for weights in (fit.quantize(), fit.quantize(jax.random.key(0))):
        assert weights.codes.dtype == np.int16 and weights.codes.shape == (9,)
        distance = np.abs(weights.weights[:, None] - fit.levels)
        assert (distance.min(axis=1) < 1e-6).all()
        np.testing.assert_allclose(
            weights.offset[:, None] + weights.step[:, None] * weights.level_codes, fit.levels, atol=1e-6
        )
        assert weights.sparsity == np.mean(np.abs(weights.weights) < 1e-9)
    best = np.take_along_axis(fit.levels, fit.probabilities.argmax(axis=1)[:, None], axis=1)[:, 0]
    np.testing.assert_allclose(fit.quantize().weights, best, atol=1e-6)


def test_expected_sparsity_is_that_of_draws(fit):
    draws = fit.sample(jax.random.key(0), (4000,))
    assert fit.sparsity == pytest.approx(np.mean(draws == 0), abs=0.01)


def test_packing_takes_four_bits_and_loses_nothing(fit):
    weights = fit.quantize(jax.random.key(1))
    assert len(weights.packed) == 5
    other = fit.quantize(jax.random.key(2))
    np.testing.assert_array_equal(other.unpack(weights.packed).codes, weights.codes)


def test_integer_predictions_match_float_ones(fit):
    weights = fit.quantize()
    X = RNG.normal(size=(30, 9))
    exact = X @ weights.weights
    np.testing.assert_allclose(weights.predict(X), exact, atol=1e-9)
    for bits in (8, 16):
        predicted = weights.predict(X, feature_bits=bits)
        # Half a unit a feature, times its code.
        unit = np.abs(X * weights.step).max(axis=1) / (2 ** (bits - 1) - 1)
        assert (np.abs(predicted - exact) <= 0.5 * unit * np.abs(weights.codes).sum() + 1e-9).all()
    assert np.abs(weights.predict(X, feature_bits=16) - exact).max() < 0.01
    np.testing.assert_allclose(weights.predict(X[:1], feature_bits=8), weights.predict(X, feature_bits=8)[:1])


def test_weights_that_are_no_multiples_are_not_moved_off_their_levels():
    """1.0009 is no multiple of 1: −1.00045 and 1.00045 were given for −1 and 1.0009."""
    prior = sgp.DiscreteRelaxation(NORMAL, support=[-1.0, 0.0, 1.0009])
    with pytest.raises(ValueError, match=r"multiples of a common step.*weight 0 has \[-1. +0. +1.0009\]"):
        sgp.direct.fit(STATS, prior, noise_scale=0.3).quantize()
    # Levels that went through float32 are not refused, nor are steps that are small beside the levels.
    for support in (np.arange(-7, 8, dtype=np.float32) / 3, 100 + np.arange(5) / 7, np.arange(-3, 4) * 1e-9):
        levels = np.tile(np.asarray(support, dtype=np.float64), (9, 1))
        codes = quantized(IdentityBasis(9), levels, levels[:, 1])
        np.testing.assert_allclose(codes.weights, levels[:, 1], rtol=2e-7, atol=0)


def test_each_weight_has_a_grid_of_its_own():
    """From zero where levels are multiples of their gaps; from the lowest where those are far from zero."""
    levels = np.array([[-1.0, 0.0, 1.0], [1e7, 1e7 + 1, 1e7 + 2]])
    codes = quantized(IdentityBasis(2), levels, np.array([0.0, 1e7 + 2]))
    np.testing.assert_array_equal(codes.level_codes, [[-1, 0, 1], [0, 1, 2]])
    np.testing.assert_array_equal(codes.weights, [0.0, 1e7 + 2])
    assert codes.sparsity == 0.5


def test_refusals():
    fit = sgp.direct.fit(STATS, sgp.DiscreteRelaxation(NORMAL, support=[0.0, 1.0, np.sqrt(2), 9.0]), noise_scale=1.0)
    with pytest.raises(ValueError, match="multiples of a common step"):
        fit.quantize()
    weights = sgp.direct.fit(STATS, PRIORS["evenly spaced"], noise_scale=1.0).quantize()
    with pytest.raises(ValueError, match="take 5 bytes; got 4"):
        weights.unpack(weights.packed[:-1])
    with pytest.raises(ValueError, match="positions must be below 15"):
        weights.unpack(b"\xff" * 5)
    with pytest.raises(ValueError, match="from 2 to 16"):
        weights.predict(PHI, feature_bits=1)
    many = sgp.direct.fit(STATS, sgp.DiscreteRelaxation(NORMAL, num_levels=17), noise_scale=1.0).quantize()
    with pytest.raises(ValueError, match="at most 16 levels"):
        _ = many.packed
