"""Every term of the bound, its gradients and the misprints of theorem 7.1, against enumeration."""

import numpy as np
import pytest
from scipy.special import logsumexp

from ppl_sgp.direct.elbo import Variational, expected_log_prior
from ppl_sgp.direct.entropy import cross_bound, pairwise_bound
from ppl_sgp.direct.factorised import FactorisedObjective
from ppl_sgp.direct.mixture import MixtureObjective, expected_terms
from tests.direct.brute import case, central_differences, log_mixture, random_variational

pytestmark = pytest.mark.float64_only  # on the host, whatever the lane

NAMES = ["noise grid", "shared prior", "row weights"]


def size_of(problem):
    return len(problem.gram) + (len(problem.noise_scales) if len(problem.noise_scales) > 1 else 0)


@pytest.mark.parametrize("name", NAMES)
def test_factorised_elbo_is_exact(name, rng):
    small = case(name)
    objective = FactorisedObjective(small.problem)
    for _ in range(5):
        vector = rng.normal(size=size_of(small.problem))
        value, gradient = objective(vector)
        assert value == pytest.approx(small.elbo(objective.distribution(vector)), abs=1e-10)
        np.testing.assert_allclose(gradient, central_differences(lambda x: objective(x)[0], vector), atol=1e-6)
        assert value < small.log_evidence()


@pytest.mark.parametrize("name", NAMES)
def test_nothing_is_lost_by_one_parameter_a_weight(name):
    """At the optimum over η no probability of any level can be changed for the better."""
    small = case(name)
    objective = FactorisedObjective(small.problem)
    vector = objective.start()
    for _ in range(300):
        vector = objective.sweep(vector)
    q = objective.distribution(vector)
    best = small.elbo(q)
    for j in range(q.log_probs.shape[1]):
        for level in range(q.log_probs.shape[2]):
            for change in (-0.05, 0.05):
                log_probs = q.log_probs.copy()
                log_probs[0, j, level] += change
                log_probs -= logsumexp(log_probs, axis=-1, keepdims=True)
                assert small.elbo(Variational(q.log_weights, log_probs, q.log_noise)) <= best + 1e-12
    for s in range(len(q.log_noise)):
        log_noise = q.log_noise + 0.05 * (np.arange(len(q.log_noise)) == s)
        assert small.elbo(Variational(q.log_weights, q.log_probs, log_noise - logsumexp(log_noise))) <= best + 1e-12


@pytest.mark.parametrize("name", NAMES)
def test_sweeps_never_lower_the_elbo(name, rng):
    objective = FactorisedObjective(case(name).problem)
    for _ in range(20):
        vector = 3 * rng.normal(size=size_of(objective._problem))
        assert objective(objective.sweep(vector))[0] >= objective(vector)[0] - 1e-12


@pytest.mark.parametrize("entropy", ["pairwise", "cross"])
@pytest.mark.parametrize("name", [*NAMES, "mixture prior"])
@pytest.mark.parametrize("count", [1, 3])
def test_mixtures_are_bounded_from_below(name, count, entropy, rng):
    small = case(name)
    objective = MixtureObjective(small.problem, count, entropy)
    for _ in range(5):
        start = objective.vector(random_variational(rng, small.problem, count))
        vector = start + 0.3 * rng.normal(size=len(start))
        value, gradient = objective(vector)
        truth = small.elbo(objective.distribution(vector))
        assert value <= truth + 1e-10
        np.testing.assert_allclose(gradient, central_differences(lambda x: objective(x)[0], vector), atol=1e-6)


@pytest.mark.parametrize("count", [1, 2])
def test_all_but_the_entropy_is_exact_under_a_factorised_prior(count, rng):
    small = case()
    q = random_variational(rng, small.problem, count)
    log_q = log_mixture(q, small.codes)
    assert expected_terms(small.problem, q)[0] - np.exp(log_q) @ log_q == pytest.approx(small.elbo(q), abs=1e-10)


