# %% [markdown]
# # From data to a diagnosed posterior
#
# Atmospheric CO₂ at Mauna Loa, weekly from 1958 to 2001 (shipped with statsmodels). The model is a
# Gaussian process over three inputs: the year, and the season as a point on a circle. Their
# lengthscales say how fast the trend and the shape of the season change.
#
# Three things happen: `place` finds lengthscales, a basis that carries them, and compresses the rows *once* into
# statistics of that basis; NUTS samples the hyperparameters from those statistics (its cost does not depend on the
# number of rows); and ArviZ looks at the result. Some stretches of ten weeks are held out to check the predictions.

# %%
from pathlib import Path

import arviz as az
import jax
import matplotlib.pyplot as plt
import numpy as np
import numpyro
import statsmodels.api as sm
from numpyro.infer import MCMC, NUTS

import ppl_sgp as sgp

# %% tags=["parameters"]
num_features = 200  # m at most
num_draws = 250  # and warm-up steps, of each chain
num_chains = 4
output = Path("examples-output")

# %%
numpyro.set_host_device_count(num_chains)  # a device for each chain; this and the next line before the first array
numpyro.enable_x64()  # the evidence is then exact to many digits
output.mkdir(parents=True, exist_ok=True)

# %% [markdown]
# ## Data
# Rows without a measurement are left out: `sufficient_statistics` would refuse them.

# %%
record = sm.datasets.co2.load_pandas().data["co2"].dropna()
year = np.array([date.year + (date.day_of_year - 0.5) / 365.25 for date in record.index])
co2 = record.to_numpy()


def inputs(year):
    """Year, and the season on a circle: shape (n, 3)."""
    return np.stack([year, np.cos(2 * np.pi * year), np.sin(2 * np.pi * year)], axis=1)


gap_starts = np.random.default_rng(0).choice(np.arange(1960, 2000), size=12, replace=False) + 0.3
held_out = ((year[:, None] >= gap_starts) & (year[:, None] < gap_starts + 10 / 52)).any(axis=1)

X, y = inputs(year[~held_out]), co2[~held_out]
X_test, y_test = inputs(year[held_out]), co2[held_out]

# %% [markdown]
# ## Place a basis, then sample
# Nothing is typed by hand: an exact GP on some of the rows finds lengthscales, bases for them are compared on rows that
# it holds out, and the one that is taken sees all rows. The report says what was tried.

# %%
placed = sgp.place(jax.random.key(0), X, y, num_features=num_features, progress=False)
print(placed.report)
print(placed.statistics)

mcmc = MCMC(
    NUTS(placed.model, init_strategy=placed.init_strategy()),
    num_warmup=num_draws,
    num_samples=num_draws,
    num_chains=num_chains,
)
mcmc.run(jax.random.key(1), placed.statistics, extra_fields=sgp.EXTRA_FIELDS)

# %% [markdown]
# ## Look at it in ArviZ
# All questions go to one posterior, which factorises the weights of each draw once. `log_likelihood` holds
# exact leave-one-out densities, so `az.loo` sees every week of data.

# %%
input_names = ["year", "season cos", "season sin"]
posterior = sgp.posterior(placed.model, mcmc, placed.statistics)
idata = posterior.to_arviz(X, y, X_test, coords={"input": input_names, "obs": year[~held_out]})
print(az.summary(idata).to_string())
print(az.loo(idata))
idata.to_netcdf(output / "co2.nc")

# %% [markdown]
# ## Predict the weeks that were held out

# %%
prediction = posterior.predict(X_test)
sd = np.sqrt(prediction.variance + prediction.noise_variance)
error = y_test - prediction.mean
print(f"{len(y_test)} held-out weeks: RMSE {np.sqrt(np.mean(error**2)):.2f} ppm,")
print(f"  mean log density {prediction.log_density(y_test).mean():.2f} (of the type-II point: ", end="")
print(f"{sgp.predict(placed.model, placed.fit.samples, placed.statistics, X_test).log_density(y_test).mean():.2f}),")
print(f"  {np.mean(np.abs(error) < 1.645 * sd):.0%} within the central 90% interval")

# %% [markdown]
# ## A figure

# %%
fine = np.linspace(year[0], year[-1], 2000)
curve = posterior.predict(inputs(fine))
mean, f_sd = curve.mean, np.sqrt(curve.variance)
y_sd = np.sqrt(curve.variance + curve.noise_variance)

figure, (whole, zoom) = plt.subplots(1, 2, figsize=(12, 4.5), width_ratios=(3, 2), layout="constrained")
for ax in (whole, zoom):
    for sd, alpha, label in ((y_sd, 0.2, "90%, new week"), (f_sd, 0.5, "90%, curve")):
        ax.fill_between(fine, mean - 1.645 * sd, mean + 1.645 * sd, color="tab:blue", alpha=alpha, lw=0, label=label)
    ax.plot(fine, mean, color="tab:blue", lw=1)
    ax.plot(year[~held_out], co2[~held_out], ".", color="0.25", ms=2.5, label="weekly means")
    ax.plot(year[held_out], co2[held_out], ".", color="tab:orange", ms=4, label="held out")
    ax.set_xlabel("year")
whole.set(ylabel="CO₂ [ppm]", title="Atmospheric CO₂ at Mauna Loa", xlim=(year[0], year[-1]))
whole.legend(loc="upper left", frameon=False)
middle = np.sort(gap_starts)[len(gap_starts) // 2]
window = (fine > middle - 1.5) & (fine < middle + 1.7)
zoom.set(title="Around one of the gaps", xlim=(middle - 1.5, middle + 1.7))
zoom.set_ylim((mean - 2.5 * y_sd)[window].min(), (mean + 2.5 * y_sd)[window].max())
figure.savefig(output / "co2.png", dpi=150)
print(f"Wrote {output / 'co2.nc'} and {output / 'co2.png'}.")
