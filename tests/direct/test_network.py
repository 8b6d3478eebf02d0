"""Networks with quadratic activations: exact ELBO, gradient and predictions against all configurations of weights."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math

import jax
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy.special import log_softmax, logsumexp

import ppl_sgp as sgp
from ppl_sgp.direct import network_polynomial
from ppl_sgp.direct.network_objective import NetworkObjective
from ppl_sgp.direct.network_polynomial import NetworkPolynomial
from ppl_sgp.direct.problem import Problem

pytestmark = pytest.mark.float64_only  # on the host, whatever the lane

WIDTHS = [(2, 2, 1), (1, 2, 1, 1), (2, 1, 1, 1), (3, 1)]
SCALES, LOG_PRIOR = np.array([0.3, 0.9]), log_softmax(np.array([0.0, 0.7]))


def forward(X, weights, widths):
    """The network as anyone would write it: weights (b,), X (n, d)."""
    state, end = X.T, 0
    for layer, (inputs, units) in enumerate(itertools.pairwise(widths)):
        W, end = weights[end : end + inputs * units].reshape(units, inputs), end + inputs * units
        state = W @ (state**2 if layer else state)
    return state[0]


@dataclasses.dataclass
class Case:
    """A small problem, a random q, and the outputs of all configurations, (m̄ᵇ, n)."""

    widths: tuple
    X: np.ndarray
    y: np.ndarray
    prior: list
    problem: Problem
    polynomial: NetworkPolynomial
    objective: NetworkObjective
    vector: np.ndarray

    def every(self, X):
        levels = self.problem.prior.levels
        configurations = np.array(list(itertools.product(*levels)))
        return np.array([forward(X, w, self.widths) for w in configurations])

    def joint(self, log_probs):
        """Log-probabilities of all configurations from (b, m̄) of each weight."""
        return np.array([sum(each) for each in itertools.product(*log_probs)])

    def elbo(self, vector):
        """By enumeration of weights and noise levels."""
        log_probs, log_noise = self.objective.distribution(vector)
        log_q = self.joint(log_probs)[:, None] + log_noise
        log_prior = self.joint(self.problem.prior.log_probs[0])[:, None] + self.problem.log_noise_prior
        return float(np.sum(np.exp(log_q) * (self.log_likelihood() + log_prior - log_q)))

    def log_likelihood(self):
        residuals = np.sum((self.y - self.every(self.X)) ** 2, axis=1)[:, None]
        return -0.5 * len(self.y) * np.log(2 * np.pi * SCALES**2) - 0.5 * residuals / SCALES**2

    def log_evidence(self):
        log_prior = self.joint(self.problem.prior.log_probs[0])[:, None] + self.problem.log_noise_prior
        return float(logsumexp(self.log_likelihood() + log_prior))


@functools.cache
def make(widths, seed=0, num_rows=5, num_levels=3):
    rng = np.random.default_rng(seed)
    X, y = rng.standard_normal((num_rows, widths[0])), rng.standard_normal(num_rows)
    polynomial = NetworkPolynomial.of(widths)
    prior = [
        sgp.DiscreteRelaxation(dist.Normal(0.2, 1.0), support=np.sort(0.8 * rng.standard_normal(num_levels)))
        for _ in range(polynomial.num_weights)
    ]
    basis = sgp.PolynomialBasis(widths[0], polynomial.degree)
    statistics = sgp.sufficient_statistics(basis, X, y)
    problem = Problem.of(statistics, prior, (SCALES, LOG_PRIOR), polynomial.num_weights)
    objective = NetworkObjective(problem, polynomial, polynomial.positions(basis.powers))
    vector = rng.standard_normal(polynomial.num_weights * num_levels + 2)
    return Case(widths, X, y, prior, problem, polynomial, objective, vector)


@pytest.fixture(params=WIDTHS, ids=lambda widths: "-".join(map(str, widths)))
def case(request):
    return make(request.param)


def fitted(case, **changes):
    """A fit of the case, with changes."""
    arguments = {"noise_scale": (SCALES, LOG_PRIOR), "hidden": case.widths[1:-1], "num_starts": 2, **changes}
    return sgp.direct.fit_network(case.X, case.y, case.prior, **arguments)


@functools.cache
def fitted_once(widths):
    """The fit of a case, from one start."""
    return fitted(make(widths), num_starts=1)


@pytest.fixture
def random_fit(case):
    """A result with the case's random q: nothing of it has been optimised."""
    result = fitted_once(case.widths)
    log_probs, log_noise = case.objective.distribution(case.vector)
    return dataclasses.replace(result, log_probabilities=log_probs, noise_probabilities=np.exp(log_noise))


