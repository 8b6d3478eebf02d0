"""Features drawn from kernels of an earlier run, with a share of the hyper-prior."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from scipy.special import logsumexp

import ppl_sgp as sgp
from tests.builders import by_lane

KEY = jax.random.key(3)
from_draws = sgp.FourierBasis.from_draws


def data(d, n=60):
    return np.random.default_rng(0).uniform(0, 1, (n, d))


def draws(d, count=200, middle=0.2):
    return {"lengthscale": middle * np.exp(0.1 * np.random.default_rng(1).standard_normal((count, d)))}


@pytest.mark.parametrize("d", [1, 4])
def test_the_proposal_is_the_average_over_draws_and_hyperprior(d):
    basis = from_draws(KEY, data(d), draws(d), 40, sgp.Matern52, num_kernels=20, defensive=0.25)
    lengthscales = np.array([np.broadcast_to(kernel.lengthscale, d) for kernel in basis.proposal])
    assert lengthscales.shape == (20, d)
    near = np.all(np.abs(np.log(lengthscales / 0.2)) < 0.5, axis=1)
    assert near[:15].all() and not near[15:].all()
    terms = [np.asarray(kernel.log_spectral_density(basis.frequencies)) for kernel in basis.proposal]
    average = logsumexp(terms, axis=0) - np.log(20)
    np.testing.assert_allclose(basis.log_proposal, average, atol=by_lane(1e-10, 1e-3))


def test_weights_are_bounded_where_the_run_has_not_been():
    """By the number of kernels, for each that is mixed."""
    X = data(2)
    safe = from_draws(KEY, X, draws(2), 400, num_kernels=20, defensive=0.3)
    for kernel in safe.proposal:
        weights = np.exp(np.asarray(safe.weight_prior(kernel).log_variance)) * 200
        assert weights.max() <= 20 * (1 + 1e-4)
    bare = from_draws(KEY, X, draws(2), 400, defensive=0.0)
    assert len(bare.proposal) == 64 and bare.effective_features(sgp.SquaredExponential(0.2)) > 300


def test_one_lengthscale_for_all_inputs_and_further_parameters():
    given = {"lengthscale": np.full(30, 0.3), "alpha": np.linspace(1, 2, 30), "noise_scale": np.ones(30)}
    basis = from_draws(KEY, data(3), given, 20, sgp.RationalQuadratic, defensive=0.5)
    assert all(np.ndim(kernel.lengthscale) == 0 for kernel in basis.proposal) and len(basis.proposal) == 60
    assert [kernel.alpha for kernel in basis.proposal[30:]] == [1.5] * 30
    assert from_draws(KEY, data(3), {"lengthscale": np.ones((1, 3))}, 20).proposal[0].lengthscale.shape == (3,)


REFUSED = {
    "no lengthscale": (({"scale": np.ones(3)},), "needs `draws` by site name with a `lengthscale`.*got \\['scale'\\]"),
    "kernels": (([sgp.Matern52(1.0)],), "got list.*pass a list of them to `FourierBasis.sample`"),
    "family": (({"lengthscale": np.ones(3)}, 20, sgp.Linear), "of a kernel that has one.*Linear"),
    "shape": (({"lengthscale": np.ones((3, 5))},), r"must have shape \(draws,\) or \(draws, 2\).*got \(3, 5\)"),
    "none": (({"lengthscale": np.ones(0)},), r"got \(0,\)"),
    "ragged": (
        ({"lengthscale": np.ones(3), "alpha": np.ones(4)}, 20, sgp.RationalQuadratic),
        r"draws of `alpha` must have shape \(3,\); got \(4,\)",
    ),
    "sign": (({"lengthscale": -np.ones(3)},), "`lengthscale` must be positive"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals(name):
    (samples, *rest), message = REFUSED[name]
    with pytest.raises(ValueError, match=message):
        from_draws(KEY, data(2), samples, *(rest or [20]))


@pytest.mark.parametrize("share", [-0.1, 1.0, True, "half", np.nan])
def test_shares_that_are_none(share):
    with pytest.raises(ValueError, match="`defensive` must be a share"):
        from_draws(KEY, data(1), draws(1), 20, defensive=share)
