"""Several outputs of different units in the ready models: an amplitude and a noise each."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro import handlers
from numpyro.infer.util import log_density

import ppl_sgp as sgp
from ppl_sgp.diagnostics.model_checks import basis_findings
from tests.builders import by_lane

UNITS = np.array([1.0, 2e4])
ROWS = 200


@pytest.fixture(scope="module")
def rows():
    """The example of an outsider: columns of scale 1 and 2e4, with noise .2 and 3e3."""
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 10, (ROWS, 1))
    f = np.stack([np.sin(X[:, 0]), np.cos(X[:, 0])], axis=1)
    return X, (f + np.array([0.2, 0.15]) * rng.normal(size=(ROWS, 2))) * UNITS


@pytest.fixture(scope="module")
def fourier(rows):
    return sgp.FourierBasis.from_data(jax.random.key(0), rows[0], 20)


@pytest.fixture(scope="module")
def statistics(rows, fourier):
    return sgp.sufficient_statistics(fourier, *rows)


MODELS = {
    "fourier_gp": sgp.models.fourier_gp(),
    "basis_gp": sgp.models.basis_gp(sgp.Matern52),
    "reweighted_basis": sgp.models.reweighted_basis(),
    "free_spectrum_gp": sgp.models.free_spectrum_gp(),
    "gamma": sgp.models.relevance_vector_machine(),
    "horseshoe": sgp.models.relevance_vector_machine(sgp.models.Horseshoe(relevant=3)),
}


@pytest.mark.parametrize("name", MODELS)
def test_units_of_an_output_do_not_matter(name, rows, fourier, statistics):
    """Columns in units of their own: sites with the unit of y take it over, and the density changes by its volume."""
    model = MODELS[name]
    plain = sgp.sufficient_statistics(fourier, rows[0], rows[1] / UNITS)
    trace = handlers.trace(handlers.seed(model, jax.random.key(1))).get_trace(plain)
    point = {key: site["value"] for key, site in trace.items() if site["type"] == "sample" and not site["is_observed"]}
    moved = {
        key: value * jnp.asarray(UNITS, value.dtype) if value.shape == (2,) else value for key, value in point.items()
    }
    with_units = sum(value.shape == (2,) for value in point.values())
    assert with_units == (1 if "relevance" in str(type(model)) else 2)
    before, after = (log_density(model, (s,), {}, p)[0] for s, p in ((plain, point), (statistics, moved)))
    volume = (ROWS + with_units) * np.log(UNITS).sum()
    assert float(before - after) == pytest.approx(volume, abs=by_lane(1e-6, 0.1))


@pytest.mark.slow
def test_with_lengthscales_fixed_each_output_is_fitted_as_alone(rows, fourier, statistics):
    model = sgp.models.fourier_gp(lengthscale=2.0)
    together = sgp.fit_evidence(model, statistics)
    alone = [sgp.fit_evidence(model, sgp.sufficient_statistics(fourier, rows[0], y)) for y in rows[1].T]
    assert together.log_joint == pytest.approx(sum(fit.log_joint for fit in alone), abs=by_lane(1e-6, 0.05))
    for name in ("amplitude", "noise_scale"):
        expected = [float(fit.values[name]) for fit in alone]
        np.testing.assert_allclose(together.values[name], expected, rtol=by_lane(1e-3, 0.05))
    np.testing.assert_allclose(together.values["noise_scale"], [0.2, 3e3], rtol=0.15)
    prediction = sgp.predict(model, together.samples, statistics, rows[0][:3])
    for column, (y, fit) in enumerate(zip(rows[1].T, alone, strict=True)):
        own = sgp.predict(model, fit.samples, sgp.sufficient_statistics(fourier, rows[0], y), rows[0][:3])
        np.testing.assert_allclose(prediction.mean[:, column], own.mean, rtol=by_lane(1e-4, 0.02))
        np.testing.assert_allclose(prediction.variance[:, column], own.variance, rtol=by_lane(1e-2, 0.1))


@pytest.mark.parametrize("shape", [(), (2,)])
def test_what_is_given_has_either_shape(shape, statistics):
    prior = dist.LogNormal(0.0, 1.0).expand(shape).to_event(len(shape))
    given = sgp.models.fourier_gp(amplitude=prior, noise_scale=np.full(shape, 0.3))
    trace = handlers.trace(handlers.seed(given, jax.random.key(0))).get_trace(statistics)
    assert trace["amplitude"]["value"].shape == trace["effective_features"]["value"].shape == shape


def test_a_column_is_one_output(rows, fourier):
    column = sgp.sufficient_statistics(fourier, rows[0], rows[1][:, :1])
    for model in (MODELS["fourier_gp"], MODELS["reweighted_basis"]):
        trace = handlers.trace(handlers.seed(model, jax.random.key(0))).get_trace(column)
        assert trace["noise_scale"]["value"].shape == ()
    assert "amplitude" not in trace


@pytest.mark.parametrize(
    "amplitude, message", [([1.0, 2.0, 3.0], "one for each of 2; got shape"), ([1.0, -1.0], "positive")]
)
def test_refuses_amplitudes_that_do_not_fit(amplitude, message, statistics):
    with pytest.raises(ValueError, match=message):
        handlers.seed(sgp.models.basis_gp(amplitude=np.array(amplitude)), jax.random.key(0))(statistics)


@pytest.mark.slow
@pytest.mark.float64_only  # correlated weights are
def test_correlated_weights_share_one_amplitude(rows):
    """What the message says to do, done."""
    X, y = rows
    basis = sgp.InterpolationBasis([np.linspace(-0.1, 10.1, 12)])
    with pytest.raises(ValueError, match="a KroneckerPrior has one amplitude for all outputs. Divide each column"):
        sgp.fit_evidence(sgp.models.basis_gp(), sgp.sufficient_statistics(basis, X, y))
    model = sgp.models.basis_gp(amplitude=dist.LogNormal(0.0, 1.0), lengthscale=1.5)
    fit = sgp.fit_evidence(model, sgp.sufficient_statistics(basis, X, y / y.std(axis=0)))
    assert fit.converged and fit.values["noise_scale"].shape == (2,)


@pytest.mark.float64_only  # correlated weights are
def test_reflections_share_one_amplitude(rows, fourier):
    X, y = rows
    with pytest.raises(ValueError, match="a HouseholderPrior has one amplitude for all outputs"):
        rotated = sgp.sufficient_statistics(fourier, X, y).rotate(orthonormal=True)
        handlers.seed(sgp.models.reweighted_basis(1), jax.random.key(0))(rotated)
    rotated = sgp.sufficient_statistics(fourier, X, y / y.std(axis=0)).rotate(orthonormal=True)
    handlers.seed(sgp.models.reweighted_basis(1, amplitude=dist.LogNormal(0.0, 1.0)), jax.random.key(0))(rotated)


def test_kernels_of_each_output(statistics, rows):
    """Relative errors know no amplitude; covariances are in squared units of their output."""
    draws = {"lengthscale": np.array([1.0, 2.0]), "amplitude": np.stack([UNITS, UNITS]), "noise_scale": np.ones((2, 2))}
    model = MODELS["fourier_gp"]
    error = sgp.kernel_error(model, draws, statistics, rows[0][:20])
    assert error["relative_error"].dims == ("draw", "output")
    np.testing.assert_allclose(error["relative_error"][:, 0], error["relative_error"][:, 1], rtol=by_lane(1e-6, 1e-3))
    one = dict(draws, amplitude=np.ones(2))
    shared = sgp.models.fourier_gp(amplitude=dist.LogNormal(0.0, 1.0))
    np.testing.assert_allclose(
        sgp.kernel_error(shared, one, statistics, rows[0][:20])["variance_ratio"],
        error["variance_ratio"][:, 0],
        rtol=by_lane(1e-9, 1e-4),
    )
    kernels = sgp.kernel_draws(model, draws, statistics, np.linspace(0, 1, 3))
    assert kernels["covariance"].dims == ("draw", "output", "lag")
    assert kernels["spectrum"].dims == ("draw", "output", "frequency")
    np.testing.assert_allclose(kernels["covariance"][:, 1], UNITS[1] ** 2 * kernels["covariance"][:, 0], rtol=1e-4)


def test_noise_is_compared_with_the_size_of_its_own_output(statistics):
    """A noise of .2 is no interpolation because another column is of size 2e4."""
    draws = {"lengthscale": np.full(3, 2.0), "amplitude": np.tile(UNITS, (3, 1))}
    noise = np.tile([0.2, 3e3], (3, 1))
    model = MODELS["fourier_gp"]
    found = {
        finding.check for finding in basis_findings(sgp.posterior(model, {**draws, "noise_scale": noise}, statistics))
    }
    assert "interpolation" not in found
    noise[:, 1] = 2.0
    found = {
        finding.check for finding in basis_findings(sgp.posterior(model, {**draws, "noise_scale": noise}, statistics))
    }
    assert "interpolation" in found