def test_polynomial_is_the_network(case, rng):
    weights = rng.standard_normal((4, case.polynomial.num_weights))
    for w in weights:
        monomials = case.polynomial.singles((w[:, None] ** np.arange(case.polynomial.num_powers)).ravel())
        np.testing.assert_allclose(monomials, np.prod(w**case.polynomial.exponents, axis=1), rtol=1e-13)
        inputs = np.prod(case.X[:, None] ** case.polynomial.input_powers, axis=2)
        output = inputs @ (case.polynomial.coefficients * monomials)
        np.testing.assert_allclose(output, forward(case.X, w, case.widths), rtol=1e-12, atol=1e-12)


def test_elbo_equals_enumeration(case):
    value = case.objective(case.vector)[0]
    assert value == pytest.approx(case.elbo(case.vector), rel=1e-12)
    # (E.7) as printed leaves out −n/2 log 2π.
    log_probs, log_noise = case.objective.distribution(case.vector)
    residual, noise = case.objective.residual(case.objective.moments(log_probs))[0], np.exp(log_noise)
    likelihood = -0.5 * len(case.y) * noise @ np.log(SCALES**2) - 0.5 * residual * (noise @ SCALES**-2)
    divergence = np.sum(np.exp(log_probs) * (log_probs - case.problem.prior.log_probs[0]))
    printed = likelihood - divergence - noise @ (log_noise - case.problem.log_noise_prior)
    assert printed - value == pytest.approx(0.5 * len(case.y) * math.log(2 * math.pi), rel=1e-9)


def test_gradient_equals_central_differences(case):
    _, gradient = case.objective(case.vector)
    step = 1e-5
    differences = [
        (case.objective(case.vector + e)[0] - case.objective(case.vector - e)[0]) / (2 * step)
        for e in step * np.eye(len(case.vector))
    ]
    np.testing.assert_allclose(gradient, differences, rtol=1e-6, atol=1e-6 * np.abs(gradient).max())


def test_a_sweep_sets_each_weight_to_its_best_given_the_others(case):
    vector = case.vector
    for _ in range(200):
        swept = case.objective.sweep(vector)
        assert case.objective(swept)[0] >= case.objective(vector)[0] - 1e-9
        vector = swept
    _, gradient = case.objective(vector)
    assert np.abs(gradient[:-2]).max() < 1e-6


def test_predictions_equal_enumeration(case, random_fit, rng):
    X_new = rng.standard_normal((3, case.widths[0]))
    q = np.exp(case.joint(random_fit.log_probabilities))
    outputs = case.every(X_new)
    prediction = random_fit.predict(X_new, row_weights=[1.0, 2.0, 0.5])
    np.testing.assert_allclose(prediction.mean, q @ outputs, rtol=1e-10, atol=1e-12)
    variance = q @ outputs**2 - (q @ outputs) ** 2
    np.testing.assert_allclose(prediction.variance, variance, rtol=1e-8, atol=1e-11)
    noise = random_fit.noise_probabilities
    assert prediction.noise_variance == pytest.approx(noise @ SCALES**2, rel=1e-12)
    y_new = rng.standard_normal(3)
    total = prediction.variance + SCALES[:, None] ** 2 / np.array([1.0, 2.0, 0.5])
    densities = np.exp(-0.5 * (y_new - prediction.mean) ** 2 / total) / np.sqrt(2 * np.pi * total)
    np.testing.assert_allclose(prediction.log_density(y_new), np.log(noise @ densities), rtol=1e-10)
    with pytest.raises(ValueError, match="y_new"):
        prediction.log_density(y_new[:2])


def test_draws_come_from_the_posterior(case, random_fit, key):
    X_new = np.ones((2, case.widths[0])) * np.array([[0.7], [-1.1]])
    weights = random_fit.sample(key, (50, 2))
    assert weights.shape == (50, 2, case.polynomial.num_weights)
    assert np.any(weights[..., None] == case.problem.prior.levels, axis=-1).all()
    count = 20000
    blocks = random_fit.predict(X_new, max_memory=1.0)
    whole = random_fit.predict(X_new)
    f = whole.sample(key, count, noise=False)
    np.testing.assert_allclose(f[:5], blocks.sample(key, count, noise=False)[:5], rtol=1e-12)
    error = np.sqrt(whole.variance / count)
    assert (np.abs(f.mean(axis=0) - whole.mean) < 5 * error).all()
    np.testing.assert_allclose(f.var(axis=0), whole.variance, rtol=0.15)
    y = whole.sample(key, count)
    np.testing.assert_allclose(y.var(axis=0), whole.variance + whole.noise_variance, rtol=0.15)
    assert random_fit.predict(np.zeros((0, case.widths[0]))).mean.shape == (0,)


