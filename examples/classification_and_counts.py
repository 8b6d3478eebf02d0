# %% [markdown]
# # Yes or no, and how many: other likelihoods
#
# With Gaussian noise the rows can be compressed once and forgotten. Other likelihoods can be expanded to second order,
# and then be compressed as well: `delayed_flights` and `hourly_departures` show how. Here nothing is approximated. The
# model keeps the weights of the basis as parameters, and each gradient visits every row, O(n·m). So this notebook
# thins its rows; `class_rows` and `count_rows` say how far.
#
# What stays the same is the basis and the prior: `sgp.latent` makes a function inside an ordinary NumPyro model,
# and that function may go into any likelihood. Both data sets come with statsmodels.

# %%
from pathlib import Path

import arviz as az
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import numpyro
import numpyro.distributions as dist
import statsmodels.api as sm
from numpyro.infer import MCMC, NUTS, Predictive

import ppl_sgp as sgp

# %% tags=["parameters"]
class_rows = 1000
class_features = 50
count_rows = 800
count_features = 15
num_draws = 250
num_chains = 4
output = Path("examples-output")

# %%
output.mkdir(parents=True, exist_ok=True)
numpyro.set_host_device_count(num_chains)
numpyro.enable_x64()


def draw(model, *data, target_accept_prob=0.8):
    kernel = NUTS(model, target_accept_prob=target_accept_prob)
    mcmc = MCMC(kernel, num_warmup=num_draws, num_samples=num_draws, num_chains=num_chains, progress_bar=False)
    mcmc.run(jax.random.key(1), *data)
    return mcmc


# %% [markdown]
# ## Two classes
#
# A magazine survey of 1974 asked married women, among other things, about affairs. The label says whether there
# was any; the inputs are the rating of the marriage, age, years married and religiousness. Inputs are
# standardised, so that one prior of lengthscales does for all of them.

# %%
survey = sm.datasets.fair.load_pandas().data
columns = ["rate_marriage", "age", "yrs_married", "religious"]
inputs, label = survey[columns].to_numpy(float), (survey["affairs"] > 0).to_numpy(int)
centre, spread = inputs.mean(axis=0), inputs.std(axis=0)
order = np.random.default_rng(0).permutation(len(label))
train, test = order[:class_rows], order[class_rows:]
X = (inputs - centre) / spread

basis = sgp.FourierBasis.sample(
    jax.random.key(0), [sgp.SquaredExponential(s) for s in (1.0, 2.0, 4.0)], class_features, input_dim=len(columns)
)


def classifier(features, label):
    lengthscale = numpyro.sample("lengthscale", dist.LogNormal(jnp.log(2.5), 0.5).expand([len(columns)]).to_event(1))
    amplitude = numpyro.sample("amplitude", dist.HalfNormal(1.5))
    intercept = numpyro.sample("intercept", dist.Normal(0.0, 2.0))
    f = sgp.latent("f", basis, basis.weight_prior(sgp.SquaredExponential(lengthscale, amplitude)))
    numpyro.sample("affair", dist.Bernoulli(logits=intercept + f(features=features)), obs=label)


# %% [markdown]
# Features do not depend on any parameter, so they are computed once and passed in. Their means over the rows are taken
# off: f then has mean zero over the rows, and does not compete with the intercept, which makes sampling faster. The
# weights are sampled non-centred, `f_whitened`; the table leaves them out.

# %%
Phi = basis(X[train])
level = Phi.mean(axis=0)
mcmc = draw(classifier, Phi - level, label[train], target_accept_prob=0.9)
idata = az.from_numpyro(mcmc, log_likelihood=False)
print(az.summary(idata, var_names=["lengthscale", "amplitude", "intercept"]).to_string())
print("divergences:", int(idata["sample_stats"]["diverging"].sum()))

# %% [markdown]
# ### Do the probabilities mean what they say?
#
# A predicted probability is the average of the sigmoid over draws, not the sigmoid of an average. Thousands of rows
# were not used, and judge it. The reference forecasts the base rate for everybody: it is calibrated, and useless. A low
# calibration error alone says little, so look at the Brier score and the log likelihood as well.
#
# On the right, women who married at twenty, so that age goes with the years.

# %%
samples = {name: np.asarray(draws) for name, draws in mcmc.get_samples().items()}  # from a device a chain


def probability(X):
    logits = samples["intercept"][:, None] + samples["f_weights"] @ (basis(X) - level).T
    return np.asarray(jax.nn.sigmoid(logits))


p = probability(X[test]).mean(axis=0)
scores = sgp.calibrate_classification(np.stack([1 - p, p], axis=1), label[test], num_bins=20)
constant = np.full(len(test), label[train].mean())
reference = sgp.calibrate_classification(np.stack([1 - constant, constant], axis=1), label[test])
print(f"{len(test)} held-out rows      GP    base rate")
for name in ("error_rate", "brier", "mean_negative_log_likelihood", "ece"):
    print(f"{name:30} {float(scores[name]):.3f}  {float(reference[name]):.3f}")

figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4.4), layout="constrained")
sgp.plots.plot_reliability(scores, ax=left)
years = np.linspace(survey["yrs_married"].min(), survey["yrs_married"].max(), 60)
for rating, color in ((2, "C1"), (5, "C0")):
    profile = np.tile(np.median(inputs, axis=0), (len(years), 1))
    profile[:, columns.index("rate_marriage")] = rating
    profile[:, columns.index("yrs_married")] = years
    profile[:, columns.index("age")] = 20 + years
    low, middle, high = np.quantile(probability((profile - centre) / spread), [0.05, 0.5, 0.95], axis=0)
    right.fill_between(years, low, high, color=color, alpha=0.25, lw=0)
    right.plot(years, middle, color=color, label=f"marriage rated {rating} of 5")
