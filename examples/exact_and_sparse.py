# %% [markdown]
# # Which method when: exact, inducing points, frozen bases
#
# Food expenditure against income of 235 households (Engel 1857, shipped with statsmodels), in logarithms: few enough
# rows for an exact GP, so that everything else can be held against it. Then rows of a step, and of a step on a curve:
# how many points does a method need, and what has the kernel to do with it?

# %%
import warnings
from pathlib import Path

import jax
import matplotlib.pyplot as plt
import numpy as np
import numpyro
import statsmodels.api as sm

import ppl_sgp as sgp

# %% tags=["parameters"]
num_points = 5  # inducing points, few on purpose
num_features = 12  # of the frozen bases
num_rows = 300  # of the steps
sizes = (2, 4, 8, 16)  # numbers of points that are tried there
output = Path("examples-output")

# %%
numpyro.enable_x64()  # exact GPs and inducing points need it
output.mkdir(parents=True, exist_ok=True)

# %% [markdown]
# ## The exact GP
# `sgp.rows` keeps the rows as they are, and `models.exact_gp` is a NumPyro model of them. Type-II is enough here;
# `NUTS(exact)` works as well.

# %%
households = sm.datasets.engel.load_pandas().data
income, food = np.log(households["income"].to_numpy()), np.log(households["foodexp"].to_numpy())
X, y = income[:, None], food - food.mean()
rows = sgp.rows(X, y)

exact = sgp.models.exact_gp(sgp.SquaredExponential)
fit = sgp.fit_evidence(exact, rows)
lengthscale, amplitude, noise_scale = (
    float(np.squeeze(fit.values[n])) for n in ("lengthscale", "amplitude", "noise_scale")
)
print(f"exact: lengthscale {lengthscale:.2f}, amplitude {amplitude:.2f}, noise {noise_scale:.3f}")

# %% [markdown]
# ## The others
# - *VFE* and *FITC*: hyperparameters and a few inducing points, free. The first is a bound on the evidence of the exact
#   GP, and the gap to a bound from above says what it may have lost; the second is the evidence of another model, in
#   which noise may differ from row to row, and may well be higher.
# - *Frozen bases*: Fourier features for lengthscales from half to twice that of the exact GP, functions of a wide box
#   (Laplace), and two that are made for one lengthscale and lack variance away from the data (Nyström, a grid), which
#   predictions add. Rows are compressed once; an evidence then costs the same for any number of rows.

# %%
grid = np.linspace(X.min() - 0.3, X.max() + 0.5, 300)[:, None]
curves = {"exact": (sgp.posterior(exact, fit, rows).predict(grid), fit.log_evidence)}

for method in ("vfe", "fitc"):
    found = sgp.fit_inducing(jax.random.key(0), rows, num_points=num_points, method=method)
    model = sgp.models.inducing_gp(found.points, method=method)
    curves[method.upper()] = (sgp.posterior(model, found, rows).predict(grid), found.bound)
    if method == "vfe":
        print(f"VFE, {len(found.points)} points: at most {found.gap:.1f} nats below the exact GP there")

