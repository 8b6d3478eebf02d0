"""Counts, positive numbers, keys and memory caps: one check each, wherever they are asked for; nothing ignored."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import ppl_sgp as sgp
from ppl_sgp._internal import checks
from ppl_sgp._internal.random import host_generator, random_key
from tests.internal.test_checks import BASIS, KERNEL, LABELS, X, Y, model

pytestmark = pytest.mark.float64_only  # on the host, whatever the lane
KEY = jax.random.key(0)
DRAWS = {"noise_scale": jnp.array([0.1, 0.2])}
PRIOR = sgp.DiscreteRelaxation(dist.Normal(0.0, 1.0), num_levels=3)


@pytest.fixture(scope="module")
def stats():
    return sgp.sufficient_statistics(BASIS, X, Y)


def predict(stats, **options):
    return sgp.predict(model, DRAWS, stats, X, **options)


COUNTS = {
    "LinearBasis": lambda stats, n: sgp.LinearBasis(n),
    "PolynomialBasis": lambda stats, n: sgp.PolynomialBasis(1, n),
    "PeriodicBasis": lambda stats, n: sgp.PeriodicBasis(1.0, n),
    "LaplaceBasis": lambda stats, n: sgp.LaplaceBasis(n, [0.0], [1.0]),
    "CallableBasis": lambda stats, n: sgp.CallableBasis(lambda X: X, n, 1),
    "SelectedColumns": lambda stats, n: sgp.SelectedColumns(BASIS, [0], n),
    "CentredBasis": lambda stats, n: sgp.CentredBasis.from_data(KEY, X, n, KERNEL),
    "GridEigenBasis": lambda stats, n: sgp.GridEigenBasis.from_kernel(KERNEL, X, n),
    "features of FourierBasis": lambda stats, n: sgp.FourierBasis.sample(KEY, KERNEL, n, 1),
    "inputs of FourierBasis": lambda stats, n: sgp.FourierBasis.sample(KEY, KERNEL, 4, n),
    "kernels of FourierBasis": lambda stats, n: sgp.FourierBasis.from_data(KEY, X, 4, num_kernels=n),
    "Polynomial": lambda stats, n: sgp.Polynomial(n),
    "chunk_size": lambda stats, n: sgp.sufficient_statistics(BASIS, X, Y, n),
    "fit_evidence": lambda stats, n: sgp.fit_evidence(model, stats, max_iterations=n),
    "starts of fit_evidence": lambda stats, n: sgp.fit_evidence(model, stats, key=KEY, num_starts=n),
    "fit_relevance_vectors": lambda stats, n: sgp.fit_relevance_vectors(stats, max_iterations=n),
    "fit_relevance_classifier": lambda stats, n: sgp.fit_relevance_classifier(BASIS, X, LABELS, max_iterations=n),
    "fit_logistic": lambda stats, n: sgp.direct.fit_logistic(BASIS, X, LABELS, PRIOR, batch_size=n, key=KEY),
    "direct.fit": lambda stats, n: sgp.direct.fit(stats, PRIOR, noise_scale=0.1, num_mixtures=n),
    "num_levels": lambda stats, n: sgp.DiscreteRelaxation(dist.Normal(0.0, 1.0), num_levels=n),
    "sample": lambda stats, n: predict(stats).sample(KEY, n),
}


@pytest.mark.parametrize("number", [True, 2.5, 2.0, 0, -3, "2", None, np.timedelta64(2, "s")], ids=repr)
@pytest.mark.parametrize("name", COUNTS)
def test_counts_are_integers(stats, name, number):
    if number is None and name in ("num_levels", "chunk_size", "fit_logistic", "starts of fit_evidence"):
        return  # there, the default
    with pytest.raises(ValueError, match="must be an integer of [12] or more; got"):
        COUNTS[name](stats, number)


def test_integers_of_numpy_are_integers():
    assert sgp.LinearBasis(np.int32(2)).dim == 2 and type(sgp.LinearBasis(np.int32(2)).dim) is int


@pytest.mark.parametrize("value", [True, 1j, "0.4", [[1.0], [1.0, 2.0]], None, np.nan, 0, -1.0, [1.0, 0.0], np.inf])
def test_positive_numbers(value):
    with pytest.raises(ValueError, match="^owner: `scale` must be .*positive"):
        checks.positive("scale", value, "owner")
    with pytest.raises(ValueError, match="must be .*positive"):
        sgp.DiagonalPrior(value)


def test_what_is_positive():
    for value in (1, np.float32(2.0), [1, 2.0], jnp.ones(2, jnp.bfloat16), np.uint8(3)):
        checks.positive("scale", value, "owner")
    jax.jit(lambda value: checks.positive("scale", value, "owner"))(-1.0)  # cannot be read


@pytest.mark.parametrize("cap", [0, -1, np.nan, True, "2e9", None, 1j])
def test_memory_caps(stats, cap):
    calls = (
        lambda: predict(stats, max_memory=cap),
        lambda: sgp.leave_one_out(model, DRAWS, stats, X, Y, max_memory=cap),
    )
    for call in calls:
        with pytest.raises(ValueError, match="`max_memory` must be a positive number of bytes"):
            call()


def test_no_memory_cap(stats):
    unlimited, capped = predict(stats, max_memory=np.inf), predict(stats)
    for name in ("mean", "variance"):
        np.testing.assert_array_equal(getattr(unlimited, name), getattr(capped, name))
    np.testing.assert_array_equal(unlimited.sample(KEY, 3), capped.sample(KEY, 3))
    assert sgp.leave_one_out(model, DRAWS, stats, X, Y, max_memory=np.inf).shape == (2, 12)


@pytest.mark.parametrize("samples", [None, [0.1, 0.2], np.ones(2)], ids=["none", "list", "array"])
def test_draws_that_are_no_dictionary(stats, samples):
    with pytest.raises(ValueError, match=r"a dictionary of arrays by site name such as `mcmc.get_samples\(\)`"):
        sgp.predict(model, samples, stats, X)


KEYED = {
    "FourierBasis.sample": lambda stats, key: sgp.FourierBasis.sample(key, KERNEL, 4, 1),
    "FourierBasis.from_data": lambda stats, key: sgp.FourierBasis.from_data(key, X, 4),
    "CentredBasis": lambda stats, key: sgp.CentredBasis.from_data(key, X, 3, KERNEL),
    "sample": lambda stats, key: predict(stats).sample(key),
    "average": lambda stats, key: sgp.average_predictions([predict(stats)] * 2).sample(key),
    "fit_evidence": lambda stats, key: sgp.fit_evidence(model, stats, key=key),
    "log_marginal_likelihood": lambda stats, key: sgp.log_marginal_likelihood(
        model, {"noise_scale": np.linspace(0.1, 0.2, 50)}, stats, key
    ),
    "simulation_based_calibration": lambda stats, key: sgp.simulation_based_calibration(model, stats, key, 2),
    "posterior_sbc": lambda stats, key: sgp.posterior_sbc(model, stats, DRAWS, key),
    "direct.fit": lambda stats, key: sgp.direct.fit(stats, PRIOR, noise_scale=0.1, key=key),
    "fit_logistic": lambda stats, key: sgp.direct.fit_logistic(BASIS, X, LABELS, PRIOR, batch_size=4, key=key),
}


@pytest.mark.parametrize("key", [7, 7.0, "7", jax.random.split(KEY, 2), np.zeros(2)], ids=["int", *"fskn"])
@pytest.mark.parametrize("name", KEYED)
def test_keys_that_are_none(stats, name, key):
    remedy = 7 if key is not None and isinstance(key, int) else 0
    with pytest.raises(ValueError, match=rf"`key` must be a random key of JAX, such as `jax.random.key\({remedy}\)`"):
        KEYED[name](stats, key)


def test_generators_of_keys():
    typed, words = jax.random.key(5), jax.random.PRNGKey(5)
    assert random_key(typed, "owner") is typed and random_key(words, "owner") is words
    draws = [host_generator(key, "owner", *stream).random() for key in (typed, words) for stream in ((), (1,), (2,))]
    assert draws[:3] == draws[3:] and len(set(draws)) == 3
    expected = np.random.default_rng(np.asarray(jax.random.key_data(typed)))
    assert host_generator(typed, "owner").random() == expected.random()


# Nothing that is passed is ignored -----------------------------------------------------------------------------------


def test_levels_are_given_or_counted():
    support = [-1.0, 0.0, 2.0]
    with pytest.raises(ValueError, match="pass either `num_levels`.*or the levels as `support="):
        sgp.DiscreteRelaxation(dist.Normal(0.0, 1.0), num_levels=5, support=support)
    assert sgp.DiscreteRelaxation(dist.Normal(0.0, 1.0), support=support).num_levels == 3
    assert sgp.DiscreteRelaxation(dist.Normal(0.0, 1.0)).num_levels == 15


def test_row_weights_without_what_they_are_of():
    basis = sgp.stack(BASIS, sgp.LinearBasis(1))
    stats = sgp.sufficient_statistics(basis, X, Y)

    def stacked(stats):
        import numpyro

        noise_scale = numpyro.sample("noise_scale", dist.HalfNormal(1.0))
        sgp.observe("y", stats, stats.basis.weight_prior((KERNEL, sgp.DiagonalPrior(1.0))), noise_scale)

    with pytest.raises(ValueError, match="`row_weights` are of noise, and a prediction of `parts` has none"):
        sgp.predict(stacked, DRAWS, stats, X, parts=0, row_weights=np.ones(12))
    posterior = sgp.posterior(stacked, DRAWS, stats)
    for function in (posterior.to_arviz, lambda **options: sgp.report(posterior, **options)):
        with pytest.raises(ValueError, match="`row_weights` are those of the training rows; pass `X` and `y` too"):
            function(row_weights=np.ones(12))


FOURIER = sgp.FourierBasis.sample(KEY, KERNEL, 20, 1)
SINGLE = {
    "stack": sgp.stack(sgp.LinearBasis(1), FOURIER),
    "columns": sgp.SelectedColumns(FOURIER, [1], 2),
    "rotated": sgp.sufficient_statistics(FOURIER, X, Y).rotate().basis,
    "rotated stack": sgp.sufficient_statistics(sgp.stack(sgp.LinearBasis(1), FOURIER), X, Y).rotate().basis,
}


@pytest.mark.parametrize("name", SINGLE)
def test_float32_features_reach_the_basis_that_has_them(name):
    basis = SINGLE[name]
    inputs = np.linspace(0, 30, 200)[:, None] * np.ones(basis.input_dim)
    out = np.empty((200, basis.num_features))
    exact = basis.host_features(inputs)
    basis.fill_features(inputs, out)
    np.testing.assert_allclose(out, exact, atol=1e-12 * np.abs(exact).max())
    basis.fill_features(inputs, out, single=True)
    error = np.abs(out - exact).max() / np.abs(exact).max()
    assert 1e-10 < error < 1e-6  # of float32, and not more
    y = np.sin(inputs[:, 0])
    single = sgp.sufficient_statistics(basis, inputs, y, float32_features=True)
    double = sgp.sufficient_statistics(basis, inputs, y)
    difference = np.abs(single.moments.gram - double.moments.gram).max() / np.abs(double.moments.gram).max()
    assert 1e-12 < difference < 1e-6


@pytest.mark.parametrize(
    "basis", [sgp.LaplaceBasis(4, [0.5], [1.0]), sgp.stack(sgp.LinearBasis(1), sgp.PeriodicBasis(1.0, 2))]
)
def test_float32_features_that_a_basis_does_not_have(basis):
    with pytest.raises(ValueError, match="evaluated in float64 only; leave `float32_features` out"):
        sgp.sufficient_statistics(basis, X, Y, float32_features=True)
