"""Discrete weights of a logistic regression: bounds, gradients, fits and predictions against enumeration."""

from __future__ import annotations

import itertools

import jax
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy.integrate import quad
from scipy.special import expit, log_expit, log_softmax, logsumexp
from scipy.stats import norm

import ppl_sgp as sgp
from ppl_sgp.direct.logistic import random_batches
from ppl_sgp.direct.logistic_bounds import BOUNDS, LogitObjective, QuadraticObjective
from ppl_sgp.direct.problem import LevelPrior
from tests.builders import IdentityBasis
from tests.direct.brute import central_differences, log_prob_of

pytestmark = pytest.mark.float64_only  # on the host, whatever the lane

LEVELS = [-2.0, -0.5, 0.0, 1.5]


def regression(n=8, b=4, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, b))
    labels = (rng.uniform(size=n) < expit(X @ rng.normal(size=b))).astype(int)
    return X, labels, sgp.DiscreteRelaxation(dist.Normal(0.2, 1.0), support=LEVELS)


def signed(X, labels):
    return (2.0 * labels - 1)[:, None] * X


def enumerated(levels):
    """All configurations (m̄ᵇ, b) and the positions of their levels."""
    codes = np.array(list(itertools.product(range(levels.shape[1]), repeat=len(levels))))
    return np.take_along_axis(levels.T, codes, axis=0), codes


def log_likelihoods(X, labels, W):
    """log p(labels | w) of each configuration, from p(1) = expit(φᵀw) and p(0) = 1 − p(1)."""
    p = expit(W @ X.T)
    return np.log(np.where(labels == 1, p, 1 - p)).sum(axis=1)


def random_q(rng, b=4, num_levels=4):
    return log_softmax(2 * rng.normal(size=(b, num_levels)), axis=1)


@pytest.fixture(scope="module")
def fits():
    X, labels, prior = regression()
    return {
        bound: sgp.direct.fit_logistic(IdentityBasis(4), X, labels, prior, bound=bound, tolerance=1e-10)
        for bound in BOUNDS
    }


def test_bounds_are_below_the_enumerated_expectation_and_taylor_is_below_jensen():
    X, labels, prior = regression()
    levels = LevelPrior.of(prior, 4).levels
    W, codes = enumerated(levels)
    likelihood, rng, quadratic_wins = log_likelihoods(X, labels, W), np.random.default_rng(1), 0
    for _ in range(300):
        q = random_q(rng)
        exact = np.exp(log_prob_of(q, codes)) @ likelihood
        values = {name: bound(signed(X, labels), levels, q)[0] for name, bound in BOUNDS.items()}
        assert values["taylor"] <= values["jensen"] <= exact + 1e-10
        assert values["jaakkola"] <= exact + 1e-10
        quadratic_wins += values["jaakkola"] > values["jensen"]
    assert quadratic_wins > 290  # on 300 of these; not always, as the next test says


def test_jensen_is_above_the_quadratic_bound_where_labels_are_nearly_certain():
    levels, log_probs = np.array([[3.0, 5.0]]), np.log([[0.5, 0.5]])
    values = {name: bound(np.ones((1, 1)), levels, log_probs)[0] for name, bound in BOUNDS.items()}
    assert values["jaakkola"] < values["taylor"] < values["jensen"] < 0.5 * log_expit([3.0, 5.0]).sum()


def test_bounds_are_their_definitions_by_enumeration(rng):
    X, labels, prior = regression()
    levels = LevelPrior.of(prior, 4).levels
    W, codes = enumerated(levels)
    q = random_q(rng)
    probs, z = np.exp(log_prob_of(q, codes)), W @ signed(X, labels).T
    moments = probs @ np.exp(-z)
    mean, xi = probs @ z, np.sqrt(probs @ z**2)
    expected = {
        "taylor": -moments.sum(),
        "jensen": -np.log1p(moments).sum(),
        "jaakkola": np.sum(log_expit(xi) + (mean - xi) / 2),
    }
    for name, bound in BOUNDS.items():
        assert bound(signed(X, labels), levels, q)[0] == pytest.approx(expected[name], rel=1e-12)
    # Any other ξ is worse.
    lam = np.tanh(1.1 * xi / 2) / (4 * 1.1 * xi)
    other = np.sum(log_expit(1.1 * xi) + (mean - 1.1 * xi) / 2 - lam * (xi**2 - (1.1 * xi) ** 2))
    assert other < expected["jaakkola"]