def test_bounds_of_the_entropy_in_order(rng):
    """Theorem 7.3 as printed, 1 − T, is below its tighter form, which does not depend on the scale of a; both and the
    pairwise bound are below the entropy, and the last is exact for equal components and for disjoint ones."""
    small = case()
    for _ in range(100):
        q = random_variational(rng, small.problem, 3)
        log_q = log_mixture(q, small.codes)
        truth = -np.exp(log_q) @ log_q
        log_a = rng.normal(size=q.log_probs.shape[1:])
        tighter = cross_bound(q.log_weights, q.log_probs, log_a)[0]
        alpha, probs = np.exp(q.log_weights), np.exp(q.log_probs)
        products = np.einsum("kbl,mbl->kmb", probs, probs / np.exp(log_a)).prod(axis=2)
        T = alpha @ products @ alpha
        printed = 1 - T - alpha @ np.sum(probs * log_a, axis=(1, 2))
        assert printed <= tighter + 1e-12 <= truth + 2e-12
        assert cross_bound(q.log_weights, q.log_probs, log_a + 7.0)[0] == pytest.approx(tighter, abs=1e-9)
        assert pairwise_bound(q.log_weights, q.log_probs)[0] <= truth + 1e-12
    same = np.broadcast_to(q.log_probs[:1], q.log_probs.shape)
    alone = -np.sum(np.exp(same[0]) * same[0])
    assert pairwise_bound(q.log_weights, same)[0] == pytest.approx(alone)
    apart = np.full((2, 3, 4), -800.0)
    apart[0, :, :2] = apart[1, :, 2:] = np.log(0.5)
    weights = np.log([0.2, 0.8])
    assert pairwise_bound(weights, apart)[0] == pytest.approx(3 * np.log(2) - np.exp(weights) @ weights)


def test_bound_of_a_mixture_prior_in_order(rng):
    """Theorem 7.4 is below its tighter form, which is below the expectation."""
    small = case("mixture prior")
    for _ in range(100):
        q = random_variational(rng, small.problem, 1)
        truth = np.exp(log_mixture(q, small.codes)) @ small.log_prior()
        tighter = expected_log_prior(small.problem, q.log_probs)[0][0]
        each = np.einsum("bl,pbl->p", np.exp(q.log_probs[0]), small.problem.prior.log_probs)
        assert np.exp(small.problem.prior.log_weights) @ each <= tighter + 1e-12 <= truth + 2e-12


def test_misprints_of_theorem_7_1(rng):
    """With h = w̄·Aⱼⱼ (printed) the bound is wrong; without −n/2 log 2π (7.8, 7.10) it is off by just that."""
    small = case("shared prior")
    q = random_variational(rng, small.problem, 1)
    problem, probs = small.problem, np.exp(q.log_probs[0])
    levels, size = problem.prior.levels, np.diag(problem.gram)
    s = np.sum(probs * levels, axis=1)
    rest = problem.sum_squares - 2 * s @ problem.projection + s @ problem.gram @ s - size @ s**2
    divergence = np.sum(probs * (q.log_probs[0] - problem.prior.log_probs[0]))
    variance, n = problem.noise_scales[0] ** 2, problem.num_rows
    printed, corrected = (
        -0.5 * n * np.log(variance) - 0.5 / variance * (rest + np.sum(probs * h * size[:, None])) - divergence
        for h in (levels, levels**2)
    )
    truth = small.elbo(q)
    assert corrected - 0.5 * n * np.log(2 * np.pi) == pytest.approx(truth)
    assert abs(printed - 0.5 * n * np.log(2 * np.pi) - truth) > 0.1


def test_logarithms_stay_finite_with_2000_weights(rng):
    shape = (2, 2000, 15)
    log_probs = np.log(np.full(shape, 0.03 / 14))
    log_probs[..., 0] = np.log(0.97)
    weights = np.log([0.5, 0.5])
    log_a = np.full(shape[1:], -np.log(15.0))
    # T = (Σ q²/a)²⁰⁰⁰, 10^2299, as the digest of errata has it.
    value, *gradients = cross_bound(weights, log_probs, log_a)
    expected = -2000 * np.log(np.sum(np.exp(2 * log_probs[0, 0] - log_a[0]))) + 2000 * np.log(15.0)
    assert value == pytest.approx(expected)
    log_probs[1] = np.roll(log_probs[0], 3, axis=-1) * 400
    value, *more = pairwise_bound(weights, log_probs - logsumexp(log_probs, axis=-1, keepdims=True))
    assert np.isfinite(value) and all(np.isfinite(part).all() for part in (*gradients, *more))