def test_weights_are_named_in_order(case):
    names = fitted_once(case.widths).weight_names
    assert len(names) == len(case.prior)
    # Outputs do not change with the weights of a unit's input that is zero.
    layer, _, source = names[0]
    assert (layer, source) == (0, 0)
    X = case.X.copy()
    X[:, source] = 0
    weights = np.ones(len(names))
    changed = np.where([name[0] == 0 and name[2] == source for name in names], 7.0, weights)
    np.testing.assert_array_equal(forward(X, weights, case.widths), forward(X, changed, case.widths))
    assert sorted(names) == list(names)


def test_fit_is_below_the_evidence_and_repeats():
    case = make((2, 2, 1))
    result, again = fitted(case), fitted(case)
    assert result.converged and result.reason == "the bound has settled"
    assert result.elbo == again.elbo
    log_probs, log_noise = result.log_probabilities, np.log(result.noise_probabilities)
    assert result.elbo == pytest.approx(case.elbo(np.concatenate([log_probs.ravel(), log_noise])), abs=1e-9)
    assert result.elbo <= case.log_evidence()
    assert result.iterations == len(result.elbo_trace) - 1
    more = fitted(case, num_starts=8)
    assert result.elbo - 1e-6 <= more.elbo <= case.log_evidence()
    assert np.isfinite(fitted(case, key=jax.random.key(5)).elbo)


def test_a_function_is_recovered():
    rng = np.random.default_rng(1)
    X = rng.uniform(-1, 1, (200, 2))
    f = (X[:, 0] + X[:, 1]) ** 2
    prior = sgp.DiscreteRelaxation(dist.Normal(0.0, 1.0), num_levels=7)
    result = sgp.direct.fit_network(X, f + 0.1 * rng.standard_normal(200), prior, noise_scale=0.1)
    prediction = result.predict(X)
    assert np.sqrt(np.mean((prediction.mean - f) ** 2)) < 0.03
    assert result.elbo > 100 and result.variance.shape == (6,)


def test_without_hidden_layers_it_is_linear_regression():
    rng = np.random.default_rng(2)
    X = rng.standard_normal((30, 3))
    y = X @ [0.5, -1.0, 0.0] + 0.3 * rng.standard_normal(30)
    prior = sgp.DiscreteRelaxation(dist.Normal(0.0, 1.0), num_levels=7)
    network = sgp.direct.fit_network(X, y, prior, hidden=(), noise_scale=0.3)
    linear = sgp.direct.fit(
        sgp.sufficient_statistics(sgp.LinearBasis(3, bias=False), X, y), prior, noise_scale=0.3, tolerance=1e-9
    )
    assert network.elbo == pytest.approx(linear.elbo, abs=1e-3)


def test_rows_may_come_in_chunks_with_weights_and_in_other_units():
    case = make((2, 2, 1), num_rows=12)
    basis = sgp.PolynomialBasis(2, 2)
    parts = [sgp.sufficient_statistics(basis, case.X[rows], case.y[rows]) for rows in (slice(0, 5), slice(5, 12))]
    whole = fitted(case)
    chunked = sgp.direct.fit_network(
        parts[0] + parts[1], None, case.prior, noise_scale=(SCALES, LOG_PRIOR), hidden=(2,), num_starts=2
    )
    assert chunked.elbo == pytest.approx(whole.elbo, abs=1e-9)
    np.testing.assert_allclose(chunked.predict(case.X).mean, whole.predict(case.X).mean, atol=1e-9)

    # Inputs may be standardised by the basis, and known precisions of rows enter as in regression.
    scaled = sgp.PolynomialBasis(2, 2, centre=[1.0, -2.0], scale=[2.0, 5.0])
    X = case.X * [2.0, 5.0] + [1.0, -2.0]
    other = sgp.direct.fit_network(
        sgp.sufficient_statistics(scaled, X, case.y, row_weights=np.full(12, 4.0)),
        None,
        case.prior,
        noise_scale=(2 * SCALES, LOG_PRIOR),
        num_starts=2,
    )
    assert other.elbo == pytest.approx(whole.elbo, abs=1e-7)
    key = jax.random.key(3)
    draws = [fit.predict(rows).sample(key, 4, noise=False) for fit, rows in ((other, X), (whole, case.X))]
    np.testing.assert_allclose(*draws, atol=1e-9)


