# %% [markdown]
# # Is it calibrated? Checks before and after the data
#
# Two questions, often mixed up. Does the computation give the posterior of the model that was written down?
# Simulation-based calibration answers that, with data drawn from the model. Does the model suit the data? Held-out
# rows, leave-one-out and `sgp.report` answer that. Both are cheap here, since neither simulations nor chains
# see more than the compressed statistics.

# %%
from pathlib import Path

import arviz as az
import jax
import matplotlib.pyplot as plt
import numpy as np
import numpyro
import numpyro.distributions as dist
import statsmodels.api as sm
from numpyro.infer import MCMC, NUTS

import ppl_sgp as sgp

# %% tags=["parameters"]
num_simulations = 100
num_warmup = 150
thinning = 3
num_features = 80
every = 4
num_draws = 250
num_chains = 4
output = Path("examples-output")

# %%
output.mkdir(parents=True, exist_ok=True)
numpyro.set_host_device_count(num_chains)
numpyro.enable_x64()

# %% [markdown]
# ## Simulations from the prior
#
# The annual flow of the Nile at Aswan, 1871 to 1970, gives the inputs; true hyperparameters come from the prior, and
# data from those. Among draws of the right posterior the truth has a uniform rank. The model is a ready one with
# priors of our own, in units of the standard deviation of the flow.

# %%
flow = sm.datasets.nile.load_pandas().data
years = flow["year"].to_numpy(float)[:, None]
volume = (flow["volume"] - flow["volume"].mean()) / flow["volume"].std()
stats = sgp.sufficient_statistics(sgp.LaplaceBasis.from_data(years, 12), years, volume.to_numpy())
priors = dict(lengthscale=dist.LogNormal(np.log(20.0), 0.4), amplitude=dist.LogNormal(0.0, 0.5))
model = sgp.models.basis_gp(sgp.SquaredExponential, noise_scale=dist.LogNormal(-0.5, 0.5), **priors)
settings = dict(num_warmup=num_warmup, num_draws=99, thinning=thinning, progress=False)
ranks = sgp.simulation_based_calibration(model, stats, jax.random.key(0), num_simulations, **settings)

# %% [markdown]
# ## A wrong model must fail
#
# A check that cannot fail is none. So plant a mistake that is easily made: `sgp.observe` wants the standard
# deviation of the noise, and gets the variance. Here the simulator makes it and the analysis does not; ranks say only
# that the two differ, not which of them is wrong.


# %%
def mistaken(stats):
    lengthscale, amplitude = (numpyro.sample(name, prior) for name, prior in priors.items())
    noise_scale = numpyro.sample("noise_scale", dist.LogNormal(-0.5, 0.5))
    kernel = sgp.SquaredExponential(lengthscale, amplitude)
    sgp.observe("y", stats, stats.basis.weight_prior(kernel), noise_scale**2)


wrong = sgp.simulation_based_calibration(
    model, stats, jax.random.key(0), num_simulations, generator=mistaken, **settings
)
print("p-values of uniform ranks")
for name, each in (("right model", ranks), ("mistaken simulator", wrong)):
    values = {site: round(float(p), 4) for site, p in sgp.rank_uniformity(each).items()}
    print(f"{name}: {values}; divergences {int(each['diverging'].sum())}")

figure, panels = plt.subplots(2, 3, figsize=(11, 5.4), layout="constrained")
sgp.plots.plot_ranks(ranks, bins=10, ax=panels[0])
sgp.plots.plot_ranks(wrong, bins=10, ax=panels[1])
for ax, title in zip(panels[:, 0], ("right model", "variance for standard deviation"), strict=True):
    ax.set_title(title, loc="left", fontsize="medium")
figure.savefig(output / "calibration_ranks.png", dpi=150)

# %% [markdown]
# ## Simulations from the posterior
#
# Wide priors spend most simulations where the data will never be. `posterior_sbc` takes truths from the posterior of
# the data at hand, makes new data at the same inputs, and ranks each truth given both.

# %%
nile = MCMC(NUTS(model), num_warmup=num_draws, num_samples=num_draws, num_chains=num_chains, progress_bar=False)
nile.run(jax.random.key(1), stats)
total = num_draws * num_chains
chosen = np.linspace(0, total - 1, min(num_simulations, total)).astype(int)
truths = {name: values[chosen] for name, values in nile.get_samples().items()}
near = sgp.posterior_sbc(model, stats, truths, jax.random.key(2), **settings)
print("around the posterior:", {site: round(float(p), 4) for site, p in sgp.rank_uniformity(near).items()})