def test_the_first_form_of_theorem_7_2_needs_q_j_not_the_printed_q_i(rng):
    """With p(0) = expit(φᵀw), (7.18) is −Σ yᵢE φᵢᵀw − Σ … and collapses to −Σ∏ only with qⱼ."""
    X, labels, prior = regression(n=4)
    levels = LevelPrior.of(prior, 4).levels
    q = random_q(rng)
    probs, mean = np.exp(q), np.sum(np.exp(q) * levels, axis=1)
    t = 1.0 - 2 * labels

    def printed(index_of):
        total = -mean @ (X.T @ labels)
        for i, row in enumerate(X):
            product = np.prod([probs[j] @ np.exp(-t[i] * row[j] * levels[j]) for j in range(4)])
            linear = sum(probs[index_of(i, j)] @ (row[j] * levels[j]) for j in range(4))
            total -= product if labels[i] == 0 else product - linear
        return total

    ours = BOUNDS["taylor"](t[:, None] * X, levels, q)[0]
    assert printed(lambda i, j: j) == pytest.approx(ours, rel=1e-12)
    assert abs(printed(lambda i, j: i) - ours) > 0.1


@pytest.mark.parametrize("name", BOUNDS)
def test_gradients_in_logits(name, rng):
    X, labels, prior = regression()
    objective = LogitObjective(signed(X, labels), LevelPrior.of(prior, 4), BOUNDS[name], share=1.7)
    vector = rng.normal(size=16)
    np.testing.assert_allclose(
        objective(vector)[1], central_differences(lambda x: objective(x)[0], vector), rtol=1e-6, atol=1e-7
    )


def test_gradients_in_two_parameters_a_weight(rng):
    X, labels, prior = regression()
    objective = QuadraticObjective(signed(X, labels), LevelPrior.of(prior, 4))
    vector = rng.normal(size=8)
    np.testing.assert_allclose(
        objective(vector)[1], central_differences(lambda x: objective(x)[0], vector), rtol=1e-6, atol=1e-7
    )
    log_probs = objective.distribution(vector)
    same = LogitObjective(signed(X, labels), LevelPrior.of(prior, 4), BOUNDS["jaakkola"])
    assert objective(vector)[0] == pytest.approx(same(log_probs.ravel())[0], rel=1e-12)


def test_sweeps_never_lower_the_bound(rng):
    X, labels, prior = regression(n=30)
    objective = QuadraticObjective(signed(X, labels), LevelPrior.of(prior, 4))
    vector = rng.normal(size=8)
    for _ in range(10):
        swept = objective.sweep(vector)
        assert objective(swept)[0] >= objective(vector)[0] - 1e-12
        vector = swept


@pytest.mark.parametrize("name", BOUNDS)
def test_a_fit_is_below_the_evidence_and_the_best_for_each_weight(name, fits, rng):
    X, labels, prior = regression()
    fit, factorised = fits[name], LevelPrior.of(prior, 4)
    W, codes = enumerated(fit.levels)
    log_prior = log_prob_of(factorised.log_probs[0], codes)
    likelihood = log_likelihoods(X, labels, W)
    log_q = log_prob_of(fit.log_probabilities, codes)
    exact = np.exp(log_q) @ (likelihood + log_prior - log_q)
    assert fit.converged
    assert fit.elbo <= exact <= logsumexp(likelihood + log_prior)
    objective = LogitObjective(signed(X, labels), factorised, BOUNDS[name])
    assert objective(fit.log_probabilities.ravel())[0] == pytest.approx(fit.elbo, abs=1e-10)
    for j in range(4):
        for _ in range(10):
            moved = fit.log_probabilities.copy()
            moved[j] = log_softmax(moved[j] + rng.choice([0.01, 1.0]) * rng.normal(size=4))
            assert objective(moved.ravel())[0] <= fit.elbo + 1e-9


def test_the_default_is_the_tightest_on_a_fit(fits):
    assert fits["taylor"].elbo < fits["jensen"].elbo < fits["jaakkola"].elbo


