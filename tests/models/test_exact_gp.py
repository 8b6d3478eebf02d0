"""The ready model of exact GPs: its sites, its optimum by SciPy on dense matrices, its posterior by quadrature."""

from __future__ import annotations

import pickle

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
import scipy.optimize
from numpyro import handlers
from numpyro.infer import MCMC, NUTS, init_to_median

import ppl_sgp as sgp
from ppl_sgp.bases.feature_kernel import unit_weights
from tests.contract.dense import NAMES, ExactProblem, grid_posterior
from tests.reference import check_moments

pytestmark = pytest.mark.float64_only


@pytest.fixture(scope="module")
def problem():
    """Forty rows of a draw of the model itself: lengthscale 0.5, amplitude 1, noise 0.2."""
    rng = np.random.default_rng(3)
    X = np.sort(rng.uniform(-2, 2, size=(40, 1)), axis=0)
    covariance = np.exp(-0.5 * ((X - X.T) / 0.5) ** 2) + 0.2**2 * np.eye(40)
    return ExactProblem(X, np.linalg.cholesky(covariance) @ rng.normal(size=40), None)


def trace_of(model, rows):
    return handlers.trace(handlers.seed(model, jax.random.key(0))).get_trace(rows)


def latent(model, rows):
    return {name for name, s in trace_of(model, rows).items() if s["type"] == "sample" and not s["is_observed"]}


def test_sites_and_what_is_held_fixed(rng):
    rows = sgp.rows(rng.normal(size=(9, 2)), rng.normal(size=9))
    assert latent(sgp.models.exact_gp(), rows) == set(NAMES)
    assert trace_of(sgp.models.exact_gp(), rows)["lengthscale"]["value"].shape == (2,)
    model = sgp.models.exact_gp(sgp.RationalQuadratic, lengthscale=1.0, alpha=dist.LogNormal(0.0, 0.5))
    assert latent(model, rows) == {"amplitude", "noise_scale", "alpha"}
    with_trend = sgp.models.exact_gp(features=sgp.LinearBasis(2))
    assert latent(with_trend, rows) == {*NAMES, "feature_scale"}
    assert latent(sgp.models.exact_gp(features=sgp.LinearBasis(2), feature_scale=1.0), rows) == set(NAMES)
    assert pickle.loads(pickle.dumps(with_trend)) == with_trend


@pytest.mark.slow
@pytest.mark.relaxed_promotion
def test_type_ii_finds_the_optimum_of_dense_matrices(problem):
    def negative(z):
        # the densities of the sites in their own units
        return -float(problem.log_joint(*np.exp(z)))

    start = np.log([0.5, 1.0, 0.2])
    best = scipy.optimize.minimize(negative, start, method="Nelder-Mead", options={"xatol": 1e-6, "fatol": 1e-9})
    fit = sgp.fit_evidence(sgp.models.exact_gp(), sgp.rows(problem.X, problem.y))
    assert fit.converged
    assert fit.log_joint == pytest.approx(-best.fun, abs=1e-6)
    assert fit.log_evidence == pytest.approx(float(problem.log_evidence(*np.exp(best.x))), abs=1e-3)
    np.testing.assert_allclose([np.ravel(fit.values[name])[0] for name in NAMES], np.exp(best.x), rtol=1e-3)


@pytest.mark.slow
@pytest.mark.relaxed_promotion
def test_a_constant_column_does_not_matter(rng):
    x, y = rng.normal(size=8), rng.normal(size=8)
    model = sgp.models.exact_gp(noise_scale=0.3, lengthscale=1.0)
    alone, beside = (
        sgp.fit_evidence(model, sgp.rows(np.column_stack(columns), y)) for columns in ([x], [x, np.full(8, 2.0)])
    )
    assert beside.log_joint == pytest.approx(alone.log_joint, rel=1e-9)
    assert np.isfinite(sgp.fit_evidence(sgp.models.exact_gp(), sgp.rows(np.full((8, 1), 2.0), y)).log_joint)


def test_a_single_row_has_a_density():
    with pytest.warns(UserWarning, match="Subtract the mean first"):
        site = trace_of(sgp.models.exact_gp(), sgp.rows([[3.0]], [1.5]))["y"]
    assert np.isfinite(float(site["fn"].log_prob(site["value"])))


