"""Sites and evidences under JAX's own checks: no tracer leaks, and no NaN, not even one that is masked."""

import jax
import jax.numpy as jnp
import pytest

from tests.contract.cases import CASES, EXACT, STRUCTURED

ALL = {**CASES, **STRUCTURED, **EXACT}


def log_density(case):
    value = case.value  # it is cached: not of a trace
    return lambda parameters: jnp.sum(case.make(parameters).log_prob(value))


@pytest.mark.float64_only
@pytest.mark.parametrize("name", list(ALL))
def test_no_nan_on_the_way_to_values_and_gradients(name):
    with jax.debug_nans(True):
        value, gradient = jax.value_and_grad(log_density(ALL[name]))(ALL[name].parameters)
    assert all(bool(jnp.isfinite(leaf).all()) for leaf in jax.tree.leaves((value, gradient)))


@pytest.mark.slow
@pytest.mark.float64_only
@pytest.mark.parametrize(
    "name",
    ["gp-dense", "gp-dual", "gp-diagonal_null", "gp-joint", "weights-batch", "exact-batch", "dtc", "grid-filled"],
)
def test_no_tracer_leaks(name):
    case = ALL[name]
    with jax.checking_leaks():
        jax.jit(jax.grad(log_density(case)))(case.parameters)
        jax.jit(lambda key: case.make().sample(key))(jax.random.key(0))
