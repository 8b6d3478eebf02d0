"""Features drawn in rounds, against exact GPs; and features that are too few, which are told."""

from __future__ import annotations

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro.infer.util import log_density
from scipy.stats import lognorm, multivariate_normal

import ppl_sgp as sgp
from ppl_sgp.placement.adaptive_features import _message
from ppl_sgp.placement.adaptive_rounds import AdaptiveRound, Candidate, ExactReference, Rounds, _worst
from ppl_sgp.placement.exact_on_subset import OnSubset, Subset

pytestmark = [pytest.mark.float64_only, pytest.mark.relaxed_promotion]
KEY = jax.random.key(1)


def correlation(X, lengthscale):
    squares = np.sum((X[:, None] - X) ** 2, axis=2)
    return np.exp(-0.5 * squares / lengthscale**2) + 1e-8 * np.eye(len(X))


def line():
    x = np.linspace(0, 300, 150)[:, None]
    rng = np.random.default_rng(7)
    K = correlation(x, 8.0)
    return x, np.linalg.cholesky(K) @ rng.standard_normal(150) + 0.1 * rng.standard_normal(150)


def rough(d=3):
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 1, (150, d))
    K = correlation(X, 0.25)
    return X, np.linalg.cholesky(K) @ rng.standard_normal(150) + 0.1 * rng.standard_normal(150)


def dense(X, y, lengthscale, amplitude, noise_scale):
    K = np.asarray(sgp.SquaredExponential(lengthscale, amplitude)(X)) + noise_scale**2 * np.eye(len(y))
    return multivariate_normal.logpdf(y, np.zeros(len(y)), K)


@pytest.fixture(scope="module")
def adapted(relaxed):
    with relaxed():
        return sgp.adapt_features(KEY, *line(), num_features=1000)


@pytest.mark.slow
def test_the_evidence_is_that_of_the_exact_gp(adapted):
    values, (X, y) = adapted.fit.values, line()
    exact = dense(X, y, values["lengthscale"], values["amplitude"], values["noise_scale"])
    assert adapted.fit.log_evidence == pytest.approx(exact, abs=5.0)
    assert values["noise_scale"] == pytest.approx(0.1, rel=0.2)
    assert adapted.settled and not adapted.too_poor and adapted.message.startswith("settled after")
    last = adapted.trace[-1]
    assert last.effective_features > 500 and abs(last.lacking) < 5 and last.mismatch < 5 and 0.8 < last.stretch < 1.25


@pytest.mark.slow
def test_the_reference_is_a_maximum_of_the_exact_joint(adapted):
    X, y = line()
    prior, found = adapted.statistics.input_scale, adapted.exact

    def joint(log_theta):
        lengthscale, amplitude, noise = theta = np.exp(log_theta)
        rms = np.sqrt(np.mean(y**2))
        medians = [float(prior[0]) / 2, rms, 0.3 * rms]
        densities = [lognorm.logpdf(t, s, scale=m) for t, m, s in zip(theta, medians, (1, 1, 1.5), strict=True)]
        return dense(X, y, lengthscale, amplitude, noise) + sum(densities)

    names = ("lengthscale", "amplitude", "noise_scale")
    at = np.log([float(found.values[name]) for name in names])
    assert found.num_rows == 150
    assert found.log_evidence == pytest.approx(dense(X, y, *np.exp(at)), abs=1e-6)
    for step in 0.03 * np.concatenate([np.eye(3), -np.eye(3)]):
        assert joint(at + step) < joint(at)
    step = np.array([0.01, 0, 0])
    second = (joint(at + step) - 2 * joint(at) + joint(at - step)) / 0.01**2
    assert found.lengthscale_sd >= 0.8 * (-second) ** -0.5  # marginal, so at least the conditional one


def test_the_model_on_rows_has_the_density_of_the_dense_gp(rng):
    X, y = rng.uniform(0, 1, (20, 2)), rng.standard_normal(20)
    statistics = sgp.sufficient_statistics(sgp.FourierBasis.from_data(KEY, X, 2), X, y)
    model = OnSubset(sgp.models.fourier_gp(lengthscale=dist.Gamma(2.0, 2.0).expand([2]).to_event(1), amplitude=1.5))
    values = {"lengthscale": jnp.array([0.3, 0.5]), "noise_scale": jnp.array(0.2)}
    value, trace = log_density(model, (Subset(sgp.rows(X, y), statistics),), {}, values)
    priors = sum(float(trace[name]["fn"].log_prob(each)) for name, each in values.items())
    assert float(value) == pytest.approx(priors + dense(X, y, [0.3, 0.5], 1.5, 0.2), abs=1e-8)
    assert "y" not in trace


@pytest.mark.end_to_end
def test_too_few_features_are_told_and_more_are_the_remedy():
    X, y = rough()
    with pytest.warns(UserWarning, match="60 features are too few.*Take several times as many features"):
        few = sgp.adapt_features(KEY, X, y, num_features=60, max_rounds=2)
    assert few.too_poor and few.fit.values["noise_scale"] > 0.2
    many = sgp.adapt_features(KEY, X, y, num_features=500, max_rounds=1)
    assert not many.too_poor and many.trace[-1].effective_features > 150
    ratio = np.asarray(many.fit.values["lengthscale"]) / many.exact.lengthscale
    assert np.all((0.8 < ratio) & (ratio < 1.25))


