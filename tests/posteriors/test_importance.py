"""Importance weights against posteriors that a grid knows, and what they say where the expansion is poor."""

from __future__ import annotations

import jax
import numpy as np
import pytest

import ppl_sgp as sgp
from tests.builders import by_lane
from tests.posteriors.test_likelihood_predictions import OVERDISPERSED, SOFTMAX, several
from tests.posteriors.tiny_likelihoods import SCALES, model, tiny

pytestmark = pytest.mark.relaxed_promotion
DRAWS = 4000


def corrected(rows):
    draws = rows.compressed_draws(np.random.default_rng(1), DRAWS)
    posterior = sgp.posterior(model, draws, rows.stats)
    return posterior, posterior.importance_weights(rows.X, rows.y, key=jax.random.key(2))


@pytest.fixture(scope="module", params=["bernoulli", "poisson"])
def ordinary(request):
    rows = tiny(request.param)
    return rows, *corrected(rows)


@pytest.mark.slow
def test_corrected_draws_have_the_exact_posterior(ordinary):
    rows, _, weights = ordinary
    w, probability = rows.posterior()
    samples, omega = weights.posterior.samples, weights.posterior.weights
    of_weights, of_scale = probability.sum(axis=0), probability.sum(axis=1)
    exact, logs = of_weights @ w, np.log(SCALES)
    sd = np.sqrt(of_weights @ (w - exact) ** 2)
    # The error of 4000 draws is 0.016 standard deviations; four times that.
    np.testing.assert_array_less(np.abs(omega @ samples["y_weights"] - exact), 0.064 * sd)
    spread = np.sqrt(of_scale @ logs**2 - (of_scale @ logs) ** 2)
    assert abs(omega @ np.log(samples["scale"]) - of_scale @ logs) < 0.064 * spread
    covariance = (omega * (samples["y_weights"] - exact).T) @ (samples["y_weights"] - exact)
    np.testing.assert_allclose(np.sqrt(np.diag(covariance)), sd, rtol=0.06)
    assert weights.reliable and weights.share > 0.95


def test_ratios_are_those_of_the_likelihood_and_its_expansion(ordinary):
    rows, _, weights = ordinary
    w = weights.posterior.samples["y_weights"][:20].astype(np.float64)
    Phi = rows.basis.host_features(rows.X)
    A, r = rows.stats.moments.gram, rows.stats.moments.feature_output
    quadratic = w @ r - 0.5 * np.sum(w @ A * w, axis=1)
    expected = rows.rows_log_density(w).sum(axis=1) - quadratic
    found = weights.log_ratios[:20]
    np.testing.assert_allclose(found - found[0], expected - expected[0], atol=by_lane(1e-8, 1e-3))
    assert Phi.shape == (40, 2)


def test_the_corrected_posterior_answers_as_any_other(ordinary, tmp_path):
    rows, plain, weights = ordinary
    X = rows.X[:5]
    weighted, resampled = weights.posterior, weights.resample(jax.random.key(3))
    of_weights = rows.posterior()[1].sum(axis=0)
    w = rows.posterior()[0]
    eta = w @ rows.basis.host_features(X).T
    mean = of_weights @ (np.exp(eta) if rows.family == "poisson" else 1 / (1 + np.exp(-eta)))
    scale = np.sqrt(weighted.predict(X).variance / DRAWS)
    for posterior in (weighted, resampled, plain):
        np.testing.assert_array_less(np.abs(posterior.predict(X).mean - mean), 5 * scale + 0.01 * mean)
    assert not resampled.is_weighted and resampled.num_draws == DRAWS
    weighted.take(slice(0, 50)).save(tmp_path / "weighted.npz")
    again = sgp.load_posterior(tmp_path / "weighted.npz")
    np.testing.assert_allclose(again.weights, weighted.take(slice(0, 50)).weights)
    np.testing.assert_allclose(again.predict(X).mean, weighted.take(slice(0, 50)).predict(X).mean, rtol=1e-6)


def test_containers_have_the_weights_or_draws_of_equal_weight(ordinary):
    rows, _, weights = ordinary
    container = weights.posterior.take(slice(0, 50)).to_arviz(rows.X, rows.y)
    log_weight = np.asarray(container["sample_stats"]["log_weight"])
    np.testing.assert_allclose(np.exp(log_weight).sum(), 1, rtol=1e-9)
    assert container["posterior"]["y_weights"].shape == (1, 50, 2)
    assert "obs" in container["log_likelihood"]["y"].dims
    resampled = weights.resample(jax.random.key(3), 50).to_arviz(rows.X, rows.y)
    assert "log_weight" not in (resampled["sample_stats"] if "sample_stats" in list(resampled) else {})


