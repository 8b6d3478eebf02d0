"""Gibbs with weights marginalised, against posteriors by quadrature and against the joint prior."""

import pickle

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.infer import HMC, MCMC, NUTS, Gibbs
from scipy.special import expit, logsumexp

import ppl_sgp as sgp
from ppl_sgp.inference.augmentation import augmented
from ppl_sgp.inference.augmented_rows import Augmentation
from ppl_sgp.inference.gibbs_rows import simulated
from tests.reference import check_moments, dense_log_density, dense_weight_posterior

L = sgp.likelihoods
#: Two features, prior standard deviations of their weights at an amplitude of one, and that of the log amplitude.
BASIS, SCALES, SPREAD, NUGGET = sgp.LinearBasis(2, bias=False), np.array([1.0, 0.6]), 0.5, 0.7
X = np.random.default_rng(1).normal(size=(7, 2))
OFFSET = np.linspace(-0.5, 0.5, 7)
COUNTS = np.array([0.0, 2.0, 1.0, 5.0, 0.0, 3.0, 1.0])


def model(statistics):
    amplitude = numpyro.sample("amplitude", dist.LogNormal(0.0, SPREAD))
    sgp.observe("y", statistics, sgp.DiagonalPrior(amplitude * SCALES), NUGGET if statistics.has_noise else None)


def kernel(model=model, step_size=0.25, num_steps=3):
    """HMC of fixed steps, which compiles faster than NUTS."""
    fixed = {"trajectory_length": None, "adapt_step_size": False, "adapt_mass_matrix": False}
    return sgp.AugmentedGibbs(HMC(model, step_size=step_size, num_steps=num_steps, **fixed))


ROWS = {
    "logit": lambda: sgp.augmented_rows(BASIS, X, COUNTS > 0.5, L.Bernoulli(), offset=OFFSET),
    "nugget": lambda: sgp.latent_rows(BASIS, X, COUNTS, L.Poisson(), offset=OFFSET, num_updates=3),
}


def chain(rows, num_draws, thinning=1):
    """Draws of all sites by name, shape (1, draws, …), in the units of the model; one program."""
    sampler = kernel()

    def run(rows, key):
        state = sampler.init(key, 0, None, (rows,), {})

        def step(state, _):
            state = jax.lax.fori_loop(0, thinning, lambda _, state: sampler.sample(state, (rows,), {}), state)
            return state, state.z

        return jax.lax.scan(step, state, length=num_draws)[1]

    draws = dict(jax.jit(run)(rows, jax.random.key(0)))
    draws["amplitude"] = jnp.exp(draws["amplitude"])
    return {name: np.asarray(values, np.float64)[None] for name, values in draws.items()}


def exact(rows):
    """Means and standard deviations of the log amplitude and of both weights, on a grid over all three.

    A nugget is integrated out by Gauss-Hermite, row by row.
    """
    log_amplitude, w = np.linspace(-2.2, 2.2, 41), np.linspace(-5, 5, 81)
    grid = np.stack(np.meshgrid(w, w, indexing="ij")).reshape(2, -1)
    nodes, masses = np.array([0.0]), np.array([1.0])
    if isinstance(rows, sgp.LatentRows):
        nodes, masses = np.polynomial.hermite_e.hermegauss(25)
    log_joint = np.zeros(grid.shape[1])
    for i in range(len(X)):
        eta = X[i] @ grid + rows.offset[i] + NUGGET * nodes[:, None]
        density = np.asarray(rows.likelihood.log_prob(eta, rows.y[i]), np.float64)
        log_joint += logsumexp(density, axis=0, b=masses[:, None])
    scale = np.exp(log_amplitude)[:, None, None] * SCALES[:, None]
    log_joint = log_joint[None] + np.sum(-0.5 * (grid / scale) ** 2 - np.log(scale), axis=1)
    log_joint -= 0.5 * (log_amplitude[:, None] / SPREAD) ** 2
    mass = np.exp(log_joint - log_joint.max())
    mass /= mass.sum()

    def moments(value):
        mean = np.sum(mass * value)
        return mean, np.sqrt(np.sum(mass * (value - mean) ** 2))

    return moments(log_amplitude[:, None]), moments(grid[0]), moments(grid[1])