low, high = grid.min(axis=0), grid.max(axis=0)
drawn = [sgp.SquaredExponential(factor * lengthscale) for factor in (0.5, 1.0, 2.0)]
bases = {
    "Fourier": sgp.FourierBasis.sample(jax.random.key(1), drawn, num_features, 1, centre=X.mean(axis=0)),
    "Laplace": sgp.LaplaceBasis([num_features], (low + high) / 2, 1.5 * (high - low)),
    "Nyström": sgp.NystromBasis(X[:: len(X) // num_features][:num_features], sgp.SquaredExponential(lengthscale)),
    "grid": sgp.GridEigenBasis.from_kernel(sgp.SquaredExponential(lengthscale), (low, high), num_features, 30),
}
for name, basis in bases.items():
    stats = sgp.sufficient_statistics(basis, X, y)
    frozen = {} if name in ("Fourier", "Laplace") else {"lengthscale": lengthscale}
    model = sgp.models.basis_gp(**frozen)
    at = sgp.fit_evidence(model, stats)
    curves[name] = (sgp.posterior(model, at, stats).predict(grid), at.log_evidence)

inside = (grid[:, 0] > X.min()) & (grid[:, 0] < X.max())
truth = curves["exact"][0]
print(f"{'':8} {'evidence':>9}  mean off by, in sd of the exact f   sd of f over the exact one")
for name, (curve, evidence) in curves.items():
    off = np.abs(curve.mean - truth.mean)[inside].max() / np.sqrt(truth.variance[inside].mean())
    ratio = np.sqrt(curve.variance / truth.variance)
    print(f"{name:8} {evidence:9.1f}  {off:34.2f}   {ratio[inside].min():.2f} to {ratio[inside].max():.2f}")

# %%
figure, axes = plt.subplots(2, 4, figsize=(14, 6.5), sharex=True, sharey=True, layout="constrained")
for ax, (name, (curve, evidence)) in zip(axes.flat, curves.items(), strict=False):
    ax.plot(X, y, ".", color="0.7", ms=3)
    sd = np.sqrt(curve.variance)
    ax.fill_between(grid[:, 0], curve.mean - 1.645 * sd, curve.mean + 1.645 * sd, color="tab:blue", alpha=0.3, lw=0)
    ax.plot(grid, curve.mean, color="tab:blue", lw=1.2)
    for side in (-1.645, 1.645):
        ax.plot(grid, truth.mean + side * np.sqrt(truth.variance), color="black", lw=0.7, ls="--")
    ax.set_title(f"{name}: {evidence:.1f} nats")
for ax in axes[-1]:
    ax.set_xlabel("log income")
for ax in axes[:, 0]:
    ax.set_ylabel("log food, about its mean")
for ax in list(axes.flat)[len(curves) :]:
    ax.set_visible(False)
figure.suptitle("90% of f; dashed: the exact GP")
figure.savefig(output / "methods.png", dpi=150)

# %% [markdown]
# ## How many points: a matter of the kernel
# Two sets of rows as in section 3.2 of Hughes-Hallett (2022), with less noise: a step, and a step on a curve that is a
# cubic but for a little. The arc-cosine kernel of order 0 is that of a network of steps. Where its bias is small
# against its weights it has rank two: two points, one each side, carry all that it can say of a step; a squared
# exponential needs many, and still rounds it. Of the curve that kernel knows nothing. Plus a cubic polynomial it has
# rank six, or nearly, so that eight points carry both.

# %%
rng = np.random.default_rng(0)
x = rng.uniform(-1, 1, num_rows)
half = x / 2
curve = 50 * half**3 - 8 * half**2 - 1.5 * half - 0.2 * np.exp(half)
noise = 0.3 * rng.standard_normal(num_rows)
sets = {"a step": (x > 0) + noise, "a step on a curve": curve + (x > 0) + noise}


def arc_cosine(order):
    """A family in lengthscale and amplitude: weights of the units are one over the lengthscale, their bias small."""
    return lambda lengthscale, amplitude: sgp.ArcCosine(
        order, amplitude, 1 / lengthscale, bias=1e-3 if order == 0 else 1.0
    )


def steps_and_cubic(lengthscale, amplitude):
    """Of the steps, whose bias is small, the amplitude matters alone: the lengthscale is the polynomial's."""
    return sgp.ArcCosine(0, amplitude, 1.0, bias=1e-3) + sgp.Polynomial(3, 1 / lengthscale, bias=1.0)


families = {
    "squared exponential": sgp.SquaredExponential,
    "Matérn ½ (exponential)": sgp.Matern12,
    "arc-cosine, order 0": arc_cosine(0),
    "arc-cosine, order 1": arc_cosine(1),
    "order 0 and cubic": steps_and_cubic,
}
warnings.filterwarnings("ignore", message="fit_inducing has not converged")  # to a tenth of a nat will do
options = {"schedule": "reinitialise", "max_iterations": 100}
bounds = {}
for title, values in sets.items():
    of_set = sgp.rows(x[:, None], (values - values.mean()) / values.std())
    print(f"{title}, points".ljust(24) + "".join(f"{m:>9}" for m in sizes))
    for name, family in families.items():
        bounds[title, name] = [sgp.fit_inducing(jax.random.key(0), of_set, family, m, **options).bound for m in sizes]
        print(f"{name:24}" + "".join(f"{value:9.1f}" for value in bounds[title, name]))

# %%
figure, axes = plt.subplots(1, 2, figsize=(11, 4.3), layout="constrained")
for ax, (title, values) in zip(axes, sets.items(), strict=True):
    for name in families:
        ax.plot(sizes, bounds[title, name], "o-", label=name)
    ax.set(xscale="log", xlabel="inducing points", title=f"{title[0].upper()}{title[1:]}: points that a kernel needs")
    ax.set_xticks(sizes, [str(m) for m in sizes])
    ax.minorticks_off()
    inset = ax.inset_axes((0.62, 0.2, 0.35, 0.28))
    inset.plot(x, values, ".", color="0.6", ms=1)
    inset.set(xticks=[], yticks=[])
axes[0].set_ylabel("bound on the evidence [nats]")
figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=5, frameon=False)
figure.savefig(output / "points_and_kernels.png", dpi=150)

# %% [markdown]
# ## So
# - Up to a thousand or two rows: the exact GP. There is nothing to choose.
# - More rows, and lengthscales should stay free: Fourier features or a Laplace basis, if their number suffices
#   (`sgp.report` with the rows says so), or inducing points, at O(n·m²) a gradient.
# - More rows, many inputs: functions of one kernel (Nyström, a grid) with hyperparameters from some of the rows.
# - `sgp.place` tries these, and says what it took.
