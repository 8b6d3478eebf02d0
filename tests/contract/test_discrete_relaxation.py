"""The contract of a NumPyro distribution, for priors on finite grids."""

import pickle

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
import scipy.stats
from numpyro.infer.util import log_density

import ppl_sgp as sgp
from tests.builders import by_lane

RTOL = by_lane(1e-12, 1e-5)
SCALES = jnp.asarray([0.5, 1.0, 3.0])
CASES = {
    "normal": lambda: sgp.DiscreteRelaxation(dist.Normal(0.0, 1.0)),
    "three scales": lambda: sgp.DiscreteRelaxation(dist.Normal(jnp.zeros(3), SCALES), num_levels=7),
    "powers of two": lambda: sgp.DiscreteRelaxation(dist.Laplace(0.0, 1.0), support=[-2, -1, -0.5, 0, 0.5, 1, 2]),
    "positive": lambda: sgp.DiscreteRelaxation(dist.Gamma(2.0, 1.0), support=[0.1, 1.0, 4.0]),
    "levels of each": lambda: sgp.DiscreteRelaxation(
        dist.Normal(0.0, 1.0), support=[[-1.0, 0.0, 1.0], [0.0, 1.0, 3.0]]
    ),
    "event": lambda: sgp.DiscreteRelaxation(dist.Normal(jnp.zeros(3), SCALES), num_levels=5).to_event(1),
}


# In float32 one case without an event and one with: the others differ in shapes and supports only.
@pytest.fixture(params=by_lane(list(CASES), ["three scales", "event"]))
def site(request):
    return CASES[request.param]()


def base(site):
    return getattr(site, "base_dist", site)


def test_probabilities_are_those_of_the_density_normalised():
    prior = CASES["powers of two"]()
    levels = np.array([-2, -1, -0.5, 0, 0.5, 1, 2])
    density = scipy.stats.laplace.pdf(levels)
    np.testing.assert_allclose(prior.probs, density / density.sum(), rtol=RTOL)
    normal = CASES["three scales"]()
    np.testing.assert_allclose(normal.levels, np.asarray(SCALES)[:, None] * np.arange(-3.0, 4.0), rtol=RTOL)
    assert np.all(np.asarray(normal.levels)[:, 3] == 0)  # exactly: weights are to be sparse
    density = scipy.stats.norm.pdf(np.arange(-3.0, 4.0))
    np.testing.assert_allclose(normal.probs, np.tile(density / density.sum(), (3, 1)), rtol=10 * RTOL)


def test_moments_and_entropy_are_sums(site):
    prior = base(site)
    p, w = np.asarray(prior.probs, np.float64), np.asarray(prior.levels, np.float64)
    mean = np.sum(p * w, axis=-1)
    np.testing.assert_allclose(site.mean, mean, rtol=RTOL, atol=by_lane(1e-12, 1e-6))
    np.testing.assert_allclose(site.variance, np.sum(p * (w - mean[..., None]) ** 2, axis=-1), rtol=10 * RTOL)
    entropy = -np.sum(p * np.log(p), axis=-1)
    np.testing.assert_allclose(site.entropy(), entropy.sum() if site.event_shape else entropy, rtol=10 * RTOL)


def test_shapes(site, key):
    shape = site.batch_shape + site.event_shape
    draws = site.sample(key, (2, 3))
    assert draws.shape == (2, 3, *shape) and draws.dtype == jnp.result_type(float)
    assert site.log_prob(draws).shape == (2, 3, *site.batch_shape)
    assert bool(np.all(site.support(draws)))
    assert base(site).infer_shapes(base(site).levels.shape, base(site).logits.shape)[0] == base(site).batch_shape


def test_draws_have_their_probabilities(site, key):
    prior = base(site)
    draws = np.asarray(prior.sample(key, (20_000,)))
    frequencies = np.mean(draws[..., None] == np.asarray(prior.levels), axis=0)
    np.testing.assert_allclose(frequencies, prior.probs, atol=0.02)


def test_other_values_have_no_probability(site):
    prior = base(site)
    between = prior.levels[..., 0] + 0.4 * (prior.levels[..., 1] - prior.levels[..., 0])
    assert not np.any(prior.support(between))
    with pytest.warns(UserWarning, match="Out-of-support"):
        np.testing.assert_array_equal(prior.log_prob(between), -np.inf)
    np.testing.assert_array_equal(jax.jit(prior.log_prob)(between), -np.inf)


def test_codes_and_levels_are_one_to_one(site, key):
    prior = base(site)
    draws = prior.sample(key, (5,))
    codes = prior.codes(draws)
    assert jnp.issubdtype(codes.dtype, jnp.integer) and int(codes.max()) < prior.num_levels
    np.testing.assert_array_equal(prior.decode(codes), draws)
    once = np.asarray(draws, np.float32)  # a value that has been through float32 is still a level
    assert np.all(np.isfinite(np.asarray(prior.log_prob(jnp.asarray(once, draws.dtype)))))


def test_support_is_enumerated():
    prior = CASES["three scales"]()
    assert prior.has_enumerate_support and prior.enumerate_support().shape == (7, 3)
    same = CASES["normal"]().expand([2, 3])
    assert same.enumerate_support(expand=False).shape == (15, 1, 1)
    total = jax.nn.logsumexp(same.log_prob(same.enumerate_support()), axis=0)
    np.testing.assert_allclose(total, 0, atol=by_lane(1e-12, 1e-5))


