"""One validation for all that takes inputs, outputs, row weights or labels: what the pass refuses, all refuse."""

from __future__ import annotations

import re

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pandas as pd
import pytest

import ppl_sgp as sgp

pytestmark = pytest.mark.float64_only  # on the host, whatever the lane
X = np.linspace(0.0, 1.0, 12)[:, None]
Y = np.sin(5 * X[:, 0])
LABELS = (Y > 0).astype(int)
KERNEL = sgp.Matern32(0.5)
BASIS = sgp.FourierBasis.sample(jax.random.key(0), KERNEL, 6, 1)


def model(stats):
    noise_scale = numpyro.sample("noise_scale", dist.HalfNormal(1.0))
    sgp.observe("y", stats, stats.basis.weight_prior(KERNEL), noise_scale)


@pytest.fixture(scope="module")
def stats():
    return sgp.sufficient_statistics(BASIS, X, Y)


@pytest.fixture(scope="module")
def prediction(stats):
    return sgp.predict(model, {"noise_scale": np.array([0.1, 0.2])}, stats, X)


def masked(values):
    values = np.ma.masked_array(values, copy=True)
    values[3] = -999.0
    values.mask = np.arange(values.size).reshape(values.shape) == 3
    return values


BAD = {
    "masked": (masked, "masked entries; drop or impute"),
    "dates": (lambda values: (10 * values).astype("datetime64[s]"), "must be real numbers; got dtype datetime64"),
    "periods": (lambda values: (10 * values).astype("timedelta64[s]"), "must be real numbers; got dtype timedelta64"),
    "text": (lambda values: values.astype(str), "must be real numbers; got dtype <U"),
    "complex": (lambda values: values + 1j, "must be real numbers; got dtype complex128"),
    "objects": (lambda values: values.astype(object), "must be real numbers; got dtype object"),
    "ragged": (lambda values: [[1.0], [1.0, 2.0]], "not a rectangular array of numbers"),
}
NAN = (lambda values: np.where(np.arange(values.size).reshape(values.shape) == 3, np.nan, values), "not finite")
INPUTS = {
    "FourierBasis.from_data": lambda stats, X: sgp.FourierBasis.from_data(jax.random.key(0), X, 4),
    "LaplaceBasis.from_data": lambda stats, X: sgp.LaplaceBasis.from_data(X, 4),
    "PolynomialBasis.from_data": lambda stats, X: sgp.PolynomialBasis.from_data(X, 2),
    "CentredBasis.from_data": lambda stats, X: sgp.CentredBasis.from_data(jax.random.key(0), X, 3, KERNEL),
    "GridEigenBasis.from_kernel": lambda stats, X: sgp.GridEigenBasis.from_kernel(KERNEL, X, 4),
    "NystromBasis": lambda stats, X: sgp.NystromBasis(X, KERNEL),
    "CentredBasis": lambda stats, X: sgp.CentredBasis(X, KERNEL),
    "features": lambda stats, X: BASIS(X),
    "host features": lambda stats, X: BASIS.host_features(X),
    "update": lambda stats, X: stats.update(X, Y),
    "predict": lambda stats, X: sgp.predict(model, {"noise_scale": np.array([0.1, 0.2])}, stats, X),
    "leave_one_out": lambda stats, X: sgp.leave_one_out(model, {"noise_scale": np.array([0.1])}, stats, X, Y),
    "fit_relevance_classifier": lambda stats, X: sgp.fit_relevance_classifier(BASIS, X, LABELS),
    "fit_logistic": lambda stats, X: sgp.direct.fit_logistic(
        BASIS, X, LABELS, sgp.DiscreteRelaxation(dist.Normal(0.0, 1.0), num_levels=3)
    ),
    "kernel_error": lambda stats, X: sgp.kernel_error(
        model, {"noise_scale": np.array([0.1])}, stats, X, kernel=lambda theta: KERNEL
    ),
    "lags": lambda stats, X: sgp.kernel_draws(model, {"noise_scale": np.array([0.1])}, stats, X),
}


@pytest.mark.parametrize("kind", BAD)
@pytest.mark.parametrize("name", INPUTS)
def test_inputs_that_are_no_real_numbers(stats, name, kind):
    spoil, message = BAD[kind]
    with pytest.raises(ValueError, match=message):
        INPUTS[name](stats, spoil(X))


@pytest.mark.parametrize("name", INPUTS)
def test_inputs_that_are_not_finite(stats, name):
    spoil, _ = NAN
    with pytest.raises(ValueError, match="finite|is nan at row 3"):
        INPUTS[name](stats, spoil(X))


ON_THE_HOST = [name for name in INPUTS if name not in ("features", "CentredBasis")]


@pytest.mark.parametrize("name", ON_THE_HOST)
def test_inputs_that_are_traced(stats, name):
    """What runs on the host says so, instead of JAX's error from deep inside."""
    with pytest.raises(ValueError, match="cannot be traced"):
        jax.jit(lambda X: INPUTS[name](stats, X) and None)(X)


TRACED = {
    "y": lambda stats, y: sgp.sufficient_statistics(BASIS, X, y),
    "row_weights": lambda stats, w: sgp.sufficient_statistics(BASIS, X, Y, row_weights=w),
    "labels": lambda stats, labels: sgp.fit_relevance_classifier(BASIS, X, labels),
    "y_new": lambda stats, y: sgp.predict(model, {"noise_scale": np.array([0.1])}, stats, X).log_density(y),
    "y of leave_one_out": lambda stats, y: sgp.leave_one_out(model, {"noise_scale": np.array([0.1])}, stats, X, y),
    "noise_scale": lambda stats, y: sgp.predict(model, {"noise_scale": jnp.exp(y)}, stats, X).mean,
}


