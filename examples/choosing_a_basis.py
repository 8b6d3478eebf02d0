# %% [markdown]
# # Which basis, how many features, which kernel
#
# Sea-surface temperature in the El Niño region of the Pacific, monthly from 1996 to 2010 (shipped with
# statsmodels), as anomalies: each calendar month has its mean taken off. The question is not the forecast but
# the model. A finite basis stands in for a kernel; is it good enough, and is it the right kernel?

# %%
import warnings
from pathlib import Path

import arviz as az
import jax
import matplotlib.pyplot as plt
import numpy as np
import numpyro
import numpyro.distributions as dist
import pandas as pd
import statsmodels.api as sm
from numpyro.infer import MCMC, NUTS

import ppl_sgp as sgp

# %% tags=["parameters"]
first_year = 1996
sizes = (20, 40, 80, 160)
num_keys = 2  # random bases of each size
chosen_size = 120
num_draws = 250
num_chains = 4
output = Path("examples-output")

# %%
output.mkdir(parents=True, exist_ok=True)
numpyro.set_host_device_count(num_chains)
numpyro.enable_x64()

# %% [markdown]
# ## Data

# %%
record = sm.datasets.elnino.load_pandas().data.set_index("YEAR").loc[first_year:]
anomaly = (record - record.mean()).to_numpy().ravel()
year = (record.index.to_numpy()[:, None] + (np.arange(12) + 0.5) / 12).ravel()
X = year[:, None]
held_out = np.random.default_rng(0).random(len(year)) < 0.15
X_train, y_train = X[~held_out], anomaly[~held_out]
print(f"{len(year)} months, {held_out.sum()} held out, standard deviation {anomaly.std():.2f} °C")

# %% [markdown]
# ## The evidence against m
# Warm and cold phases come and go within a year, and there are fifteen years: many lengthscales, so many
# features. Three bases are compared by the best evidence of type-II fits: eigenfunctions of a box;
# random frequencies that cover the whole prior of the lengthscale; and frequencies drawn for one lengthscale,
# that of the fit with eigenfunctions. Random bases differ from key to key, so there are several of each.

# %%
lengthscale = dist.LogNormal(np.log(0.5), 0.5)  # years
covering = [sgp.SquaredExponential(float(s)) for s in lengthscale.icdf((np.arange(16) + 0.5) / 16)]
model = sgp.models.basis_gp(sgp.SquaredExponential, lengthscale=lengthscale)


def fitted(basis):
    stats = sgp.sufficient_statistics(basis, X_train, y_train)
    return stats, sgp.fit_evidence(model, stats)


def random_bases(kernels, m):
    return [sgp.FourierBasis.sample(jax.random.key(k), kernels, m, 1, centre=X.mean(axis=0)) for k in range(num_keys)]


laplace = [fitted(sgp.LaplaceBasis.from_data(X, m, boundary_factor=1.2)) for m in sizes]
reference = laplace[-1][1]
near = sgp.SquaredExponential(float(reference.values["lengthscale"]))
groups = {
    "LaplaceBasis": [[pair] for pair in laplace],
    "FourierBasis for the prior": [[fitted(b) for b in random_bases(covering, m)] for m in sizes],
    "FourierBasis for one lengthscale": [[fitted(b) for b in random_bases(near, m)] for m in sizes],
}

figure, axes = plt.subplots(1, 3, figsize=(13, 4), layout="constrained", sharey=True)
for ax, (name, group) in zip(axes, groups.items(), strict=True):
    evidence = np.array([[fit.log_evidence for _, fit in pairs] for pairs in group])
    sgp.plots.plot_evidence(sizes, evidence if name != "LaplaceBasis" else evidence[:, 0], ax=ax)
    ax.set_title(name)
    ax.legend(frameon=False, loc="lower right")
figure.savefig(output / "choosing_evidence.png", dpi=150)

# %% [markdown]
# ## What a bad choice looks like
# A basis that is too small does not fail: it answers with a longer lengthscale or more noise. The next table
# holds θ at the reference, the fit of the largest Laplace basis, and asks what each basis makes of it.
# `kernel_error` compares its kernel with the exact one, and `effective_features` counts the features that
# carry the prior variance. The last column is the noise of the basis's own fit.

# %%
rows = {}
for name, group in groups.items():
    for m, pairs in zip(sizes, group, strict=True):
        stats, fit = pairs[0]
        error = sgp.kernel_error(model, reference.samples, stats, X)
        prior = stats.basis.weight_prior(sgp.SquaredExponential(reference.values["lengthscale"]))
        rows[name, m] = {
            "kernel error": float(error["relative_error"].mean()),
            "variance ratio": float(error["variance_ratio"].mean()),
            "effective features": float(prior.effective_features),
            "noise fitted [°C]": float(fit.values["noise_scale"]),
        }