def test_products_stay_in_logarithms(rng):
    b, n = 2000, 5
    levels, log_probs = np.tile(np.linspace(-3, 3, 15), (b, 1)), np.full((b, 15), -np.log(15))
    rows = 2 * rng.normal(size=(n, b))
    value, gradient = BOUNDS["jensen"](rows, levels, log_probs)
    assert np.isfinite(gradient).all()
    logs = [sum(logsumexp(-rows[i, j] * levels[j]) - np.log(15) for j in range(b)) for i in range(n)]
    assert min(logs) > 710  # exp overflows
    assert value == pytest.approx(-sum(logs), rel=1e-10)
    value, gradient = BOUNDS["taylor"](rows, levels, log_probs)
    assert -np.inf < value < -1e250 and np.isfinite(gradient).all()


def test_blocks_of_rows_add_up(monkeypatch, rng):
    X, labels, prior = regression()
    levels, q = LevelPrior.of(prior, 4).levels, random_q(rng)
    whole = {name: bound(signed(X, labels), levels, q) for name, bound in BOUNDS.items()}
    monkeypatch.setattr("ppl_sgp.direct.logistic_bounds.MAX_VALUES", 3 * levels.size)
    for name, bound in BOUNDS.items():
        value, gradient = bound(signed(X, labels), levels, q)
        assert value == pytest.approx(whole[name][0], rel=1e-12)
        np.testing.assert_allclose(gradient, whole[name][1], atol=1e-12)


@pytest.mark.parametrize("name", BOUNDS)
def test_batches_average_to_all_rows(name, rng, key):
    X, labels, prior = regression()
    levels, vector = LevelPrior.of(prior, 4), rng.normal(size=16)
    batches = list(itertools.islice(random_batches(key, 8, 2), 4))
    assert sorted(np.concatenate(batches)) == list(range(8))
    parts = [LogitObjective(signed(X[r], labels[r]), levels, BOUNDS[name], share=4.0)(vector) for r in batches]
    value, gradient = LogitObjective(signed(X, labels), levels, BOUNDS[name])(vector)
    assert np.mean([part[0] for part in parts]) == pytest.approx(value, rel=1e-12)
    np.testing.assert_allclose(np.mean([part[1] for part in parts], axis=0), gradient, atol=1e-12)


def test_batches_are_no_larger_than_asked_for(key):
    batches = list(itertools.islice(random_batches(key, 10, 4), 6))
    assert all(len(batch) <= 4 for batch in batches)
    assert not np.array_equal(np.concatenate(batches[:3]), np.concatenate(batches[3:]))


@pytest.mark.parametrize("name", BOUNDS)
def test_minibatches_come_near_the_full_fit(name, fits, key):
    X, labels, prior = regression()
    fit = sgp.direct.fit_logistic(
        IdentityBasis(4), X, labels, prior, bound=name, batch_size=4, key=key, max_iterations=800
    )
    assert not fit.converged and fit.reason == "the given number of steps was made"
    assert fit.iterations == 800 and len(fit.elbo_trace) == 801
    assert fits[name].elbo - 0.1 < fit.elbo <= fits[name].elbo + 1e-6
    np.testing.assert_allclose(fit.probabilities.sum(axis=1), 1, atol=1e-12)


def test_predictions_are_moments_over_all_configurations(fits, rng):
    fit, X_new = fits["jaakkola"], rng.normal(size=(6, 4))
    W, codes = enumerated(fit.levels)
    probs, f = np.exp(log_prob_of(fit.log_probabilities, codes)), W @ X_new.T
    prediction = fit.predict(X_new, max_memory=200)
    np.testing.assert_allclose(prediction.mean, probs @ f, atol=1e-12)
    np.testing.assert_allclose(prediction.variance, probs @ f**2 - (probs @ f) ** 2, atol=1e-12)
    for i in range(6):
        scale = np.sqrt(prediction.variance[i])
        expected = quad(lambda z, i=i, s=scale: expit(prediction.mean[i] + s * z) * norm.pdf(z), -9, 9)[0]
        np.testing.assert_allclose(prediction.probabilities[i], [1 - expected, expected], atol=1e-8)
    # The normal is an approximation: these weights have four levels each.
    np.testing.assert_allclose(prediction.probabilities[:, 1], probs @ expit(f), atol=0.03)
    labels = np.array([0, 1, 1, 0, 1, 0])
    np.testing.assert_allclose(prediction.log_density(labels), np.log(prediction.probabilities[range(6), labels]))
    np.testing.assert_array_equal(prediction.log_density(labels), prediction.log_density(labels == 1))
    assert fit.predict(np.zeros((0, 4))).probabilities.shape == (0, 2)


