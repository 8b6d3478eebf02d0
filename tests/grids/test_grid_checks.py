"""A report says where the estimate of a log-determinant decides about the posterior."""

import numpy as np
import pytest

import ppl_sgp as sgp
from ppl_sgp.diagnostics.grid_checks import MOST_NATS, grid_findings

pytestmark = pytest.mark.float64_only


def posterior(solver):
    rng = np.random.default_rng(0)
    axis = np.linspace(0, 1, 30)
    gaps = rng.uniform(size=(30, 30)) < 0.5
    grid = sgp.Grid([axis, axis], rng.normal(size=(30, 30)), gaps=gaps, dims=("a", "b"))
    lengthscales = np.array([0.02, 0.1, 0.3, 0.6])
    draws = {"lengthscale_a": lengthscales, "lengthscale_b": lengthscales, "amplitude": np.ones(4)}
    return sgp.posterior(sgp.models.grid_gp(noise_scale=0.005, solver=solver), draws, grid)


def test_few_probes_are_found():
    few = sgp.GridSolver(method="fill", log_determinant="lanczos", num_probes=2)
    of_few = posterior(few)
    (finding,) = grid_findings(of_few)
    assert finding.check == "too few probes" and "num_probes=8" in finding.remedy
    exact = posterior(sgp.GridSolver(log_determinant="exact"))
    off = of_few.log_evidence - exact.log_evidence
    assert np.std(off, ddof=1) > MOST_NATS, "the estimates differ from the truth by what the finding says"
    assert not list(grid_findings(exact))


def test_a_biased_form_is_named():
    (finding,) = grid_findings(posterior(sgp.GridSolver(method="fill", log_determinant="nystrom")))
    assert finding.check == "biased log-determinant"
