"""Elliptical slice sampling against normal posteriors."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ppl_sgp.inference.slice_sampling import each_in_turn, elliptical_slice
from tests.reference import check_moments

NUM_DRAWS = 2000


@pytest.fixture
def chain():
    """Draws of a step, repeated: shape (1, draws, …)."""

    def of(step, start):
        def one(value, key):
            value = step(key, value)
            return value, value

        draws = jax.jit(lambda start: jax.lax.scan(one, start, jax.random.split(jax.random.key(0), NUM_DRAWS))[1])
        return np.asarray(draws(start), np.float64)[None]

    return of


def test_normal_prior_and_likelihood(chain):
    """N(1, 2²) × N(value; 4, 0.5²)."""

    def step(key, value):
        return elliptical_slice(key, value, 1.0, 2.0, lambda x: -0.5 * ((x - 4.0) / 0.5) ** 2)

    draws = chain(step, jnp.asarray(0.0))
    precision = 1 / 4 + 1 / 0.25
    check_moments(draws[:, 100:], (1 / 4 + 4 / 0.25) / precision, precision**-0.5)


def test_one_after_the_other_whatever_the_spreads(chain):
    """Two correlated entries, one known a hundred times better than the other; zero where it is NaN."""

    def log_likelihood(x):
        inside = -0.5 * ((x[0] + 0.01 * x[1]) / 0.01) ** 2
        return jnp.where(x[1] > 3, jnp.nan, inside)

    def step(key, values):
        return each_in_turn(key, values, jnp.zeros(2), jnp.ones(2), log_likelihood)

    draws = chain(step, jnp.asarray([0.0, 2.0]))
    precision = np.array([[1 + 1e4, 1e2], [1e2, 2.0]])
    sd = np.sqrt(np.diag(np.linalg.inv(precision)))
    assert draws[..., 1].max() <= 3  # of a standard deviation of one: the moments of two do not change by 0.5%
    check_moments(draws[..., 0], 0.0, sd[0])
    check_moments(draws[..., 1], 0.0, sd[1])


@pytest.mark.slow
def test_a_likelihood_of_zero_everywhere_keeps_the_value_and_ends():
    start = jnp.asarray(0.3)
    value = elliptical_slice(jax.random.key(0), start, 0.0, 1.0, lambda x: jnp.where(x == start, 0.0, -jnp.inf))
    assert float(value) == pytest.approx(0.3, abs=1e-6)
