"""Relevance vectors for classes: Laplace's approximation against derivatives by JAX, and where awkward labels end."""

from __future__ import annotations

import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from numpyro.infer.util import log_density
from scipy.special import expit, softmax

import ppl_sgp as sgp
from ppl_sgp.relevance.laplace import find_mode
from tests.builders import by_lane

# The fit runs in float64 NumPy in either lane; its references need float64 in JAX.
float64_only = pytest.mark.float64_only


def log_joint(W, Phi, labels, precision):
    """log p(t | W) + log N(W | 0, 1/α), with all constants; W (C, k)."""
    logits = Phi @ W.T
    if W.shape[0] == 1:
        logits = jnp.concatenate([jnp.zeros_like(logits), logits], axis=1)
    log_p = jax.nn.log_softmax(logits, axis=1)[jnp.arange(len(labels)), labels].sum()
    prior = jax.scipy.stats.norm.logpdf(W, 0, jnp.broadcast_to(precision, W.shape) ** -0.5)
    return log_p + prior.sum()


def regression(C, n=80, k=3, seed=0):
    rng = np.random.default_rng(seed)
    Phi, W = rng.normal(size=(n, k)), 1.5 * rng.normal(size=(C, k))
    logits = Phi @ W.T
    probabilities = np.hstack([1 - expit(logits), expit(logits)]) if C == 1 else softmax(logits, axis=1)
    labels = np.array([rng.choice(len(p), p=p) for p in probabilities])
    return Phi, labels, np.exp(rng.normal(size=k))


