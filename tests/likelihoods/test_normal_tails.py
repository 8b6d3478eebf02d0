"""Tails of the normal distribution function, wherever JAX's own functions have none."""

import jax.numpy as jnp
import numpy as np
from scipy.special import log_ndtr
from scipy.stats import norm

from ppl_sgp.likelihoods.normal_tails import hazard


def test_the_hazard_is_exact_also_where_erfcx_is_zero_in_single_precision():
    z = np.linspace(-40, 8, 2001)
    expected = np.exp(norm.logpdf(z) - log_ndtr(z))
    np.testing.assert_allclose(hazard(jnp.asarray(z).astype(float)), expected, rtol=3e-5, atol=1e-12)