# %% [markdown]
# ## A model of real data, with a planted fault
#
# CO₂ at Mauna Loa, one week in four; inputs are the year and the season as a point on a circle. Twelve stretches of
# fourteen weeks are held out. The first run forgets that a GP has mean zero and models the concentration itself. (The
# model warns of that at once; suppose that nobody read it.)

# %%
record = sm.datasets.co2.load_pandas().data["co2"].dropna()[::every]
year = np.array([date.year + (date.day_of_year - 0.5) / 365.25 for date in record.index])
co2 = record.to_numpy()
X = np.stack([year, np.cos(2 * np.pi * year), np.sin(2 * np.pi * year)], axis=1)
starts = np.random.default_rng(0).choice(np.arange(1960, 2000), size=12, replace=False) + 0.3
test = ((year[:, None] >= starts) & (year[:, None] < starts + 14 / 52)).any(axis=1)
basis = sgp.FourierBasis.from_data(jax.random.key(0), X[~test], num_features)
gp = sgp.models.fourier_gp()


def run(y):
    compressed = sgp.sufficient_statistics(basis, X[~test], y)
    start = sgp.fit_evidence(gp, compressed).init_strategy()
    kernel = NUTS(gp, init_strategy=start)
    mcmc = MCMC(kernel, num_warmup=num_draws, num_samples=num_draws, num_chains=num_chains, progress_bar=False)
    mcmc.run(jax.random.key(1), compressed, extra_fields=sgp.EXTRA_FIELDS)
    return sgp.posterior(gp, mcmc, compressed)


careless = run(co2[~test])
print(sgp.report(careless))

# %% [markdown]
# The finding about the mean of y names the remedy. A quadratic trend takes the mean off, and all that follows is about
# what remains. Should the report mention held-out rows outside the training inputs: a season lies on a circle, so
# one just beyond the largest cosine is no extrapolation.

# %%
trend = np.polynomial.Polynomial.fit(year[~test], co2[~test], deg=2)
y = co2 - trend(year)
posterior = run(y[~test])
print(sgp.report(posterior, X=X[~test], y=y[~test], X_new=X[test]))
idata = posterior.to_arviz(X[~test], y[~test])
print(az.summary(idata, var_names=["lengthscale", "amplitude", "noise_scale"]).to_string())
loo = az.loo(idata, pointwise=True)
print(loo)

# %% [markdown]
# ## Coverage, PIT and CRPS of the weeks held out
#
# If central intervals hold what they promise, the predictive distribution functions at the observations, the PIT
# values, are uniform. The CRPS and the log density also reward being sharp. The standard errors are those of
# independent rows, which weeks of one gap are not quite.
#
# The careless run is scored as well, with its warnings. Within the record it predicts about as well: the noise
# and twelve short gaps hide a mean that is 340 off. Warnings and the report gave it away, scores would not have.

# %%
scores = sgp.calibrate_regression(posterior.predict(X[test]), y[test])
print(scores[["coverage", "coverage_standard_error", "interval_width"]].to_dataframe().round(2).to_string())
print(", ".join(f"{k} {float(scores[k]):.3f}" for k in ("rmse", "mean_crps", "mean_log_density")), "(ppm and nats)")
before = sgp.calibrate_regression(careless.predict(X[test]), co2[test])
print("With the fault:", ", ".join(f"{k} {float(before[k]):.3f}" for k in ("rmse", "mean_crps", "mean_log_density")))

figure, (left, middle, right) = plt.subplots(1, 3, figsize=(13, 3.8), layout="constrained")
sgp.plots.plot_pit(scores, bins=10, ax=left)
sgp.plots.plot_loo_pit(posterior, X[~test], y[~test], bins=10, ax=middle)
sgp.plots.plot_pareto_k(loo, ax=right)
left.set_title(f"{test.sum()} weeks held out")
middle.set_title(f"{(~test).sum()} weeks, each left out")
right.set_title("Reliability of leaving one out")
figure.savefig(output / "calibration_co2.png", dpi=150)
