"""Warnings of public functions point at the line of whoever called them, and are shown there once."""

from __future__ import annotations

import warnings

import jax
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro import handlers

import ppl_sgp as sgp

pytestmark = [pytest.mark.float64_only, pytest.mark.relaxed_promotion]
X = np.linspace(0.0, 1.0, 40)[:, None]
Y = np.sin(6 * X[:, 0]) + 0.1 * np.cos(77 * X[:, 0])
SE = sgp.SquaredExponential(0.2)
FAR = np.array([[0.5], [9.0]])
LAPLACE = sgp.LaplaceBasis.from_data(X, 10, 1.5)
DRAWS = {"lengthscale": np.full(3, 0.2), "amplitude": np.ones(3), "noise_scale": np.full(3, 0.1)}
SCALES = {"scale": np.ones(3), "noise_scale": np.full(3, 0.1)}


def statistics(basis, y=Y, **options):
    return sgp.sufficient_statistics(basis, X, y, **options)


def beyond(basis):
    return sgp.posterior(sgp.models.reweighted_basis(), SCALES, statistics(basis))


def classes():
    return sgp.fit_relevance_classifier(sgp.CentredBasis(X[::4], SE), X, Y > 0, max_iterations=1)


CALLS = {
    "basis(X)": lambda: LAPLACE(FAR),
    "host_features": lambda: LAPLACE.host_features(FAR),
    "sufficient_statistics": lambda: sgp.sufficient_statistics(LAPLACE, FAR, np.ones(2)),
    "chunks": lambda: sgp.sufficient_statistics(LAPLACE, iter([(X, Y), (FAR, np.ones(2))])),
    "predict": lambda: beyond(sgp.NystromBasis(X[::4], SE)).predict(FAR).mean,
    "predict, centres": lambda: beyond(sgp.CentredBasis(X[::4], SE)).predict(FAR).mean,
    "predict, grid": lambda: beyond(sgp.GridEigenBasis.from_kernel(SE, X, 10)).predict(FAR).mean,
    "predict, lost variance": lambda: sgp.predict(
        sgp.models.basis_gp(), DRAWS | {"lengthscale": np.full(3, 2.0)}, statistics(LAPLACE), FAR[:1] + 0.7
    ),
    "predict, narrow box": lambda: sgp.predict(
        sgp.models.basis_gp(), DRAWS | {"lengthscale": np.full(3, 0.5)}, statistics(LAPLACE), FAR[:1]
    ),
    "grid": lambda: sgp.GridEigenBasis.from_kernel(sgp.SquaredExponential(0.01), X, 10, 12),
    "fit_evidence": lambda: sgp.fit_evidence(sgp.models.basis_gp(), statistics(LAPLACE), max_iterations=1),
    "a model": lambda: handlers.seed(sgp.models.basis_gp(), jax.random.key(0))(statistics(LAPLACE, Y + 99)),
    "in NumPyro": lambda: numpyro.infer.util.log_density(
        sgp.models.basis_gp(), (statistics(LAPLACE, Y + 99),), {}, {name: values[0] for name, values in DRAWS.items()}
    ),
    "log_evidence": lambda: sgp.log_evidence(statistics(LAPLACE, method="gram"), sgp.DiagonalPrior(1.0), 3e-8),
    "fit_relevance_vectors": lambda: sgp.fit_relevance_vectors(
        statistics(sgp.CentredBasis(X[::2], SE)), max_iterations=1
    ),
    "fit_relevance_classifier": classes,
    "direct.fit": lambda: sgp.direct.fit(
        statistics(LAPLACE), sgp.DiscreteRelaxation(dist.Normal(0.0, 0.01), 3), noise_scale=0.1, max_iterations=1
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_at_the_line_of_the_caller_and_once(name):
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("default")
        for _ in range(2):
            CALLS[name]()
    ours = [each for each in said if each.category is UserWarning]
    assert ours and {each.filename for each in ours} == {__file__}
    assert len({str(each.message) for each in ours}) == len(ours)


def test_in_a_model_of_ones_own():
    def model(stats):
        noise_scale = numpyro.sample("noise_scale", dist.LogNormal(0.0, 1.0))
        sgp.observe("y", stats, stats.basis.weight_prior(SE), noise_scale)

    with pytest.warns(UserWarning, match="has not converged") as said:
        sgp.fit_evidence(model, statistics(LAPLACE), max_iterations=1)
    assert said[0].filename == __file__