def test_a_single_lengthscale_beyond_chance_is_found_and_named():
    sd = np.array([0.1, 0.1, 0.1, 1.0])  # of the last one the rows know nothing
    longer = np.log([1.2, 1 / 2.5, 1.0, 30.0])
    factor, column = _worst(longer, sd)
    assert (factor, column) == (pytest.approx(2.5 * np.exp(-0.2)), 1)
    assert _worst(np.log([1.2, 1.0, 0.85, 30.0]), sd)[0] == 1.0  # within two deviations
    assert _worst(longer, np.ones(4))[0] == 1.0
    reference = ExactReference(600, {}, np.ones(4), sd, 0.2, 0.0)
    outcome = AdaptiveRound(0.0, 500.0, np.exp(longer), 0.25, 20.0, 5.0, 1.1, factor, column)
    text = _message((outcome,), outcome, reference, True, True, 600)
    assert "lengthscales here are 1.1 times as long, that of column 1 0.4 times, and rounds settle there" in text


def test_a_round_that_agrees_with_the_exact_gp_goes_before_one_that_suits_the_data(monkeypatch):
    X, y = line()
    far = AdaptiveRound(-90.0, 500.0, np.ones(1), 0.1, -5.0, 1.0, 1.2, 1.5, 0)
    near = far._replace(log_evidence=-100.0, lacking=5.0, worst_stretch=1.0)
    reference = ExactReference(150, {}, np.ones(1), np.full(1, 0.1), 0.1, -95.0)

    def rounds_of(*outcomes):
        made = [(Candidate(None, None, SimpleNamespace(log_joint=each.log_evidence)), each) for each in outcomes]
        monkeypatch.setattr(Rounds, "start", lambda self: setattr(self, "exact", reference))
        monkeypatch.setattr(Rounds, "next", lambda self, draws, number: made[number])
        monkeypatch.setattr(Rounds, "around", lambda self, candidate: None)
        return sgp.adapt_features(KEY, X, y, num_features=10, max_rounds=max(2, len(outcomes)))

    chosen = rounds_of(near, far)
    assert chosen.fit.log_joint == -100.0 and not chosen.too_poor
    with pytest.warns(UserWarning, match="an exact GP is no better"):
        chosen = rounds_of(far, far._replace(log_evidence=-91.0))
    assert chosen.fit.log_joint == -90.0 and chosen.too_poor
    with pytest.warns(UserWarning, match="after 2 rounds .* and rounds end there"):
        rounds_of(far, far._replace(log_evidence=-500.0), far)  # poor, and worse: a third would be wasted


@pytest.mark.end_to_end
def test_a_gap_in_time_does_not_stretch_scales():
    rng = np.random.default_rng(51)
    t = np.sort(np.concatenate([rng.uniform(0, 30, 75), 1100 + rng.uniform(0, 30, 75)]))
    y = np.sin(2 * np.pi * t / 9) + 0.1 * rng.normal(size=150)
    adapted = sgp.adapt_features(KEY, t[:, None], y, num_features=300, max_rounds=2)
    assert 1 < adapted.fit.values["lengthscale"] < 6 and not adapted.too_poor  # the prior's median is 275
    assert adapted.fit.values["noise_scale"] == pytest.approx(0.1, rel=0.3)


def test_an_interruption_keeps_the_best_round(monkeypatch):
    def interrupted(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(Rounds, "around", interrupted)
    adapted = sgp.adapt_features(KEY, *line(), num_features=1000)
    assert len(adapted.trace) == 1 and not adapted.settled and adapted.message.startswith("interrupted, ")
    monkeypatch.setattr(Rounds, "start", interrupted)
    with pytest.raises(KeyboardInterrupt):
        sgp.adapt_features(KEY, *line(), num_features=1000)


X, Y = line()
REFUSED = {
    "outputs": (lambda: sgp.adapt_features(KEY, X, np.stack([Y, Y], 1), num_features=20), "takes one output"),
    "model": (
        lambda: sgp.adapt_features(KEY, X, Y, sgp.models.free_spectrum_gp(), num_features=20),
        "needs a model that knows its kernel.*fourier_gp",
    ),
    "rounds": (lambda: sgp.adapt_features(KEY, X, Y, num_features=20, max_rounds=0), "`max_rounds` must be an integer"),
    "odd": (lambda: sgp.adapt_features(KEY, X, Y, num_features=21), "must be an even number"),
    "share": (lambda: sgp.adapt_features(KEY, X, Y, num_features=20, defensive=1.0), "`defensive` must be a share"),
    "key": (lambda: sgp.adapt_features(1, X, Y, num_features=20), "`key` must be a random key"),
    "rows": (lambda: sgp.adapt_features(KEY, X[:9], Y, num_features=20), "rows"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals(name):
    call, message = REFUSED[name]
    with pytest.raises(ValueError, match=message):
        call()
