"""What the observed sites refuse, and what they return where nothing can be refused."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import ppl_sgp as sgp
from tests.contract.cases import data
from tests.contract.models import M


@pytest.fixture
def stats():
    return data("dense").statistics


@pytest.mark.parametrize("wrong", [np.ones((12, 6)), {"y": 1}, None], ids=["array", "dict", "none"])
def test_statistics_of_the_wrong_type(wrong):
    message = "`statistics` must come from sgp.sufficient_statistics"
    with pytest.raises(ValueError, match=message):
        sgp.observe("y", wrong, sgp.DiagonalPrior(1.0), 0.4)
    with pytest.raises(ValueError, match=message):
        sgp.observe_weights("y", wrong, jnp.zeros(M), 0.4)


@pytest.mark.parametrize(
    "noise_scale, message",
    [
        (dist.HalfNormal(1.0), r"got a HalfNormal distribution.*numpyro\.sample"),
        (dist.StudentT(4.0), r"For another likelihood make the statistics by"),
        (-0.4, "`noise_scale` must be positive and finite; got -0.4"),
        (0.0, "`noise_scale` must be positive and finite; got 0.0"),
        ("0.4", "`noise_scale` must be"),
        ("loud", "`noise_scale` must be a positive number.*got str"),
    ],
    ids=["half-normal", "student-t", "negative", "zero", "digits", "word"],
)
def test_noise_scale_of_the_wrong_kind(stats, noise_scale, message):
    with pytest.raises(ValueError, match=message):
        sgp.observe("y", stats, sgp.DiagonalPrior(1.0), noise_scale)
    with pytest.raises(ValueError, match=message):
        sgp.observe_weights("y", stats, jnp.zeros(M), noise_scale)


def test_prior_or_weights_of_the_wrong_size_or_kind(stats):
    with pytest.raises(ValueError, match="5 weights but the statistics have 6 features"):
        sgp.observe("y", stats, sgp.DiagonalPrior(jnp.ones(5)), 0.4)
    with pytest.raises(ValueError, match="must be a weight prior.*got SquaredExponential"):
        sgp.observe("y", stats, sgp.SquaredExponential(1.0), 0.4)
    with pytest.raises(ValueError, match=r"`weights` must have shape batch \+ \(6,\).*got \(5,\)"):
        sgp.observe_weights("y", stats, jnp.zeros(5), 0.4)


def test_prior_mean_of_the_wrong_size(stats):
    with pytest.raises(ValueError, match="mean"):
        sgp.observe("y", stats, sgp.DiagonalPrior(jnp.ones(6), mean=jnp.zeros(5)), 0.4)
    with pytest.raises(ValueError, match="`prior`.*6 features"):
        sgp.observe("y", stats, sgp.DiagonalPrior(1.0, mean=jnp.zeros(5)), 0.4)


@pytest.mark.parametrize("kind", ["rows", "noise"])
def test_float32_is_refused_where_it_cannot_resolve_the_data(kind):
    """In both lanes: the arguments are float32. Data that float32 can resolve are accepted, to the same type."""
    X = np.linspace(-1, 1, 40)[:, None]
    basis = sgp.FourierBasis.sample(jax.random.key(0), sgp.SquaredExponential(1.0), 8, 1)
    w = np.linspace(-1, 1, 8)
    noise = np.cos(1e4 * np.arange(40)) * (1e-5 if kind == "noise" else 0.1)
    stats = sgp.sufficient_statistics(basis, X, basis.host_features(X) @ w + noise)
    for _ in range(23 if kind == "rows" else 0):
        stats = stats + stats
    small = jnp.float32(0.1)
    prior = sgp.DiagonalPrior(jnp.ones(8, jnp.float32))
    message = r"float32 cannot resolve.*enable_x64"
    with pytest.raises(ValueError, match=message):
        sgp.SparseGP(stats, prior, small)
    with pytest.raises(ValueError, match=message):
        sgp.CompressedNormal(stats, jnp.zeros(8, jnp.float32), small)
    easy = data("dense").statistics
    assert sgp.SparseGP(easy, sgp.DiagonalPrior(jnp.ones(6, jnp.float32)), small).noise_scale.dtype == jnp.float32


def marginal(stats, noise_scale):
    return sgp.SparseGP(stats, sgp.DiagonalPrior(1.0), noise_scale).log_prob(stats.projection)


def explicit(stats, noise_scale):
    return sgp.CompressedNormal(stats, jnp.zeros(stats.num_features), noise_scale).log_prob(stats.projection)


@pytest.mark.parametrize("noise_scale", [0.0, np.nan, np.inf])
@pytest.mark.parametrize("log_prob", [marginal, explicit])
@pytest.mark.parametrize("name", ["dense", "dual", "diagonal"])
def test_traced_density_that_is_not_finite_is_minus_infinity(name, log_prob, noise_scale):
    """A sampler that steps there rejects; NaN would poison it."""
    stats = data(name).statistics
    assert float(jax.jit(lambda noise_scale: log_prob(stats, noise_scale))(noise_scale)) == -np.inf