def test_averages_of_a_step_are_accurate():
    """Of logits with a large variance the logistic function is nearly a step."""
    fit = sgp.direct.fit_logistic(
        IdentityBasis(1), [[0.0]], [1], sgp.DiscreteRelaxation(dist.Normal(0.0, 30.0), support=[-30.0, 31.0])
    )
    prediction = fit.predict([[1.0]])
    mean, scale = prediction.mean[0], np.sqrt(prediction.variance[0])
    expected = quad(lambda f: expit(f) * norm.pdf(f, mean, scale), mean - 9 * scale, mean + 9 * scale, points=[0])[0]
    assert prediction.probabilities[0, 1] == pytest.approx(expected, abs=1e-5)


def test_what_the_posterior_offers(fits, key):
    fit = fits["jaakkola"]
    W, codes = enumerated(fit.levels)
    probs = np.exp(log_prob_of(fit.log_probabilities, codes))
    np.testing.assert_allclose(fit.mean, probs @ W, atol=1e-12)
    np.testing.assert_allclose(fit.variance, probs @ W**2 - (probs @ W) ** 2, atol=1e-12)
    assert fit.sparsity == pytest.approx(probs @ np.mean(W == 0, axis=1))
    draws = fit.sample(key, (200, 10))
    assert draws.shape == (200, 10, 4) and np.isin(draws, LEVELS).all()
    np.testing.assert_allclose(draws.mean(axis=(0, 1)), fit.mean, atol=0.12)
    np.testing.assert_allclose(fit.quantize().weights, np.array(LEVELS)[fit.probabilities.argmax(axis=1)], atol=1e-6)
    np.testing.assert_allclose(fit.quantize(key).weights, fit.sample(key), atol=1e-6)


def test_labels_of_one_class_leave_the_prior_in_charge():
    X = np.ones((5, 1))
    prior = sgp.DiscreteRelaxation(dist.Normal(0.0, 1.0))
    fit = sgp.direct.fit_logistic(IdentityBasis(1), X, np.zeros(5, bool), prior)
    assert fit.converged and -3 < fit.mean[0] < -0.5
    assert np.isfinite(fit.log_probabilities).all()
    assert fit.predict(X[:1]).probabilities[0, 0] > 0.5


def test_labels_swap_with_the_sign_of_features(fits):
    X, labels, prior = regression()
    flipped = sgp.direct.fit_logistic(IdentityBasis(4), -X, 1 - labels, prior, tolerance=1e-10)
    np.testing.assert_allclose(flipped.probabilities, fits["jaakkola"].probabilities, atol=1e-6)


def test_interrupting_returns_what_was_reached(monkeypatch, key):
    X, labels, prior = regression()
    calls = itertools.count()
    original = LogitObjective.__call__

    def interrupted(self, vector):
        if next(calls) == 5:
            raise KeyboardInterrupt
        return original(self, vector)

    monkeypatch.setattr(LogitObjective, "__call__", interrupted)
    for options in ({}, {"batch_size": 4, "key": key}):
        calls = itertools.count()
        fit = sgp.direct.fit_logistic(IdentityBasis(4), X, labels, prior, bound="jensen", **options)
        assert fit.reason == "interrupted" and not fit.converged
        assert np.isfinite(fit.elbo) and np.isfinite(fit.log_probabilities).all()


def test_the_bound_asked_for_is_reported_when_interrupted_before_it(monkeypatch):
    X, labels, prior = regression()
    original, calls = QuadraticObjective.__call__, itertools.count()

    def interrupted(self, vector):
        if next(calls) == 3:
            raise KeyboardInterrupt
        return original(self, vector)

    monkeypatch.setattr(QuadraticObjective, "__call__", interrupted)
    fit = sgp.direct.fit_logistic(IdentityBasis(4), X, labels, prior, bound="taylor")
    objective = LogitObjective(signed(X, labels), LevelPrior.of(prior, 4), BOUNDS["taylor"])
    assert fit.reason == "interrupted" and fit.elbo == objective(fit.log_probabilities.ravel())[0]


