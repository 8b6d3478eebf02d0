# %% [markdown]
# # A landscape in four bits a weight
#
# DIRECT puts every weight on a few levels, fifteen here, and finds the posterior over all configurations by
# variational inference. From a fit comes a vector of integers, to be kept in half a byte each, or in two bytes all but
# without loss, and used with products of integers. The questions are what that costs in accuracy, and how far the
# posterior can be trusted.
#
# The data are the elevations of 344 × 403 points around Jacksboro, Tennessee, which matplotlib ships. They are
# compressed once; the fit then does not care how many there were.

# %%
from pathlib import Path

import arviz as az
import jax
import matplotlib.pyplot as plt
import numpy as np
import numpyro
import numpyro.distributions as dist
from matplotlib import cbook
from numpyro.infer import MCMC

import ppl_sgp as sgp

# %% tags=["parameters"]
functions_each_way = 20
thinning = 1
transect_features = 40
num_draws = 1000
num_chains = 4
output = Path("examples-output")

# %%
output.mkdir(parents=True, exist_ok=True)
numpyro.set_host_device_count(num_chains)
numpyro.enable_x64()

# %%
terrain = np.load(cbook.get_sample_data("jacksboro_fault_dem.npz", asfileobj=False))
elevation = terrain["elevation"].astype(float)  # metres; the first row is the northernmost
km = 111.2 * terrain["dy"], 111.2 * terrain["dx"] * np.cos(np.deg2rad(terrain["ymin"]))
north, east = (np.arange(k) * float(step) for k, step in zip(elevation.shape, km, strict=True))
X = np.stack([np.tile(east, len(north)), np.repeat(north[::-1], len(east))], axis=1)
offset = elevation.mean()
y = elevation.ravel() - offset
held_out = np.arange(len(y)) % 10 == 0

# %% [markdown]
# ## Continuous weights first
#
# Waves on a box around the map, and the type-II estimate of the kernel. Detail that four hundred
# waves cannot draw counts as noise.

# %%
basis = sgp.LaplaceBasis.from_data(X, functions_each_way, boundary_factor=1.15)
stats = sgp.sufficient_statistics(basis, X[~held_out][::thinning], y[~held_out][::thinning])
model = sgp.models.basis_gp(sgp.Matern32)
fit = sgp.fit_evidence(model, stats)
print(stats.num_rows, "rows,", stats.num_features, "features;", {k: np.round(v, 2) for k, v in fit.values.items()})
noise_scale = float(fit.values["noise_scale"])
kernel = sgp.Matern32(fit.values["lengthscale"], fit.values["amplitude"])
weight_prior = basis.weight_prior(kernel)
exact = sgp.predict(model, fit.samples, stats, X)

# %% [markdown]
# ## Levels
#
# Given the Gaussian prior of the weights, `direct.fit` *places* fifteen levels for each weight, where its posterior is.
# It does so for the weights of `stats.rotate(prior)`, whose features are orthogonal over the rows: they are independent
# a posteriori, so one factorised distribution is exact, and each weight is rounded for itself.
#
# Levels that are part of the model are *stated*, with `DiscreteRelaxation`: here fifteen from −4 to +4 prior standard
# deviations, for the weights of the waves themselves, and for the rotated ones, whose prior variance is one. With so
# many rows the posterior of a weight is narrower than the gap between two such levels. Plain waves overlap a little:
# a weight can make up for the rounding of others, but the search over 15⁴⁰⁰ configurations ends in one of many
# local optima. (The fit also warns of one weight whose grid does not reach far enough.)
#
# Placed levels were told where the posterior is. `log_prior_mass`, the share of the prior that they stand for, makes
# their bound one on the evidence of the Gaussian prior.

# %%
grid = np.linspace(-4, 4, 15)
scale = np.asarray(weight_prior.scale)
cases = {
    "placed": (stats, weight_prior),
    "stated": (stats, sgp.DiscreteRelaxation(dist.Normal(0.0, scale), support=grid * scale[:, None])),
    "stated, rotated": (stats.rotate(weight_prior), sgp.DiscreteRelaxation(dist.Normal(0.0, 1.0), support=grid)),
}
fits, codes, maps = {}, {}, {"continuous weights": exact.mean}
for name, (each, prior) in cases.items():
    fits[name] = sgp.direct.fit(each, prior, noise_scale=noise_scale)
    codes[name] = fits[name].quantize()  # the most probable level of each weight
    maps[f"{name}, mean"] = fits[name].predict(X).mean
    maps[f"{name}, codes"] = codes[name].predict(X)
    maps[f"{name}, codes, 8-bit features"] = codes[name].predict(X, feature_bits=8)
    bound = fits[name].elbo + fits[name].log_prior_mass
    print(f"{name}: bound {bound:.0f} nats, {fits[name].reason}; {fits[name].sparsity:.0%} zeros")
print(f"log evidence with Gaussian weights: {fit.log_evidence:.0f} nats")

print(f"{'RMSE at held-out points':36}{np.std(y[held_out]):7.1f} m for the mean elevation")
for name, values in maps.items():
    error, change = (np.sqrt(np.mean((values - other)[held_out] ** 2)) for other in (y, exact.mean))
    print(f"{name:36}{error:7.1f} m, {change:5.1f} m from continuous weights")

# %% [markdown]
# ## Storage, and arithmetic in integers
#
# Codes are integer multiples of a step. On stated levels there are fifteen of them, and `packed` holds two weights a
# byte. A placed grid lies around the posterior mean of its weight, so that codes take 16 bits; its four bits say which
# level, and that differs only between draws from the posterior, `quantize(key)`: the most probable level is nearly
# always the middle one.
#
# Predictions from codes are those from the float weights, to rounding: with features in float64 to the last digits,
# with features rounded to 8 bits to the number printed. (Neither steps nor the basis are counted: waves are recomputed
# from a few numbers, whereas a rotation is a matrix of its own.)

