"""Models that observe rows by a distribution of their own, as those of `sgp.latent`: against direct formulas."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
import scipy.stats

import ppl_sgp as sgp
from tests.builders import by_lane

pytestmark = pytest.mark.relaxed_promotion
RTOL = by_lane(1e-8, 2e-4)
M, S, N = 5, 60, 30
RNG = np.random.default_rng(0)
X = RNG.uniform(-1, 1, (N, 1))
BASIS = sgp.LaplaceBasis.from_data(X, M)
KERNEL = sgp.SquaredExponential(0.5)
COUNTS = RNG.poisson(np.exp(np.sin(3 * X[:, 0])))
DRAWS = {"f_whitened": 0.5 * RNG.standard_normal((S, M)), "level": 0.2 * RNG.standard_normal(S)}


def counts(X, y=None):
    level = numpyro.sample("level", dist.Normal(0.0, 1.0))
    f = sgp.latent("f", BASIS, BASIS.weight_prior(KERNEL))
    with numpyro.plate("rows", X.shape[0]):
        numpyro.sample("y", dist.Poisson(jnp.exp(level + f(X))), obs=y)


def heavy_tails(rows):
    level = numpyro.sample("level", dist.Normal(0.0, 1.0))
    f = sgp.latent("f", BASIS, BASIS.weight_prior(KERNEL))
    numpyro.sample("y", dist.StudentT(4.0, level + f(rows.X), 0.3).to_event(1), obs=rows.y)


def predictors(X):
    scale = np.asarray(BASIS.weight_prior(KERNEL).scale, dtype=np.float64)
    return DRAWS["level"][:, None] + (DRAWS["f_whitened"] * scale) @ BASIS.host_features(X).T


@pytest.fixture(scope="module")
def posterior():
    return sgp.posterior(counts, DRAWS, sgp.rows(X, COUNTS))


@pytest.mark.slow
def test_a_prediction_is_the_mixture_of_the_likelihood_over_draws(posterior):
    given = scipy.stats.poisson(np.exp(predictors(X)))
    prediction = posterior.predict(X)
    mean = given.mean().mean(axis=0)
    np.testing.assert_allclose(prediction.mean, mean, rtol=RTOL)
    variance = given.var().mean(axis=0) + given.mean().var(axis=0)
    np.testing.assert_allclose(prediction.variance, variance, rtol=10 * RTOL)
    np.testing.assert_allclose(np.exp(prediction.log_density(COUNTS)), given.pmf(COUNTS).mean(axis=0), rtol=10 * RTOL)
    below = given.cdf(COUNTS).mean(axis=0)
    np.testing.assert_allclose(prediction.distribution_function(COUNTS), below, rtol=10 * RTOL)

    def grid(k):
        return given.cdf(k).mean(axis=0)

    for p, k in zip((0.3, 0.9), prediction.quantiles([0.3, 0.9]), strict=True):
        assert (grid(k) >= p).all() and (grid(k - 1) < p).all()
    drawn = prediction.sample(jax.random.key(0), 6000)
    np.testing.assert_array_less(np.abs(drawn.mean(axis=0) - mean), 5 * np.sqrt(variance / 6000))


@pytest.mark.parametrize("largest", [3, 255, 256, 400])
def test_the_distribution_function_of_small_and_of_large_counts(posterior, largest):
    y = np.minimum(np.arange(len(X)) * 7, largest).astype(float)
    below = scipy.stats.poisson(np.exp(predictors(X))).cdf(y).mean(axis=0)
    prediction = posterior.predict(X)
    np.testing.assert_allclose(prediction.distribution_function(y), below, rtol=10 * RTOL)
    ends = np.resize([-np.inf, -1.0, np.inf], len(X))
    np.testing.assert_array_equal(prediction.distribution_function(ends), np.resize([0.0, 0.0, 1.0], len(X)))
    with pytest.raises(ValueError, match="NaN"):
        prediction.distribution_function(np.full(len(X), np.nan))


def test_counts_too_large_to_sum_up_to_are_refused():
    def zeros_too(rows):
        level = numpyro.sample("level", dist.Normal(0.0, 1.0))
        rate = jnp.exp(level + sgp.latent("f", BASIS, BASIS.weight_prior(KERNEL))(rows.X))
        numpyro.sample("y", dist.ZeroInflatedPoisson(0.2, rate).to_event(1), obs=rows.y)

    prediction = sgp.posterior(zeros_too, DRAWS, sgp.rows(X, COUNTS)).predict(X)
    below = 0.2 + 0.8 * scipy.stats.poisson(np.exp(predictors(X))).cdf(COUNTS).mean(axis=0)
    np.testing.assert_allclose(prediction.distribution_function(COUNTS), below, rtol=10 * RTOL)
    with pytest.raises(ValueError, match="up to y = 1e\\+09.*100000 at most"):
        prediction.distribution_function(np.full(len(X), 1e9))


@pytest.mark.slow
def test_quantiles_of_numbers():
    y = np.sin(3 * X[:, 0])
    prediction = sgp.posterior(heavy_tails, DRAWS, sgp.rows(X, y)).predict(X[:4])
    found = prediction.quantiles([0.01, 0.5, 0.975])
    given = scipy.stats.t(4, predictors(X[:4]), 0.3)
    for p, values in zip((0.01, 0.5, 0.975), found, strict=True):
        np.testing.assert_allclose(given.cdf(values).mean(axis=0), p, atol=by_lane(1e-8, 1e-5))
    np.testing.assert_allclose(prediction.log_density(y[:4]), np.log(given.pdf(y[:4]).mean(axis=0)), rtol=10 * RTOL)
    with pytest.raises(ValueError, match="not discrete"):
        prediction.probabilities_of([0, 1])


def test_rows_are_independent_given_a_draw(posterior):
    expected = scipy.stats.poisson(np.exp(predictors(X))).logpmf(COUNTS)
    np.testing.assert_allclose(posterior.leave_one_out(), expected, rtol=10 * RTOL, atol=10 * RTOL)
    np.testing.assert_allclose(posterior.leave_one_out(rows=[3, 1]), expected[:, [3, 1]], rtol=10 * RTOL, atol=RTOL)
    np.testing.assert_allclose(posterior.log_evidence, expected.sum(axis=1), rtol=10 * RTOL)


@pytest.mark.slow
def test_memory_bounds_blocks_of_rows():
    few = sgp.posterior(counts, DRAWS, sgp.rows(X, COUNTS), max_memory=2e4)
    whole = sgp.posterior(counts, DRAWS, sgp.rows(X, COUNTS))
    np.testing.assert_allclose(few.predict(X).mean, whole.predict(X).mean, rtol=RTOL)
    np.testing.assert_allclose(few.predict(X).log_density(COUNTS), whole.predict(X).log_density(COUNTS), rtol=RTOL)


@pytest.mark.slow
def test_containers_hold_the_likelihood_of_rows(posterior):
    container = posterior.to_arviz(X_new=X[:3])
    assert container["log_likelihood"]["y"].dims == ("chain", "draw", "obs")
    assert container["posterior_predictive"]["y"].shape == (1, S, N)
    assert container["predictions"]["y"].shape == (1, S, 3)
    np.testing.assert_allclose(np.asarray(container["observed_data"]["y"]), COUNTS)


def test_pit_values_lie_between_the_probabilities_of_less_and_of_as_much(posterior):
    pit = posterior.loo_pit(key=jax.random.key(1))
    given = scipy.stats.poisson(np.exp(predictors(X)))
    assert pit.shape == (1, N)
    low, high = given.cdf(COUNTS - 1).min(axis=0), given.cdf(COUNTS).max(axis=0)
    assert ((pit[0] >= low - 1e-6) & (pit[0] <= high + 1e-6)).all()


def test_files_need_the_model(posterior, tmp_path):
    posterior.save(tmp_path / "counts.npz")
    again = sgp.load_posterior(tmp_path / "counts.npz", counts)
    np.testing.assert_allclose(again.predict(X).mean, posterior.predict(X).mean, rtol=RTOL)
    with pytest.raises(ValueError, match="load_posterior\\(path, model\\)"):
        sgp.load_posterior(tmp_path / "counts.npz")


def test_what_has_no_distribution_at_new_rows_is_refused(posterior):
    def own_effects(X, y=None):
        effect = numpyro.sample("effect", dist.Normal(0.0, 1.0).expand([X.shape[0]]).to_event(1))
        numpyro.sample("y", dist.Normal(effect, 1.0), obs=y)

    of_rows = sgp.posterior(own_effects, {"effect": np.zeros((3, N))}, sgp.rows(X, X[:, 0]))
    with pytest.raises(ValueError, match="'effect'.*cannot be predicted from"):
        of_rows.predict(X[:4])

    def some_rows(X, y=None):
        with numpyro.plate("rows", X.shape[0], subsample_size=7) as index:
            numpyro.sample("y", dist.Normal(0.0, 1.0), obs=None if y is None else y[index])

    with pytest.raises(ValueError, match="without `subsample_size`"):
        sgp.posterior(some_rows, {"unused": np.zeros(3)}, sgp.rows(X, X[:, 0]))
    with pytest.raises(ValueError, match="distribution of the model's own"):
        posterior.kernel_draws([0.1])
    with pytest.raises(ValueError, match="in the columns of its inputs"):
        posterior.predict(X, offset=np.zeros(N))
