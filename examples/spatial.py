# %% [markdown]
# # A large map: 138,632 elevations
#
# The terrain around the Jacksboro fault in Tennessee comes with matplotlib: a grid of 344 × 403 cells of
# about 80 by 90 metres. Square blocks are cut out, and a Gaussian process of two inputs fills them in.
#
# All rows are read once. After that neither the optimiser nor NUTS sees a row again. What a smooth basis of
# a few hundred functions cannot follow, it must call noise: this notebook looks at how much that is.

# %%
import time
from pathlib import Path

import arviz as az
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import numpyro
import numpyro.distributions as dist
import pandas as pd
from matplotlib.cbook import get_sample_data
from numpyro.infer import MCMC, NUTS

import ppl_sgp as sgp

# %% tags=["parameters"]
sizes = (12, 20, 28)  # functions along each side
thinning = 1  # take every k-th row and column of the grid
num_draws = 500
num_chains = 4
output = Path("examples-output")

# %%
output.mkdir(parents=True, exist_ok=True)
numpyro.set_host_device_count(num_chains)
numpyro.enable_x64()

# %% [markdown]
# ## Data
# Kilometres east and north, and metres above the sea. Twelve blocks of 1.5 by 1.8 km are held out; so are
# 2,000 cells drawn at random, which have their neighbours among the training rows.

# %%
terrain = get_sample_data("jacksboro_fault_dem.npz")
elevation = terrain["elevation"][::thinning, ::thinning].astype(float)
height, width = elevation.shape
north_step = thinning * float(terrain["dy"]) * 111.2  # km a degree
east_step = thinning * float(terrain["dx"]) * 111.2 * np.cos(np.radians(36.6))
east, north = np.meshgrid(east_step * np.arange(width), north_step * np.arange(height)[::-1])
X, y = np.column_stack([east.ravel(), north.ravel()]), elevation.ravel()

rng = np.random.default_rng(0)
side = 20 // thinning
in_block = np.zeros_like(elevation, dtype=bool)
for row, column in zip(rng.integers(0, height - side, 12), rng.integers(0, width - side, 12), strict=True):
    in_block[row : row + side, column : column + side] = True
