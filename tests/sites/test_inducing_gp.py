"""The site of GPs with inducing points: the contract of a distribution, against dense covariances."""

import pickle

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
import scipy.stats
from numpyro.infer.util import log_density

import ppl_sgp as sgp
from ppl_sgp.evidence import inducing_parts

pytestmark = pytest.mark.float64_only

N, M = 11, 4
KERNEL = sgp.SquaredExponential([0.5, 2.0], 1.3)
BLOCKS = np.arange(N) % 3
#: Method, outputs, shape of the noise, shape of the batch.
CASES = {
    "dtc": ("dtc", None, (), ()),
    "fitc": ("fitc", None, (), ()),
    "pitc": ("pitc", None, (), ()),
    "fitc-outputs": ("fitc", 2, (), (2,)),
    "dtc-batch": ("dtc", 2, (3, 2), (3, 2)),
    "pitc-batch": ("pitc", 2, (3, 1), (3, 2)),
    "pic": ("pic", None, (), ()),
}


@pytest.fixture(autouse=True)
def several_parts(monkeypatch):
    monkeypatch.setattr(inducing_parts, "PART_ENTRIES", 5 * M)


class Case:
    def __init__(self, method, outputs, noise, batch_shape):
        rng = np.random.default_rng(3)
        X, y = rng.normal(size=(N, 2)), rng.normal(size=N if outputs is None else (N, outputs))
        self.rows, self.method, self.batch_shape = sgp.rows(X, y, rng.uniform(0.3, 3.0, N)), method, batch_shape
        self.Z = rng.normal(size=(M, 2))
        self.noise_scale = jnp.asarray(0.3 * np.exp(0.3 * rng.normal(size=noise)))
        self.value = jnp.asarray(rng.normal(size=(*batch_shape, N)))

    def make(self, noise_scale=None, kernel=KERNEL, Z=None, **options):
        noise_scale = self.noise_scale if noise_scale is None else noise_scale
        options |= {"blocks": BLOCKS} if self.method in ("pitc", "pic") else {}
        return sgp.InducingGP(self.rows, kernel, self.Z if Z is None else Z, noise_scale, self.method, **options)

    @property
    def covariances(self):
        """Batch + (n, n), by the definition."""
        K, Kx, Kz = (np.asarray(KERNEL(*pair)) for pair in ((self.rows.X,) * 2, (self.rows.X, self.Z), (self.Z,) * 2))
        Q = Kx @ np.linalg.solve(Kz, Kx.T)
        same = BLOCKS[:, None] == BLOCKS[None, :]
        kept = {"dtc": 0, "fitc": np.eye(N), "pitc": same, "pic": same}[self.method]
        noise = np.broadcast_to(self.noise_scale, self.batch_shape)[..., None, None] ** 2
        return Q + kept * (K - Q) + noise * np.diag(1 / self.rows.weights)


@pytest.fixture(params=CASES)
def case(request):
    return Case(*CASES[request.param])


close = np.testing.assert_allclose


@pytest.mark.slow
def test_shapes_and_densities(case, key):
    site = case.make()
    assert (site.batch_shape, site.event_shape) == (case.batch_shape, (N,))
    shapes = sgp.InducingGP.infer_shapes(case.rows, KERNEL, case.Z, jnp.shape(case.noise_scale))
    assert shapes == (site.batch_shape, site.event_shape)
    draws = site.sample(key, (2,))
    assert draws.shape == (2, *case.batch_shape, N)
    log_prob = site.log_prob(draws)
    assert log_prob.shape == (2, *case.batch_shape)
    for index in np.ndindex(case.batch_shape):
        dense = scipy.stats.multivariate_normal(np.zeros(N), case.covariances[index])
        close(log_prob[(slice(None), *index)], dense.logpdf(draws[(slice(None), *index)]), rtol=1e-7)
    one = site.log_prob(draws[(0,) * (draws.ndim - 1)])
    assert one.shape == case.batch_shape
    assert site.mask(False).log_prob(draws).shape == log_prob.shape
    assert "InducingGP" in repr(site)


@pytest.mark.slow
def test_draws_have_the_covariance(case):
    site, num_draws = case.make(), 20_000
    draws = np.asarray(jax.jit(lambda key: site.sample(key, (num_draws,)))(jax.random.key(1)))
    close(site.variance, np.diagonal(case.covariances, axis1=-2, axis2=-1), rtol=1e-7)
    assert site.mean.shape == site.variance.shape == (*case.batch_shape, N) and not np.any(site.mean)
    for index in np.ndindex(case.batch_shape):
        white = np.linalg.solve(np.linalg.cholesky(case.covariances[index]), draws[(slice(None), *index)].T)
        close(white @ white.T / num_draws, np.eye(N), atol=5 * np.sqrt(2 / num_draws))
        close(white.mean(axis=1), 0, atol=5 / np.sqrt(num_draws))