def test_too_few_iterations_warn():
    X, labels, prior = regression()
    with pytest.warns(UserWarning, match="has not converged: the iteration limit was reached"):
        fit = sgp.direct.fit_logistic(IdentityBasis(4), X, labels, prior, max_iterations=2)
    assert not fit.converged


def test_priors_a_weight():
    X, labels, _ = regression(b=2)
    each = [sgp.DiscreteRelaxation(dist.Normal(0.0, scale), num_levels=5) for scale in (0.1, 2.0)]
    fit = sgp.direct.fit_logistic(IdentityBasis(2), X, labels, each)
    assert fit.levels[0, -1] == pytest.approx(0.3) and fit.levels[1, -1] == pytest.approx(6.0)


WIDE = sgp.DiscreteRelaxation(dist.Normal(0.0, 1.0), support=[-1.0, 1.0])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"X": np.zeros(3)}, "`X` must have shape \\(n, 4\\)"),
        ({"X": np.full((8, 4), np.nan)}, "`X` has 8 of 8 rows with entries that are not finite"),
        ({"X": np.zeros((0, 4)), "labels": []}, "`X` has no rows"),
        ({"X": np.full((8, 4), 1e60)}, "too large for float64 arithmetic"),
        ({"labels": np.ones(7)}, "`labels` must have shape \\(8,\\).*got \\(7,\\)"),
        ({"labels": [1, -1, 1, -1, 1, 1, 1, 2]}, "must be of two classes; got 3: \\[-1, 1, 2\\].*labels == positive"),
        ({"labels": np.full(8, np.nan)}, "`labels` must all be numbers.*none missing; row 0 is .*nan.*Drop"),
        ({"labels": ["a"] * 8}, "must be of two classes; got 1: \\['a'\\].*use 0 and 1"),
        ({"prior": dist.Normal(0.0, 1.0)}, "`prior` must be a sgp.DiscreteRelaxation"),
        ({"prior": sgp.direct.MixturePrior([WIDE, WIDE], [0.5, 0.5])}, "must be factorised; got a mixture of 2"),
        (
            {"prior": sgp.DiscreteRelaxation.from_logits([0.0, 1.0], [0.0, -np.inf], validate_args=False)},
            "levels of probability zero",
        ),
        ({"bound": "laplace"}, "`bound` must be one of .*got 'laplace'"),
        ({"batch_size": 4}, "pass `key="),
        ({"key": jax.random.key(0)}, "pass `batch_size` too"),
        ({"batch_size": 4, "key": jax.random.key(0), "tolerance": 1e-3}, "`tolerance` does not go with `batch_size`"),
        ({"batch_size": 9, "key": jax.random.key(0)}, "an integer from 1 to 8.*got 9"),
        ({"batch_size": True, "key": jax.random.key(0)}, "an integer of 1 or more; got True"),
        ({"max_iterations": 0}, "`max_iterations` must be an integer of 1 or more; got 0"),
        ({"max_iterations": 10.5}, "`max_iterations` must be an integer of 1 or more; got 10.5"),
    ],
)
def test_refusals(changes, message):
    X, labels, prior = regression()
    arguments = {"X": X, "labels": labels, "prior": prior, **changes}
    with pytest.raises(ValueError, match=message):
        sgp.direct.fit_logistic(IdentityBasis(4), **arguments)


def test_a_taylor_bound_that_overflows_is_refused():
    """Labels that contradict each other under weights that are never small."""
    X, labels = np.full((2, 1), 100.0), [0, 1]
    with pytest.raises(ValueError, match="the bound 'taylor' is -.*`bound='jensen'`"):
        sgp.direct.fit_logistic(IdentityBasis(1), X, labels, WIDE, bound="taylor")
    assert np.isfinite(sgp.direct.fit_logistic(IdentityBasis(1), X, labels, WIDE, bound="jensen").elbo)


def test_predictions_refuse_other_labels(fits):
    prediction = fits["jaakkola"].predict(np.zeros((2, 4)))
    with pytest.raises(ValueError, match=r"log_density: labels \[.*\] are not among the classes \[0, 1\]"):
        prediction.log_density([0, 3])
    with pytest.raises(ValueError, match="must have shape \\(2,\\)"):
        prediction.log_density([0])
    with pytest.raises(ValueError, match="not finite"):
        fits["jaakkola"].predict(np.full((1, 4), np.inf))
