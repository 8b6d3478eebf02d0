# %% [markdown]
# # When a point estimate of the hyperparameters is too sure
#
# Type-II inference maximises the evidence over the hyperparameters θ and predicts with the best point;
# type-I inference averages over their posterior. With few data several readings of the same points may be
# plausible, a smooth curve with much noise or a lively one with little, and a point must choose one of
# them. (Section 2.3.2 and figure 2.9 of T. W. Evans's thesis, 2022, show this for two lengthscales.)
#
# Here is one such data set, then many of them, then what happens as rows are added.

# %%
import warnings
from pathlib import Path

import arviz as az
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import numpyro
import numpyro.distributions as dist
import pandas as pd
from numpyro.infer import MCMC, NUTS
from scipy.special import logsumexp, ndtr

import ppl_sgp as sgp

# %% tags=["parameters"]
num_rows = 12
num_sets = 30  # small data sets
num_particles = 5_000
many_rows = 400
num_draws = 1000
num_chains = 4
output = Path("examples-output")

# %%
output.mkdir(parents=True, exist_ok=True)
numpyro.set_host_device_count(num_chains)
numpyro.enable_x64()

# %% [markdown]
# ## Data sets drawn from the prior
# Each has hyperparameters of its own, drawn from the priors of the model, a curve, and noise. The model that
# analyses them is therefore right, and so are its priors: a posterior that averages over θ is calibrated over
# many sets, and whatever a point estimate loses is due to its being a point.

# %%
priors = {
    "lengthscale": dist.LogNormal(np.log(0.2), 0.7),
    "amplitude": dist.LogNormal(0.0, 0.3),
    "noise_scale": dist.LogNormal(np.log(0.2), 1.0),
}
model = sgp.models.basis_gp(**priors)
warnings.filterwarnings("ignore", message="The mean of y")  # a dozen rows of a zero-mean curve may lie on one side
basis = sgp.LaplaceBasis([40], centre=[0.5], boundary=[0.8])
rng = np.random.default_rng(3)


def kernel_prior(theta):
    return basis.weight_prior(sgp.SquaredExponential(theta["lengthscale"], theta["amplitude"]))


def draw_truth():
    theta = {name: float(prior.icdf(rng.random())) for name, prior in priors.items()}
    return theta, np.asarray(kernel_prior(theta).scale) * rng.standard_normal(basis.num_features)


def observe(truth, n):
    theta, weights = truth
    X = rng.random((n, 1))
    return X, basis.host_features(X) @ weights + theta["noise_scale"] * rng.standard_normal(n)


# %% [markdown]
# ## Many small data sets
# Three hyperparameters and a dozen rows do not need MCMC: draws of the prior, weighted by their evidence, are a
# posterior. Statistics of equal shape share one compiled program, so that each set takes a fraction of a second.
# (Below, NUTS does the same for one set.)


# %%
@jax.jit
def analyse(stats, features, theta):
    """Log evidence, and mean and variance of f at new rows, for each draw of θ."""

    def one(theta):
        prior = kernel_prior(theta)
        posterior = sgp.weight_posterior(stats, prior, theta["noise_scale"])
        variance = jnp.sum((features @ posterior.scale_tril) ** 2, axis=1)
        return sgp.log_evidence(stats, prior, theta["noise_scale"]), features @ posterior.mean, variance

    return jax.lax.map(one, theta)


def scores(stats, theta, X, y, weighted):
    """Held-out scores of the mixture over θ, weighted by the evidence or equally."""
    features = jnp.asarray(basis.host_features(X))
    log_evidence, mean, variance = map(np.asarray, analyse(stats, features, theta))
    log_weight = log_evidence - logsumexp(log_evidence) if weighted else np.full(len(mean), -np.log(len(mean)))
    weight, sd = np.exp(log_weight), np.sqrt(variance + np.asarray(theta["noise_scale"])[:, None] ** 2)
    z = (y - mean) / sd
    log_density = logsumexp(log_weight[:, None] - 0.5 * z**2 - np.log(sd) - 0.5 * np.log(2 * np.pi), axis=0)
    off_centre = np.abs(weight @ ndtr(z) - 0.5)
    return {
        "50% interval holds": np.mean(off_centre <= 0.25),
        "90% interval holds": np.mean(off_centre <= 0.45),
        "log density [nats]": log_density.mean(),
        "RMSE": np.sqrt(np.mean((weight @ mean - y) ** 2)),
        "effective draws": 1 / np.sum(weight**2),
    }


keys = dict(zip(priors, jax.random.split(jax.random.key(0), len(priors)), strict=True))
particles = {name: prior.sample(keys[name], (num_particles,)) for name, prior in priors.items()}
truths = [draw_truth() for _ in range(num_sets)]
train, test = [observe(truth, num_rows) for truth in truths], [observe(truth, 100) for truth in truths]
statistics = [sgp.sufficient_statistics(basis, X, y) for X, y in train]
fits = [sgp.fit_evidence(model, stats) for stats in statistics]
parts = list(zip(statistics, fits, test, strict=True))
results = {
    "type-II": pd.DataFrame([scores(stats, fit.samples, *new, weighted=False) for stats, fit, new in parts]),
    "type-I": pd.DataFrame([scores(stats, particles, *new, weighted=True) for stats, _, new in parts]),
}

# %% [markdown]
# Means over data sets and their standard errors: the rows of one set are not independent, so a set is the unit.

