"""Relevance vectors against dense multivariate normals, and the states that awkward data end in."""

from __future__ import annotations

import dataclasses
import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import multivariate_normal

import ppl_sgp as sgp
from ppl_sgp.evidence.rounding import rounding_error
from ppl_sgp.relevance.problem import Problem
from ppl_sgp.relevance.sequential import _Active

METHODS = ["sequential", "fixed_point"]
# Everything runs in float64 NumPy, in either lane.
pytestmark = pytest.mark.float64_only


def sinc(n=100, seed=0, noise=0.1):
    X = np.linspace(-10, 10, n)[:, None]
    return X, np.sinc(X[:, 0] / np.pi) + noise * np.random.default_rng(seed).normal(size=n)


def statistics(X, y, centres=None, lengthscale=2.0, **options):
    basis = sgp.CentredBasis(X if centres is None else centres, sgp.SquaredExponential(lengthscale), **options)
    return sgp.sufficient_statistics(basis, X, y)


def dense_log_evidence(Phi, y, variances, noise_scale):
    return multivariate_normal.logpdf(y, np.zeros(len(y)), Phi * variances @ Phi.T + noise_scale**2 * np.eye(len(y)))


def log_evidence_by_svd(Phi, y, scale, noise_scale):
    """Of standard deviations (k,), with the digits of the rows: the dense covariance has half of them."""
    left, singular, _ = np.linalg.svd(Phi * (scale / noise_scale), full_matrices=False)
    e = y / noise_scale
    t = left.T @ e
    quadratic = np.sum((e - left @ t) ** 2) + np.sum(t**2 / (1 + singular**2))
    return -0.5 * (len(y) * np.log(2 * np.pi * noise_scale**2) + quadratic + np.sum(np.log1p(singular**2)))


def variances(fit):
    result = np.zeros(fit.statistics.num_features)
    result[fit.relevant] = 1 / fit.precisions
    return result


@pytest.mark.parametrize("method", METHODS)
def test_values_are_those_of_the_dense_model(method, rng):
    X, y = sinc(40)
    stats = statistics(X, y, lengthscale=1.5)
    fit = sgp.fit_relevance_vectors(stats, method)
    Phi, gamma = stats.basis.host_features(X), variances(fit)
    assert fit.converged and 0 < len(fit.relevant) < 25 and (np.diff(fit.relevant) > 0).all()
    assert fit.log_evidence == pytest.approx(dense_log_evidence(Phi, y, gamma, fit.noise_scale), abs=1e-8)
    assert fit.evidence_trace[-1] == pytest.approx(fit.log_evidence, abs=1e-9)
    K = Phi * gamma @ Phi.T + fit.noise_scale**2 * np.eye(len(y))
    X_new = rng.uniform(-9, 9, (7, 1))
    new = stats.basis.host_features(X_new)
    cross = new * gamma @ Phi.T
    prediction = fit.predict(X_new)
    mean = cross @ np.linalg.solve(K, y)
    variance = np.sum(new**2 * gamma, axis=1) - np.sum(cross * np.linalg.solve(K, cross.T).T, axis=1)
    np.testing.assert_allclose(prediction.mean, mean, atol=1e-9)
    np.testing.assert_allclose(new[:, fit.relevant] @ fit.weights, mean, atol=1e-9)
    np.testing.assert_allclose(prediction.variance, variance, rtol=1e-6)
    assert prediction.noise_variance == pytest.approx(fit.noise_scale**2)
    density = -0.5 * (np.log(2 * np.pi * (variance + fit.noise_scale**2)) + mean**2 / (variance + fit.noise_scale**2))
    np.testing.assert_allclose(prediction.log_density(np.zeros(7)), density, atol=1e-8)
    drawn = prediction.sample(jax.random.key(0), 20_000, noise=False)
    np.testing.assert_allclose(drawn.std(axis=0), np.sqrt(variance), rtol=0.05)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("seed", [0, 15, 16, 26, 51])
