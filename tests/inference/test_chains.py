"""NumPyro's inference algorithms on the collapsed model, against an exact posterior from dense matrices."""

import dataclasses
import pickle

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.infer import MCMC, NUTS, SVI, Trace_ELBO, init_to_median
from numpyro.infer.autoguide import AutoLaplaceApproximation, AutoMultivariateNormal, AutoNormal
from numpyro.infer.util import initialize_model

import ppl_sgp as sgp
from tests.builders import by_lane
from tests.contract.cases import data
from tests.contract.dense import NAMES, grid_posterior, make_problem
from tests.reference import check_moments

pytestmark = pytest.mark.end_to_end

#: With this prior the posterior of the log hyperparameters is close to Gaussian; with the default one, that of the
#: lengthscale has a long tail to the left, as it has for any finite basis, where chains of this length mix badly.
LENGTHSCALE = (0.4, 0.25)
MODEL = sgp.models.fourier_gp(lengthscale=dist.LogNormal(np.log(LENGTHSCALE[0]), LENGTHSCALE[1]))
#: Each compiles a program of its own, and precisions do not differ by them.
CHAIN_METHODS = by_lane(["parallel", "vectorized"], ["sequential"])


@pytest.fixture(scope="module")
def problem():
    return make_problem()


@pytest.fixture(scope="module")
def exact(problem):
    """Moments of the log hyperparameters by quadrature."""
    centre = {"lengthscale": 0.45, "amplitude": 1.0, "noise_scale": 0.306}
    changed = dataclasses.replace(problem, replaced_priors={"lengthscale": LENGTHSCALE})
    return grid_posterior(changed, centre, {"lengthscale": 1.1, "amplitude": 1.2, "noise_scale": 0.28})


class Counted:
    """The model, counting how often Python runs it: once for a compilation or an initialisation."""

    def __init__(self):
        self.calls = 0

    def __call__(self, stats):
        self.calls += 1
        return MODEL(stats)


@pytest.fixture(scope="module")
def run(problem, relaxed):
    """NUTS by chain method, each run once: the sampler and, apart from it, its draws."""
    made = {}

    def of(chain_method):
        if chain_method not in made:
            vectorized = chain_method == "vectorized"
            mcmc = MCMC(
                NUTS(Counted() if vectorized else MODEL, init_strategy=init_to_median),
                num_warmup=200,
                num_samples=300,
                num_chains=2,
                chain_method=chain_method,
                progress_bar=False,
                jit_model_args=vectorized,
            )
            with relaxed():
                mcmc.run(jax.random.key(1), problem.statistics)
            made[chain_method] = mcmc, mcmc.get_samples(group_by_chain=True)
        return made[chain_method]

    return of


@pytest.mark.parametrize("chain_method", CHAIN_METHODS)
def test_nuts_draws_the_exact_posterior(run, exact, chain_method):
    """Means and standard deviations of log hyperparameters within 4.5 Monte Carlo standard errors of the quadrature."""
    _, draws = run(chain_method)
    for name, mean, sd in zip(NAMES, exact.mean, exact.sd, strict=True):
        log_draws = np.log(np.asarray(draws[name], dtype=np.float64))
        assert log_draws.shape == (2, 300)
        assert not np.allclose(log_draws[0], log_draws[1])
        check_moments(log_draws, mean, sd, least_ess=60)


@pytest.mark.float64_only  # slow, and of neither precision
def test_effective_features_are_recorded(run, problem):
    _, draws = run("parallel")
    for index in (0, 100):
        variances = problem.unit_variances(float(draws["lengthscale"][1, index]))
        expected = variances.sum() ** 2 / np.sum(variances**2)
        assert float(draws["effective_features"][1, index]) == pytest.approx(expected, rel=1e-3)


@pytest.mark.float64_only  # slow, and of neither precision
@pytest.mark.relaxed_promotion
def test_continues_warmed_up_and_with_other_statistics_without_tracing_the_model(run, problem):
    """Statistics are arguments: those of other outputs and of more rows (of the same rank) reuse the program."""
    mcmc, first = run("vectorized")
    model, warm = mcmc.sampler.model, mcmc.last_state
    assert model.calls > 1
    calls, means = [], [np.log(first["noise_scale"]).mean()]
    for statistics in (problem.statistics, problem.statistics.update(problem.X, -problem.y)):
        assert statistics.compressed.factor.shape == problem.statistics.compressed.factor.shape
        # A state remembers the energy of its data; without that of the new ones every proposal would be refused.
        sgp.continue_with(mcmc, statistics)
        info = initialize_model(jax.random.key(0), MODEL, init_strategy=init_to_median, model_args=(statistics,))
        np.testing.assert_allclose(
            mcmc.post_warmup_state.potential_energy, jax.vmap(info.potential_fn)(mcmc.last_state.z), rtol=1e-5
        )
        before = model.calls
        mcmc.run(warm.rng_key, statistics)
        calls.append(model.calls - before)
        np.testing.assert_array_equal(mcmc.last_state.adapt_state.step_size, warm.adapt_state.step_size)
        draws = mcmc.get_samples(group_by_chain=True)["noise_scale"]
        assert draws.shape == (2, 300)
        means.append(np.log(draws).mean())
    # Nothing is traced again: NumPyro runs the model once in any case, for the deterministic site of all draws.
    assert calls == [1, 1]
    # Other draws of the same posterior; then, with every output once more with the other sign, another posterior.
    assert 0 < abs(means[1] - means[0]) < 0.03 < 0.1 < abs(means[2] - means[0])