PRIOR = sgp.DiscreteRelaxation(dist.Normal(0.0, 1.0), num_levels=3)
X, Y = np.linspace(-1, 1, 12).reshape(6, 2), np.linspace(0, 1, 6)
STATISTICS = {
    name: lambda basis=basis, y=y: sgp.sufficient_statistics(basis, X, y)
    for name, (basis, y) in {
        "other basis": (sgp.LinearBasis(2), Y),
        "other degree": (sgp.PolynomialBasis(2, 4), Y),
        "no interactions": (sgp.PolynomialBasis(2, 2, interactions=False), Y),
        "two outputs": (sgp.PolynomialBasis(2, 2), np.stack([Y, Y], axis=1)),
        "with y": (sgp.PolynomialBasis(2, 2), Y),
    }.items()
}
REFUSALS = {
    "too large": ({"hidden": (60, 60)}, r"network 2-60-60-1 has at least h = [\d,]+ monomials"),
    "too deep": ({"hidden": (1,) * 6}, "at most 5 hidden layers are taken; got 6"),
    "no tuple": ({"hidden": 2}, "`hidden` must be a tuple"),
    "width": ({"hidden": (0,)}, "`hidden` must be an integer of 1 or more; got 0"),
    "bool": ({"hidden": (True,)}, "`hidden` must be an integer of 1 or more; got True"),
    "starts": ({"num_starts": 0}, "`num_starts` must be an integer of 1 or more; got 0"),
    "iterations": ({"max_iterations": 0}, "`max_iterations` must be an integer of 1 or more; got 0"),
    "one column": ({"X": X[:, 0]}, "X.:, None."),
    "y of two columns": ({"y": X}, "`y` must have shape"),
    "other length": ({"y": Y[:5]}, "must match"),
    "not finite": ({"X": np.where(X > 0.9, np.nan, X)}, "not finite"),
    "y not finite": ({"y": np.where(Y > 0.9, np.inf, Y)}, "not finite"),
    "prior": ({"prior": [PRIOR] * 5}, "all 6 weights"),
    "mixture": ({"prior": sgp.direct.MixturePrior([PRIOR, PRIOR], [0.5, 0.5])}, "not a mixture"),
    "noise": ({"noise_scale": -1.0}, "`noise_scale` must be positive"),
    **{name: ({"statistics": name}, r"PolynomialBasis\(2, 2\)") for name in STATISTICS},
}


@pytest.mark.parametrize("name", REFUSALS)
def test_refusals(name):
    changes, message = REFUSALS[name]
    arguments = {"X": X, "y": Y, "prior": PRIOR, "noise_scale": 0.1, "hidden": (2,), **changes}
    if "statistics" in arguments:
        arguments["X"] = STATISTICS[arguments.pop("statistics")]()
        arguments["y"] = Y if name == "with y" else None
    with pytest.raises(ValueError, match=message):
        sgp.direct.fit_network(**arguments)


def test_too_many_pairs_are_refused(monkeypatch):
    monkeypatch.setattr(network_polynomial, "MAX_PAIRS", 10)
    with pytest.raises(ValueError, match="6 monomials of the network 2-2-1 have 12 pairs"):
        _ = NetworkPolynomial.of((2, 2, 1)).pairs


def test_an_unfinished_fit_says_so():
    with pytest.warns(UserWarning, match="fit_network has not converged: the iteration limit was reached"):
        result = sgp.direct.fit_network(X, Y, PRIOR, noise_scale=0.1, max_iterations=1)
    assert not result.converged


def test_interrupting_returns_what_was_reached(monkeypatch):
    count, evaluate = itertools.count(), NetworkObjective.__call__

    def interrupted(self, vector):
        if next(count) == 3:
            raise KeyboardInterrupt
        return evaluate(self, vector)

    monkeypatch.setattr(NetworkObjective, "__call__", interrupted)
    result = sgp.direct.fit_network(X, Y, PRIOR, noise_scale=0.1)
    assert (result.reason, result.converged) == ("interrupted", False)


def test_interrupting_the_start_of_a_fit_keeps_those_before(monkeypatch):
    count, start = itertools.count(), NetworkObjective.start

    def interrupted(self, perturbation):
        if next(count) == allowed:
            raise KeyboardInterrupt
        return start(self, perturbation)

    monkeypatch.setattr(NetworkObjective, "start", interrupted)
    allowed = 1
    assert sgp.direct.fit_network(X, Y, PRIOR, noise_scale=0.1).converged
    count, allowed = itertools.count(), 0
    with pytest.raises(KeyboardInterrupt):
        sgp.direct.fit_network(X, Y, PRIOR, noise_scale=0.1)