# %%
table = {
    name: frame.mean().round(3).astype(str) + " ± " + frame.sem().round(3).astype(str)
    for name, frame in results.items()
}
print(pd.DataFrame(table).drop("effective draws").to_string())
gain = (results["type-I"] - results["type-II"])["log density [nats]"]
print(f"type-I gains {gain.mean():.2f} ± {gain.sem():.2f} nats a row:", end=" ")
print(f"median {gain.median():.2f}, at most {gain.max():.1f}")
print(f"least effective number of particles: {results['type-I']['effective draws'].min():.0f} of {num_particles}")

# %% [markdown]
# ## One of the sets
# Most sets lose little by the point, some lose much. This is one of the latter: one set in eight has a larger
# gain. NUTS samples its posterior, started at the type-II point; and then again after many more rows of the same
# curve.


# %%
def sample(stats, fit):
    mcmc = MCMC(
        NUTS(model, init_strategy=fit.init_strategy(), target_accept_prob=0.9),
        num_warmup=num_draws,
        num_samples=num_draws,
        num_chains=num_chains,
        progress_bar=False,
    )
    mcmc.run(jax.random.key(1), stats, extra_fields=sgp.EXTRA_FIELDS)
    posterior = sgp.posterior(model, mcmc, stats)
    print(az.summary(posterior.to_arviz(), var_names=list(priors)).to_string())
    print(sgp.report(posterior))
    return {"type-II": sgp.posterior(model, fit, stats), "NUTS": posterior}


def held_out(posteriors):
    rows = {}
    for name, posterior in posteriors.items():
        result = sgp.calibrate_regression(posterior.predict(test[shown][0]), test[shown][1], levels=[0.5, 0.9])
        rows[name] = {f"{p:.0%} interval holds": float(result["coverage"].sel(level=p)) for p in (0.5, 0.9)}
        rows[name] |= {"log density [nats]": float(result["mean_log_density"]), "RMSE": float(result["rmse"])}
    print(pd.DataFrame(rows).round(3).to_string())


shown = int(np.argsort(-gain.to_numpy())[num_sets // 8])
stats, fit, theta = statistics[shown], fits[shown], truths[shown][0]
posteriors = sample(stats, fit)
print("truth:  ", {name: round(theta[name], 3) for name in priors})
print("type-II:", {name: round(float(fit.values[name]), 3) for name in priors})
held_out(posteriors)

# %% [markdown]
# Contours show the evidence over lengthscale and noise, at the amplitude of the type-II point, which maximises
# evidence times hyper-prior; dots are draws of NUTS, whose amplitudes vary. One point stands for all of them in
# the second panel.

# %%
lengthscales, noises = np.geomspace(0.02, 2, 50), np.geomspace(0.01, 2, 50)
grid = {
    name: jnp.asarray(axis.ravel())
    for name, axis in zip(("lengthscale", "noise_scale"), np.meshgrid(lengthscales, noises), strict=True)
}
grid["amplitude"] = jnp.full(grid["lengthscale"].shape, fit.values["amplitude"])
evidence = np.asarray(analyse(stats, jnp.asarray(basis.host_features(test[shown][0])), grid)[0]).reshape(50, 50)

fine = np.linspace(0, 1, 200)[:, None]
figure, axes = plt.subplots(1, 3, figsize=(14, 4.2), layout="constrained")
levels = [-10, -8, -6, -4, -3, -2, -1, 0]
below = evidence - evidence.max()
contours = axes[0].contourf(lengthscales, noises, below, levels=levels, cmap="Blues", extend="min")
figure.colorbar(contours, ax=axes[0], label="log evidence below its maximum [nats]")
samples = posteriors["NUTS"].samples
axes[0].plot(samples["lengthscale"][::4], samples["noise_scale"][::4], ".", color="0.2", ms=2, label="draws")
axes[0].plot(fit.values["lengthscale"], fit.values["noise_scale"], "*", color="C1", ms=15, label="type-II")
axes[0].plot(theta["lengthscale"], theta["noise_scale"], "P", color="C3", ms=9, label="truth")
axes[0].set(xscale="log", yscale="log", xlabel="lengthscale", ylabel="noise scale")
axes[0].set(xlim=lengthscales[[0, -1]], ylim=noises[[0, -1]])
axes[0].legend(frameon=False, loc="lower right")
for ax, (name, posterior) in zip(axes[1:], posteriors.items(), strict=True):
    sgp.plots.plot_predictive(posterior.predict(fine), fine, X=train[shown][0], y=train[shown][1], ax=ax)
    ax.plot(*test[shown], ".", color="C1", ms=3, zorder=1.2, label="held out")
    ax.set(title=name, xlabel="x", ylabel="y")
    ax.legend(frameon=False, fontsize="small", ncols=2)
low, high = min(ax.get_ylim()[0] for ax in axes[1:]), max(ax.get_ylim()[1] for ax in axes[1:])
for ax in axes[1:]:
    ax.set_ylim(low, high + 0.2 * (high - low))  # room for the legend
figure.savefig(output / "type1_vs_type2.png", dpi=150)

# %% [markdown]
# ## The same curve with many rows
# The posterior is narrow around the point now, and the point does as well.

# %%
stats = sgp.sufficient_statistics(basis, *observe(truths[shown], many_rows))
fit = sgp.fit_evidence(model, stats)
posteriors = sample(stats, fit)
print("type-II:", {name: round(float(fit.values[name]), 3) for name in priors})
held_out(posteriors)
