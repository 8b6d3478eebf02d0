"""Discrete sites that NumPyro sums over make a batch of parameters, left of all plates; it is not a batch of data."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro import handlers
from numpyro.primitives import Messenger
from scipy.special import logsumexp

import ppl_sgp as sgp
from tests.builders import by_lane
from tests.contract.cases import data

SCALES, SHARES = np.array([0.1, 0.5, 2.0]), np.array([0.2, 0.5, 0.3])


class Enumerates(Messenger):
    """Stands in for ``numpyro.contrib.funsor.enum``: a site ``k`` takes all its values along the first free axis."""

    def __init__(self, fn, first_available_dim):
        super().__init__(fn)
        self.first_available_dim = first_available_dim

    def process_message(self, msg):
        if msg["name"] == "k":
            msg["value"] = jnp.arange(3).reshape(3, *(1,) * (-1 - self.first_available_dim))


def scales(stats):
    k = numpyro.sample("k", dist.Categorical(jnp.asarray(SHARES, jnp.result_type(float))))
    chosen = jnp.asarray(SCALES, jnp.result_type(float))[k]
    return sgp.DiagonalPrior(jnp.broadcast_to(chosen[..., None], (*chosen.shape, stats.num_features)))


def one_output(stats):
    sgp.observe("y", stats, scales(stats), 0.4)


def plated_outputs(stats):
    prior = scales(stats)
    with numpyro.plate("output", stats.num_outputs, dim=-1):
        sgp.observe("y", stats, prior, 0.4)


def rows(stats):
    prior = scales(stats)
    with numpyro.plate("rows", 12, dim=-1):
        sgp.observe("y", stats, prior, 0.4)


CASES = [(one_output, "dense", -1), (one_output, "dense", -3), (plated_outputs, "two_outputs", -2)]


def by_hand(stats):
    """Evidence of each scale, summed over outputs."""
    return np.array([float(jnp.sum(sgp.log_evidence(stats, sgp.DiagonalPrior(float(s)), 0.4))) for s in SCALES])


@pytest.mark.parametrize("model, name, first", CASES)
def test_a_density_for_each_value(model, name, first):
    stats = data(name).statistics
    trace = handlers.trace(Enumerates(handlers.seed(model, jax.random.key(0)), first)).get_trace(stats)
    density = trace["y"]["fn"].log_prob(trace["y"]["value"])
    np.testing.assert_allclose(density.reshape(3, -1).sum(axis=1), by_hand(stats), rtol=by_lane(1e-9, 1e-4))


def test_rows_are_still_refused():
    enumerated = Enumerates(handlers.seed(rows, jax.random.key(0)), -2)
    with pytest.raises(ValueError, match="is inside the plate 'rows', which would count the data once for each"):
        handlers.trace(enumerated).get_trace(data("dense").statistics)


def test_values_do_not_pass_for_outputs():
    """Without a plate of outputs their axis is the one that the values would take."""
    stats = data("two_outputs").statistics
    enumerated = Enumerates(handlers.seed(one_output, jax.random.key(0)), -1)
    with pytest.raises(ValueError, match="outputs need a plate"):
        enumerated(sgp.sufficient_statistics(stats.basis, np.zeros((4, 1)), np.arange(12.0).reshape(4, 3) ** 2))


@pytest.mark.relaxed_promotion
@pytest.mark.parametrize("model, name, first", CASES)
def test_numpyro_sums_over_the_values(model, name, first):
    """In NumPyro itself, where funsor is installed."""
    pytest.importorskip("funsor")
    from numpyro.contrib import funsor

    stats = data(name).statistics
    enumerated = funsor.enum(funsor.config_enumerate(model), first_available_dim=first)
    total = funsor.infer_util.log_density(enumerated, (stats,), {}, {})[0]
    assert float(total) == pytest.approx(logsumexp(np.log(SHARES) + by_hand(stats)), rel=by_lane(1e-9, 1e-4))
    with pytest.raises(ValueError, match="'rows', which would count"):
        funsor.infer_util.log_density(
            funsor.enum(funsor.config_enumerate(rows), first_available_dim=-2), (data("dense").statistics,), {}, {}
        )