@pytest.mark.filterwarnings("ignore:log_evidence. about .* nats are rounding")
def test_little_noise_and_nearly_collinear_features_cost_no_digits(seed, method):
    """The Gram matrix of the active features is indefinite to rounding, or worth nats."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(80, 1))
    y = 2 * X[:, 0] + 1e-3 * rng.normal(size=80)
    basis = sgp.CentredBasis.from_data(jax.random.key(seed), X, 30, kernel=sgp.SquaredExponential(1.0))
    for engine in ("qr", "gram"):
        stats = sgp.sufficient_statistics(basis, X, y, method=engine)
        fit = sgp.fit_relevance_vectors(stats, method)
        prior = sgp.DiagonalPrior(np.sqrt(variances(fit)) + 1e-30)
        exact = sgp.log_evidence(stats, prior, fit.noise_scale)
        # Both are to first order in what the Gram matrix has lost, which depends on the BLAS.
        lost = float(rounding_error(stats, prior, fit.noise_scale))
        assert fit.log_evidence == pytest.approx(float(exact), abs=1e-6 + 0.02 * lost)
        assert fit.evidence_trace[-1] == pytest.approx(fit.log_evidence, abs=1e-9)
        assert fit.converged
        if engine == "qr":
            assert method != "sequential" or (np.diff(fit.evidence_trace) > -1e-6).all()
            Phi = basis.host_features(X)[:, fit.relevant]
            right = log_evidence_by_svd(Phi, y, fit.precisions**-0.5, fit.noise_scale)
            assert fit.log_evidence == pytest.approx(right, abs=1e-6)


@pytest.mark.parametrize("method", METHODS)
def test_ends_in_a_local_maximum(method):
    """No precision, nor the noise, can be changed for the better; no single feature added or deleted."""
    X, y = sinc(40)
    stats = statistics(X, y, lengthscale=1.5)
    fit = sgp.fit_relevance_vectors(stats, method, tolerance=1e-10)
    Phi, gamma = stats.basis.host_features(X), variances(fit)
    best = dense_log_evidence(Phi, y, gamma, fit.noise_scale)
    for factor in (0.97, 1.03):
        assert dense_log_evidence(Phi, y, gamma, factor * fit.noise_scale) < best
    for j in range(stats.num_features):
        others = [0.9 * gamma[j], 1.1 * gamma[j], 0.0] if gamma[j] else [1e-4, 1e-2, 0.1, 1.0]
        for value in others:
            changed = gamma.copy()
            changed[j] = value
            assert dense_log_evidence(Phi, y, changed, fit.noise_scale) < best + 1e-6


def test_predicted_gains_are_the_gains(rng):
    """Every kind of action, after others have been made, against the dense evidence."""
    X, y = sinc(30)
    stats = statistics(X, y, lengthscale=1.0)
    problem = Problem.of(stats)
    Phi = stats.basis.host_features(X) / problem.feature_norm

    def evidence(active):
        gamma = np.zeros(stats.num_features)
        gamma[active.indices] = 1 / active.precision
        return dense_log_evidence(Phi, y / problem.output_scale, gamma, np.sqrt(active.noise_variance))

    active, kinds = _Active(problem, np.zeros(0, dtype=int), np.zeros(0), 0.1), []
    for step in range(25):
        if step % 3 == 2:  # something worth deleting
            useless = np.setdiff1d(np.flatnonzero(active.Q**2 < active.S), active.indices)
            active.add(int(rng.choice(useless)), 1e-3)
        before = evidence(active)
        gain, feature, precision = active.best_action()
        if gain < 1e-9:
            continue
        kinds.append("delete" if np.isinf(precision) else "add")
        active.apply(feature, precision)
        assert evidence(active) - before == pytest.approx(gain, abs=1e-7)
        S, Q, covariance = active.S, active.Q, active.covariance
        active.refresh()
        for updated, fresh in ((S, active.S), (Q, active.Q), (covariance, active.covariance)):
            np.testing.assert_allclose(updated, fresh, rtol=1e-6, atol=1e-8 * np.abs(fresh).max())
    assert {"add", "delete"} <= set(kinds)


@pytest.mark.parametrize("method", METHODS)
def test_orthogonal_features_have_a_closed_form(method, rng):
    """The optimum of each variance given the noise: γ = max(0, (t² − σ²)/λ) with t = φᵀy/‖φ‖ (Evans 2022, 5.2.3)."""
    X, y = sinc(60)
    rotated = sgp.sufficient_statistics(sgp.CentredBasis(X[::4], sgp.SquaredExponential(2.0)), X, y).rotate()
    fit = sgp.fit_relevance_vectors(rotated, method, tolerance=1e-12)
    Phi = rotated.basis.host_features(X)
    length = np.sum(Phi**2, axis=0)
    optimum = np.maximum(0, ((Phi.T @ y) ** 2 / length - fit.noise_scale**2) / length)
    np.testing.assert_array_equal(fit.relevant, np.flatnonzero(optimum))
    np.testing.assert_allclose(variances(fit), optimum, rtol=1e-3)


@pytest.mark.parametrize("seed", range(3))
def test_both_schemes_agree_on_sinc(seed):
    X, y = sinc(300, seed)
    stats = statistics(X, y)
    one, other = (sgp.fit_relevance_vectors(stats, method) for method in METHODS)
    # Maxima of a function with many: different sets of neighbours do almost equally well.
    assert one.log_evidence == pytest.approx(other.log_evidence, abs=2.0)
    assert len(one.relevant) < 10 and len(other.relevant) < 15
    truth = np.sinc(X[:, 0] / np.pi)
    for fit in (one, other):
        assert fit.noise_scale == pytest.approx(0.1, rel=0.15)
        assert np.sqrt(np.mean((fit.predict(X).mean - truth) ** 2)) < 0.03


@pytest.mark.parametrize("method", METHODS)
def test_neither_units_nor_reflections_change_what_is_relevant(method):
    X, y = sinc(80)
    fit = sgp.fit_relevance_vectors(statistics(X, y), method)
    scaled = sgp.fit_relevance_vectors(statistics(X, 1000 * y), method)
    np.testing.assert_array_equal(scaled.relevant, fit.relevant)
    np.testing.assert_allclose(scaled.weights, 1000 * fit.weights, rtol=1e-6)
    assert scaled.log_evidence == pytest.approx(fit.log_evidence - 80 * np.log(1000), abs=1e-6)
    kernel = sgp.SquaredExponential(2.0, amplitude=50.0)
    louder = sgp.fit_relevance_vectors(sgp.sufficient_statistics(sgp.CentredBasis(X, kernel), X, y), method)
    np.testing.assert_array_equal(louder.relevant, fit.relevant)
    mirrored = sgp.fit_relevance_vectors(statistics(-X, y), method)
    np.testing.assert_array_equal(mirrored.relevant, fit.relevant)
    backwards = sgp.fit_relevance_vectors(statistics(X, y[::-1]), method)
    expected = np.sort(np.where(fit.relevant < 80, 79 - fit.relevant, 80))
    np.testing.assert_array_equal(backwards.relevant, expected)


@pytest.mark.parametrize("method", METHODS)
class TestDefinedStates:
    def test_constant_output(self, method):
        X, _ = sinc(30)
        with pytest.warns(UserWarning, match=r"interpolates y.*Is y constant"):
            fit = sgp.fit_relevance_vectors(statistics(X, np.full(30, 5.0)), method)
        np.testing.assert_allclose(fit.predict(X).mean, 5.0, atol=1e-4)
        assert fit.converged and "floor" in fit.reason and np.isfinite(fit.log_evidence)

    def test_pure_noise(self, method, rng):
        X, _ = sinc(200)
        fit = sgp.fit_relevance_vectors(statistics(X, rng.normal(size=200), lengthscale=0.5), method)
        assert fit.converged and np.isfinite(fit.log_evidence)
        assert np.std(fit.predict(X).mean) < 0.7 and 0.6 < fit.noise_scale < 1.1

    def test_nothing_relevant(self, method):
        X = np.linspace(-1, 1, 50)[:, None]
        y = np.where(np.arange(50) % 2, 1.0, -1.0)
        fit = sgp.fit_relevance_vectors(statistics(X, y, X[::10]), method)
        assert len(fit.relevant) == 0 and fit.converged
        np.testing.assert_array_equal(fit.predict(X).mean, 0)
        np.testing.assert_array_equal(fit.predict(X).variance, 0)
        assert fit.predict(X).sample(jax.random.key(0), 3).shape == (3, 50)
        density = np.sum(-0.5 * np.log(2 * np.pi * fit.noise_scale**2) - 0.5 * (y / fit.noise_scale) ** 2)
        assert fit.log_evidence == pytest.approx(density)
        assert fit.predict(X).log_density(y).sum() == pytest.approx(density)

    def test_features_that_are_of_use_in_pairs_only(self, method):
        """Kernels so wide that each is nearly constant: none helps alone, two of them make a slope."""
        X, _ = sinc(60)
        y = X[:, 0] / 10 + 0.1 * np.random.default_rng(0).normal(size=60)
        fit = sgp.fit_relevance_vectors(statistics(X, y, lengthscale=60.0), method)
        assert len(fit.relevant) >= 2 and fit.noise_scale < 0.15

    def test_duplicated_and_zero_columns(self, method):
        X, y = sinc(60)
        Phi = statistics(X, y).basis.host_features(X)
        wide = np.concatenate([Phi, Phi, np.zeros((60, 2))], axis=1)
        basis = sgp.CallableBasis(lambda X: wide, num_features=wide.shape[1], input_dim=1)
        fit = sgp.fit_relevance_vectors(sgp.sufficient_statistics(basis, X, y), method)
        alone = sgp.fit_relevance_vectors(statistics(X, y), method)
        assert fit.converged and fit.log_evidence == pytest.approx(alone.log_evidence, abs=0.05)
        assert (fit.relevant < 2 * Phi.shape[1]).all()
        if method == "sequential":
            assert len(np.unique(fit.relevant % Phi.shape[1])) == len(fit.relevant)

    def test_more_features_than_rows(self, method):
        X, y = sinc(40)
        stats = statistics(X, y, np.linspace(-10, 10, 150)[:, None])
        fit = sgp.fit_relevance_vectors(stats, method)
        assert fit.converged and len(fit.relevant) < 40 and 0.03 < fit.noise_scale < 0.2

    def test_many_rows(self, method):
        X, y = sinc(100_000)
        stats = statistics(X, y, np.linspace(-10, 10, 40)[:, None])
        fit = sgp.fit_relevance_vectors(stats, method)
        assert fit.converged and fit.noise_scale == pytest.approx(0.1, rel=0.01)
        np.testing.assert_allclose(fit.predict(X[::1000]).mean, np.sinc(X[::1000, 0] / np.pi), atol=0.01)


def test_a_fit_that_interpolates_stops_and_says_what_to_do():
    """More centres than rows and a short lengthscale: the noise falls to its floor, and nothing would end it."""
    X = 1.7 * np.random.default_rng(0).uniform(-1, 1, (125, 8))
    y = np.sin(X[:, 0] * X[:, 1]) + X[:, 2]
    stats = statistics(X[:100], y[:100], X, lengthscale=0.45 * 8**0.5)
    with pytest.warns(UserWarning, match="interpolates y.*longer lengthscales") as warned:
        fit = sgp.fit_relevance_vectors(stats, max_iterations=600)
    assert len(warned) == 1 and "floor" in fit.reason
    assert fit.iterations < 300 and len(fit.relevant) == 100


def test_row_weights_and_rotated_statistics():
    X, y = sinc(50)
    basis = sgp.CentredBasis(X[::5], sgp.SquaredExponential(2.0))
    omega = np.random.default_rng(1).uniform(0.5, 2, 50)
    fit = sgp.fit_relevance_vectors(sgp.sufficient_statistics(basis, X, y, row_weights=omega))
    cov = basis.host_features(X) * variances(fit) @ basis.host_features(X).T + np.diag(fit.noise_scale**2 / omega)
    assert fit.log_evidence == pytest.approx(multivariate_normal.logpdf(y, np.zeros(50), cov), abs=1e-8)
    rotated = sgp.sufficient_statistics(basis, X, y).rotate()
    fit = sgp.fit_relevance_vectors(rotated)
    scale = jnp.asarray(np.sqrt(variances(fit)) + 1e-30)
    exact = sgp.log_evidence(rotated, sgp.DiagonalPrior(scale), fit.noise_scale)
    assert fit.log_evidence == pytest.approx(float(exact), abs=1e-7)


def test_progress_interruption_and_limits(capsys, monkeypatch):
    X, y = sinc(60)
    stats = statistics(X, y)
    sgp.fit_relevance_vectors(stats, progress=True)
    assert "log evidence" in capsys.readouterr().err
    with pytest.warns(UserWarning, match=r"not converged: the iteration limit.*max_iterations"):
        fit = sgp.fit_relevance_vectors(stats, max_iterations=5)
    assert not fit.converged and fit.iterations == 5 and len(fit.relevant) > 0
    with pytest.warns(UserWarning, match="not converged"):  # also where the noise is at its floor already
        assert not sgp.fit_relevance_vectors(statistics(X, np.ones(60)), max_iterations=1).converged
    calls = []

    def interrupt(self, *action):
        calls.append(action)
        if len(calls) == 8:
            raise KeyboardInterrupt
        original(self, *action)

    original = _Active.apply
    monkeypatch.setattr(_Active, "apply", interrupt)
    fit = sgp.fit_relevance_vectors(stats)
    assert not fit.converged and fit.reason == "interrupted" and fit.predict(X).mean.shape == (60,)
    assert dataclasses.replace(fit).log_evidence == pickle.loads(pickle.dumps(fit)).log_evidence


def test_refusals():
    X, y = sinc(30)
    with pytest.raises(ValueError, match=r"one of \['fixed_point', 'sequential'\]; got 'ard'"):
        sgp.fit_relevance_vectors(statistics(X, y), "ard")
    with pytest.raises(ValueError, match="one output.*one at a time"):
        sgp.fit_relevance_vectors(statistics(X, np.stack([y, y], axis=1)))
    with pytest.raises(ValueError, match="y is identically zero"):
        sgp.fit_relevance_vectors(statistics(X, 0 * y))
    for wrong in ({"max_iterations": -3}, {"max_iterations": 2.5}, {"max_iterations": True}, {"tolerance": np.nan}):
        with pytest.raises(ValueError, match=f"fit_relevance_vectors: `{next(iter(wrong))}` must be"):
            sgp.fit_relevance_vectors(statistics(X, y), **wrong)
    with pytest.raises(ValueError, match="`X_new` has 1 of 1 rows with entries that are not finite"):
        sgp.fit_relevance_vectors(statistics(X, y)).predict([[np.nan]])
