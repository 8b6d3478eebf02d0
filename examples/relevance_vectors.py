# %% [markdown]
# # Relevance vectors: which few of many features matter
#
# A relevance vector machine gives every feature a prior variance of its own. Maximise the evidence over these
# variances and most of them go to zero: what is left is a short formula (type-II). Sample them instead and
# nothing is ever quite zero, but intervals account for not knowing which features matter (type-I).
#
# Both need the compressed statistics only. First a function whose truth is known, with a gap in the
# data; then schools in California, where the features are columns of a table.

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
num_rows = 200
num_centres = 30
num_draws = 250
num_chains = 4
output = Path("examples-output")

# %%
output.mkdir(parents=True, exist_ok=True)
numpyro.set_host_device_count(num_chains)
numpyro.enable_x64()


def draw(model, stats, num_draws):
    mcmc = MCMC(NUTS(model), num_warmup=num_draws, num_samples=num_draws, num_chains=num_chains, progress_bar=False)
    mcmc.run(jax.random.key(1), stats, extra_fields=sgp.EXTRA_FIELDS)
    return mcmc


# %% [markdown]
# ## Noisy sinc, with a gap
#
# The centres are found by k-means on the inputs. The kernel is frozen in the basis; its lengthscale is chosen by the
# evidence of a few candidates, the longest within three nats of the best, since too short ones fit noise at little
# cost.

# %%
rng = np.random.default_rng(0)
x = rng.uniform(-10, 10, 2 * num_rows)
x = x[(x < 2) | (x > 5)][:num_rows]
X, y = x[:, None], np.sinc(x / np.pi) + 0.1 * rng.standard_normal(len(x))


def compress(lengthscale):
    kernel = sgp.SquaredExponential(lengthscale)
    centres = sgp.CentredBasis.from_data(jax.random.key(0), X, num_centres, kernel)
    return sgp.sufficient_statistics(centres, X, y)


fits = {lengthscale: sgp.fit_relevance_vectors(compress(lengthscale)) for lengthscale in (1.0, 1.5, 2.0, 3.0, 5.0)}
for lengthscale, fit in fits.items():
    print(f"lengthscale {lengthscale}: log evidence {fit.log_evidence:6.1f}, {len(fit.relevant)} relevance vectors")
best = max(fit.log_evidence for fit in fits.values())
lengthscale = max(each for each, fit in fits.items() if fit.log_evidence > best - 3)
vectors = fits[lengthscale]
stats = vectors.statistics
print(f"Chosen: {lengthscale}; noise {vectors.noise_scale:.3f} (true 0.1); {vectors.reason}.")

# %% [markdown]
# ## Too sure of itself, and how to mend that
#
# Away from all centres every feature but the constant vanishes, and f is predicted to be that constant with little
# doubt. The library warns of such rows, twice below, unless the remedy is there: `sgp.Augmentation` adds one more
# kernel at each new input (Rasmussen & Quiñonero-Candela 2005), and the variance grows where there are no data. It
# needs the rows, at O(n·m) a prediction.
#
# The type-I machine, by NUTS, spreads its uncertainty over all centres. Beyond the last centre its features vanish as
# well, so it takes an augmentation too.

# %%
model = sgp.models.relevance_vector_machine()
mcmc = draw(model, stats, num_draws)
posterior = sgp.posterior(model, mcmc, stats)
idata = posterior.to_arviz(X, y)
table = az.summary(idata, var_names=["precision", "noise_scale"], kind="diagnostics").astype(float)
print(f"R-hat at most {table['r_hat'].max():.3f}, bulk ESS at least {table['ess_bulk'].min():.0f}")
print("divergences:", int(idata["sample_stats"]["diverging"].sum()))