@pytest.mark.slow
@pytest.mark.relaxed_promotion
@pytest.mark.parametrize(
    "name",
    ["logit", pytest.param("nugget", marks=pytest.mark.float64_only)],  # slow, and of neither precision
)
def test_draws_the_exact_posterior(name):
    """Means and standard deviations within 4.5 Monte Carlo standard errors of the quadrature."""
    rows = ROWS[name]()
    draws, truth = chain(rows, 1500, thinning=4 if name == "nugget" else 1), exact(rows)
    check_moments(np.log(draws["amplitude"]), *truth[0])
    for j in range(2):
        check_moments(draws["weights"][..., j], *truth[1 + j])


COUNT = L.NegativeBinomial(dist.LogNormal(1.0, 0.5))
JOINT = {
    "count": lambda: sgp.augmented_rows(BASIS, X, COUNTS, COUNT, offset=OFFSET),
    "nugget": lambda: sgp.latent_rows(BASIS, X, COUNTS, COUNT, offset=OFFSET),
    "rotated": lambda: sgp.latent_rows(BASIS, X, COUNTS, L.Poisson(), rotate=sgp.DiagonalPrior(SCALES)),
}


@pytest.mark.end_to_end
@pytest.mark.float64_only  # slow, and of neither precision
@pytest.mark.relaxed_promotion
@pytest.mark.parametrize("name", JOINT)
def test_sweeps_leave_the_joint_distribution_as_it_is(name):
    """Everything is drawn from the joint prior, outcomes included; after three sweeps it still has that distribution.

    2,000 independent replicates: means and variances within 4.5 standard errors (Geweke 2004, without a chain). Steps
    of HMC are long, so that its energies matter.
    """
    rows, count = JOINT[name](), 2000
    scales = jnp.ones(2) if name == "rotated" else jnp.asarray(SCALES)

    def of_basis(statistics):
        amplitude = numpyro.sample("amplitude", dist.LogNormal(0.0, SPREAD))
        sgp.observe("y", statistics, sgp.DiagonalPrior(amplitude * scales), NUGGET if statistics.has_noise else None)

    sampler = kernel(of_basis, step_size=0.7, num_steps=2)

    def replicate(key):
        keys = jax.random.split(key, 7)
        log_amplitude = SPREAD * jax.random.normal(keys[0])
        weights = jnp.exp(log_amplitude) * scales * jax.random.normal(keys[1], (2,))
        z = jax.random.normal(keys[2], rows.prior_loc.shape)
        parameters = rows.prior_loc + rows.prior_scale * z
        f = jnp.asarray(rows.basis.host_features(X)) @ weights
        if isinstance(rows, sgp.LatentRows):
            f = f + NUGGET * jax.random.normal(keys[3], f.shape)
        given = rows._with_outputs(rows._drawn(keys[4], f, parameters))
        if isinstance(rows, sgp.LatentRows):
            latent = rows._latents(f, parameters)
        else:
            latent = Augmentation(augmented(rows.likelihood, keys[5], f + rows.offset, given.y, parameters), parameters)
        state = sampler.init(keys[6], 0, {"amplitude": log_amplitude}, (given,), {})._replace(latent=latent)
        after = jax.lax.fori_loop(0, 3, lambda _, state: sampler.sample(state, (given,), {}), state)
        whitened = after.z["weights"] / (jnp.exp(after.z["amplitude"]) * scales)
        own = (after.latent.parameters - rows.prior_loc) / rows.prior_scale
        return z, jnp.concatenate([after.z["amplitude"][None] / SPREAD, whitened, own]), log_amplitude / SPREAD

    before, after, amplitude = jax.jit(jax.vmap(replicate))(jax.random.split(jax.random.key(0), count))
    after = np.asarray(after)
    assert np.all(np.abs(after.mean(axis=0)) < 4.5 / np.sqrt(count))
    # Of standard normal numbers all covariances are 1 or 0, with variances 2/N and 1/N.
    covariance, unit = after.T @ after / count, np.eye(after.shape[1])
    assert np.all(np.abs(covariance - unit) < 4.5 * np.sqrt((1 + unit) / count))
    for start, column in ((amplitude, after[:, 0]), *zip(np.asarray(before).T, after[:, 3:].T, strict=True)):
        assert abs(np.corrcoef(start, column)[0, 1]) < 0.95  # they did move