def test_mcmc_and_model_pickle(run):
    mcmc, draws = run(CHAIN_METHODS[0])
    back = pickle.loads(pickle.dumps(mcmc))
    for name, value in draws.items():
        np.testing.assert_array_equal(back.get_samples(group_by_chain=True)[name], value)
    assert back.sampler.model.kernel is MODEL.kernel


@pytest.mark.relaxed_promotion
@pytest.mark.parametrize("guide_class", [AutoNormal, AutoMultivariateNormal])
def test_svi_approaches_the_marginal_likelihood_from_below(problem, exact, guide_class):
    """The ELBO bounds log ∫ evidence × prior, known from quadrature; these posteriors are close to Gaussian."""
    guide = guide_class(MODEL, init_loc_fn=init_to_median, init_scale=0.2)  # too wide at first
    svi = SVI(MODEL, guide, numpyro.optim.Adam(0.03), Trace_ELBO(num_particles=4))
    result = svi.run(jax.random.key(0), 800, problem.statistics, progress_bar=False)
    elbo = -np.asarray(result.losses, dtype=np.float64)
    assert np.all(np.isfinite(elbo))
    final = elbo[-150:]
    error = final.std() / np.sqrt(len(final))
    assert final.mean() > elbo[:10].mean() + 1
    assert final.mean() < exact.log_marginal + 4 * error
    # The price of a Gaussian on the log scale; mean field also pays for correlation.
    assert final.mean() > exact.log_marginal - (1.5 if guide_class is AutoNormal else 0.5) - 4 * error


@pytest.mark.float64_only  # nothing here depends on the precision, and compiling takes long
@pytest.mark.relaxed_promotion
def test_laplace_approximation(problem, exact):
    """On the log scale. Skewness moves the mode off the mean by a fraction of a standard deviation."""
    guide = AutoLaplaceApproximation(MODEL, init_loc_fn=init_to_median)
    svi = SVI(MODEL, guide, numpyro.optim.Adam(0.05), Trace_ELBO())
    result = svi.run(jax.random.key(0), 600, problem.statistics, progress_bar=False)
    normal = guide.get_posterior(result.params)
    # Unconstrained values of positive parameters are their logarithms; sites are in the order of the model.
    loc, sd = np.asarray(normal.mean), np.sqrt(normal.variance)
    assert np.all(np.abs(loc - exact.mean) < 0.35 * exact.sd)
    np.testing.assert_allclose(sd, exact.sd, rtol=0.25)


@jax.jit
def both_sides(stats, prior, noise_scale, w):
    """log p(y|w,θ) + log p(w|θ) − log p(w|y,θ) for each w (draws, …, m), and log p(y|θ)."""
    posterior, prior_density = sgp.weight_posterior(stats, prior, noise_scale), prior.distribution().log_prob

    def one(w):
        # NumPyro's own distributions broadcast, so one weight vector at a time.
        log_prior = prior_density(w) if w.ndim == 1 else jnp.stack([prior_density(row) for row in w])
        return (
            sgp.CompressedNormal(stats, w, noise_scale).log_prob(stats.projection) + log_prior - posterior.log_prob(w)
        )

    return jax.lax.map(one, w), sgp.log_evidence(stats, prior, noise_scale)


@pytest.mark.float64_only
@pytest.mark.parametrize("name", ["dense", "weighted", "dual", "diagonal_null", "two_outputs"])
def test_bayes_identity_joins_collapsed_and_explicit_weights(name, rng):
    """The same number for every w."""
    stats = data(name).statistics
    m, outputs = stats.num_features, np.shape(stats.projection)[:-1]
    for noise_scale in (0.05, 0.6):
        prior = sgp.DiagonalPrior(np.exp(rng.normal(size=m)), mean=rng.normal(size=m))
        left, evidence = both_sides(stats, prior, noise_scale, rng.normal(size=(4, *outputs, m)))
        # Terms of the left side are large for a w far from the posterior.
        np.testing.assert_allclose(left, np.broadcast_to(evidence, left.shape), rtol=1e-9, atol=1e-7)