# %%
grid = np.linspace(-16, 16, 321)[:, None]
truth = np.sinc(grid[:, 0] / np.pi)
augmentation = sgp.Augmentation(X, y)
predictions = {
    "type-II": vectors.predict(grid),
    "type-II, augmented": vectors.predict(grid, augment=augmentation),
    "type-I": posterior.predict(grid),
    "type-I, augmented": posterior.predict(grid, augment=augmentation),
}
inside = np.abs(grid[:, 0]) <= 10
gap = (grid[:, 0] >= 2) & (grid[:, 0] <= 5)
print("Share of the true curve within two standard deviations, and the mean standard deviation")
print(f"{'':22}{'data':>14}{'gap':>14}{'beyond':>14}")
for name, prediction in predictions.items():
    sd = np.sqrt(prediction.variance)
    covered = np.abs(prediction.mean - truth) < 2 * sd
    cells = [f"{covered[part].mean():8.0%} {sd[part].mean():.3f}" for part in (inside & ~gap, gap, ~inside)]
    print(f"{name:22}" + "".join(f"{cell:>14}" for cell in cells))

figure, panels = plt.subplots(2, 2, figsize=(11, 6.4), sharex=True, sharey=True, layout="constrained")
for ax, (name, prediction) in zip(panels.ravel(), predictions.items(), strict=True):
    sgp.plots.plot_predictive(prediction, grid, X=X, y=y, levels=[0.95], noise=False, ax=ax)
    ax.plot(grid, truth, color="black", lw=1, ls="--", label="truth")
    if "type-II" in name:
        centres = vectors.relevant[vectors.relevant < len(stats.basis.centres)]
        ax.plot(
            *stats.basis.centres[centres].T, np.full(len(centres), -0.65), "^", color="C3", label="relevant centres"
        )
    ax.set(title=name, ylim=(-0.75, 1.4))
    ax.legend(frameon=False, fontsize="small", ncols=2, loc="upper left")
figure.savefig(output / "relevance_sinc.png", dpi=150)

# %% [markdown]
# ## Relevant columns: schools in California
#
# Of 303 school districts, the share of pupils above the national median in mathematics, on the logit scale. Twenty
# candidate predictors, eight of them products of the others and strongly correlated. `LinearBasis` makes each
# standardised column a feature, so a relevance vector is a relevant input. A hundred districts are held out.

# %%
districts = sm.datasets.star98.load_pandas().data
predictors = districts.drop(columns=["NABOVE", "NBELOW"])
above, below = districts["NABOVE"].to_numpy(), districts["NBELOW"].to_numpy()
score = np.log((above + 0.5) / (below + 0.5))
order = np.random.default_rng(1).permutation(len(score))
train, test = order[100:], order[:100]
centre, spread = predictors.iloc[train].mean(), predictors.iloc[train].std()
Z = ((predictors - centre) / spread).to_numpy()
offset = score[train].mean()
columns = sgp.sufficient_statistics(sgp.LinearBasis(Z.shape[1], bias=False), Z[train], score[train] - offset)
names = list(predictors.columns)

few = sgp.fit_relevance_vectors(columns)
print("Type-II keeps:", ", ".join(names[j] for j in few.relevant))

# %% [markdown]
# A horseshoe says that about five should matter, and lets the data decide which. Of correlated columns each may look
# dispensable while one of them is needed: the effective number in the title knows that.

# %%
machine = sgp.models.relevance_vector_machine(sgp.models.Horseshoe(relevant=5, slab_scale=2.0))
mcmc = draw(machine, columns, 2 * num_draws)
summary = sgp.relevance_summary(machine, mcmc.get_samples(), columns).assign_coords(feature=names)
table = summary[["weight", "weight_sd", "determined", "relevance"]].to_dataframe()
print(table.sort_values("relevance", ascending=False).head(8).round(2).to_string())
posterior = sgp.posterior(machine, mcmc, columns)
print(sgp.report(posterior, X=Z[train], y=score[train] - offset))
ax = sgp.plots.plot_relevance(summary)
ax.figure.savefig(output / "relevance_schools.png", dpi=150)

# %%
print("Held-out districts     log density   RMSE   in central 90%")
for name, prediction in (("type-II", few.predict(Z[test])), ("type-I", posterior.predict(Z[test]))):
    scores = sgp.calibrate_regression(prediction, score[test] - offset, levels=[0.9])
    coverage = float(scores["coverage"][0])
    print(f"{name:20}{float(scores['mean_log_density']):13.3f}{float(scores['rmse']):8.3f}{coverage:12.0%}")
