"""ArviZ's power scaling takes the log evidence for the likelihood, and refuses leave-one-out densities."""

from __future__ import annotations

import arviz
import jax
import numpy as np
import pytest
from scipy import stats as scipy_stats

import ppl_sgp as sgp
from ppl_sgp.posteriors.arviz_compat import attach, groups
from tests.builders import smooth_rows

pytestmark = [pytest.mark.float64_only, pytest.mark.filterwarnings("ignore:Estimated shape parameter")]
MODEL = sgp.models.fourier_gp(noise_scale=0.3)


@pytest.fixture
def posterior(rng):
    """Draws of two hyperparameters about right, 400 of them."""
    X, y = smooth_rows(rng, 40, 0.3)
    stats = sgp.sufficient_statistics(sgp.FourierBasis.from_data(jax.random.key(1), X, 20), X, y)
    draws = {
        name: np.exp(0.3 * rng.normal(size=400)) * unit for name, unit in {"lengthscale": 0.2, "amplitude": 1.0}.items()
    }
    return X, y, sgp.posterior(MODEL, draws, stats)


def sensitivity(container, component):
    """Cumulative Jensen-Shannon distance of power-scaled draws, of either ArviZ."""
    if hasattr(arviz, "psens"):
        return float(arviz.psens(container, component=component)["lengthscale"])
    table = arviz.psense(container, var_names=["lengthscale"], group=component)
    return float(table["lengthscale"])


@pytest.mark.slow
def test_the_likelihood_is_the_evidence(posterior):
    X, y, posterior = posterior
    container = posterior.to_arviz(X, y, log_likelihood="evidence")
    found = container["log_likelihood"]["y"]
    assert found.dims == ("chain", "draw")
    for draw in (0, 399):
        prior = posterior.statistics.basis.weight_prior(
            sgp.SquaredExponential(*(posterior.samples[name][draw] for name in ("lengthscale", "amplitude")))
        )
        expected = float(sgp.log_evidence(posterior.statistics, prior, 0.3))
        assert float(found[0, draw]) == pytest.approx(expected, rel=1e-9)
    # The same as with the densities put there by hand.
    by_hand = posterior.to_arviz()
    assert "log_likelihood" not in groups(by_hand)
    attach(by_hand, {"log_likelihood": found.to_dataset(name="y")})
    assert sensitivity(container, "likelihood") == pytest.approx(sensitivity(by_hand, "likelihood"))


def test_densities_of_priors(posterior):
    _, _, posterior = posterior
    found = posterior.to_arviz()["log_prior"]
    rms = float(posterior.statistics.output_scale)
    expected = scipy_stats.lognorm.logpdf(posterior.samples["amplitude"], 1.0, scale=rms)
    np.testing.assert_allclose(found["amplitude"].values[0], expected, rtol=1e-9)
    assert set(found.data_vars) == {"amplitude", "lengthscale"}
    assert 0 < sensitivity(posterior.to_arviz(), "prior") < 1


def test_leave_one_out_densities_are_for_loo_and_refused_as_a_likelihood(posterior):
    X, y, posterior = posterior
    container = posterior.to_arviz(X, y)
    density = posterior.leave_one_out(X, y)
    np.testing.assert_array_equal(container["log_likelihood"]["y"].values[0], density)
    np.testing.assert_array_equal(container["log_likelihood"]["y"].coords["obs"], np.arange(40))
    loo = arviz.loo(container)
    assert float(getattr(loo, "elpd_loo", getattr(loo, "elpd", np.nan))) == pytest.approx(
        np.sum(np.log(np.mean(np.exp(density), axis=0))), abs=3.0
    )
    with pytest.raises(ValueError, match="latent-obs_var|already exist|same name"):
        sensitivity(container, "likelihood")


def test_other_contents_are_refused(posterior):
    X, y, posterior = posterior
    with pytest.raises(ValueError, match="must be 'leave_one_out' or 'evidence'; got 'rows'"):
        posterior.to_arviz(X, y, log_likelihood="rows")
