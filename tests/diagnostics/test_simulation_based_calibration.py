"""Calibration by simulation: right models pass, wrong ones do not, and what is drawn has the right law."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
import xarray as xr

import ppl_sgp as sgp
from ppl_sgp.diagnostics import simulated_ranks, simulation_based_calibration
from tests.builders import IdentityBasis

pytestmark = [pytest.mark.float64_only, pytest.mark.relaxed_promotion, pytest.mark.end_to_end]
SHORT = {"num_warmup": 100, "num_draws": 31, "thinning": 4}


def model(stats):
    scale = numpyro.sample("scale", dist.LogNormal(0.0, 0.5).expand([2]).to_event(1))
    noise_scale = numpyro.sample("noise_scale", dist.LogNormal(-1.0, 0.5))
    sgp.observe("y", stats, sgp.DiagonalPrior(scale), noise_scale)


def noisier(stats):
    """Data with 1.5 times the noise that the model says."""
    scale = numpyro.sample("scale", dist.LogNormal(0.0, 0.5).expand([2]).to_event(1))
    noise_scale = numpyro.sample("noise_scale", dist.LogNormal(-1.0, 0.5))
    sgp.observe("y", stats, sgp.DiagonalPrior(scale), 1.5 * noise_scale)


@pytest.fixture(scope="module")
def statistics():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((40, 2))
    return sgp.sufficient_statistics(IdentityBasis(2), X, X @ [1.0, -1.0] + 0.3 * rng.standard_normal(40))


def test_a_right_model_passes_and_a_wrong_one_fails(statistics):
    ranks = sgp.simulation_based_calibration(model, statistics, jax.random.key(0), 80, **SHORT)
    assert ranks["scale"].dims == ("simulation", "scale_dim_0") and ranks["scale"].shape == (80, 2)
    assert ranks.attrs["num_draws"] == 31 and 0 <= ranks["noise_scale"].min() and ranks["noise_scale"].max() <= 31
    p = sgp.rank_uniformity(ranks)
    assert "diverging" not in p and p["noise_scale"].item() > 0.01 and float(p["scale"].min()) > 0.005
    wrong = sgp.simulation_based_calibration(model, statistics, jax.random.key(0), 80, generator=noisier, **SHORT)
    assert sgp.rank_uniformity(wrong)["noise_scale"].item() < 1e-3


def posterior(statistics, count=400):
    """Draws of the posterior by importance resampling from the prior."""
    rng = np.random.default_rng(3)
    scale, noise = np.exp(0.5 * rng.standard_normal((200_000, 2))), np.exp(-1 + 0.5 * rng.standard_normal(200_000))
    logs = jax.jit(jax.vmap(lambda s, n: sgp.log_evidence(statistics, sgp.DiagonalPrior(s), n)))(scale, noise)
    weights = np.exp(np.asarray(logs) - float(jnp.max(logs)))
    chosen = rng.choice(len(noise), count, p=weights / weights.sum())
    return {"scale": scale[chosen], "noise_scale": noise[chosen]}


def test_posterior_calibration_and_draws_of_another_posterior(statistics):
    samples = posterior(statistics)
    ranks = sgp.posterior_sbc(model, statistics, samples, jax.random.key(0), **SHORT)
    p = sgp.rank_uniformity(ranks)
    assert p["noise_scale"].item() > 0.01 and float(p["scale"].min()) > 0.005
    wrong = {**samples, "noise_scale": 1.3 * samples["noise_scale"]}
    ranks = sgp.posterior_sbc(model, statistics, wrong, jax.random.key(0), **SHORT)
    assert sgp.rank_uniformity(ranks)["noise_scale"].item() < 1e-3


DISCRETE = sgp.models.discrete_weights(
    sgp.DiscreteRelaxation(dist.Normal(0.0, 1.0), num_levels=5), noise_scale=dist.LogNormal(1.0, 0.5)
)


def noisier_weights(stats):
    """As ``DISCRETE``, but data have twice the noise that it says."""
    prior = sgp.DiscreteRelaxation(dist.Normal(0.0, 1.0), num_levels=5).expand((2,)).to_event(1)
    w = numpyro.sample("weights", prior)
    sgp.observe_weights("y", stats, w, 2 * numpyro.sample("noise_scale", dist.LogNormal(1.0, 0.5)))


def test_discrete_weights_by_gibbs(statistics):
    """Draws are often equal to the truth, a level, and then on either side of it at random."""
    settings = {"kernel": DISCRETE.gibbs, **SHORT}
    ranks = sgp.simulation_based_calibration(DISCRETE, statistics, jax.random.key(0), 80, **settings)
    p = sgp.rank_uniformity(ranks)
    assert p["noise_scale"].item() > 0.01 and float(p["weights"].min()) > 0.005
    wrong = sgp.simulation_based_calibration(
        DISCRETE, statistics, jax.random.key(0), 80, generator=noisier_weights, **settings
    )
    assert sgp.rank_uniformity(wrong)["noise_scale"].item() < 1e-3


def test_default_priors_of_a_kernel_are_those_of_the_study(statistics):
    """Units of the weights and of the noise come from the scale of y, which must not be that of each simulation."""
    model = sgp.models.relevance_vector_machine(sgp.models.GammaPrecision(3.0, 1.0))
    ranks = sgp.simulation_based_calibration(model, statistics, jax.random.key(1), 80, kernel=model.gibbs, **SHORT)
    p = sgp.rank_uniformity(ranks)
    assert p["noise_scale"].item() > 0.01 and float(p["precision"].min()) > 0.005


@pytest.mark.parametrize("rotated", [False, True])
def test_data_and_their_repetition_compress_as_rows_twice(rng, rotated):
    X = rng.standard_normal((12, 3))
    first, second = rng.standard_normal((2, 12))
    stats = sgp.sufficient_statistics(IdentityBasis(3), X, first)
    again = sgp.sufficient_statistics(IdentityBasis(3), X, second)
    both = sgp.sufficient_statistics(IdentityBasis(3), np.concatenate([X, X]), np.concatenate([first, second]))
    if rotated:
        prior = sgp.DiagonalPrior(np.array([1.0, 2.0, 3.0]))
        stats, again = stats.rotate(prior), again.rotate(prior)
        scale = 1.0
    else:
        scale = np.array([1.0, 2.0, 3.0])
    doubled, joined = simulation_based_calibration._with_repetition(stats, np.asarray(again.projection)[None])
    found = sgp.SparseGP(doubled, sgp.DiagonalPrior(scale * jnp.ones(3)), 0.4).log_prob(jnp.asarray(joined[0]))
    expected = sgp.log_evidence(both, sgp.DiagonalPrior(np.array([1.0, 2.0, 3.0])), 0.4)
    np.testing.assert_allclose(found, expected, rtol=1e-10)


def test_an_interrupted_study_keeps_what_is_done(statistics, monkeypatch):
    original, calls = simulated_ranks._chains, []

    def interrupted(*settings):
        program = original(*settings)

        def chains(*arguments):
            calls.append(arguments)
            if len(calls) == 3:
                raise KeyboardInterrupt
            return program(*arguments)

        return chains

    monkeypatch.setattr(simulated_ranks, "_chains", interrupted)
    with pytest.warns(UserWarning, match="Interrupted: ranks of 8 of 80"):
        ranks = sgp.simulation_based_calibration(model, statistics, jax.random.key(0), 80, **SHORT)
    assert ranks.sizes["simulation"] == 8
    calls[:] = [None, None]
    with pytest.raises(KeyboardInterrupt):
        sgp.simulation_based_calibration(model, statistics, jax.random.key(0), 80, **SHORT)


def test_values_that_a_model_reads_may_change_between_studies(statistics):
    read = {"scale": 1.0}

    def reads(stats):
        noise_scale = numpyro.sample("noise_scale", dist.LogNormal(-1.0, 0.5))
        sgp.observe("y", stats, sgp.DiagonalPrior(read["scale"] * jnp.ones(2)), noise_scale)

    def study():
        return sgp.simulation_based_calibration(
            reads, statistics, jax.random.key(0), 20, num_warmup=20, num_draws=9, thinning=1
        )["noise_scale"].values

    first = study()
    read["scale"] = 10.0
    second = study()
    jax.clear_caches()
    np.testing.assert_array_equal(second, study())
    assert np.any(first != second)


def test_uniformity_of_known_ranks():
    def p(ranks):
        return sgp.rank_uniformity(xr.Dataset({"a": ("simulation", ranks)}, attrs={"num_draws": 9}))["a"].item()

    assert p(np.arange(100) % 10) == 1.0
    assert p(np.zeros(100, int)) < 1e-10
    # Counts 12 and 8 in turn: chi-square 4, nine degrees of freedom.
    assert p(np.repeat(np.arange(10), [12, 8] * 5)) == pytest.approx(0.9114, abs=1e-4)
    with pytest.raises(ValueError, match="9 simulations are too few"):
        p(np.zeros(9, int))


def test_refusals(statistics):
    def improper(stats):
        noise_scale = numpyro.sample("noise_scale", dist.ImproperUniform(dist.constraints.positive, (), ()))
        sgp.observe("y", stats, sgp.DiagonalPrior(jnp.ones(2)), noise_scale)

    some = {"scale": np.ones((3, 2))}
    for bad, match in (
        (lambda: sgp.simulation_based_calibration(improper, statistics, jax.random.key(0)), "prior of 'noise_scale'"),
        (lambda: sgp.simulation_based_calibration(model, statistics, jax.random.key(0), 0), "`num_simulations`"),
        (lambda: sgp.simulation_based_calibration(model, statistics, jax.random.key(0), num_draws=2.5), "`num_draws`"),
        (
            lambda: sgp.simulation_based_calibration(model, statistics, jax.random.key(0), site="z"),
            r"it has \['y'\]\. 'z' is not",
        ),
        (
            lambda: sgp.simulation_based_calibration(DISCRETE, statistics, jax.random.key(0)),
            "cannot sample 'weights', which is discrete",
        ),
        (
            lambda: sgp.simulation_based_calibration(DISCRETE, statistics, jax.random.key(0), kernel=DISCRETE.gibbs()),
            "`kernel` must be a function",
        ),
        (
            lambda: sgp.posterior_sbc(model, statistics, some, jax.random.key(0)),
            "lack the latent",
        ),
    ):
        with pytest.raises(ValueError, match=match):
            bad()
