"""What `continue_with` refuses; that it goes on without tracing the model again is in test_chains.py."""

import jax
import numpy as np
import pytest
from numpyro.infer import MCMC, NUTS, BarkerMH

import ppl_sgp as sgp
from tests.builders import smooth_rows

pytestmark = pytest.mark.float64_only  # slow, and of neither precision


@pytest.fixture
def statistics(rng):
    X, y = smooth_rows(rng, 30)
    return sgp.sufficient_statistics(sgp.LinearBasis(1), X, y)


def sampler(kernel):
    model = sgp.models.reweighted_basis(noise_scale=0.1)
    return MCMC(kernel(model), num_warmup=2, num_samples=2, progress_bar=False)


def test_nothing_to_go_on_from(statistics):
    with pytest.raises(ValueError, match=r"has no draws to go on from. Call `mcmc.run` first"):
        sgp.continue_with(sampler(NUTS), statistics)


@pytest.mark.slow
@pytest.mark.relaxed_promotion
def test_other_kernels(statistics):
    mcmc = sampler(BarkerMH)
    mcmc.run(jax.random.key(0), statistics)
    with pytest.raises(ValueError, match="must sample with NUTS or HMC; got BarkerMH"):
        sgp.continue_with(mcmc, statistics)


@pytest.mark.slow
@pytest.mark.relaxed_promotion
@pytest.mark.filterwarnings("ignore:Out-of-support values:UserWarning")
def test_data_that_the_last_draw_cannot_have(statistics):
    mcmc = sampler(NUTS)
    mcmc.run(jax.random.key(0), statistics)
    mcmc.last_state.z["scale"] = np.full_like(mcmc.last_state.z["scale"], 1e3)
    with pytest.raises(ValueError, match="potential energies .*Start a new run"):
        sgp.continue_with(mcmc, statistics)
