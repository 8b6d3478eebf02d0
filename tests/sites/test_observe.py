"""The observed sites inside NumPyro models: what they are, effect handlers, Predictive."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
import scipy.stats
from numpyro import handlers
from numpyro.infer import Predictive
from numpyro.infer.reparam import LocScaleReparam, TransformReparam

import ppl_sgp as sgp
from tests.contract.cases import data
from tests.contract.models import M, N, both, joint, model, site_log_prob, trace_at, weights_model


@pytest.fixture
def stats():
    return data("dense").statistics


@pytest.fixture
def two():
    return data("two_outputs").statistics


def test_observe_is_a_sample_statement(stats):
    site = trace_at(model, stats, {"lengthscale": 0.6})["y"]
    assert type(site["fn"]) is sgp.SparseGP
    assert site["is_observed"]
    np.testing.assert_array_equal(site["value"], stats.projection)
    prior = stats.basis.weight_prior(sgp.SquaredExponential(jnp.asarray(0.6, float)))
    assert site["fn"].log_prob(site["value"]) == pytest.approx(float(sgp.log_evidence(stats, prior, 0.4)), rel=1e-6)


def test_observe_weights_is_a_sample_statement(stats):
    site = trace_at(weights_model, stats, {"w": np.zeros(M)})["y"]
    assert type(site["fn"]) is sgp.CompressedNormal
    assert site["is_observed"]
    np.testing.assert_array_equal(site["value"], stats.projection)


@pytest.mark.float64_only
@pytest.mark.parametrize("name", ["dense", "few_rows", "dual", "diagonal", "diagonal_null", "two_outputs", "weighted"])
def test_observe_weights_is_the_likelihood_of_the_rows(name, rng):
    """Against n Normal densities, for random weights, noise and row weights."""
    chosen = data(name)
    stats, q = chosen.statistics, chosen.statistics.num_outputs
    Phi = stats.basis.host_features(chosen.X)
    for noise_scale in (0.01, 0.7, 30.0):
        w = rng.normal(size=(q, stats.num_features))
        y = chosen.y.reshape(len(chosen.X), q)
        row_weights = np.ones(len(y)) if chosen.row_weights is None else chosen.row_weights
        rows = scipy.stats.norm.logpdf(y, Phi @ w.T, noise_scale / np.sqrt(row_weights)[:, None]).sum(axis=0)
        given = jnp.asarray(w if chosen.y.ndim == 2 else w[0])
        site = sgp.CompressedNormal(stats, given, noise_scale)
        np.testing.assert_allclose(np.atleast_1d(site.log_prob(stats.projection)), rows, rtol=1e-9)


# effect handlers


@both
def test_scale_multiplies_the_log_density(stats, model, point):
    base, likelihood = joint(model, stats, point), site_log_prob(model, stats, point)
    scaled = joint(handlers.scale(model, scale=2.0), stats, point)
    assert scaled == pytest.approx(2 * base, rel=1e-6)

    def scaled_site(stats):
        with handlers.scale(scale=2.0), handlers.block(hide_fn=lambda site: False):
            model(stats)

    assert joint(scaled_site, stats, point) == pytest.approx(2 * base, rel=1e-6)
    assert abs(likelihood) > 1


@both
def test_mask_removes_the_log_density(stats, model, point):
    assert joint(handlers.mask(model, mask=False), stats, point) == 0.0
    assert joint(handlers.mask(model, mask=True), stats, point) == joint(model, stats, point)


@both
def test_condition_observes_other_data(stats, model, point):
    other = np.asarray(stats.projection) + 0.3
    conditioned = handlers.condition(model, {"y": jnp.asarray(other, float)})
    replaced = joint(model, stats.with_projection(other), point)
    assert joint(conditioned, stats, point) == pytest.approx(replaced, rel=1e-5)
    assert replaced != pytest.approx(joint(model, stats, point), rel=1e-3)


@both
def test_condition_and_substitute_of_hyperparameters(stats, model, point):
    value = {name: jnp.asarray(v, float) for name, v in point.items()}
    (name,) = point
    conditioned = handlers.trace(handlers.condition(model, value)).get_trace(stats)
    substituted = trace_at(model, stats, point)
    assert conditioned[name]["is_observed"] and not substituted[name]["is_observed"]
    for trace in (conditioned, substituted):
        np.testing.assert_array_equal(trace[name]["value"], value[name])


@both
def test_seed_makes_runs_equal(stats, model, point):
    (name,) = point
    first, same, other = (
        handlers.trace(handlers.seed(handlers.uncondition(model), jax.random.key(s))).get_trace(stats)
        for s in (0, 0, 1)
    )
    for site in (name, "y"):
        np.testing.assert_array_equal(first[site]["value"], same[site]["value"])
        assert not np.array_equal(first[site]["value"], other[site]["value"])


@both
def test_block_hides_the_site(stats, model, point):
    blocked = handlers.trace(handlers.seed(handlers.block(model, hide=["y"]), 0)).get_trace(stats)
    assert list(blocked) == list(point)


def test_scope_puts_two_gps_in_one_model(stats, two):
    def both_models(pair):
        handlers.scope(model, prefix="first")(pair[0])
        handlers.scope(model, prefix="second")(pair[1])

    point = {"first/lengthscale": 0.6, "second/lengthscale": 0.3}
    parts = joint(model, stats, {"lengthscale": 0.6}) + joint(model, two, {"lengthscale": 0.3})
    assert joint(both_models, (stats, two), point) == pytest.approx(parts, rel=1e-6)


def test_reparam_of_hyperparameters(stats):
    def log_normal(stats):
        base = dist.TransformedDistribution(dist.Normal(-0.5, 0.5), dist.transforms.ExpTransform())
        lengthscale = numpyro.sample("lengthscale", base)
        sgp.observe("y", stats, stats.basis.weight_prior(sgp.SquaredExponential(lengthscale)), 0.4)

    changed = handlers.reparam(log_normal, config={"lengthscale": TransformReparam()})
    base = np.log(0.6)
    likelihood = site_log_prob(log_normal, stats, {"lengthscale": 0.6})
    expected = scipy.stats.norm.logpdf(base, -0.5, 0.5) + likelihood
    assert joint(changed, stats, {"lengthscale_base": base}) == pytest.approx(expected, rel=1e-5)
    centred = handlers.reparam(weights_model, config={"w": LocScaleReparam(0.0)})
    assert joint(centred, stats, {"w_decentered": np.zeros(M)}) == pytest.approx(
        joint(weights_model, stats, {"w": np.zeros(M)}), rel=1e-5
    )


def test_lift_turns_parameters_into_sites(stats):
    def with_param(stats):
        noise_scale = numpyro.param("noise_scale", jnp.asarray(0.4), constraint=dist.constraints.positive)
        sgp.observe("y", stats, sgp.DiagonalPrior(1.0), noise_scale)

    lifted = handlers.lift(with_param, prior={"noise_scale": dist.Exponential(2.0)})
    expected = np.log(2.0) - 2.0 * 0.7 + float(sgp.log_evidence(stats, sgp.DiagonalPrior(1.0), 0.7))
    assert joint(lifted, stats, {"noise_scale": 0.7}) == pytest.approx(expected, rel=1e-5)


def test_do_and_replay(stats):
    done = handlers.trace(handlers.do(model, data={"lengthscale": jnp.asarray(0.6)})).get_trace
    with handlers.seed(rng_seed=0):
        assert float(done(stats)["y"]["fn"].log_prob(stats.projection)) == pytest.approx(
            site_log_prob(model, stats, {"lengthscale": 0.6}), rel=1e-6
        )
    first = trace_at(model, stats, {"lengthscale": 0.6})
    replayed = handlers.trace(handlers.replay(model, first)).get_trace(stats)
    assert float(replayed["lengthscale"]["value"]) == pytest.approx(0.6)


# Predictive


def test_prior_predictive(stats, key):
    """Moments of 4000 draws against Rμ = 0, RS⁻¹Rᵀ + σ²I and σ²χ², from the factor."""
    num, scale, noise_scale = 4000, 0.8, 0.4

    def fixed(stats):
        sgp.observe("y", stats, sgp.DiagonalPrior(scale), noise_scale)

    drawn = Predictive(handlers.uncondition(fixed), num_samples=num)(key, stats)["y"]
    assert drawn.shape == (num, *stats.projection.shape)
    R, nu = stats.compressed.factor, N - stats.compressed.rank
    covariance = scale**2 * R @ R.T + noise_scale**2 * np.eye(len(R))
    c = np.asarray(drawn, dtype=np.float64)[:, :-1]
    error = np.sqrt((np.outer(np.diag(covariance), np.diag(covariance)) + covariance**2) / num)
    assert np.all(np.abs(c.T @ c / num - covariance) < 5 * error)
    assert np.all(np.abs(c.mean(axis=0)) < 5 * np.sqrt(np.diag(covariance) / num))
    rss = np.asarray(drawn)[:, -1]
    assert abs(rss.mean() - nu * noise_scale**2) < 5 * noise_scale**2 * np.sqrt(2 * nu / num)


@both
def test_prior_predictive_draws_everything_anew(stats, key, model, point):
    (name,) = point
    drawn = Predictive(handlers.uncondition(model), num_samples=5)(key, stats)
    assert drawn["y"].shape == (5, *stats.projection.shape)
    assert len(np.unique(np.asarray(drawn["y"])[:, 0])) == 5
    assert len(np.unique(np.asarray(drawn[name]).reshape(5, -1)[:, 0])) == 5


@both
def test_predictive_with_draws_returns_the_data(stats, key, model, point):
    draws = {name: jnp.stack([jnp.asarray(value, float)] * 3) for name, value in point.items()}
    returned = Predictive(model, posterior_samples=draws)(key, stats)["y"]
    np.testing.assert_allclose(returned, np.broadcast_to(stats.projection, returned.shape), rtol=1e-6)
    assert returned.shape == (3, *stats.projection.shape)