@float64_only
@pytest.mark.parametrize("C", [1, 3])
def test_mode_curvature_and_evidence_are_laplace_s(C):
    Phi, labels, precision = regression(C)
    mode = find_mode(Phi, labels, precision, np.zeros((C, 3)))

    def negative(w):
        return -log_joint(w.reshape(C, 3), jnp.asarray(Phi), jnp.asarray(labels), jnp.asarray(precision))

    w = jnp.asarray(mode.weights.ravel())
    assert np.abs(jax.jit(jax.grad(negative))(w)).max() < 1e-5
    H = np.asarray(jax.jit(jax.hessian(negative))(w))
    # The curvature is that before the last step, of 1e-6 of the weights.
    np.testing.assert_allclose(mode.factor @ mode.factor.T, H, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(mode.variances().ravel(), np.diag(np.linalg.inv(H)), rtol=1e-5)
    laplace = -float(negative(w)) + 0.5 * 3 * C * np.log(2 * np.pi) - 0.5 * np.linalg.slogdet(H)[1]
    assert mode.log_evidence == pytest.approx(laplace, abs=1e-6)
    far = find_mode(Phi, labels, precision, np.full((C, 3), 30.0))
    np.testing.assert_allclose(far.weights, mode.weights, atol=1e-5)


def rings(n=300, seed=0):
    """Three classes by distance from the origin, a tenth of the labels wrong."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (n, 2))
    labels = np.digitize(np.hypot(*X.T), [0.5, 0.9])
    wrong = rng.random(n) < 0.1
    return X, np.where(wrong, rng.integers(0, 3, n), labels)


def basis_of(X, lengthscale=0.6, k=40, **options):
    return sgp.CentredBasis(X[:k], sgp.SquaredExponential(lengthscale), **options)


@pytest.mark.parametrize("binary", [True, False])
def test_a_fit_is_sparse_right_and_a_fixed_point(binary):
    X, labels = rings()
    labels = labels > 0 if binary else np.array(["inner", "middle", "outer"])[labels]
    basis = basis_of(X)
    fit = sgp.fit_relevance_classifier(basis, X, labels)
    C = 1 if binary else 3
    assert fit.converged and 0 < len(fit.relevant) < 20 and fit.weights.shape == (C, len(fit.relevant))
    assert fit.iterations == len(fit.evidence_trace) and fit.evidence_trace[-1] == fit.log_evidence
    covariance = fit.covariance_root @ fit.covariance_root.T
    variances = np.diag(covariance).reshape(C, -1)
    determined = np.sum(1 - fit.precisions * variances, axis=0)
    np.testing.assert_allclose(fit.precisions, determined / np.sum(fit.weights**2, axis=0), rtol=0.011)
    X_new, new = rings(2000, seed=1)
    new = new > 0 if binary else np.array(["inner", "middle", "outer"])[new]
    prediction = fit.predict(X_new)
    # Of a perfect rule: the labels that were replaced by others, on average a tenth times 2/3.
    assert np.mean(fit.classes[prediction.probabilities.argmax(axis=1)] == new) > 0.85
    assert prediction.log_density(new).mean() > -0.45 - 0.15 * (not binary)
    np.testing.assert_allclose(prediction.probabilities.sum(axis=1), 1, atol=1e-12 if binary else 1e-9)
    chosen = np.searchsorted(fit.classes, new)
    np.testing.assert_allclose(
        prediction.log_density(new), np.log(prediction.probabilities[np.arange(2000), chosen]), atol=1e-9
    )
    assert pickle.loads(pickle.dumps(fit)).log_evidence == fit.log_evidence


@pytest.mark.parametrize("C", [1, 3])
def test_probabilities_average_over_the_posterior(C, rng):
    X, labels = rings(120)
    labels = labels > 0 if C == 1 else labels
    fit = sgp.fit_relevance_classifier(basis_of(X, k=15), X, labels)
    X_new = rng.uniform(-1, 1, (6, 2))
    prediction = fit.predict(X_new)
    Phi = fit.basis.host_features(X_new)[:, fit.relevant]
    z = rng.normal(size=(40_000, fit.covariance_root.shape[1]))
    W = fit.weights.ravel() + z @ fit.covariance_root.T
    logits = np.einsum("nk,sck->snc", Phi, W.reshape(len(z), *fit.weights.shape))
    np.testing.assert_allclose(prediction.mean, logits.mean(axis=0), atol=0.1)
    if C == 1:
        expected = expit(logits[..., 0]).mean(axis=0)
        np.testing.assert_allclose(prediction.probabilities[:, 1], expected, atol=0.01)
    else:
        np.testing.assert_allclose(prediction.probabilities, softmax(logits, axis=-1).mean(axis=0), atol=0.01)
    sample_covariance = np.stack([np.cov(logits[:, i].T).reshape(C, C) for i in range(6)])
    np.testing.assert_allclose(prediction.covariance, sample_covariance, rtol=0.05, atol=0.02)


@pytest.mark.parametrize("case", ["noise", "separable", "duplicates", "zero column", "wide", "rare class"])
def test_awkward_data_end_in_a_defined_state(case, rng):
    X, labels = rings(60)
    labels, basis = labels > 0, basis_of(X, k=12)
    if case == "noise":
        labels = rng.random(60) < 0.5
    elif case == "separable":
        labels = X[:, 0] > 0
    elif case == "duplicates":
        basis = sgp.CentredBasis(np.repeat(X[:6], 2, axis=0), sgp.SquaredExponential(0.6))
    elif case == "zero column":
        basis = sgp.CentredBasis(np.vstack([X[:6], [[1e3, 0]]]), sgp.SquaredExponential(0.6))
    elif case == "wide":
        basis = sgp.CentredBasis(rng.uniform(-1, 1, (100, 2)), sgp.SquaredExponential(0.6))
    else:
        labels = np.arange(60) == 7
    fit = sgp.fit_relevance_classifier(basis, X, labels)
    probabilities = fit.predict(X).probabilities
    assert fit.converged and np.isfinite(fit.log_evidence) and np.isfinite(probabilities).all()
    assert probabilities.shape == (60, 2) and (probabilities > 0).all()
    np.testing.assert_allclose(probabilities.sum(axis=1), 1.0, rtol=1e-6)
    if case == "separable":
        assert np.mean((probabilities[:, 1] > 0.5) == labels) > 0.95


def test_nothing_relevant_leaves_even_odds():
    X = np.linspace(-1, 1, 40)[:, None]
    labels = np.arange(40) % 2
    fit = sgp.fit_relevance_classifier(sgp.CentredBasis(X[::8], sgp.SquaredExponential(0.5), bias=False), X, labels)
    assert fit.converged and len(fit.relevant) == 0
    assert fit.log_evidence == pytest.approx(-40 * np.log(2))
    np.testing.assert_allclose(fit.predict(X).probabilities, 0.5)
    np.testing.assert_allclose(fit.predict(X).log_density(labels), -np.log(2))


def test_limits_and_interruption(monkeypatch):
    X, labels = rings(60)
    with pytest.warns(UserWarning, match="has not converged: the iteration limit"):
        fit = sgp.fit_relevance_classifier(basis_of(X), X, labels, max_iterations=3)
    assert not fit.converged and fit.iterations == 3
    calls = []

    def stopped(*args):
        calls.append(args)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return find_mode(*args)

    monkeypatch.setattr("ppl_sgp.relevance.classification.find_mode", stopped)
    fit = sgp.fit_relevance_classifier(basis_of(X), X, labels)
    assert fit.reason == "interrupted" and fit.iterations == 2 and np.isfinite(fit.predict(X).probabilities).all()


def test_refusals():
    X, labels = rings(30)
    basis = basis_of(X, k=5)
    with pytest.raises(ValueError, match="`max_iterations` must be an integer of 1 or more"):
        sgp.fit_relevance_classifier(basis, X, labels, max_iterations=0)
    with pytest.raises(ValueError, match="at least two classes"):
        sgp.fit_relevance_classifier(basis, X, np.zeros(30))
    with pytest.raises(ValueError, match=r"`labels` must have shape \(30,\)"):
        sgp.fit_relevance_classifier(basis, X, labels[:, None])
    with pytest.raises(ValueError, match="not finite|none missing"):
        sgp.fit_relevance_classifier(basis, X, np.where(labels == 0, np.nan, labels))
    fit = sgp.fit_relevance_classifier(basis, X, labels)
    with pytest.raises(ValueError, match="are not among the classes"):
        fit.predict(X).log_density(labels + 1)
    with pytest.raises(ValueError, match=r"must have shape \(30,\)"):
        fit.predict(X).log_density(labels[:3])
    with pytest.raises(ValueError, match="an integer of 2 or more"):
        sgp.models.relevance_vector_classifier(1)
    with pytest.raises(ValueError, match="integers from 0 to 1"):
        log_density(sgp.models.relevance_vector_classifier(), (basis(X), labels), {}, {})
    with pytest.raises(ValueError, match="shape \\(n, m\\)"):
        log_density(sgp.models.relevance_vector_classifier(), (np.zeros(3), labels), {}, {})


@pytest.mark.relaxed_promotion
@pytest.mark.parametrize("C", [1, 3])
def test_joint_density_of_the_sampled_model(C):
    Phi, labels, _ = regression(C)
    rng = np.random.default_rng(3)
    z, precision = rng.normal(size=(C, 3)), np.exp(rng.normal(size=3))
    unit = 2 / np.sqrt(np.mean(Phi**2, axis=0))
    W = z / np.sqrt(precision)
    logits = np.hstack([np.zeros((80, 1)), Phi @ W.T]) if C == 1 else Phi @ W.T
    expected = np.log(softmax(logits, axis=1)[np.arange(80), labels]).sum() + scipy.stats.norm.logpdf(z).sum()
    expected += scipy.stats.gamma.logpdf(precision, 1.5, scale=1 / (0.1 * unit**2)).sum()
    model = sgp.models.relevance_vector_classifier(max(C, 2), sgp.models.GammaPrecision(1.5, 0.1))
    dtype = jnp.result_type(float)
    values = {"precision": jnp.asarray(precision, dtype), "weights_whitened": jnp.asarray(z, dtype)}
    value, trace = log_density(model, (jnp.asarray(Phi, dtype), labels), {}, values)
    assert float(value) == pytest.approx(expected, abs=by_lane(1e-9, 1e-3))
    np.testing.assert_allclose(trace["weights"]["value"], W, rtol=1e-5)
    draws = {"weights": np.stack([W, 0 * W])}
    average = 0.5 * (softmax(logits, axis=1) + 1 / max(C, 2))
    np.testing.assert_allclose(model.predict(draws, Phi).probabilities, average, atol=1e-9)


def class_predictions():
    """A prediction of each kind, of classes whose labels are text and not in order of their codes."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (120, 1))
    names = np.array(["low", "high", "middle"])
    codes = np.digitize(X[:, 0] + 0.1 * rng.normal(size=120), [-0.3, 0.4])
    basis = basis_of(X)
    yield sgp.fit_relevance_classifier(basis, X, names[codes]).predict(X[:7])
    model = sgp.models.relevance_vector_classifier(3)
    weights = rng.normal(size=(5, 3, basis.num_features))
    yield model.predict({"weights": weights}, basis.host_features(X[:7]), classes=names)


@pytest.mark.parametrize("which", [0, 1])
def test_what_all_predictions_of_classes_offer(which):
    prediction = list(class_predictions())[which]
    probabilities = prediction.probabilities
    np.testing.assert_allclose(probabilities.sum(axis=1), 1.0, rtol=1e-6)
    np.testing.assert_array_equal(prediction.labels, prediction.classes[probabilities.argmax(axis=1)])
    for column, name in enumerate(prediction.classes):
        np.testing.assert_allclose(prediction.log_density([name] * 7), np.log(probabilities[:, column]), rtol=1e-9)
    drawn = prediction.sample(jax.random.key(0), 20_000)
    assert drawn.shape == (20_000, 7) and drawn.dtype == prediction.classes.dtype
    shares = np.stack([np.mean(drawn == name, axis=0) for name in prediction.classes], axis=1)
    np.testing.assert_allclose(shares, probabilities, atol=0.02)
    with pytest.raises(ValueError, match=r"labels \['other'\] are not among the classes"):
        prediction.log_density(["other"] * 7)
    with pytest.raises(ValueError, match=r"must have shape \(7,\), one for each row; got \(2,\)"):
        prediction.log_density(["low", "high"])


def test_predictions_of_the_sampled_model_refuse_what_does_not_fit():
    model, draws = sgp.models.relevance_vector_classifier(2), {"weights": np.zeros((1, 1, 4))}
    assert model.predict(draws, np.ones((3, 4))).classes.tolist() == [0, 1]
    for wrong in (["a"], ["a", "a"], [["a", "b"]]):
        with pytest.raises(ValueError, match="`classes` must be 2 different labels"):
            model.predict(draws, np.ones((3, 4)), classes=wrong)
    for features in (np.ones((3, 5)), np.ones(4), np.full((3, 4), np.nan)):
        with pytest.raises(ValueError, match=r"`features` must be finite, shape \(n_new, 4\)"):
            model.predict(draws, features)