def test_few_events_are_found_out():
    rows = tiny("rare", n=200)
    _, weights = corrected(rows)
    assert not weights.reliable and weights.share < 0.2
    assert "NOT RELIABLE" in repr(weights)


def test_any_source_of_rows_gives_the_same(ordinary):
    rows, plain, _ = ordinary
    few, key = plain.take(slice(0, 40)), jax.random.key(5)
    chunks = [(rows.X[i : i + 15], rows.y[i : i + 15]) for i in range(0, 40, 15)]
    whole = few.importance_weights(rows.X, rows.y, key=key).log_ratios
    np.testing.assert_allclose(few.importance_weights(chunks, key=key).log_ratios, whole, atol=1e-9)
    once = few.importance_weights(rows.X, rows.y, key=key, draws_each=3)
    assert once.log_ratios.shape == (120,) and once.posterior.samples["scale"].shape == (120,)
    with pytest.raises(ValueError, match="40 rows; got 15"):
        few.importance_weights(chunks[:1], key=key)


@pytest.mark.parametrize(
    "likelihood",
    [
        pytest.param(SOFTMAX, id="softmax"),
        pytest.param(OVERDISPERSED, id="overdispersed", marks=pytest.mark.end_to_end),
    ],
)
def test_several_predictors_and_parameters(likelihood):
    """The expansion around the posterior itself: ratios nearly constant; and draws of parameters go along."""
    X, y = several(likelihood, n=400)
    stats = sgp.compress_likelihood(sgp.LinearBasis(1), X, y, likelihood, sgp.DiagonalPrior(1.0))
    posterior = sgp.posterior(model, {"scale": np.ones(300)}, stats)
    weights = posterior.importance_weights(X, y, key=jax.random.key(0))
    assert weights.effective_draws > 285
    w = weights.posterior.samples["y_weights"][:3].astype(np.float64)
    eta = np.einsum("nm,skm->snk", stats.basis.host_features(X), w.reshape(3, stats.num_latents, 2))
    if likelihood is OVERDISPERSED:
        parameters = weights.posterior.samples["log_concentration"][:3]
        assert weights.posterior.samples["log_concentration"].std() > 0.05
        logs = [likelihood.log_prob(e[:, 0], y, np.array([p])) for e, p in zip(eta, parameters, strict=True)]
    else:
        logs = [np.log(np.exp(e)[np.arange(400), y.astype(int)] / np.exp(e).sum(axis=1)) for e in eta]
    w = w.reshape(3, -1)
    of_expansion = stats.log_likelihood(w, None if likelihood is SOFTMAX else parameters[:, None].astype(w.dtype))
    expected = np.array([np.sum(each) for each in logs]) - np.asarray(of_expansion)
    np.testing.assert_allclose(weights.log_ratios[:3], expected, atol=by_lane(1e-6, 0.05))
    resampled = weights.resample(jax.random.key(1), 100)
    assert resampled.predict(X[:3]).sample(jax.random.key(2), 7).shape == (7, 3)


def test_what_has_no_expansion_is_refused(ordinary):
    rows, plain, _ = ordinary
    stats = sgp.sufficient_statistics(rows.basis, rows.X, rows.X[:, 0] + np.cos(7 * rows.X[:, 0]))
    gaussian = sgp.posterior(sgp.models.reweighted_basis(scale=1.0), {"noise_scale": np.full(30, 0.3)}, stats)
    with pytest.raises(ValueError, match="nothing was expanded for"):
        gaussian.importance_weights(rows.X, rows.y)
    with pytest.raises(ValueError, match="5 draws are too few"):
        plain.take(slice(0, 5)).importance_weights(rows.X, rows.y)


@pytest.mark.slow
def test_rows_of_dask_and_tables_give_the_same(ordinary):
    da = pytest.importorskip("dask.array")
    pd = pytest.importorskip("pandas")
    rows, plain, _ = ordinary
    few, key = plain.take(slice(0, 30)), jax.random.key(5)
    whole = few.importance_weights(rows.X, rows.y, key=key).log_ratios
    blocks = da.from_array(rows.X, chunks=(13, 1)), da.from_array(rows.y, chunks=13)
    np.testing.assert_allclose(few.importance_weights(*blocks, key=key).log_ratios, whole, atol=1e-9)
    table = sgp.table_chunks(pd.DataFrame({"x": rows.X[:, 0], "y": rows.y}), ["x"], "y", chunk_size=17)
    np.testing.assert_allclose(few.importance_weights(table, key=key).log_ratios, whole, atol=1e-9)
