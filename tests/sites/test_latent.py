"""Explicit weights: densities against direct formulas, several functions, groups, outputs and reparametrisation."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
import scipy.stats
from numpyro import handlers
from numpyro.infer.reparam import LocScaleReparam
from numpyro.infer.util import log_density

import ppl_sgp as sgp
from tests.builders import by_lane

M, KERNEL = 6, sgp.Matern32(0.4, 1.5)
BASIS = sgp.FourierBasis.sample(jax.random.key(0), KERNEL, M, 1)
X = np.linspace(0, 1, 9)[:, None]
RTOL = by_lane(1e-9, 2e-4)


def lane(array):
    return jnp.asarray(array, jnp.result_type(float))


expit = scipy.special.expit
LIKELIHOODS = {
    "bernoulli": (lambda f: dist.Bernoulli(logits=f), lambda f, y: scipy.stats.bernoulli.logpmf(y, expit(f))),
    "poisson": (lambda f: dist.Poisson(jnp.exp(f)), lambda f, y: scipy.stats.poisson.logpmf(y, np.exp(f))),
    "student_t": (lambda f: dist.StudentT(4.0, f, 0.3), lambda f, y: scipy.stats.t.logpdf(y, 4, f, 0.3)),
    "negative_binomial": (
        lambda f: dist.NegativeBinomial2(jnp.exp(f), 2.0),
        lambda f, y: scipy.stats.nbinom.logpmf(y, 2, 2 / (2 + np.exp(f))),
    ),
    "ordinal": (
        lambda f: dist.OrderedLogistic(f, jnp.array([-1.0, 1.0])),
        lambda f, y: np.log(np.diff(_ordinal_edges(f))[np.arange(len(y)), y]),
    ),
}  # fmt: skip


def _ordinal_edges(f):
    inner = expit(np.array([-1.0, 1.0]) - f[:, None])
    return np.concatenate([np.zeros((len(f), 1)), inner, np.ones((len(f), 1))], axis=1)


@pytest.mark.relaxed_promotion
@pytest.mark.parametrize("name", LIKELIHOODS)
def test_any_likelihood(name, rng):
    likelihood, reference = LIKELIHOODS[name]
    y, z = rng.integers(0, 2, len(X)), rng.standard_normal(M)

    def model(y):
        f = sgp.latent("f", BASIS, BASIS.weight_prior(KERNEL))
        numpyro.sample("y", likelihood(f(lane(X))), obs=y)

    scale = np.asarray(BASIS.weight_prior(KERNEL).scale, dtype=np.float64)
    f = BASIS.host_features(X) @ (scale * z)
    expected = scipy.stats.norm.logpdf(z).sum() + reference(f, y).sum()
    np.testing.assert_allclose(log_density(model, (y,), {}, {"f_whitened": lane(z)})[0], expected, rtol=RTOL)


@pytest.mark.relaxed_promotion
def test_centred_weights_have_the_prior_and_can_be_reparametrised(rng):
    mean = rng.standard_normal(M)
    prior = sgp.DiagonalPrior(lane(np.arange(1.0, M + 1)), lane(mean))

    def model():
        numpyro.deterministic("value", sgp.latent("f", BASIS, prior, centred=True)(lane(X)))

    w = rng.standard_normal(M)
    expected = scipy.stats.norm.logpdf(w, mean, np.arange(1.0, M + 1)).sum()
    np.testing.assert_allclose(log_density(model, (), {}, {"f_weights": lane(w)})[0], expected, rtol=RTOL)
    reparametrised = handlers.reparam(model, config={"f_weights": LocScaleReparam(0.0)})
    trace = handlers.trace(handlers.seed(reparametrised, jax.random.key(0))).get_trace()
    assert trace["f_weights"]["type"] == "deterministic"
    z = trace["f_weights_decentered"]["value"]
    np.testing.assert_allclose(trace["f_weights"]["value"], mean + np.arange(1.0, M + 1) * np.asarray(z), rtol=RTOL)


@pytest.mark.slow
@pytest.mark.float64_only
def test_correlated_priors(rng):
    root = rng.standard_normal((M, M))
    prior, mean = sgp.DensePrior(root @ root.T, mean=np.arange(6.0)), np.arange(6.0)
    w = rng.standard_normal(M)

    def centred():
        sgp.latent("f", BASIS, prior, centred=True)

    expected = scipy.stats.multivariate_normal.logpdf(w, mean, root @ root.T)
    np.testing.assert_allclose(log_density(centred, (), {}, {"f_weights": w})[0], expected, rtol=1e-8)
    keys = jax.random.split(jax.random.key(0), 20_000)
    draws = jax.vmap(lambda k: handlers.seed(lambda: sgp.latent("f", BASIS, prior).weights, k)())(keys)
    whitened = np.linalg.solve(root, (np.asarray(draws) - mean).T)
    np.testing.assert_allclose(whitened @ whitened.T / len(keys), np.eye(M), atol=0.05)  # standard error at most 0.01


def test_several_functions_do_not_clash():
    def model():
        first, second = (sgp.latent(name, BASIS, BASIS.weight_prior(KERNEL)) for name in ("trend", "season"))
        return first(lane(X)) + second(lane(X))

    trace = handlers.trace(handlers.seed(model, jax.random.key(0))).get_trace()
    assert {"trend_whitened", "trend_weights", "season_whitened", "season_weights"} == set(trace)


def test_ragged_groups_and_outputs():
    index = np.array([0, 0, 1, 2, 2, 2, 2, 1, 0])
    with handlers.seed(rng_seed=0), handlers.trace() as trace, numpyro.plate("group", 3):
        f = sgp.latent("f", BASIS, BASIS.weight_prior(KERNEL))
    assert trace["f_whitened"]["value"].shape == f.weights.shape == (3, M)
    every = f(lane(X))
    assert every.shape == (3, len(X))
    np.testing.assert_allclose(f(lane(X), index=index), every[index, np.arange(len(X))], rtol=by_lane(1e-12, 1e-4))
    np.testing.assert_allclose(f(features=BASIS(lane(X))), every, rtol=by_lane(1e-12, 1e-4))


def test_refusals():
    prior = BASIS.weight_prior(KERNEL)
    with handlers.seed(rng_seed=0):
        f = sgp.latent("f", BASIS, prior)
        with pytest.raises(ValueError, match="single prior of 6 weights.* got float"):
            sgp.latent("g", BASIS, 1.0)
        with pytest.raises(ValueError, match="got one of 3 weights"):
            sgp.latent("g", BASIS, sgp.DiagonalPrior(jnp.ones(3)))
    with pytest.raises(ValueError, match="exactly one of `X` and `features`"):
        f()
    with pytest.raises(ValueError, match=r"shape \(n, 6\).*got \(4, 2\)"):
        f(features=np.ones((4, 2)))
    with pytest.raises(ValueError, match="from a plate"):
        f(lane(X), index=np.zeros(len(X), int))


def test_groups_out_of_range_are_refused():
    f = sgp.LatentGP(BASIS, lane(np.arange(3.0 * M).reshape(3, M)))
    for wrong, got in (([0] * 8 + [3], "got 0 to 3"), ([-1] + [0] * 8, "got -1 to 0")):
        with pytest.raises(ValueError, match=f"`index` must be from 0 to 2.*{got}"):
            f(lane(X), index=np.array(wrong))
    for wrong in (np.zeros(9), np.zeros(9, bool)):
        with pytest.raises(ValueError, match="`index` must be integers"):
            f(lane(X), index=wrong)
    traced = jax.jit(lambda index: f(lane(X), index=index))(np.array([0] * 8 + [7]))
    np.testing.assert_allclose(traced[-1], f(lane(X))[2, -1], rtol=by_lane(1e-12, 1e-4))  # as documented