right.set(xlabel="years married", ylabel="probability of an affair", ylim=(0, 1), title="Median and central 90%")
right.legend(frameon=False)
figure.savefig(output / "classification.png", dpi=150)

# %% [markdown]
# ## Counts
#
# The RAND health insurance experiment counted visits to a doctor in a year. The effect of chronic diseases (an index
# from 0 to about 60, few of them above 30) is a smooth function; those of the coinsurance rate, of a physical
# limitation and of self-rated health are linear. Most people go rarely and a few go often, so a Poisson likelihood
# is in doubt from the start: it is fitted all the same, as the model to beat. The data set has several years of most
# people but does not say which rows belong together, so intervals are somewhat too narrow.
#
# ArviZ warns about the Poisson model: single large counts move its posterior so much that leaving them out cannot be
# estimated well. Its number is a rough one; the difference is far larger.

# %%
visits = sm.datasets.randhie.load_pandas().data
visits = visits.iloc[np.random.default_rng(1).permutation(len(visits))[:count_rows]]
linear = ["lncoins", "physlm", "hlthg", "hlthf", "hlthp"]
Z, diseases, count = visits[linear].to_numpy(), visits[["disea"]].to_numpy(), visits["mdvis"].to_numpy(int)
waves = sgp.LaplaceBasis.from_data(diseases, count_features)


def regression(features, Z, count, overdispersed):
    lengthscale = numpyro.sample("lengthscale", dist.InverseGamma(4.0, 60.0))  # of the index: mean 20
    amplitude = numpyro.sample("amplitude", dist.HalfNormal(1.0))
    intercept = numpyro.sample("intercept", dist.Normal(1.0, 2.0))
    effects = numpyro.sample("effects", dist.Normal(0.0, 1.0).expand([Z.shape[1]]).to_event(1))
    f = sgp.latent("f", waves, waves.weight_prior(sgp.SquaredExponential(lengthscale, amplitude)))
    rate = jnp.exp(intercept + Z @ effects + f(features=features))
    likelihood = dist.Poisson(rate)
    if overdispersed:
        likelihood = dist.NegativeBinomial2(rate, numpyro.sample("concentration", dist.LogNormal(0.0, 1.0)))
    numpyro.sample("visits", likelihood, obs=count)


# %%
Phi, repeated, runs = waves(diseases), {}, {}
Phi, Z = Phi - Phi.mean(axis=0), Z - Z.mean(axis=0)
for name, overdispersed in (("Poisson", False), ("negative binomial", True)):
    runs[name] = draw(regression, Phi, Z, count, overdispersed)
    draws_of_run = {site: np.asarray(draws) for site, draws in runs[name].get_samples().items()}
    predictive = Predictive(regression, draws_of_run)
    repeated[name] = np.asarray(predictive(jax.random.key(2), Phi, Z, None, overdispersed)["visits"])
    loo = az.loo(az.from_numpyro(runs[name], log_likelihood=True))
    # ArviZ 0.23 names it elpd_loo, ArviZ 1.x elpd.
    print(f"{name}: expected log density, leaving one out: {getattr(loo, 'elpd_loo', None) or loo.elpd:.0f} nats")
print("Linear effects, in order:", ", ".join(linear))
idata = az.from_numpyro(runs["negative binomial"], log_likelihood=False)
print(az.summary(idata, var_names=["intercept", "effects", "lengthscale", "amplitude", "concentration"]).to_string())

# %% [markdown]
# ### Posterior predictive check
#
# Each draw makes a new data set. How often does it have as many zeros, as large a variance and as large a maximum as
# the real one? The share of zeros is the easiest to read.

# %%
for statistic, of in (("share of zeros", lambda c: (c == 0).mean(-1)), ("variance", lambda c: c.var(-1))):
    print(f"{statistic}: observed {of(count):.2f}; ", end="")
    print(
        "; ".join(f"{k} {np.quantile(of(v), 0.05):.2f} to {np.quantile(of(v), 0.95):.2f}" for k, v in repeated.items())
    )

figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
for (name, values), color in zip(repeated.items(), ("C1", "C0"), strict=True):
    left.hist((values == 0).mean(axis=1), bins=20, color=color, alpha=0.7, label=name)
left.axvline((count == 0).mean(), color="black", label="observed")
left.set(xlabel="share of people without a visit", ylabel="repeated data sets")
left.legend(frameon=False)

grid = np.linspace(0, diseases.max(), 100)[:, None]
for name, color in (("Poisson", "C1"), ("negative binomial", "C0")):
    samples = runs[name].get_samples()
    curve = np.asarray(samples["f_weights"]) @ waves.host_features(grid).T
    factor = np.exp(curve - curve[:, [np.argmin(np.abs(grid[:, 0] - np.median(diseases)))]])
    low, middle, high = np.quantile(factor, [0.05, 0.5, 0.95], axis=0)
    right.fill_between(grid[:, 0], low, high, color=color, alpha=0.25, lw=0)
    right.plot(grid[:, 0], middle, color=color, label=f"{name}, 90%")
right.plot(diseases[:, 0], np.zeros(count_rows), "|", color="0.3", ms=8, label="rows")
right.set(xlabel="chronic diseases [index]", ylabel="visits, relative to the median index")
right.legend(frameon=False, loc="upper left")
figure.savefig(output / "counts.png", dpi=150)
