"""NUTS on a small grid, with all that follows."""

import jax
import numpy as np
import pytest
from numpyro.infer import MCMC, NUTS

import ppl_sgp as sgp

pytestmark = [pytest.mark.float64_only, pytest.mark.end_to_end, pytest.mark.relaxed_promotion]


@pytest.fixture(scope="module")
def run(relaxed):
    rng = np.random.default_rng(3)
    day, hour = np.arange(14.0), np.arange(0.0, 24.0, 3.0)
    y = np.sin(day / 3)[:, None] + np.cos(hour * np.pi / 12) + 0.2 * rng.normal(size=(14, 8))
    gaps = rng.uniform(size=y.shape) < 0.3
    grid = sgp.Grid([day, hour], y, gaps=gaps, dims=("day", "hour"))
    model = sgp.models.grid_gp()
    fit = sgp.fit_evidence(model, grid)
    with relaxed():
        mcmc = MCMC(
            NUTS(model, init_strategy=fit.init_strategy()),
            num_warmup=300,
            num_samples=400,
            num_chains=2,
            chain_method="sequential",
            progress_bar=False,
        )
        mcmc.run(jax.random.key(0), grid, extra_fields=sgp.EXTRA_FIELDS)
    return grid, model, mcmc, y


def test_chains_agree_with_the_exact_process_of_rows(run):
    """The evidences of all draws are those of an exact GP of the observed cells with the same kernel."""
    grid, model, mcmc, _ = run
    posterior = sgp.posterior(model, mcmc, grid).spaced(5)
    rows = sgp.rows(grid.X, grid.values)
    for draw, value in enumerate(posterior.log_evidence):
        at = {name: values[draw] for name, values in posterior.latent.items()}
        exact = sgp.ExactGP(rows, model.kernel_at(at, grid), at["noise_scale"]).log_prob(rows.values)
        assert value == pytest.approx(float(exact), abs=1e-8)


def test_report_and_held_out_cells(run):
    grid, model, mcmc, y = run
    posterior = sgp.posterior(model, mcmc, grid)
    report = sgp.report(posterior)
    assert {finding.check for finding in report.findings} <= {"divergences", "effective sample size", "R-hat"}, report
    prediction = sgp.predict_grid(posterior.spaced(20))
    scale = np.sqrt(prediction.variance.values + prediction.noise_variance)
    z = ((y - prediction.mean.values) / scale)[grid.gaps]
    assert np.abs(z).max() < 5 and 0.5 < z.std() < 1.6
    assert prediction.sample(jax.random.key(1), 2, noise=True).dims == ("draw", "day", "hour")
