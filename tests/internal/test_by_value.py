"""Models made with equal arguments are equal, and hash alike; with different ones they are not."""

import pickle

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import ppl_sgp as sgp


def model(**changes):
    arguments = {
        "lengthscale": np.array([0.5, 2.0]),
        "noise_scale": dist.LogNormal(0.0, 1.0),
        "alpha": dist.HalfNormal(jnp.ones(2)).to_event(1),
    }
    return sgp.models.basis_gp(sgp.RationalQuadratic, **{**arguments, **changes})


def test_equal_arguments():
    again = pickle.loads(pickle.dumps(model()))
    assert model() == again and hash(model()) == hash(again)
    assert sgp.models.relevance_vector_machine() == sgp.models.relevance_vector_machine()


@pytest.mark.parametrize(
    "changes",
    [
        {"lengthscale": np.array([0.5, 2.1])},
        {"lengthscale": np.array([0.5, 2.0], np.float32)},
        {"lengthscale": dist.LogNormal(0.0, 1.0)},
        {"noise_scale": dist.LogNormal(0.0, 1.1)},
        {"noise_scale": dist.LogNormal(0.0, 1.0).expand([2])},
        {"noise_scale": dist.Normal(0.0, 1.0)},
        {"alpha": 2.0},
        {"amplitude": 1.0},
    ],
)
def test_different_arguments(changes):
    assert model() != model(**changes)


def test_the_type_of_a_number_and_of_a_model_counts():
    one, whole = (sgp.models.fourier_gp(noise_scale=value) for value in (1.0, 1))
    assert one != whole
    assert one != sgp.models.basis_gp(noise_scale=1.0)
    assert sgp.models.reweighted_basis() != sgp.models.free_spectrum_gp()
