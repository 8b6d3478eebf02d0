"""Values that a user gives a site as NumPy arrays count as JAX's: in either precision, without a warning."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro import handlers
from numpyro.infer.util import log_density

import ppl_sgp as sgp
from tests.builders import X64

X = np.linspace(0, 1, 25)[:, None]
y = np.sin(6 * X[:, 0]) + 0.1 * np.cos(40 * X[:, 0])
FOURIER = sgp.FourierBasis.from_data(jax.random.key(0), X, 8)
CENTRED = sgp.CentredBasis(X[::4], sgp.SquaredExponential(0.3))


def explicit(X, labels):
    f = sgp.latent("f", FOURIER, FOURIER.weight_prior(sgp.SquaredExponential(numpyro.sample("l", dist.LogNormal()))))
    numpyro.sample("y", dist.Bernoulli(logits=f(X)), obs=labels)


def centred(X, labels):
    f = sgp.latent("f", FOURIER, FOURIER.weight_prior(sgp.SquaredExponential(0.3)), centred=True)
    numpyro.sample("y", dist.Bernoulli(logits=f(X)), obs=labels)


def of(basis):
    return (sgp.sufficient_statistics(basis, X, y),)


def rvm(weights, **kwargs):
    model = sgp.models.relevance_vector_machine(sgp.models.Horseshoe(slab_scale=1.0), weights=weights, **kwargs)
    stats = of(CENTRED)[0]
    return model, (stats if weights != "whitened" else model.rotate(stats),)


CASES = {
    "fourier_gp": lambda: (sgp.models.fourier_gp(), of(FOURIER)),
    "basis_gp": lambda: (sgp.models.basis_gp(sgp.SquaredExponential), of(FOURIER)),
    "free_spectrum_gp": lambda: (sgp.models.free_spectrum_gp(), of(FOURIER)),
    "free variances": lambda: (sgp.models.reweighted_basis(), of(FOURIER)),
    "reflected": lambda: (sgp.models.reweighted_basis(reflections=1), (of(FOURIER)[0].rotate(orthonormal=True),)),
    "precisions, marginal weights": lambda: rvm("marginal"),
    "precisions, whitened weights": lambda: rvm("whitened"),
    "precisions, explicit weights": lambda: rvm("explicit"),
    "classifier": lambda: (sgp.models.relevance_vector_classifier(), (CENTRED(X), (y > 0).astype(int))),
    "latent": lambda: (explicit, (X, (y > 0).astype(int))),
    "latent, centred": lambda: (centred, (X, (y > 0).astype(int))),
}


@pytest.mark.skipif(X64, reason="NumPy's default precision is JAX's there")
@pytest.mark.relaxed_promotion  # of NumPyro's own distributions
@pytest.mark.parametrize("case", CASES)
def test_numpy_values_of_sites(case):
    model, args = CASES[case]()
    start = handlers.substitute(
        model, {"weights_whitened": np.linspace(-1, 1, CENTRED.num_features)}
    )  # an improper prior
    trace = handlers.trace(handlers.seed(start, jax.random.key(1))).get_trace(*args)
    sites = [name for name, site in trace.items() if site["type"] == "sample" and not site["is_observed"]]
    host = {name: np.asarray(trace[name]["value"], np.float64) for name in sites}
    device = {name: jnp.asarray(value) for name, value in host.items()}
    value = log_density(model, args, {}, host)[0]
    assert np.isfinite(value)
    np.testing.assert_allclose(value, log_density(model, args, {}, device)[0], rtol=1e-4)
