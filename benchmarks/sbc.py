"""Simulation-based calibration of ``models.fourier_gp``: 500 data sets of a million rows, none of them ever made.

Each replication draws hyperparameters from the prior, lets the observed site itself draw the compressed data of
all n rows given these, samples the posterior by NUTS, and ranks the true values among thinned draws. If evidence,
gradients and sampling of the site are right, ranks are uniform (Talts et al., 2018). All replications run in one
compiled program; nothing in it has n rows.

    python benchmarks/sbc.py             # about 5 minutes on 2 cores
    python benchmarks/sbc.py --smoke
"""

from __future__ import annotations

import argparse

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from common import duration, print_conclusion, print_header, print_table, timed, verdict
from numpyro import handlers
from numpyro.distributions.transforms import biject_to
from numpyro.infer.hmc import hmc
from numpyro.infer.util import potential_energy
from scipy.stats import chi2

import ppl_sgp as sgp

PRIOR = {
    "lengthscale": dist.LogNormal(np.log(0.3), 0.4),
    "amplitude": dist.LogNormal(0.0, 0.5),
    "noise_scale": dist.LogNormal(np.log(0.3), 0.5),
}
MODEL = sgp.models.fourier_gp(sgp.Matern52, **PRIOR)
BINS = 20


def statistics_of(basis: sgp.FourierBasis, n: int, seed: int) -> sgp.SufficientStatistics:
    """n uniform inputs, in chunks. The outputs do not matter: every replication draws its own."""
    rng = np.random.default_rng(seed)
    sizes = [min(20_000, n - start) for start in range(0, n, 20_000)]
    return sgp.sufficient_statistics(basis, ((rng.uniform(size=(k, 1)), rng.standard_normal(k)) for k in sizes))


def given(statistics, projection):
    """The model with the compressed data drawn by its own site in place of those in the statistics."""
    handlers.condition(MODEL, {"y": projection})(statistics)


def simulate(key, statistics):
    """Hyperparameters from the prior, and compressed data given these, by one run of the model."""
    trace = handlers.trace(handlers.seed(handlers.uncondition(MODEL), key)).get_trace(statistics)
    return {name: trace[name]["value"] for name in PRIOR}, trace["y"]["value"]


def start_of(statistics, projection):
    """Where chains start, from the data alone: prior medians, and the noise from the residual sum of squares."""
    dof = statistics.moments.num_rows - statistics.compressed.rank
    values = {"lengthscale": 0.3, "amplitude": 1.0, "noise_scale": jnp.sqrt(projection[-1] / dof)}
    return {name: biject_to(PRIOR[name].support).inv(jnp.asarray(value)) for name, value in values.items()}


def replicate(key, statistics, args):
    """Ranks of the true values among thinned posterior draws; divergences and leapfrog steps after warm-up."""
    key_data, key_chain = jax.random.split(key)
    truth, projection = simulate(key_data, statistics)
    data = (statistics, projection)
    init_kernel, sample_kernel = hmc(
        potential_fn_gen=lambda *data: lambda z: potential_energy(given, data, {}, z), algo="NUTS"
    )
    # Warm-up starts from variances of the right magnitude, and does not shrink its estimates towards NumPyro's
    # 1e-3: with many rows log noise_scale varies by 1/2n.
    variances = jnp.array([0.1, 0.1, 0.5 / statistics.moments.num_rows])  # in alphabetical order of the sites
    options = {"inverse_mass_matrix": variances, "regularize_mass_matrix": False, "step_size": 0.5}
    state = init_kernel(start_of(*data), args.warmup, model_args=data, rng_key=key_chain, **options)

    def step(state, _):
        state = sample_kernel(state, data, {})
        return state, (state.z, state.diverging, state.num_steps)

    state, (_, _, warmup_steps) = jax.lax.scan(step, state, length=args.warmup)
    _, (z, diverging, steps) = jax.lax.scan(step, state, length=args.draws * args.thin)
    # A strictly increasing transform leaves ranks alone, so the unconstrained values will do.
    below = {
        name: jnp.sum(z[name][args.thin - 1 :: args.thin] < biject_to(PRIOR[name].support).inv(truth[name]))
        for name in PRIOR
    }
    return below, jnp.sum(diverging), jnp.sum(steps) + jnp.sum(warmup_steps)


