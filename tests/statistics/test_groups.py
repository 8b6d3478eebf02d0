"""Groups of rows as one batch; ranks that share a shape; statistics that do not change."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import ppl_sgp as sgp
from ppl_sgp.statistics.compressed import padded_rank
from tests.builders import IdentityBasis, by_lane

M = 20
BASIS = IdentityBasis(M)
TOLERANCE = dict(rtol=by_lane(1e-10, 1e-4))


def group(rng, n, method="auto"):
    return sgp.sufficient_statistics(BASIS, rng.standard_normal((n, M)), rng.standard_normal(n), method=method)


@pytest.mark.slow
@pytest.mark.parametrize("methods", [("auto",) * 4, ("gram",) * 4, ("auto", "gram", "qr", "gram")])
def test_groups_of_different_ranks_are_one_batch(rng, methods):
    groups = [group(rng, n, method) for n, method in zip((1, 9, 13, 40), methods, strict=True)]
    batch = sgp.stack_statistics(groups)
    prior, noise_scale = sgp.DiagonalPrior(jnp.linspace(0.5, 2.0, M)), jnp.asarray(0.4)
    expected = [float(sgp.log_evidence(each, prior, noise_scale)) for each in groups]
    np.testing.assert_array_equal(batch.num_rows, [1, 9, 13, 40])
    assert "num_rows=[ 1." in repr(batch)
    values = jax.jit(jax.vmap(lambda stats: sgp.log_evidence(stats, prior, noise_scale)))(batch)
    np.testing.assert_allclose(values, expected, **TOLERANCE)
    of_sites = jax.vmap(lambda stats: sgp.SparseGP(stats, prior, noise_scale).log_prob(stats.projection))(batch)
    np.testing.assert_allclose(of_sites, expected, **TOLERANCE)
    means = jax.vmap(lambda stats: sgp.weight_posterior(stats, prior, noise_scale).mean)(batch)
    for found, each in zip(means, groups, strict=True):
        of_one = sgp.weight_posterior(each, prior, noise_scale).mean
        np.testing.assert_allclose(found, of_one, rtol=0, atol=by_lane(1e-10, 1e-4))


def test_groups_must_be_alike(rng):
    other = sgp.sufficient_statistics(IdentityBasis(2), np.ones((3, 2)), np.ones(3))
    with pytest.raises(ValueError, match="these bases differ"):
        sgp.stack_statistics([group(rng, 5), other])
    for wrong in ([], [BASIS]):
        with pytest.raises(ValueError, match="stack_statistics: pass a list of statistics"):
            sgp.stack_statistics(wrong)


def test_near_ranks_share_what_is_compiled(rng):
    prior, traces = sgp.DiagonalPrior(jnp.ones(M)), []

    @jax.jit
    def value(stats):
        traces.append(None)
        return sgp.log_evidence(stats, prior, 0.4)

    for n in (17, 18, 19):
        stats = group(rng, n)
        assert stats.rank == n
        np.testing.assert_allclose(value(stats), sgp.log_evidence(stats, prior, 0.4), **TOLERANCE)
    assert len(traces) == 1
    assert padded_rank(88, 1000) == padded_rank(89, 1000) == 96
    for rank in range(1, 500):
        assert rank <= padded_rank(rank, 300) <= max(1.25 * rank, 1) or rank > 300


@pytest.mark.parametrize("site", ["evidence", "weights"])
def test_rows_beyond_the_rank_stay_zero(site, rng, key):
    stats = group(rng, 17)
    beyond = slice(17, -1)
    assert stats.projection.shape == (21,) and not stats.projection[beyond].any()
    if site == "evidence":
        fn = sgp.SparseGP(stats, sgp.DiagonalPrior(jnp.ones(M)), 0.4)
    else:
        fn = sgp.CompressedNormal(stats, jnp.ones(M), 0.4)
    draws = fn.sample(key, (5,))
    assert not draws[:, beyond].any() and draws[:, :17].all() and not draws[:, -1].any()  # no degrees of freedom
    assert not fn.mean[beyond].any() and not fn.variance[beyond].any() and fn.variance[:17].all()
    assert stats.with_projection(np.asarray(draws[0])).num_rows == 17


def test_statistics_do_not_change(rng):
    stats = group(rng, 9)
    with pytest.raises(AttributeError, match=r"(?s)do not change.*`moments` cannot be assigned.*with_projection"):
        stats.moments = stats.moments
    with pytest.raises(AttributeError, match="do not change"):
        stats.note = 1


def test_statistics_are_added_outside_jit(rng):
    stats = group(rng, 9)
    for transform in (jax.jit, jax.vmap):
        with pytest.raises(ValueError, match="added on the host.*Add them before"):
            transform(lambda s: s + s)(stats if transform is jax.jit else sgp.stack_statistics([stats, stats]))


def test_a_batch_of_groups_is_refused_where_one_is_needed(rng, tmp_path):
    groups = [group(rng, n) for n in (9, 13)]
    batch, prior = sgp.stack_statistics(groups), sgp.DiagonalPrior(jnp.ones(M))
    X, y = np.ones((2, M)), np.ones(2)

    def model(stats):
        sgp.observe("y", stats, sgp.DiagonalPrior(numpyro.sample("scale", dist.HalfNormal(1.0))), 0.1)

    asked = [
        lambda stats: sgp.log_evidence(stats, prior, 0.1),
        lambda stats: sgp.SparseGP(stats, prior, 0.1),
        lambda stats: sgp.CompressedNormal(stats, jnp.ones(M), 0.1),
        lambda stats: sgp.weight_posterior(stats, prior, 0.1),
        lambda stats: sgp.fit_evidence(model, stats),
        lambda stats: sgp.fit_evidence(sgp.models.reweighted_basis(), stats),
        lambda stats: sgp.predict(model, {"scale": np.ones(1)}, stats, X),
        lambda stats: stats + stats,
        lambda stats: stats + groups[0],
        lambda stats: groups[0] + stats,
        lambda stats: stats.update(X, y),
        lambda stats: stats.forget(X, y),
        lambda stats: stats.rotate(),
        lambda stats: stats.save(tmp_path / "groups.npz"),
    ]
    for ask in asked:
        with pytest.raises(ValueError, match="statistics of 2 groups.*Map over the groups"):
            ask(batch)


def test_what_runs_on_the_host_is_refused_for_traced_statistics(rng):
    stats, X, y = group(rng, 9), np.ones((2, M)), np.ones(2)
    for ask in (lambda s: s.rotate(), lambda s: s.update(X, y), lambda s: s.forget(X, y), lambda s: s + s):
        with pytest.raises(ValueError, match="on the host, in float64.*Call it before|Add them before"):
            jax.jit(ask)(stats)
