"""Fits of other data of the same shape run the programs that there are."""

import jax
import pytest

import ppl_sgp as sgp
from tests.contract.dense import make_problem


@pytest.fixture
def compilations():
    """Names of what JAX compiles, or takes from its files, during a test."""
    names = []
    jax.clear_caches()  # tests before may have compiled the same

    def listen(event, duration, **kwargs):
        if event == "/jax/core/compile/backend_compile_duration":
            names.append(kwargs.get("fun_name"))

    jax.monitoring.register_event_duration_secs_listener(listen)
    yield names
    jax.monitoring.unregister_event_duration_listener(listen)


@pytest.mark.slow
def test_other_data_of_equal_shape_compile_nothing(compilations):
    """Models made alike are the same one to the compiler."""
    problem = make_problem()
    fit = sgp.fit_evidence(sgp.models.fourier_gp(), problem.statistics, num_starts=2)
    first = len(compilations)
    other = sgp.sufficient_statistics(problem.basis, problem.X, 3 * problem.y[::-1])
    again = sgp.fit_evidence(sgp.models.fourier_gp(), other, num_starts=2)
    assert first > 0 and compilations[first:] == []
    assert again.log_evidence != fit.log_evidence
    sgp.fit_evidence(sgp.models.fourier_gp(noise_scale=0.3), other)  # another model
    assert len(compilations) > first