@pytest.mark.slow
@pytest.mark.parametrize("case", ["pitc"], indirect=True)  # of others in tests/contract
def test_transformations(case, key):
    site = case.make()
    expected = site.log_prob(case.value)
    close(jax.jit(lambda site, value: site.log_prob(value))(site, case.value), expected, rtol=1e-10)
    leaves, structure = jax.tree.flatten(site)
    back = jax.tree.unflatten(structure, leaves)
    assert (back.batch_shape, back.event_shape, back.method) == (site.batch_shape, site.event_shape, site.method)
    for copied in (back, pickle.loads(pickle.dumps(site))):
        close(copied.log_prob(case.value), expected, rtol=1e-12)
        close(copied.sample(key), site.sample(key), rtol=1e-12)
    noises = jnp.stack([case.noise_scale, 2 * case.noise_scale])
    each = jnp.stack([case.make(noise).log_prob(case.value) for noise in noises])
    close(jax.vmap(lambda noise: case.make(noise).log_prob(case.value))(noises), each, rtol=1e-10)
    made = jax.vmap(case.make)(noises)
    close(jax.vmap(lambda site: site.log_prob(case.value))(made), each, rtol=1e-10)
    wide = site.expand((2, *case.batch_shape))
    assert wide.sample(key).shape == (2, *case.batch_shape, N)
    close(wide.log_prob(case.value), jnp.stack([expected, expected]), rtol=1e-12)
    if case.batch_shape:
        close(site.to_event(1).log_prob(case.value), expected.sum(-1), rtol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["fitc", "dtc"])
def test_density_is_that_of_a_low_rank_normal(method):
    case = Case(method, None, (), ())
    V = np.linalg.solve(np.linalg.cholesky(np.asarray(KERNEL(case.Z))), np.asarray(KERNEL(case.Z, case.rows.X)))
    lost = np.asarray(KERNEL.diag(case.rows.X)) - np.sum(V**2, axis=0) if method == "fitc" else 0
    diagonal = jnp.asarray(lost + float(case.noise_scale) ** 2 / case.rows.weights)
    low_rank = dist.LowRankMultivariateNormal(jnp.zeros(N), jnp.asarray(V.T), diagonal)
    close(case.make().log_prob(case.value), low_rank.log_prob(case.value), rtol=1e-7)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["vfe", "dtc", "fitc", "pitc", "pic"])
@pytest.mark.parametrize("outputs", [None, 2])
def test_observed_rows_have_the_evidence(method, outputs):
    case = Case("dtc", outputs, () if outputs is None else (2,), ())
    options = {"blocks": BLOCKS} if method in ("pitc", "pic") else {}

    def model(rows, Z):
        lengthscale = numpyro.sample("lengthscale", dist.LogNormal(0.0, 1.0))
        sgp.observe_inducing("y", rows, sgp.Matern32(lengthscale), Z, case.noise_scale, method, **options)

    def joint(lengthscale, Z):
        return log_density(model, (case.rows, Z), {}, {"lengthscale": lengthscale})[0]

    def expected(lengthscale, Z):
        arguments = (case.rows, sgp.Matern32(lengthscale), Z, case.noise_scale, method)
        evidence = jnp.sum(sgp.inducing_evidence(*arguments, **options))
        return evidence + dist.LogNormal(0.0, 1.0).log_prob(lengthscale)

    point = jnp.asarray(0.7), jnp.asarray(case.Z)
    results = [jax.jit(jax.value_and_grad(function, (0, 1)))(*point) for function in (joint, expected)]
    jax.tree.map(lambda a, b: close(a, b, rtol=1e-9, atol=1e-9), *results)


def test_plates_and_batches_are_refused():
    case = Case("fitc", None, (), ())

    def in_a_plate(**plate):
        with numpyro.handlers.seed(rng_seed=0), numpyro.plate("rows", N, **plate):
            sgp.observe_inducing("y", case.rows, KERNEL, case.Z, 0.3)

    for plate in ({}, {"subsample_size": 3}):
        with pytest.raises(ValueError, match="inside the plate 'rows'"):
            in_a_plate(**plate)
    with pytest.raises(ValueError, match=r"batch of shape \(3,\).*row_weights"):
        sgp.observe_inducing("y", case.rows, KERNEL, case.Z, jnp.ones(3))
    with pytest.raises(ValueError, match="no density of y.*observe_inducing"):
        sgp.InducingGP(case.rows, KERNEL, case.Z, 0.3, "vfe")


@pytest.mark.slow
def test_a_plate_over_outputs_is_accepted():
    case = Case("fitc", 2, (), ())

    def model():
        with numpyro.plate("outputs", 2):
            sgp.observe_inducing("y", case.rows, KERNEL, case.Z, 0.3)

    expected = jnp.sum(sgp.inducing_evidence(case.rows, KERNEL, case.Z, 0.3, "fitc"))
    close(log_density(model, (), {}, {})[0], expected, rtol=1e-10)
