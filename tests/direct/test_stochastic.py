"""The unbiased gradient of a mixture's entropy, against enumeration."""

import dataclasses

import jax
import numpy as np
import pytest
from scipy.special import log_softmax

import ppl_sgp as sgp
from ppl_sgp.direct.elbo import Variational
from ppl_sgp.direct.stochastic import sampled_entropy
from tests.direct.brute import case, central_differences, log_mixture, random_variational

pytestmark = pytest.mark.float64_only  # on the host, whatever the lane


def exact_entropy(q, codes):
    log_q = log_mixture(q, codes)
    return -float(np.exp(log_q) @ log_q)


def test_entropy_and_its_gradient_are_unbiased(rng):
    small = case()
    q = random_variational(rng, small.problem, 2)

    def entropy_of_logits(vector):
        weights, logits = vector[:2], vector[2:].reshape(q.log_probs.shape)
        log_probs = logits - np.logaddexp.reduce(logits, axis=-1, keepdims=True)
        return exact_entropy(Variational(weights - np.logaddexp.reduce(weights), log_probs, q.log_noise), small.codes)

    exact = central_differences(entropy_of_logits, np.concatenate([q.log_weights, q.log_probs.ravel()]))
    runs = [sampled_entropy(q, key, 100) for key in jax.random.split(jax.random.key(0), 400)]
    gradients = np.array([np.concatenate([slopes[0], slopes[1].ravel()]) for _, _, slopes in runs])
    error = gradients.std(axis=0) / len(runs) ** 0.5
    assert (np.abs(gradients.mean(axis=0) - exact) < 4.5 * error + 1e-12).all()
    values = np.array([value for value, _, _ in runs])
    assert abs(values.mean() - exact_entropy(q, small.codes)) < 4.5 * values.std() / len(runs) ** 0.5
    assert np.mean([error for _, error, _ in runs]) == pytest.approx(values.std(), rel=0.1)


def test_surrogate_of_equation_7_27_has_the_gradient_but_not_the_value(rng):
    """½ E[(log q + 1)²] with the draws held fixed; the value is not E log q, and differentiating the weights of the
    expectation as well gives another gradient. The mean as baseline takes most of the variance away."""
    small = case()
    q = random_variational(rng, small.problem, 2)
    start = q.log_probs.ravel()

    def log_q(vector):
        logits = vector.reshape(q.log_probs.shape)
        log_probs = logits - np.logaddexp.reduce(logits, axis=-1, keepdims=True)
        return log_mixture(Variational(q.log_weights, log_probs, q.log_noise), small.codes)

    fixed = np.exp(log_q(start))
    truth = central_differences(lambda x: np.exp(log_q(x)) @ log_q(x), start)
    surrogate = central_differences(lambda x: fixed @ (0.5 * (log_q(x) + 1) ** 2), start)
    moving = central_differences(lambda x: np.exp(log_q(x)) @ (0.5 * (log_q(x) + 1) ** 2), start)
    np.testing.assert_allclose(surrogate, truth, atol=1e-6)
    assert np.abs(moving - truth).max() > 0.01
    assert abs(fixed @ (0.5 * (log_q(start) + 1) ** 2) - fixed @ log_q(start)) > 0.1
    each = np.stack([(log_q(start + 1e-5 * e) - log_q(start - 1e-5 * e)) / 2e-5 for e in np.eye(len(start))])

    def variance(baseline):
        terms = each * (log_q(start) + baseline)
        return float(((terms**2) @ fixed - (terms @ fixed) ** 2).sum())

    assert variance(-fixed @ log_q(start)) < 0.5 * variance(1.0)


@pytest.mark.slow
def test_refining_improves_the_elbo(rng):
    small = case(b=4)
    fit = sgp.direct.fit(small.statistics, small.prior, noise_scale=small.noise, num_mixtures=2)
    far = log_softmax(0.3 * fit.log_probabilities + rng.normal(size=fit.log_probabilities.shape), axis=-1)
    start = dataclasses.replace(fit, log_probabilities=far)
    arguments = (small.statistics, small.prior, start, jax.random.key(0))
    result = sgp.direct.refine(*arguments, noise_scale=small.noise, num_steps=200, num_samples=50, step_size=0.1)
    before, after = (
        small.elbo(Variational(np.log(r.mixture_weights), r.log_probabilities, np.log(r.noise_probabilities)))
        for r in (start, result)
    )
    assert after > before + 0.5 and fit.elbo - 0.1 < after < small.log_evidence()
    assert abs(result.elbo - after) < 4 * result.elbo_standard_error
    assert result.reason == "the given number of steps was made" and len(result.elbo_trace) == 201


def test_refusals():
    small = case()
    one = sgp.direct.fit(small.statistics, small.prior, noise_scale=small.noise)
    two = sgp.direct.fit(small.statistics, small.prior, noise_scale=small.noise, num_mixtures=2)
    arguments, key = (small.statistics, small.prior), jax.random.key(0)
    with pytest.raises(ValueError, match="2 or more; others are exact"):
        sgp.direct.refine(*arguments, one, key, noise_scale=small.noise)
    with pytest.raises(ValueError, match="sizes differ"):
        sgp.direct.refine(*arguments, two, key, noise_scale=1.0)
    with pytest.raises(ValueError, match="`num_samples` must be an integer of 2 or more; got 1"):
        sgp.direct.refine(*arguments, two, key, noise_scale=small.noise, num_samples=1)