def test_constant_outputs_warn_unless_a_constant_is_there():
    rows = sgp.rows(np.arange(5.0)[:, None], np.full(5, 7.0))
    with pytest.warns(UserWarning, match="Subtract the mean first"):
        trace_of(sgp.models.exact_gp(), rows)
    trace_of(sgp.models.exact_gp(features=sgp.LinearBasis(1)), rows)  # a warning would be an error


def test_units_of_features_do_not_depend_on_units_or_origin(rng):
    """The weights' prior standard deviations give each feature, about its mean, one; and the constant all shifts."""
    x = rng.normal(size=(50, 1))
    for scale, shift in ((1.0, 0.0), (1e-3, 0.0), (1.0, 2000.0), (40.0, -7.0)):
        X = scale * x + shift
        constant, slope = np.asarray(unit_weights(sgp.LinearBasis(1), X))
        assert slope * X.std() == pytest.approx(1.0, rel=1e-6)
        assert constant == pytest.approx(np.sqrt(1 + (X.mean() / X.std()) ** 2), rel=1e-6)
        (alone,) = np.asarray(unit_weights(sgp.LinearBasis(1, bias=False), X))
        assert alone == pytest.approx(1 / np.sqrt(np.mean(X**2)), rel=1e-6)


def test_what_it_refuses(rng):
    rows = sgp.rows(rng.normal(size=(6, 2)), rng.normal(size=(6, 2)))
    for model, data, message in (
        (sgp.models.exact_gp(), rows.X, "rows from sgp.rows.*got ndarray"),
        (sgp.models.exact_gp(), sgp.rows(rows.X, np.zeros(6)), "y is identically zero"),
        (sgp.models.exact_gp(amplitude=jnp.ones(2)), rows, "one kernel.*Divide each column"),
        (sgp.models.exact_gp(amplitude=-1.0), rows, "`amplitude` must be positive"),
        (sgp.models.exact_gp(features=sgp.LinearBasis(1)), rows, "`features` are of 1 inputs, and the rows have 2"),
    ):
        with pytest.raises(ValueError, match=message):
            trace_of(model, data)
    for arguments in ({"features": sgp.Linear()}, {"feature_scale": 1.0}):
        with pytest.raises(ValueError, match="`features` must be a basis"):
            sgp.models.exact_gp(**arguments)
    with pytest.raises(ValueError, match="`kernel` must be a class"):
        sgp.models.exact_gp(sgp.Matern52(1.0))


@pytest.mark.end_to_end
@pytest.mark.relaxed_promotion
def test_nuts_samples_the_exact_posterior(problem):
    centre = {"lengthscale": 0.5, "amplitude": 1.0, "noise_scale": 0.2}
    exact = grid_posterior(problem, centre, {"lengthscale": 1.5, "amplitude": 2.6, "noise_scale": 0.8})
    mcmc = MCMC(
        NUTS(sgp.models.exact_gp(), init_strategy=init_to_median),
        num_warmup=300,
        num_samples=600,
        num_chains=2,
        chain_method="sequential",
        progress_bar=False,
    )
    rows = sgp.rows(problem.X, problem.y)
    mcmc.run(jax.random.key(2), rows, extra_fields=sgp.EXTRA_FIELDS)
    draws = mcmc.get_samples(group_by_chain=True)
    for name, mean, sd in zip(NAMES, exact.mean, exact.sd, strict=True):
        check_moments(np.log(np.asarray(draws[name])), mean, sd)
    estimate = sgp.log_marginal_likelihood(sgp.models.exact_gp(), mcmc.get_samples(), rows, jax.random.key(4))
    assert estimate.log_evidence == pytest.approx(exact.log_marginal, abs=0.1)
    prediction = sgp.predict(sgp.models.exact_gp(), mcmc.get_samples(), rows, problem.X)
    scores = sgp.calibrate_regression(prediction, problem.y)
    assert scores["mean_log_density"] > 0 and 0.6 < scores["coverage"].sel(level=0.8) <= 1.0
    found = sgp.report(mcmc, rows, X_new=[[0.0], [9.0]])
    assert {"out of domain"} <= {each.check for each in found.findings} <= {"out of domain", "R-hat"}
