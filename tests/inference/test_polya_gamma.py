"""Pólya-Gamma draws against their moments, Laplace transform and distribution function."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from ppl_sgp.inference import polya_gamma as module
from ppl_sgp.inference.polya_gamma import polya_gamma

NUM_DRAWS, NUM_OF_ONE = 2000, 20_000
SHAPES, TILTS = (0.05, 2.5, 200.0, 1), (0.0, 1.5, -9.0)


@pytest.fixture(scope="module")
def draws():
    """Of a shape and a tilt: one program for all shapes but the number 1, and one for that."""
    dtype = jnp.result_type(float)
    b, z = np.meshgrid(SHAPES[:3], TILTS, indexing="ij")
    b, z = (jnp.asarray(np.repeat(part[..., None], NUM_DRAWS, -1), dtype) for part in (b, z))
    several = np.asarray(jax.jit(polya_gamma)(jax.random.key(0), b, z), np.float64)
    z = jnp.asarray(np.repeat(np.array(TILTS)[:, None], NUM_OF_ONE, -1), dtype)
    of_one = np.asarray(jax.jit(lambda key, z: polya_gamma(key, 1, z))(jax.random.key(1), z), np.float64)
    made = {(b, z): several[i, j] for i, b in enumerate(SHAPES[:3]) for j, z in enumerate(TILTS)}
    return made | {(1, z): of_one[j] for j, z in enumerate(TILTS)}


def log_transform(b, z, t):
    """``log E exp(−ωt)`` of PG(b, z) (Polson, Scott & Windle 2013, eq 3)."""
    return b * (np.log(np.cosh(z / 2)) - np.log(np.cosh(np.sqrt(z**2 / 4 + t / 2))))


@pytest.mark.parametrize("b", SHAPES)
@pytest.mark.parametrize("z", TILTS)
def test_moments(draws, b, z):
    """Mean and variance within 4.5 standard errors of those from the transform."""
    own = draws[b, z]
    mean = b / 4 if z == 0 else b * np.tanh(z / 2) / (2 * z)
    variance = b / 24 if z == 0 else b * (np.sinh(z) - z) / (4 * z**3 * np.cosh(z / 2) ** 2)
    assert own.min() > 0
    assert abs(own.mean() - mean) < 4.5 * np.sqrt(variance / len(own))
    squares = (own - mean) ** 2
    assert abs(squares.mean() - variance) < 4.5 * squares.std() / np.sqrt(len(own))


@pytest.mark.parametrize("b", SHAPES)
@pytest.mark.parametrize("z", TILTS)
def test_laplace_transform(draws, b, z):
    """At arguments where it is about 0.9, 0.5 and 0.1."""
    own = draws[b, z]
    for t in np.array([0.1, 0.7, 2.3]) / own.mean():
        values = np.exp(-own * t)
        assert abs(values.mean() - np.exp(log_transform(b, z, t))) < 4.5 * values.std() / np.sqrt(len(own))


def test_distribution_of_shape_one(draws):
    """Kolmogorov-Smirnov against the alternating series of its density (ibid., eq 5; 4ω has the Jacobi law)."""
    x = np.geomspace(5e-3, 3, 4000)
    k = np.arange(30)[:, None]
    terms = (-1.0) ** k * (2 * k + 1) / np.sqrt(2 * np.pi * x**3) * np.exp(-((2 * k + 1) ** 2) / (8 * x))
    density = np.sum(terms, axis=0)
    cumulative = np.concatenate([[0], np.cumsum((density[1:] + density[:-1]) / 2 * np.diff(x))])
    assert abs(cumulative[-1] - 1) < 1e-4  # 3 is out in the tail
    statistic = scipy.stats.kstest(draws[1, 0.0], lambda value: np.interp(value, x, cumulative)).statistic
    assert statistic < 1.95 / np.sqrt(NUM_OF_ONE)  # exceeded once in a thousand


def test_error_of_the_log_likelihood_is_as_documented():
    """The law that is drawn from has a closed form: ``δ(η)`` nats for each unit of b."""
    t = np.longdouble(np.array([2.0, 10.0, 20.0, 30.0])) ** 2 / 2
    sizes = np.longdouble(module._SIZES)[:, None]
    drawn = np.log1p(t / sizes).sum(0) + module.CONSTANT * t + module.SHAPE * np.log1p(module.SCALE * t)
    delta = drawn - np.log(np.cosh(np.sqrt(t / 2)))
    assert np.all(delta > -1e-15)
    assert np.all(delta < [1e-14, 1e-9, 3e-7, 6e-6])
    assert np.all(delta[1:] > [1e-10, 1e-7, 1e-6])  # the bounds are no wider than they need be