def test_transformations(site, key):
    value = site.sample(key)
    direct = site.log_prob(value)
    np.testing.assert_allclose(jax.jit(lambda s, v: s.log_prob(v))(site, value), direct, rtol=RTOL)
    draws = site.sample(key, (4,))
    np.testing.assert_allclose(jax.vmap(site.log_prob)(draws), site.log_prob(draws), rtol=RTOL)
    scanned = jax.lax.scan(lambda carry, v: (carry, site.log_prob(v)), 0, draws)[1]
    np.testing.assert_allclose(scanned, site.log_prob(draws), rtol=RTOL)
    leaves, structure = jax.tree.flatten(site)
    np.testing.assert_array_equal(structure.unflatten(leaves).log_prob(value), direct)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(site)).log_prob(value), direct)
    np.testing.assert_array_equal(site.mask(False).log_prob(value), jnp.zeros_like(direct))


def test_expanding(site, key):
    wide = site.expand((2, *site.batch_shape))
    assert wide.batch_shape == (2, *site.batch_shape) and wide.event_shape == site.event_shape
    assert wide.sample(key).shape == (2, *site.batch_shape, *site.event_shape)
    value = site.sample(key)
    for row in wide.log_prob(jnp.stack([value, value])):
        np.testing.assert_allclose(row, site.log_prob(value), rtol=RTOL)
    repeated = type(wide)  # stays what it is, so that enumerating an event is refused
    assert repeated is type(site)


def test_gradients_in_logits_and_in_the_continuous_prior():
    levels = jnp.asarray([-1.0, 0.0, 2.0])

    def log_prob(logits):
        return sgp.DiscreteRelaxation.from_logits(levels, logits).log_prob(levels[1])

    logits = jnp.asarray([0.3, -0.2, 0.9])
    expected = (np.arange(3) == 1) - scipy.special.softmax(np.asarray(logits, np.float64))
    np.testing.assert_allclose(jax.grad(log_prob)(logits), expected, rtol=10 * RTOL)

    def of_scale(scale):
        return sgp.DiscreteRelaxation(dist.Normal(0.0, scale), support=levels).log_prob(levels[2])

    step = by_lane(1e-6, 1e-2)
    numeric = (of_scale(jnp.asarray(1.3 + step)) - of_scale(jnp.asarray(1.3 - step))) / (2 * step)
    np.testing.assert_allclose(jax.grad(of_scale)(jnp.asarray(1.3)), numeric, rtol=by_lane(1e-6, 1e-3))


def test_only_relaxations_have_mass_beyond_their_levels(site):
    prior = base(site)
    assert prior.is_relaxation and prior.expand((2, *prior.batch_shape)).is_relaxation
    assert not type(prior).from_logits(prior.levels, prior.logits).is_relaxation


def test_in_plates():
    def model():
        with numpyro.plate("weights", 4):
            numpyro.sample("w", CASES["normal"]())

    value = jnp.zeros(4)
    expected = 4 * float(CASES["normal"]().log_prob(jnp.zeros(())))
    assert float(log_density(model, (), {}, {"w": value})[0]) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize(
    "match, make",
    [
        ("continuous univariate", lambda: sgp.DiscreteRelaxation(dist.Poisson(1.0))),
        ("continuous univariate", lambda: sgp.DiscreteRelaxation(dist.Normal(jnp.zeros(2), 1.0).to_event(1))),
        ("continuous univariate", lambda: sgp.DiscreteRelaxation(1.0)),
        ("`num_levels` must be", lambda: sgp.DiscreteRelaxation(dist.Normal(0.0, 1.0), num_levels=1)),
        ("`num_levels` must be an integer", lambda: sgp.DiscreteRelaxation(dist.Normal(0.0, 1.0), num_levels=7.0)),
        ("`num_levels` must be an integer", lambda: sgp.DiscreteRelaxation(dist.Normal(0.0, 1.0), num_levels=True)),
        (
            "either `num_levels`, of an evenly spaced grid, or",
            lambda: sgp.DiscreteRelaxation(dist.Normal(0.0, 1.0), num_levels=7, support=[0.0, 1.0]),
        ),
        ("`support` must be an array of real", lambda: sgp.DiscreteRelaxation(dist.Normal(0.0, 1.0), support="ab")),
        ("`support` must be an array of real", lambda: sgp.DiscreteRelaxation(dist.Normal(0.0, 1.0), support=[[0], 1])),
        ("`levels` must be an array of real", lambda: sgp.DiscreteRelaxation.from_logits([False, True], [0.0, 0.0])),
        ("`levels` must be an array of real", lambda: sgp.DiscreteRelaxation.from_logits([0.0, 1j], [0.0, 0.0])),
        ("`logits` must be an array of real", lambda: sgp.DiscreteRelaxation.from_logits([0.0, 1.0], None)),
        ("one of each weight finite", lambda: sgp.DiscreteRelaxation.from_logits([0.0, 1.0], [np.nan, 0.0])),
        ("one of each weight finite", lambda: sgp.DiscreteRelaxation.from_logits([0.0, 1.0], [-np.inf, -np.inf])),
        ("no finite mean", lambda: sgp.DiscreteRelaxation(dist.Cauchy(0.0, 1.0))),
        ("in the support of HalfNormal", lambda: sgp.DiscreteRelaxation(dist.HalfNormal(1.0))),
        ("strictly ascending", lambda: sgp.DiscreteRelaxation(dist.Normal(0.0, 1.0), support=[1.0, 0.0])),
        ("strictly ascending", lambda: sgp.DiscreteRelaxation(dist.Normal(0.0, 1.0), support=[0.0, np.nan])),
        ("at least two levels", lambda: sgp.DiscreteRelaxation(dist.Normal(0.0, 1.0), support=[0.0])),
        ("`logits` must end", lambda: sgp.DiscreteRelaxation.from_logits([0.0, 1.0], np.zeros(3))),
    ],
)
def test_refusals(match, make):
    with pytest.raises(ValueError, match=match):
        make()