print("reference:", {name: round(float(value), 2) for name, value in reference.values.items()})
print(pd.DataFrame(rows).T.round(2).to_string())

# %% [markdown]
# For one input the eigenfunctions win clearly: with enough of them the kernel is exact, while the error of random
# frequencies falls slowly, and what they cannot follow counts as noise. Effective features alone do not tell:
# those drawn for one lengthscale all carry weight, and are still too few. `suggest` gives their number and the size
# of the box for a range of lengthscales; here the middle 90% of the prior, which is on the safe side.

# %%
for kernel in (sgp.SquaredExponential, sgp.Matern32):
    print(kernel.__name__, sgp.LaplaceBasis.suggest(X, lengthscale.icdf(np.array([0.05, 0.95])), kernel))

# %% [markdown]
# ## Which kernel
# The same basis serves both kernels. NUTS samples the hyperparameters of each.

# %%
basis = sgp.LaplaceBasis.from_data(X, chosen_size, boundary_factor=1.2)
stats = sgp.sufficient_statistics(basis, X_train, y_train)
posteriors, containers, evidences = {}, {}, {}
for kernel in (sgp.SquaredExponential, sgp.Matern32):
    name, model = kernel.__name__, sgp.models.basis_gp(kernel, lengthscale=lengthscale)
    mcmc = MCMC(
        NUTS(model, init_strategy=sgp.fit_evidence(model, stats).init_strategy()),
        num_warmup=num_draws,
        num_samples=num_draws,
        num_chains=num_chains,
        progress_bar=False,
    )
    mcmc.run(jax.random.key(1), stats, extra_fields=sgp.EXTRA_FIELDS)
    posteriors[name] = sgp.posterior(model, mcmc, stats)
    error = posteriors[name].kernel_error(X)
    containers[name] = posteriors[name].to_arviz(X_train, y_train)
    evidences[name] = sgp.log_marginal_likelihood(model, mcmc.get_samples(), stats, jax.random.key(2))
    print(f"{name}: kernel error {float(error['relative_error'].mean()):.3f},", end=" ")
    print(f"variance ratio {float(error['variance_ratio'].mean()):.3f} (means over the posterior)")
    print(az.summary(containers[name]).to_string())
    print(sgp.report(posteriors[name], X=X_train, y=y_train), "\n")

# %% [markdown]
# The kernel error says whether features suffice: it is close to nothing, so more of them would change nothing. That
# the data use up most of those there are comes from little noise; the report, which knows the kernel, is silent.
#
# Leave-one-out asks which kernel predicts single months better, the marginal likelihood which one, with its
# hyper-priors, made the data as a whole more probable. Mind the
# standard errors of both. They need not agree: they answer different questions, and the second one also weighs the
# hyper-priors.

# %%
with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # ArviZ 0.23 uses what pandas 3 deprecates
    comparison = az.compare(containers)
print(comparison.to_string())
for name, (value, error) in evidences.items():
    print(f"{name}: log p(y) = {value:.1f} ± {error:.2f}")

# %% [markdown]
# There is no need to choose. `average_predictions` mixes the predictions, with the stacking weights of the
# comparison or with posterior probabilities of the kernels.

# %%
predictions = {name: each.predict(X[held_out]) for name, each in posteriors.items()}
stacking = np.array([float(comparison.loc[name, "weight"]) for name in predictions])
log_evidence = np.array([evidences[name].log_evidence for name in predictions])
probability = np.exp(log_evidence - log_evidence.max()) / np.exp(log_evidence - log_evidence.max()).sum()
candidates = predictions | {
    "stacked": sgp.average_predictions(list(predictions.values()), stacking / stacking.sum()),
    "averaged": sgp.average_predictions(list(predictions.values()), probability),
}
print("stacking weights", stacking.round(2), "probabilities", probability.round(2))
for name, prediction in candidates.items():
    rmse = np.sqrt(np.mean((prediction.mean - anomaly[held_out]) ** 2))
    print(f"{name:20s} held-out log density {prediction.log_density(anomaly[held_out]).mean():.3f}, RMSE {rmse:.3f} °C")

# %%
fine = np.linspace(year[0], year[-1], 600)[:, None]
figure, ax = plt.subplots(figsize=(11, 4), layout="constrained")
sgp.plots.plot_predictive(posteriors["Matern32"].predict(fine), fine, X=X_train, y=y_train, ax=ax)
ax.plot(year[held_out], anomaly[held_out], "x", color="C1", label="held out")
ax.set(xlabel="year", ylabel="anomaly [°C]", title="Matérn 3/2")
ax.legend(frameon=False, ncols=5)
figure.savefig(output / "choosing_prediction.png", dpi=150)