# %%
some = X[held_out][:2000]
for name, size in (("stated", "packed"), ("placed", "codes")):
    integers, levels = codes[name], fits[name].levels
    weights = levels[np.arange(len(levels)), fits[name].probabilities.argmax(axis=1)]
    by_floats = fits[name].basis.host_features(some) @ weights
    print(f"{name}: {weights.nbytes} bytes in float64, {len(bytes(getattr(integers, size)))} as `{size}`:", end=" ")
    print(f"{integers.packed[:6].hex(' ')} …, {integers.codes[:6].tolist()} …")
    print(f"  largest difference {np.abs(integers.predict(some) - by_floats).max():.1e} m,", end=" ")
    print(f"with 8-bit features {np.abs(integers.predict(some, feature_bits=8) - by_floats).max():.2f} m")
print("unpacked again, equal:", bool((integers.unpack(integers.packed).codes == integers.codes).all()))

# %%
extent = (east[0], east[-1], north[0], north[-1])
shown = {
    "elevation": y,
    "continuous weights, float64": exact.mean,
    "stated levels, 4-bit codes, 8-bit features": maps["stated, codes, 8-bit features"],
}
figure, panels = plt.subplots(1, 3, figsize=(13, 5), sharey=True, layout="constrained")
for ax, (name, values) in zip(panels, shown.items(), strict=True):
    image = ax.imshow(
        values.reshape(elevation.shape) + offset, extent=extent, cmap="terrain", vmin=100, vmax=elevation.max()
    )
    ax.set(title=name, xlabel="east [km]")
panels[0].set_ylabel("north [km]")
figure.colorbar(image, ax=panels, label="elevation [m]", shrink=0.85)
figure.savefig(output / "discrete_maps.png", dpi=150)

ax = sgp.plots.plot_level_probabilities(fits["stated, rotated"])
ax.set_xlabel("stated levels of the rotated weights [prior standard deviations]")
ax.figure.savefig(output / "discrete_levels.png", dpi=150)

# %% [markdown]
# ## How far to trust the variances
#
# One factorised distribution cannot say that weights make up for each other. Take every fourth point of one line
# across the map, leave a gap, and let Gibbs sampling draw from the discrete posterior itself. Forty random Fourier
# features are more than the line needs, and overlap more than waves do.
#
# In the gap only combinations of weights are uncertain, and on stated levels one component is far too sure there. Five
# components hardly help; placed levels, of rotated weights, do. None of them finds the valley that was left out, Gibbs
# sampling included: the kernel is too smooth for this terrain and its misfit is not independent noise. A better
# approximation of a posterior is not a better model.

# %%
line = elevation[len(elevation) // 2] - offset
gap = (east > 21) & (east < 24)
keep = (np.arange(len(line)) % 4 == 0) & ~gap
X_line, y_line, line_noise = east[keep, None], line[keep], 40.0  # metres
line_kernel = sgp.SquaredExponential(1.5, y_line.std())
fourier = sgp.FourierBasis.sample(
    jax.random.key(0), line_kernel, transect_features, 1, method="quasi_random", centre=[east.mean()]
)
line_stats = sgp.sufficient_statistics(fourier, X_line, y_line)
line_weights = fourier.weight_prior(line_kernel)
line_prior = sgp.DiscreteRelaxation(dist.Normal(0.0, line_weights.scale))

found = {
    "one component": sgp.direct.fit(line_stats, line_prior, noise_scale=line_noise),
    "five components": sgp.direct.fit(line_stats, line_prior, noise_scale=line_noise, num_mixtures=5),
    "placed levels": sgp.direct.fit(line_stats, line_weights, noise_scale=line_noise),
}
discrete = sgp.models.discrete_weights(line_prior, line_noise)
mcmc = MCMC(discrete.gibbs(), num_warmup=num_draws, num_samples=num_draws, num_chains=num_chains, progress_bar=False)
mcmc.run(jax.random.key(1), line_stats)
f_gap = np.asarray(mcmc.get_samples(group_by_chain=True)["weights"]) @ fourier.host_features([[22.5]])[0]
print(az.summary({"f in the gap": np.asarray(f_gap)}, kind="diagnostics").to_string())

# %%
predictions = {name: each.predict(east[:, None]) for name, each in found.items()}
predictions["Gibbs"] = sgp.predict(discrete, mcmc.get_samples(), line_stats, east[:, None])
for name, each in found.items():
    print(f"{name}: bound {each.elbo + each.log_prior_mass:.1f} nats")
print("Root mean variance of f [m]     data    gap")
for name, prediction in predictions.items():
    print(f"{name:28}{np.sqrt(prediction.variance[~gap].mean()):8.1f}{np.sqrt(prediction.variance[gap].mean()):7.1f}")

figure, panels = plt.subplots(1, 3, figsize=(14, 4), sharey=True, layout="constrained")
for ax, name in zip(panels, ("one component", "placed levels", "Gibbs"), strict=True):
    bands = dict(X=X_line, y=y_line + offset, offset=offset, levels=[0.9], noise=False)
    sgp.plots.plot_predictive(predictions[name], east[:, None], **bands, ax=ax)
    ax.plot(east[gap], line[gap] + offset, ".", color="C3", ms=3, label="left out")
    ax.set(title=name, xlabel="east [km]", ylabel="elevation [m]" if ax is panels[0] else "")
    ax.legend(frameon=False, fontsize="small")
figure.savefig(output / "discrete_gap.png", dpi=150)