@pytest.mark.slow
@pytest.mark.parametrize("num_rows", [1, 2, 7])
def test_statistics_are_those_of_weighted_rows(num_rows, x64):
    """Evidence up to a constant, and the posterior of the weights, against dense formulas, for few rows as well."""
    rows = sgp.augmented_rows(BASIS, X[:num_rows], COUNTS[:num_rows], L.NegativeBinomial(2.0), offset=OFFSET[:num_rows])
    latent = rows.start(jax.random.key(3))
    statistics = rows.statistics(latent)
    precision, information = (np.asarray(part, np.float64) for part in latent.rows)
    root = np.sqrt(precision)
    Phi, y = root[:, None] * X[:num_rows], information / root - root * OFFSET[:num_rows]
    priors = [np.array([0.5, 2.0]), np.array([1.5, 0.1])]
    dense = [dense_log_density(Phi, y, scale, 0.0, 1.0) for scale in priors]
    ours = [float(sgp.log_evidence(statistics, sgp.DiagonalPrior(jnp.asarray(scale)))) for scale in priors]
    tolerance = 1e-10 if x64 else 1e-4
    assert ours[1] - ours[0] == pytest.approx(dense[1] - dense[0], rel=tolerance, abs=tolerance)
    posterior = sgp.weight_posterior(statistics, sgp.DiagonalPrior(jnp.asarray(priors[0])))
    mean, covariance = dense_weight_posterior(Phi, y, priors[0], 0.0, 1.0)
    np.testing.assert_allclose(posterior.mean, mean, rtol=10 * tolerance, atol=10 * tolerance)
    np.testing.assert_allclose(posterior.covariance_matrix, covariance, rtol=10 * tolerance, atol=10 * tolerance)


def test_simulated_outcomes_have_the_prior_of_their_sites():
    """Of 4,000 draws; counts average to ``E exp(f + offset)``, a log-normal mean with the nugget in it."""
    rows = sgp.latent_rows(BASIS, 0.3 * X, COUNTS, L.Poisson(), offset=OFFSET)

    def fixed(statistics):
        sgp.observe("y", statistics, sgp.DiagonalPrior(SCALES), NUGGET)

    truth, y = simulated(fixed, rows, jax.random.key(0), 4000)
    assert truth["weights"].shape == (4000, 2) and y.shape == (4000, 7)
    variance = (0.3 * X) ** 2 @ SCALES**2 + NUGGET**2
    expected = np.exp(OFFSET + variance / 2)
    error = np.asarray(y, np.float64).std(axis=0) / np.sqrt(4000)
    assert np.all(np.abs(y.mean(axis=0) - expected) < 4.5 * error)


