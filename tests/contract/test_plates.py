"""The observed sites inside plates: data plates are refused, plates over outputs are not."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
import scipy.stats
from numpyro import handlers

import ppl_sgp as sgp
from tests.contract.cases import data
from tests.contract.models import M, N, joint


@pytest.fixture
def stats():
    return data("dense").statistics


@pytest.fixture
def two():
    return data("two_outputs").statistics


def under_plates(statement, *plates):
    """A model with the statement inside plates given as (size, subsample_size, dim)."""

    def inside(stats):
        frames = [
            numpyro.plate(f"plate{i}", size, subsample_size=part, dim=dim) for i, (size, part, dim) in enumerate(plates)
        ]
        for frame in frames:
            frame.__enter__()
        try:
            statement(stats)
        finally:
            for frame in reversed(frames):
                frame.__exit__(None, None, None)

    return inside


def observe_marginal(stats):
    sgp.observe("y", stats, sgp.DiagonalPrior(1.0), 0.4)


def observe_explicit(stats):
    sgp.observe_weights("y", stats, jnp.zeros(stats.num_features), 0.4)


def sample_marginal(stats):
    numpyro.sample("y", sgp.SparseGP(stats, sgp.DiagonalPrior(1.0), 0.4), obs=stats.projection)


def sample_unobserved(stats):
    numpyro.sample("y", sgp.SparseGP(stats, sgp.DiagonalPrior(1.0), 0.4))


def sample_masked(stats):
    numpyro.sample("y", sgp.SparseGP(stats, sgp.DiagonalPrior(1.0), 0.4).mask(True), obs=stats.projection)


STATEMENTS = [observe_marginal, observe_explicit, sample_marginal, sample_unobserved, sample_masked]


def refused(plates, statement, stats, message=r"inside the plate 'plate\d'.*outside the data plate"):
    seeded = handlers.seed(under_plates(statement, *plates), jax.random.key(0))
    with pytest.raises(ValueError, match=message):
        seeded(stats)


@pytest.mark.parametrize("statement", STATEMENTS)
def test_plate_over_rows_is_refused(stats, statement):
    refused([(N, None, None)], statement, stats)


@pytest.mark.parametrize("statement", [observe_marginal, observe_explicit])
@pytest.mark.parametrize(
    "plates",
    [
        [(10, None, None)],
        [(N, 4, None)],
        [(N, 1, None)],
        [(3, None, -2)],
        [(3, None, None), (2, None, None)],
        [(1, None, None), (10, None, None)],
    ],
    ids=str,
)
def test_other_plates_are_refused(stats, statement, plates):
    """Of another size, subsampled, along another dimension, nested."""
    refused(plates, statement, stats)


@pytest.mark.parametrize("statement", [observe_marginal, observe_explicit])
@pytest.mark.parametrize(
    "plates", [[(N, None, None)], [(20, 2, -1)], [(2, None, -2)], [(2, None, -1), (3, None, -2)]], ids=str
)
def test_wrong_plates_are_refused_with_several_outputs(two, statement, plates):
    """Also one subsampled to the number of outputs, and one of that size along another dimension."""
    refused(plates, statement, two, "plate|broadcast")


@pytest.mark.parametrize("statement", [observe_marginal, observe_explicit, sample_marginal])
def test_plate_over_outputs_is_accepted(two, statement, x64):
    inside = under_plates(statement, (2, None, None))
    assert joint(inside, two, {}) == pytest.approx(joint(statement, two, {}), rel=1e-12 if x64 else 1e-6)


def test_plate_over_outputs_of_hyperparameters(two):
    """The use it has: a noise scale for each output, sampled in the plate that also holds the site."""

    def per_output(stats):
        with numpyro.plate("outputs", 2):
            noise_scale = numpyro.sample("noise_scale", dist.HalfNormal(1.0))
            sgp.observe("y", stats, sgp.DiagonalPrior(1.0), noise_scale)

    point = {"noise_scale": np.array([0.4, 0.9])}
    priors = scipy.stats.halfnorm.logpdf(point["noise_scale"]).sum()
    evidence = [sgp.log_evidence(two, sgp.DiagonalPrior(1.0), noise)[i] for i, noise in enumerate([0.4, 0.9])]
    assert joint(per_output, two, point) == pytest.approx(priors + float(sum(evidence)), rel=1e-5)


def test_hyperparameters_may_live_in_plates_that_do_not_hold_the_site(stats):
    def ard(stats):
        with numpyro.plate("features", stats.num_features):
            scale = numpyro.sample("scale", dist.HalfCauchy(1.0))
        sgp.observe("y", stats, sgp.DiagonalPrior(scale), 0.4)

    scale = np.linspace(0.5, 0.9, M)
    prior = scipy.stats.halfcauchy.logpdf(scale).sum()
    evidence = float(sgp.log_evidence(stats, sgp.DiagonalPrior(scale), 0.4))
    assert joint(ard, stats, {"scale": scale}) == pytest.approx(prior + evidence, rel=1e-5)


def noise_for_each_row(stats):
    sgp.observe("y", stats, sgp.DiagonalPrior(1.0), jnp.full(N, 0.4))


def expanded_beforehand(stats):
    numpyro.sample("y", sgp.SparseGP(stats, sgp.DiagonalPrior(1.0), 0.4).expand((N,)), obs=stats.projection)


@pytest.mark.parametrize("statement", [noise_for_each_row, expanded_beforehand])
def test_a_batch_as_large_as_the_plate_does_not_hide_the_repetition(stats, statement):
    refused([(N, None, None)], statement, stats, "row_weights|outside the data plate")


def test_a_batch_of_noise_scales_is_not_one_observation(stats):
    """Without a plate NumPyro would add the evidences of all noise scales up."""
    with pytest.raises(ValueError, match=r"batch of shape \(60,\).*row_weights"):
        sgp.observe("y", stats, sgp.DiagonalPrior(1.0), jnp.full(60, 0.4))
    with pytest.raises(ValueError, match=r"batch of shape \(3,\).*row_weights"):
        sgp.observe_weights("y", stats, jnp.zeros((3, stats.num_features)), 0.4)
