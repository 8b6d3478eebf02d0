"""Discrete weights in NumPyro: Gibbs sampling, SVI with the exact bound, and what is refused."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.infer import MCMC, NUTS, SVI, Trace_ELBO
from scipy.special import logsumexp

import ppl_sgp as sgp
from ppl_sgp.direct.elbo import Variational
from ppl_sgp.direct.problem import Problem
from tests.builders import IdentityBasis, by_lane
from tests.direct.brute import Case, case

pytestmark = pytest.mark.relaxed_promotion  # of NumPyro's own kernels and optimisers
KEY = jax.random.key(1)
PRIOR = sgp.DiscreteRelaxation(dist.Normal(0.0, 1.0), num_levels=5)


def posterior_marginals(small: Case):
    probs = small.posterior()
    return np.array([[probs[small.codes[:, j] == level].sum() for level in range(5)] for j in range(3)])


def problem(noise=0.7):
    rng = np.random.default_rng(2)
    Phi = rng.normal(size=(12, 3)) @ (np.eye(3) + 0.1)
    y = Phi @ [1.0, -1.0, 0.5] + rng.normal(size=12)
    stats = sgp.sufficient_statistics(IdentityBasis(3), Phi, y)
    return Case(Phi, y, stats, PRIOR, noise, Problem.of(stats, PRIOR, noise), None)


def frequencies(draws, levels):
    return np.mean(np.abs(draws[:, :, None] - np.asarray(levels)) < 1e-3, axis=0)


@pytest.mark.end_to_end
@pytest.mark.float64_only  # slow, and of neither precision
def test_gibbs_has_the_posterior_of_enumeration():
    grid = sgp.DiscreteRelaxation(dist.LogNormal(-0.3, 0.7), support=[0.4, 0.8, 1.6])
    small = problem((np.asarray(grid.levels), np.asarray(grid.logits)))
    model = sgp.models.discrete_weights(PRIOR, noise_scale=grid)
    mcmc = MCMC(model.gibbs(), num_warmup=100, num_samples=6000, progress_bar=False)
    mcmc.run(jax.random.key(0), small.statistics)
    samples = mcmc.get_samples()
    # Neighbouring draws are dependent: 6,000 of them are worth 600 at the least.
    np.testing.assert_allclose(frequencies(samples["weights"], PRIOR.levels), posterior_marginals(small), atol=0.06)
    noise = logsumexp(small.log_likelihood() + small.log_prior()[:, None], axis=0) + small.problem.log_noise_prior
    np.testing.assert_allclose(
        frequencies(samples["noise_scale"][:, None], grid.levels)[0], np.exp(noise - logsumexp(noise)), atol=0.06
    )
    prediction = sgp.predict(model, samples, small.statistics, small.Phi)
    np.testing.assert_allclose(prediction.mean, small.Phi @ (small.posterior() @ small.weights), atol=0.1)


@pytest.mark.slow
def test_gibbs_and_direct_agree_where_weights_are_nearly_independent():
    rng = np.random.default_rng(0)
    Phi = rng.normal(size=(300, 6))
    stats = sgp.sufficient_statistics(IdentityBasis(6), Phi, Phi @ rng.normal(size=6) + 3 * rng.normal(size=300))
    result = sgp.direct.fit(stats, PRIOR, noise_scale=3.0)
    model = sgp.models.discrete_weights(PRIOR, 3.0)

    def sweep(state, key):
        state = model._draw_weights(stats, key, state, {})
        return state, state["weights"]

    start = {"weights": PRIOR.levels[jnp.array([0, 1, 2, 3, 4, 0])]}
    draws = jax.lax.scan(sweep, start, jax.random.split(KEY, 4000))[1][100:]
    np.testing.assert_allclose(frequencies(draws, PRIOR.levels), result.probabilities, atol=0.05)


@pytest.mark.slow
def test_one_sweep_on_orthogonal_features_is_a_draw_from_the_posterior(rng):
    """Whatever the current weights, and from rotated statistics as well."""
    Phi = np.linalg.qr(rng.normal(size=(8, 4)))[0] * [1.0, 2.0, 0.5, 1.0]
    stats = sgp.sufficient_statistics(IdentityBasis(4), Phi, rng.normal(size=8)).rotate()
    model = sgp.models.discrete_weights(PRIOR, 0.8)
    result = sgp.direct.fit(stats, PRIOR, noise_scale=0.8)
    draw = jax.vmap(lambda key: model._draw_weights(stats, key, {"weights": PRIOR.levels[jnp.array([0, 1, 2, 3])]}, {}))
    draws = draw(jax.random.split(jax.random.key(0), 20_000))["weights"]
    np.testing.assert_allclose(frequencies(draws, PRIOR.levels), result.probabilities, atol=0.02)


def correlated(levels, probs, b, spread, seed):
    """Statistics of 60 rows of nearly equal features, three of them true, and all configurations with probabilities."""
    rng = np.random.default_rng(seed)
    Phi = rng.normal(size=(60, 1)) + spread * rng.normal(size=(60, b))
    y = Phi[:, :3].sum(axis=1) + rng.normal(size=60)
    codes = np.array(list(itertools.product(range(len(levels)), repeat=b)))
    weights = np.asarray(levels)[codes]
    joint = -0.5 * np.sum((y - weights @ Phi.T) ** 2, axis=1) + np.log(probs)[codes].sum(axis=1)
    prior = sgp.DiscreteRelaxation.from_logits(levels, np.log(probs))
    stats = sgp.sufficient_statistics(IdentityBasis(b), Phi, y)
    return stats, prior, weights, np.exp(joint - logsumexp(joint))


@pytest.mark.slow
@pytest.mark.parametrize(
    "levels, probs, b, spread",
    [
        ([0.0, 1.0], [0.7, 0.3], 12, 0.3),  # more weights than the ten of a block
        ([-1.0, 0.0, 1.0], [0.2, 0.6, 0.2], 8, 0.15),  # than the six
        (np.linspace(-3, 3, 15), np.exp(-0.5 * np.linspace(-3, 3, 15) ** 2), 3, 0.1),  # than the two
    ],
    ids=["two levels", "three levels", "fifteen levels"],
)
def test_gibbs_crosses_ridges_of_correlated_weights(levels, probs, b, spread):
    """Four chains from draws of the prior. Single weights alone stay in one or two states for thousands of sweeps."""
    probs = np.asarray(probs) / np.sum(probs)
    stats, prior, weights, posterior = correlated(levels, probs, b, spread, seed=1)
    model = sgp.models.discrete_weights(prior, 1.0)

    def chain(start, key):
        def sweep(state, key):
            state = model._draw_weights(stats, key, state, {})
            return state, state["weights"]

        return jax.lax.scan(sweep, {"weights": start}, jax.random.split(key, 1500))[1][100:]

    starts = prior.expand([b]).sample(KEY, (4,))
    draws = np.asarray(jax.jit(jax.vmap(chain))(starts, jax.random.split(jax.random.key(2), 4)), np.float64)
    exact = posterior @ weights
    deviation = np.sqrt(posterior @ weights**2 - exact**2)
    # Each chain, as if five neighbouring draws were worth one.
    error = np.abs(draws.mean(axis=1) - exact) / (deviation * (5 / draws.shape[1]) ** 0.5)
    assert error.max() < 4.5, error.max()


def guide(stats):
    sgp.direct.guide_weights("weights", PRIOR, stats.num_features)


@pytest.mark.slow
def test_exact_elbo_is_that_of_direct():
    small = problem()
    model = sgp.models.discrete_weights(PRIOR, 0.7)
    svi = SVI(model, guide, numpyro.optim.Adam(0.1), loss=sgp.direct.ExactELBO())
    run = svi.run(jax.random.key(0), 400, small.statistics, progress_bar=False)
    one, other = (svi.evaluate(run.state._replace(rng_key=key), small.statistics) for key in jax.random.split(KEY))
    assert one == other  # nothing is sampled
    log_probs = jax.nn.log_softmax(run.params["weights_logits"])
    q = Variational(np.zeros(1), np.asarray(log_probs, np.float64)[None], np.zeros(1))
    assert -float(one) == pytest.approx(small.elbo(q), abs=by_lane(1e-9, 1e-4))
    result = sgp.direct.fit(small.statistics, PRIOR, noise_scale=0.7)
    assert -0.1 < small.elbo(q) - result.elbo < 1e-4  # gradient steps may end in another local maximum


def test_two_outputs_and_scales_count_as_they_should():
    """Weights shared by two outputs; and a likelihood or a prior tempered with ``handlers.scale``."""
    small, other = problem(), np.random.default_rng(5).normal(size=12)
    both = sgp.sufficient_statistics(IdentityBasis(3), small.Phi, np.stack([small.y, other], axis=1))
    second = small._replace(y=other)
    log_q = np.tile(np.asarray(PRIOR.logits, np.float64), (3, 1))
    probs = np.exp(log_q[np.arange(3), small.codes].sum(axis=1))
    expected = [float(probs @ each.log_likelihood()[:, 0]) for each in (small, second)]

    def model(stats, of_data=1.0):
        w = numpyro.sample("weights", PRIOR.expand([3]).to_event(1))
        with numpyro.handlers.scale(scale=of_data):
            sgp.observe_weights("y", stats, w, 0.7)

    loss = sgp.direct.ExactELBO()
    tolerance = by_lane(1e-9, 1e-5)
    # The guide is the prior: no divergence.
    value = -float(loss.loss(KEY, {}, model, guide, both))
    assert value == pytest.approx(sum(expected), rel=tolerance)
    value = -float(loss.loss(KEY, {}, lambda stats: model(stats, 3.0), lambda stats: guide(stats), small.statistics))
    assert value == pytest.approx(3 * expected[0], rel=tolerance)
    tempered = numpyro.handlers.scale(model, scale=2.0)
    value = -float(loss.loss(KEY, {}, tempered, guide, small.statistics))
    prior = np.sum(np.exp(log_q) * log_q)
    assert value == pytest.approx(2 * expected[0] + 2 * prior - prior, rel=tolerance)


@pytest.mark.end_to_end
@pytest.mark.float64_only  # slow, and of neither precision
def test_continuous_sites_beside_discrete_weights():
    """The noise is drawn by the guide: on average over it, the loss is that of enumeration."""
    small = problem()
    model = sgp.models.discrete_weights(PRIOR, dist.LogNormal(-0.3, 0.5))

    def with_noise(stats):
        guide(stats)
        numpyro.sample("noise_scale", dist.LogNormal(-0.2, 0.1))

    loss = sgp.direct.ExactELBO(num_particles=500)
    value = -float(loss.loss(jax.random.key(0), {}, model, with_noise, small.statistics))
    scales = np.exp(-0.2 + 0.1 * np.random.default_rng(0).normal(size=300))
    q = np.exp(np.asarray(PRIOR.logits, np.float64))
    probs = np.array([np.prod(q[code]) for code in small.codes])
    terms = probs @ problem((scales, np.zeros(300))).log_likelihood()
    divergence = 0.5 * (0.04 - 1 - np.log(0.04) + 0.01 / 0.25)
    assert value == pytest.approx(np.mean(terms) - divergence, abs=6 * np.std(terms) / 300**0.5)


def test_other_uses_of_weights_are_refused():
    stats = problem().statistics

    def doubled(stats):
        w = numpyro.sample("weights", PRIOR.expand([3]).to_event(1))
        sgp.observe_weights("y", stats, 2 * w, 0.7)

    def twice(stats):
        w = numpyro.sample("weights", PRIOR.expand([3]).to_event(1))
        sgp.observe_weights("y", stats, w, 0.7)
        numpyro.sample("z", dist.Normal(w.sum(), 1.0), obs=1.0)

    def masked(stats):
        w = numpyro.sample("weights", PRIOR.expand([3]).to_event(1))
        with numpyro.handlers.mask(mask=False):
            sgp.observe_weights("y", stats, w, 0.7)

    def other_levels(stats):
        levels = sgp.DiscreteRelaxation(dist.Normal(0.0, 2.0), num_levels=5)
        sgp.observe_weights("y", stats, numpyro.sample("weights", levels.expand([3]).to_event(1)), 0.7)

    loss = sgp.direct.ExactELBO()
    for model, match in (
        (doubled, "as it is, to one"),
        (masked, "not masked"),
        (twice, r"it enters \['y', 'z'\]"),
        (other_levels, "same levels"),
    ):
        with pytest.raises(ValueError, match=match):
            loss.loss(jax.random.key(0), {}, model, guide, stats)


def test_enumeration_and_nuts_are_refused_with_the_remedy():
    stats = problem().statistics
    model = sgp.models.discrete_weights(PRIOR)
    mcmc = MCMC(NUTS(model), num_warmup=1, num_samples=1, progress_bar=False)
    with pytest.raises(ValueError, match=r"5\*\*3 configurations.*sgp.direct.fit"):
        mcmc.run(jax.random.key(0), stats)
    with pytest.raises(ValueError, match="cannot be enumerated"):
        PRIOR.expand([3]).to_event(1).enumerate_support()

    def in_a_plate(stats):
        with numpyro.plate("features", 3):
            w = numpyro.sample("weights", PRIOR)
        sgp.observe_weights("y", stats, w, numpyro.sample("noise_scale", dist.HalfNormal(1.0)))

    def batched(stats):
        w = numpyro.sample("weights", PRIOR.expand([3]))
        sgp.observe_weights("y", stats, w, numpyro.sample("noise_scale", dist.HalfNormal(1.0)))

    for without_event in (in_a_plate, batched):
        mcmc = MCMC(NUTS(without_event), num_warmup=1, num_samples=1, progress_bar=False)
        with pytest.raises(ValueError, match=r"5\*\*3 configurations.*sgp.direct.fit.*`pip install funsor` lets NUTS"):
            mcmc.run(jax.random.key(0), stats)
    with pytest.warns(UserWarning, match="does not support models with discrete latent variables"):
        SVI(model, guide, numpyro.optim.Adam(0.1), loss=Trace_ELBO()).init(jax.random.key(0), stats)


def test_model_refusals(rng):
    with pytest.raises(ValueError, match="must be a sgp.DiscreteRelaxation"):
        sgp.models.discrete_weights(dist.Normal(0.0, 1.0))
    small = case("shared prior")
    two = sgp.sufficient_statistics(IdentityBasis(3), small.Phi, rng.normal(size=(7, 2)))
    with pytest.raises(ValueError, match="of 2 outputs"), numpyro.handlers.seed(rng_seed=0):
        sgp.models.discrete_weights(PRIOR, 1.0)(two)