@pytest.mark.end_to_end
@pytest.mark.relaxed_promotion
def test_runs_as_any_kernel_of_numpyro():
    """``MCMC`` with NUTS, two chains, deterministic sites; ArviZ; calibration by simulation; pickling."""

    def with_site(statistics):
        model(statistics)
        numpyro.deterministic("doubled", 2.0)

    rows = ROWS["logit"]()
    mcmc = MCMC(
        sgp.AugmentedGibbs(NUTS(with_site)),
        num_warmup=50,
        num_samples=60,
        num_chains=2,
        chain_method="sequential",
        progress_bar=False,
    )
    mcmc.run(jax.random.key(0), rows, extra_fields=("diverging",))
    draws = mcmc.get_samples(group_by_chain=True)
    shapes = {name: values.shape[2:] for name, values in draws.items()}
    assert shapes == {"amplitude": (), "weights": (2,), "doubled": ()}
    assert not np.array_equal(draws["weights"][0], draws["weights"][1])
    container = sgp.to_arviz(mcmc, rows)
    assert container["posterior"]["weights"].shape == (2, 60, 2)
    prediction = sgp.predict(mcmc.sampler.model, mcmc.get_samples(), rows, X)
    expected = expit(draws["weights"].reshape(-1, 2) @ X.T).mean(axis=0)
    np.testing.assert_allclose(prediction.mean, expected, rtol=1e-4, atol=1e-6)
    assert pickle.loads(pickle.dumps(kernel().model)) == kernel().model
    ranks = sgp.simulation_based_calibration(
        model, rows, jax.random.key(1), 60, kernel=kernel, num_warmup=20, num_draws=9, thinning=3
    )
    p_values = sgp.rank_uniformity(ranks)
    assert min(float(p_values[name].min()) for name in ("amplitude", "weights")) > 1e-3


@pytest.mark.slow
def test_refusals():
    rows = ROWS["logit"]()
    with pytest.raises(ValueError, match="NUTS"):
        sgp.AugmentedGibbs(Gibbs([(HMC(model), None)]))
    with pytest.raises(ValueError, match="augmented_rows"):
        kernel().init(jax.random.key(0), 0, None, (sgp.sufficient_statistics(BASIS, X, COUNTS),), {})
    with pytest.raises(ValueError, match="sequential"):
        kernel().init(jax.random.split(jax.random.key(0)), 0, None, (rows,), {})
    with pytest.raises(ValueError, match="shape"):
        sgp.augmented_rows(BASIS, X, COUNTS > 0, L.Bernoulli(), offset=np.zeros(3))
    with pytest.raises(ValueError, match="row 1"):
        sgp.augmented_rows(BASIS, X, COUNTS, L.Bernoulli())
    with pytest.raises(ValueError, match="match"):
        sgp.latent_rows(BASIS, X[:3], COUNTS, L.Poisson())
    with pytest.raises(ValueError, match="num_updates"):
        sgp.latent_rows(BASIS, X, COUNTS, L.Poisson(), num_updates=0)
    with pytest.raises(ValueError, match="sgp.likelihoods"):
        sgp.latent_rows(BASIS, X, COUNTS, dist.Poisson(1.0))


@pytest.mark.relaxed_promotion
@pytest.mark.parametrize("case", ["twice", "prior", "weights", "explicit"])
def test_models_that_cannot_be_run_are_refused(case):
    rows = ROWS["logit"]()

    def wrong(statistics):
        amplitude = numpyro.sample("amplitude", dist.LogNormal(0.0, SPREAD))
        prior = sgp.DiagonalPrior(amplitude * SCALES)
        if case == "twice":
            numpyro.deterministic("weights", amplitude)
        if case == "prior":
            numpyro.sample("other", dist.Normal(0.0, jnp.trace(statistics.moments.gram)))
        if case == "weights":
            prior = sgp.DiagonalPrior(amplitude * jnp.diagonal(statistics.moments.gram) ** -0.5)
        if case == "explicit":
            sgp.observe_weights("y", statistics, numpyro.sample("w", dist.Normal(jnp.zeros(2), 1.0).to_event(1)))
        else:
            sgp.observe("y", statistics, prior)

    with pytest.raises(ValueError, match={"twice": "rename", "explicit": "observe"}.get(case, "every sweep")):
        sgp.AugmentedGibbs(HMC(wrong, num_steps=1, trajectory_length=None, adapt_step_size=False)).init(
            jax.random.key(0), 0, None, (rows,), {}
        )