@pytest.mark.parametrize("name", TRACED)
def test_other_arrays_that_are_traced(stats, name):
    with pytest.raises(ValueError, match=f"`{name.partition(' ')[0]}` cannot be traced"):
        jax.jit(lambda values: TRACED[name](stats, values) and None)(Y)


def test_chunks_where_one_array_is_wanted():
    for chunks in ((chunk for chunk in [(X, Y)]), iter([X])):
        with pytest.raises(ValueError, match=r"Of chunks pass the array of one"):
            sgp.LaplaceBasis.from_data(chunks, 4)


@pytest.mark.parametrize("kind", ["masked", "text", "complex", "dates"])
def test_draws_that_are_no_real_numbers(stats, kind):
    spoil, message = BAD[kind]
    with pytest.raises(ValueError, match=f"`noise_scale`.*{message}"):
        sgp.posterior(model, {"noise_scale": spoil(np.full(5, 0.1))}, stats)


EYE = np.eye(4)
PRIORS = {
    "scale": lambda spoil: sgp.DiagonalPrior(spoil(np.ones(4))),
    "mean": lambda spoil: sgp.DiagonalPrior(np.ones(4), spoil(np.ones(4))),
    "mean of a dense one": lambda spoil: sgp.DensePrior(EYE, mean=spoil(np.ones(4))),
    "covariance": lambda spoil: sgp.DensePrior(spoil(EYE)),
    "scale_tril": lambda spoil: sgp.DensePrior(scale_tril=spoil(EYE)),
    "covariances[0]": lambda spoil: sgp.KroneckerPrior([spoil(EYE)]),
    "vectors": lambda spoil: sgp.HouseholderPrior(np.ones(4), spoil(EYE)),
    "lengthscale": lambda spoil: sgp.Matern52(spoil(np.ones(4))),
    "support": lambda spoil: sgp.DiscreteRelaxation(dist.Normal(0.0, 1.0), support=spoil(np.arange(4.0))),
}


@pytest.mark.parametrize("kind", ["masked", "complex", "text", "dates"])
@pytest.mark.parametrize("name", PRIORS)
def test_parameters_of_no_real_numbers(name, kind):
    """JAX would drop masks and imaginary parts."""
    with pytest.raises(ValueError, match=f"`{re.escape(name.partition(' ')[0])}`.*(masked|number)"):
        PRIORS[name](BAD[kind][0])


@pytest.mark.parametrize("kind", [kind for kind in BAD if kind != "ragged"])
def test_a_kernel_of_no_real_numbers(kind):
    spoil, message = BAD[kind]
    with pytest.raises(ValueError, match=message):
        KERNEL(spoil(X))


@pytest.mark.parametrize("kind", BAD)
def test_row_weights_and_observations_of_predictions(stats, prediction, kind):
    spoil, message = BAD[kind]
    with pytest.raises(ValueError, match=f"`row_weights`.*{message}"):
        sgp.predict(model, {"noise_scale": np.array([0.1, 0.2])}, stats, X, row_weights=spoil(X[:, 0] + 1))
    with pytest.raises(ValueError, match=f"`y_new`.*{message}"):
        prediction.log_density(spoil(Y))


def test_observations_that_are_not_finite_have_no_density(prediction):
    with pytest.raises(ValueError, match="`y_new` has 1 of 12 rows with entries that are not finite"):
        prediction.log_density(NAN[0](Y))


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (np.ma.masked_array(LABELS, LABELS == 1), "`labels` has masked entries"),
        (np.where(LABELS == 1, "a", None), "row 0 is None. Drop rows without a label"),
        (np.where(LABELS == 1, np.nan, 1.0), "row 1 is .*nan.*Drop rows"),
        (pd.Series(np.where(LABELS == 1, "a", "b")).where(Y > -0.5), "Drop rows without a label"),
        (np.array(["a", 1] * 6, dtype=object), "all be numbers, or all text"),
        (LABELS[:3], r"must have shape \(12,\)"),
    ],
)
def test_labels_that_are_missing_or_mixed(labels, message):
    with pytest.raises(ValueError, match=message):
        sgp.fit_relevance_classifier(BASIS, X, labels)


def test_chunks_are_no_inputs():
    chunks = sgp.table_chunks(pd.DataFrame({"x": X[:, 0], "y": Y}), ["x"], "y")
    with pytest.raises(ValueError, match=r"`X` must be an array of real numbers; got TableChunks.*next\(iter\(chunks"):
        sgp.FourierBasis.from_data(jax.random.key(0), chunks, 4)
    assert sgp.FourierBasis.from_data(jax.random.key(0), next(iter(chunks))[0], 4).input_dim == 1  # the remedy


def test_what_is_accepted():
    for inputs in (X.tolist(), X.astype(np.float32), np.ma.masked_array(X), pd.DataFrame(X), jnp.asarray(X)):
        np.testing.assert_allclose(BASIS.host_features(inputs), BASIS.host_features(X), atol=1e-6)
    assert sgp.LinearBasis(1).host_features([[True], [False]]).tolist() == [[1.0, 1.0], [1.0, 0.0]]
    assert jax.jit(BASIS)(jnp.asarray(X)).shape == (12, 6)
    assert jax.jit(lambda x: BASIS([[x]]))(0.5).shape == (1, 6)
    assert BASIS(jnp.zeros((1, 1), jnp.bfloat16)).dtype == jnp.bfloat16
