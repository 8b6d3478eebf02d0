"""Kernels at centres: values against the kernel itself, k-means, and the warning far from all centres."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ppl_sgp as sgp
from tests.bases.frozen import check_features

CENTRES = np.random.default_rng(0).uniform(-1, 1, (7, 2))
KERNELS = {
    "squared exponential": lambda: sgp.SquaredExponential(np.array([0.5, 1.5]), 1.3),
    "sum": lambda: sgp.Matern32(0.7) + sgp.Linear(0.5, 0.2),
    "product": lambda: sgp.Matern52(0.9) * sgp.Polynomial(2, 0.8, 1.1),
}


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("name", KERNELS)
def test_features_are_the_kernel_at_the_centres(name, bias, rng):
    basis, X = sgp.CentredBasis(CENTRES, KERNELS[name](), bias), rng.uniform(-1, 1, (9, 2))
    with jax.enable_x64(True):
        expected = np.asarray(jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), KERNELS[name]())(X, CENTRES))
    features = basis.host_features(X)
    np.testing.assert_allclose(features[:, :7], expected, rtol=1e-12)
    assert features.shape == (9, 7 + bias) and basis.input_dim == 2
    if bias:
        np.testing.assert_array_equal(features[:, 7], 1)
    check_features(basis, X)


def test_saved_and_loaded(rng, tmp_path):
    basis, X = sgp.CentredBasis(CENTRES, KERNELS["sum"]()), rng.uniform(-1, 1, (20, 2))
    sgp.sufficient_statistics(basis, X, X[:, 0]).save(tmp_path / "stats")
    loaded = sgp.SufficientStatistics.load(tmp_path / "stats").basis
    np.testing.assert_array_equal(loaded.host_features(X), basis.host_features(X))


def test_centres_from_data():
    rng = np.random.default_rng(3)
    means = np.array([[0.0, 0.0], [10.0, 0.0], [0.0, 1e-3]])
    X = np.concatenate([mean + rng.normal(size=(50, 2)) * [0.1, 1e-5] for mean in means])
    basis = sgp.CentredBasis.from_data(jax.random.key(0), X, 3, sgp.SquaredExponential(1.0))
    found = basis.centres[np.lexsort(np.round(basis.centres / [1, 1e-4]).T)]
    np.testing.assert_allclose(found[:, 0], [0, 10, 0], atol=0.1)
    np.testing.assert_allclose(found[:, 1], [0, 0, 1e-3], atol=1e-5)  # columns count in their own units
    again = sgp.CentredBasis.from_data(jax.random.key(0), X, 3, sgp.SquaredExponential(1.0))
    np.testing.assert_array_equal(again.centres, basis.centres)
    everything = sgp.CentredBasis.from_data(jax.random.key(0), np.repeat(means, 4, axis=0), 5, sgp.Matern32(1.0), False)
    np.testing.assert_array_equal(everything.centres, np.unique(means, axis=0))


def test_rows_far_from_all_centres_are_announced():
    basis = sgp.CentredBasis(np.linspace(-5, 5, 11)[:, None], sgp.SquaredExponential(1.0))
    basis.host_features(np.array([[-6.0], [6.5]]))  # within the reach of the last centres
    with pytest.warns(
        UserWarning, match=r"0\.25 of the rows lie far from all centres.*variances are too small"
    ) as caught:
        basis.host_features(np.array([[0.0], [20.0], [1.0], [2.0]]))
    assert caught[0].filename == __file__
    with pytest.warns(UserWarning, match="far from all centres"):
        basis(jnp.array([[20.0]]))
    jax.jit(basis.__call__)(jnp.array([[20.0]]))  # cannot be read
    sgp.CentredBasis([[0.0], [1.0]], sgp.Linear(1.0, 0.5)).host_features([[50.0]])  # a line does not vanish


def test_predictions_far_from_the_centres_are_announced():
    X = np.linspace(-5, 5, 50)[:, None]
    stats = sgp.sufficient_statistics(
        sgp.CentredBasis(X, sgp.SquaredExponential(1.0)), X, np.sin(X[:, 0]) + X[:, 0] % 0.3
    )
    fit = sgp.fit_relevance_vectors(stats)
    with pytest.warns(UserWarning, match="far from all centres"):
        assert np.isfinite(fit.predict([[20.0]]).variance).all()


@pytest.mark.parametrize(
    "arguments, message",
    [
        (([0.0, 1.0], sgp.Matern32(1.0)), r"shape \(k, d\), one point a row; got \(2,\)"),
        (([[np.nan]], sgp.Matern32(1.0)), "non-finite entries"),
        (([[0.0]], sgp.Matern32), "must be a kernel such as.*got ABCMeta"),
    ],
)
def test_bad_requests_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        sgp.CentredBasis(*arguments)


def test_traced_kernels_and_bad_inputs_are_refused():
    with pytest.raises(ValueError, match="is traced, but features are frozen"):
        jax.jit(lambda ell: sgp.CentredBasis([[0.0]], sgp.Matern32(ell)).num_features)(1.0)
    basis = sgp.CentredBasis([[0.0]], sgp.Matern32(1.0))
    with pytest.raises(ValueError, match=r"CentredBasis.*shape \(n, 1\)"):
        basis(np.zeros((2, 2)))
    with pytest.raises(ValueError, match="CentredBasis has no weight prior for a kernel"):
        basis.weight_prior(sgp.Matern32(1.0))
    with pytest.raises(ValueError, match="`X` has non-finite entries"):
        sgp.CentredBasis.from_data(jax.random.key(0), np.array([[np.inf]]), 1, sgp.Matern32(1.0))
    with pytest.raises(ValueError, match="`num_centres` must be an integer"):
        sgp.CentredBasis.from_data(jax.random.key(0), np.zeros((3, 1)), 0, sgp.Matern32(1.0))