block = in_block.ravel()
scattered = np.zeros_like(block)
scattered[rng.choice(np.flatnonzero(~block), min(2_000, len(y) // 20), replace=False)] = True
train = ~(block | scattered)
mean = y[train].mean()  # the GP has mean zero
print(f"{train.sum():,} rows for training, {block.sum():,} in blocks, {scattered.sum():,} scattered")

# %% [markdown]
# ## Compress once, in chunks
# The chunks come from a generator, as they would from a file that does not fit in memory. A type-II fit of
# each size shows what more functions buy.


# %%
def chunks(size=20_000):
    rows = np.flatnonzero(train)
    for start in range(0, len(rows), size):
        part = rows[start : start + size]
        yield X[part], y[part] - mean


model = sgp.models.basis_gp(sgp.Matern32)
statistics, fits, table = {}, {}, []
for size in sizes:
    basis = sgp.LaplaceBasis.from_data(X, (size, size), boundary_factor=1.15)
    start = time.perf_counter()
    statistics[size] = sgp.sufficient_statistics(basis, chunks())
    passed = time.perf_counter()
    fits[size] = sgp.fit_evidence(model, statistics[size])
    row = {"m": basis.num_features, "rows": statistics[size].num_rows, "pass [s]": passed - start}
    row |= {"fit [s]": time.perf_counter() - passed, "noise sd [m]": float(fits[size].values["noise_scale"])}
    for name, rows in (("blocks", block), ("scattered", scattered)):
        scores = sgp.calibrate_regression(
            sgp.predict(model, fits[size].samples, statistics[size], X[rows]), y[rows] - mean, levels=[0.9]
        )
        row |= {f"RMSE {name} [m]": float(scores["rmse"]), f"90% holds, {name}": float(scores["coverage"][0])}
    table.append(row)
print(pd.DataFrame(table).set_index("m").T.round(2).to_string())

# %% [markdown]
# The data themselves are exact to a metre or so. What is called noise is terrain that the functions do not
# resolve, so it falls as m grows. It is no white noise either: neighbouring cells share a ridge, and a ridge
# is larger in the mountains than in the valley. So intervals that hold well at scattered cells need not do
# so in blocks, and the likelihood, which takes the residuals for independent, is too sure of itself.
#
# ## NUTS at O(m) an evaluation
# With the lengthscales held at their type-II values, `rotate` diagonalises features and prior together.
# Amplitude and noise are then sampled at a cost of O(m), a sum over m terms.


# %%
size = sizes[-1]
stats, fit = statistics[size], fits[size]
held = fit.values["lengthscale"]
rotated = stats.rotate(stats.basis.weight_prior(sgp.Matern32(held)))


def rotated_model(stats):
    scale = stats.output_scale  # root mean square of y, metres
    amplitude = numpyro.sample("amplitude", dist.LogNormal(jnp.log(scale), 1.0))
    noise_scale = numpyro.sample("noise_scale", dist.LogNormal(jnp.log(0.3 * scale), 1.5))
    sgp.observe("y", stats, sgp.DiagonalPrior(amplitude), noise_scale)


start = time.perf_counter()
mcmc = MCMC(
    NUTS(rotated_model, init_strategy=fit.init_strategy()),
    num_warmup=num_draws,
    num_samples=num_draws,
    num_chains=num_chains,
    progress_bar=False,
)
mcmc.run(jax.random.key(1), rotated, extra_fields=sgp.EXTRA_FIELDS)
print(f"{stats.evidence_cost} an evaluation is now {rotated.evidence_cost}; NUTS took", end=" ")
print(f"{time.perf_counter() - start:.0f} s, compilation included")

posterior = sgp.posterior(rotated_model, mcmc, rotated)
summary = az.summary(posterior.to_arviz())
summary.insert(0, "type-II", [round(float(fit.values[name]), 2) for name in summary.index])
print(summary.to_string())
print(sgp.report(posterior, X_new=X[block]))

# %% [markdown]
# The report says what the table above said: a larger basis would still find something to do.
#
# With this many rows the posterior of amplitude and noise is narrow, and the type-II point lies within it. The
# lengthscales have been held, so how much do they matter? The table predicts the blocks also with both of them
# a quarter shorter and longer.

# %%
table = {"type-II": sgp.posterior(model, fit, stats), "NUTS": posterior}
for factor in (0.75, 1.25):
    changed = fit.samples | {"lengthscale": factor * fit.samples["lengthscale"]}
    table[f"type-II, lengthscales × {factor}"] = sgp.posterior(model, changed, stats)
rows = {}
for name, each in table.items():
    scores = sgp.calibrate_regression(each.predict(X[block]), y[block] - mean)
    rows[name] = {"RMSE [m]": float(scores["rmse"]), "log density": float(scores["mean_log_density"])}
    rows[name] |= {f"{p:.0%} holds": c for p, c in zip(scores["level"].values, scores["coverage"].values, strict=True)}
print(pd.DataFrame(rows).T.round(3).to_string())

# %% [markdown]
# ## The map
# The standard deviation is that of the smooth part f: it grows in the blocks and towards the edges. That
# of a new elevation is larger everywhere, by the noise.

# %%
prediction = posterior.predict(X)
extent = (0, east_step * width, 0, north_step * height)
panels = {
    "elevation, blocks held out": np.where(in_block, np.nan, elevation),
    "predictive mean": mean + prediction.mean.reshape(elevation.shape),
    "truth minus mean": elevation - mean - prediction.mean.reshape(elevation.shape),
    "posterior sd of f": np.sqrt(prediction.variance).reshape(elevation.shape),
}
span = {"vmin": elevation.min(), "vmax": elevation.max(), "cmap": "terrain"}
styles = (span, span, {"vmin": -200, "vmax": 200, "cmap": "RdBu"}, {"cmap": "viridis"})
figure, axes = plt.subplots(2, 2, figsize=(10, 9.5), layout="constrained", sharex=True, sharey=True)
for ax, (title, values), style in zip(axes.flat, panels.items(), styles, strict=True):
    figure.colorbar(ax.imshow(values, extent=extent, **style), ax=ax, label="metres", shrink=0.8)
    ax.contour(east, north, in_block, levels=[0.5], colors="k", linewidths=0.8)
    ax.set_title(title)
for ax in axes[1]:
    ax.set_xlabel("east [km]")
for ax in axes[:, 0]:
    ax.set_ylabel("north [km]")
figure.savefig(output / "spatial_map.png", dpi=150)