def run(keys, statistics, args):
    """All replications in one program. The statistics are its argument, so it serves any n."""
    program = jax.jit(lambda keys, statistics: jax.lax.map(lambda key: replicate(key, statistics, args), keys))
    compiled = program.lower(keys, statistics).compile()
    return timed(compiled, keys, statistics)


def histogram(ranks: np.ndarray, draws: int) -> np.ndarray:
    """Counts of ranks 0..draws in equal bins."""
    return np.bincount(ranks * BINS // (draws + 1), minlength=BINS)


def bars(counts: np.ndarray) -> str:
    """One character a bin; height 8 is twice the expected count."""
    heights = np.clip(np.round(4 * counts / counts.mean()), 0, 8).astype(int)
    return "".join(" ▁▂▃▄▅▆▇█"[height] for height in heights)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--smoke", action="store_true", help="tiny sizes, to see that the script runs")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--few-rows", type=int, default=10_000, help="the same program at another n, to compare times")
    parser.add_argument("--features", type=int, default=30)
    parser.add_argument("--replications", type=int, default=500)
    parser.add_argument("--warmup", type=int, default=500)
    parser.add_argument("--draws", type=int, default=99, help="draws kept; draws + 1 must be a multiple of 20")
    parser.add_argument("--thin", type=int, default=6)
    args = parser.parse_args()
    if args.smoke:
        args.rows, args.few_rows, args.features, args.replications = 40_000, 1_000, 8, 10
        args.warmup, args.draws, args.thin = 100, 19, 2
    if (args.draws + 1) % BINS:
        parser.error(f"--draws must be a multiple of {BINS}, less 1; got {args.draws}")
    numpyro.enable_x64()
    settings = {name: value for name, value in vars(args).items() if name != "smoke"}
    print_header("Simulation-based calibration of fourier_gp", settings)

    basis = sgp.FourierBasis.from_data(
        jax.random.key(args.seed), np.linspace(0, 1, 1001)[:, None], args.features, sgp.Matern52
    )
    pass_seconds, statistics = timed(lambda: jax.device_put(statistics_of(basis, args.rows, args.seed)))
    print(f"\n{statistics}, from chunks in {duration(pass_seconds)}")
    keys = jax.random.split(jax.random.key(args.seed + 1), args.replications)
    seconds, (below, diverging, steps) = run(keys, statistics, args)

    table, outcomes = [], {}
    for name in PRIOR:
        counts = histogram(np.asarray(below[name]), args.draws)
        expected = args.replications / BINS
        statistic = float(np.sum((counts - expected) ** 2) / expected)
        p_value = float(chi2.sf(statistic, BINS - 1))
        passed = p_value >= 0.01
        outcomes[f"ranks of {name} are uniform: chi-square p = {p_value:.3f}, at least 0.01"] = passed
        table.append(
            [name, bars(counts), int(counts.min()), int(counts.max()), statistic, p_value, verdict(passed, args.smoke)]
        )
    columns = ["hyperparameter", f"ranks ({BINS} bins)", "fewest", "most", "chi-square", "p-value", "p >= 0.01"]
    print_table(
        columns,
        table,
        f"Expected in each bin: {args.replications / BINS:g}. Divergences after warm-up: {int(diverging.sum())}.",
    )

    few = jax.device_put(statistics_of(basis, args.few_rows, args.seed))
    some = keys[: max(1, args.replications // 10)]
    few_seconds, (_, _, few_steps) = run(some, few, args)
    table = [
        [stats.num_rows, int(stats.compressed.rank), stats.evidence_cost, duration(s / len(k)), duration(s / total)]
        for stats, k, s, total in (
            (few, some, few_seconds, int(few_steps.sum())),
            (statistics, keys, seconds, int(steps.sum())),
        )
    ]
    columns = ["n", "rank", "evidence", "a replication", "a leapfrog step"]
    print_table(
        columns,
        table,
        "A step costs the same at any n (of equal rank); how many a posterior needs differs. Compilation excluded.",
    )
    print_conclusion(outcomes, args.smoke)


if __name__ == "__main__":
    main()
