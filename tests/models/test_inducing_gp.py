"""The ready model of inducing points: its sites, fits as draws of it, its posterior by quadrature of FITC's density."""

from __future__ import annotations

import dataclasses
import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpyro.infer import MCMC, NUTS
from numpyro.infer.util import initialize_model, log_density

import ppl_sgp as sgp
from tests.contract.dense import NAMES, ExactProblem, grid_posterior
from tests.models.test_exact_gp import latent, trace_of
from tests.reference import check_moments

pytestmark = pytest.mark.float64_only

POINTS = np.linspace(-2, 2, 8)[:, None]


@dataclasses.dataclass(frozen=True, eq=False)
class FitcProblem(ExactProblem):
    """FITC of a squared exponential at eight points, by its dense covariance."""

    def unit_kernel(self, lengthscale):
        def k(A, B):
            return np.exp(-0.5 * ((A - B.T) / lengthscale) ** 2)

        Q = k(self.X, POINTS) @ np.linalg.solve(k(POINTS, POINTS) + 1e-10 * np.eye(8), k(POINTS, self.X))
        return Q + np.diag(1 - np.diag(Q))


@pytest.fixture(scope="module")
def problem():
    """Forty rows of a smooth draw with noise 0.2."""
    rng = np.random.default_rng(3)
    X = np.sort(rng.uniform(-2, 2, size=(40, 1)), axis=0)
    C = np.exp(-0.5 * ((X - X.T) / 0.7) ** 2) + 0.2**2 * np.eye(40)
    return FitcProblem(X, np.linalg.cholesky(C) @ rng.normal(size=40), None)


def test_sites_and_what_is_held_fixed(rng):
    rows = sgp.rows(rng.normal(size=(9, 2)), rng.normal(size=9))
    points = rng.normal(size=(3, 2))
    model = sgp.models.inducing_gp(points)
    assert latent(model, rows) == set(NAMES)
    assert trace_of(model, rows)["lengthscale"]["value"].shape == (2,) and "y_trace" in trace_of(model, rows)
    fitc = sgp.models.inducing_gp(points, sgp.Matern32, method="fitc", lengthscale=1.0, noise_scale=0.1)
    assert latent(fitc, rows) == {"amplitude"} and "y_trace" not in trace_of(fitc, rows)
    assert pickle.loads(pickle.dumps(fitc)) == fitc != sgp.models.inducing_gp(2 * points, sgp.Matern32)
    assert isinstance(fitc.kernel_at({"amplitude": 2.0}), sgp.Matern32)
    assert isinstance(fitc, sgp.models.KernelModel)


@pytest.mark.slow
@pytest.mark.relaxed_promotion
@pytest.mark.parametrize("outputs", [1, 2])
def test_fits_are_draws_and_starts_of_the_model(problem, outputs):
    rows = sgp.rows(problem.X, problem.y if outputs == 1 else np.stack([problem.y, problem.y[::-1]], axis=1))
    fit = sgp.fit_inducing(jax.random.key(0), rows, sgp.Matern52, 8, schedule="fix")
    model = sgp.models.inducing_gp(fit.points, sgp.Matern52)
    posterior = sgp.posterior(model, fit, rows)
    assert posterior.log_evidence[0] == pytest.approx(fit.bound, rel=1e-9)
    joint, _ = log_density(model, (rows,), {}, {name: value[0] for name, value in fit.samples.items()})
    assert float(joint) == pytest.approx(fit.log_joint, rel=1e-8)
    start = initialize_model(jax.random.key(0), model, init_strategy=fit.init_strategy(), model_args=(rows,))
    assert float(start.param_info.z["amplitude"]) == pytest.approx(float(np.log(fit.values["amplitude"])))


@pytest.mark.slow
def test_rows_in_chunks_are_observed(problem):
    chunks = sgp.rows([(problem.X[:30], problem.y[:30]), (problem.X[30:], problem.y[30:])])
    model = sgp.models.inducing_gp(POINTS, lengthscale=0.5, amplitude=1.0, noise_scale=0.2)
    densities = [trace_of(model, rows)["y_trace"]["fn"].log_factor for rows in (chunks, sgp.rows(problem.X, problem.y))]
    assert densities[0] == pytest.approx(float(densities[1]), rel=1e-12)
    with pytest.raises(ValueError, match="Rows of chunks are for `sgp.models.inducing_gp`"):
        trace_of(sgp.models.exact_gp(), chunks)


@pytest.mark.slow
def test_what_it_refuses(rng):
    rows = sgp.rows(rng.normal(size=(6, 2)), rng.normal(size=(6, 2)))
    points = rng.normal(size=(3, 2))
    for model, data, message in (
        (sgp.models.inducing_gp(points), rows.X, "rows from sgp.rows.*got ndarray"),
        (sgp.models.inducing_gp(points), sgp.rows(rows.X, np.zeros(6)), "y is identically zero"),
        (sgp.models.inducing_gp(points, amplitude=jnp.ones(2)), rows, "one kernel.*Divide each column"),
        (sgp.models.inducing_gp(points[:, :1]), rows, "`points` are of 1 inputs, and the rows have 2"),
    ):
        with pytest.raises(ValueError, match=message):
            trace_of(model, data)
    chosen = sgp.select_inducing_points(jax.random.key(0), rows.X, sgp.Matern32(1.0), 2)
    for arguments, message in (
        ((chosen,), "Pass its `.points`"),
        ((np.zeros(3),), "`points` must"),
        ((np.full((2, 2), np.nan),), "`points` has 2 of 2 rows"),
        ((points, sgp.Matern52(1.0)), "`kernel` must be a class"),
    ):
        with pytest.raises(ValueError, match=message):
            sgp.models.inducing_gp(*arguments)
    with pytest.raises(ValueError, match="needs `blocks`"):
        sgp.models.inducing_gp(points, method="pitc")
    with pytest.raises(ValueError, match="`method` must be one of"):
        sgp.models.inducing_gp(points, method="exact")


@pytest.mark.end_to_end
@pytest.mark.relaxed_promotion
def test_nuts_samples_the_posterior_of_fitc(problem):
    centre = {"lengthscale": 0.8, "amplitude": 1.0, "noise_scale": 0.2}
    exact = grid_posterior(problem, centre, {"lengthscale": 1.5, "amplitude": 2.6, "noise_scale": 0.9}, 41)
    model, rows = sgp.models.inducing_gp(POINTS, method="fitc"), sgp.rows(problem.X, problem.y)
    mcmc = MCMC(
        NUTS(model), num_warmup=300, num_samples=500, num_chains=2, chain_method="vectorized", progress_bar=False
    )
    mcmc.run(jax.random.key(2), rows, extra_fields=sgp.EXTRA_FIELDS)
    draws = mcmc.get_samples(group_by_chain=True)
    for name, mean, sd in zip(NAMES, exact.mean, exact.sd, strict=True):
        check_moments(np.log(np.asarray(draws[name])), mean, sd)
    estimate = sgp.log_marginal_likelihood(model, mcmc.get_samples(), rows, jax.random.key(4))
    assert estimate.log_evidence == pytest.approx(exact.log_marginal, abs=0.1)
