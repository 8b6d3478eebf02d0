"""NUTS with the weights marginalised against NUTS with explicit weights: the same model, the same data.

The peer is the linear model of ``numpyro.contrib.hsgp``, non-centred: ``beta ~ N(0, 1)``, ``f = Phi @ (scale * beta)``,
with Phi computed once. Two bases: random Fourier features (ours), whose columns are correlated, and the
Laplace eigenfunctions of HSGP, whose columns are nearly orthogonal: the peer at its best.

A leapfrog step of the peer reads n rows, and a draw takes up to 1,023 of them, so long chains over all
rows would last days. Its speed is therefore measured in two exact parts:

1. How it moves (effective draws and leapfrog steps): full chains with the rows replaced by their sufficient
   statistics (``sgp.observe_weights``). The density of hyperparameters and weights is the same up to rounding,
   which is checked first, and so is the law of the chain, warm-up included.
2. What a step costs: the warmed-up chain goes on with the n rows themselves, draw by draw, until its time is up.

Where part 2 yields at least 100 draws, the effective draws a second of these alone are shown as well ("direct").

    python benchmarks/nuts_vs_explicit.py            # 10 to 20 minutes on 2 cores
    python benchmarks/nuts_vs_explicit.py --smoke
"""

from __future__ import annotations

import argparse
import dataclasses
from statistics import median
from typing import Any

import jax
import numpy as np
import numpyro
import numpyro.distributions as dist
from common import duration, print_conclusion, print_header, print_table, timed, verdict
from laplace_eigenfunctions import laplace_eigenfunctions
from numpyro.diagnostics import effective_sample_size
from numpyro.infer import NUTS, init_to_median

import ppl_sgp as sgp

SITES = ("lengthscale", "amplitude", "noise_scale")
TIMED_DRAWS = 100  # of each short run that is timed
TARGET = 250  # times the effective draws a second of the peer, at the largest n


def hyperparameters(basis):
    """One hyper-prior for all models: prior standard deviations of the weights, and the noise scale."""
    lengthscale = numpyro.sample("lengthscale", dist.LogNormal(np.log(0.15), 1.0))
    amplitude = numpyro.sample("amplitude", dist.LogNormal(0.0, 1.0))
    noise_scale = numpyro.sample("noise_scale", dist.LogNormal(np.log(0.3), 1.5))
    return basis.weight_prior(sgp.SquaredExponential(lengthscale, amplitude)), noise_scale


def collapsed(stats):
    """Ours: weights marginalised; what ``sgp.models.fourier_gp`` does, with the hyper-prior above."""
    sgp.observe("y", stats, *hyperparameters(stats.basis))


def weights_and_noise(basis):
    """The peer's explicit weights, non-centred as in ``numpyro.contrib.hsgp``."""
    prior, noise_scale = hyperparameters(basis)
    with numpyro.plate("basis", basis.num_features):
        beta = numpyro.sample("beta", dist.Normal(0.0, 1.0))
    return prior.scale * beta, noise_scale


def explicit(basis, Phi, y):
    """The peer: explicit weights, and the n rows."""
    weights, noise_scale = weights_and_noise(basis)
    numpyro.sample("y", dist.Normal(Phi @ weights, noise_scale), obs=y)


def explicit_compressed(stats):
    """The peer's density, exactly, from sufficient statistics: for part 1."""
    sgp.observe_weights("y", stats, *weights_and_noise(stats.basis))


class Chain:
    """NumPyro's NUTS with its default settings, as a compiled program whose arguments are state and data."""

    def __init__(self, model, data, num_warmup):
        self.data = jax.device_put(data)
        self.kernel = NUTS(model, init_strategy=init_to_median)
        self.start = self.kernel.init(jax.random.key(0), num_warmup, None, self.data, {})
        self.potential = jax.jit(lambda z, data: self.kernel.get_potential_fn(data)(z))
        self._programs = {}

    def _draws(self, state, data, num_draws):
        def step(state, _):
            state = self.kernel.sample(state, data, {})
            return state, ({name: state.z[name] for name in SITES}, state.num_steps, state.diverging)

        return jax.lax.scan(step, state, length=num_draws)

    def run(self, state, num_draws):
        """Seconds without compilation, the last state and (log hyperparameters, leapfrog steps, divergences)."""
        if num_draws not in self._programs:
            scan = jax.jit(self._draws, static_argnums=2)
            self._programs[num_draws] = scan.lower(state, self.data, num_draws).compile()
        seconds, (state, draws) = timed(self._programs[num_draws], state, self.data)
        return seconds, state, draws


@dataclasses.dataclass
class Record:
    """What chains of one model on one data set did: lists with one entry a chain."""

    hyperparameters: list = dataclasses.field(default_factory=list)
    steps: list = dataclasses.field(default_factory=list)
    warmup_steps: list = dataclasses.field(default_factory=list)
    divergences: int = 0
    last: Any = None

    def add(self, chain: Chain, seed: int, num_draws: int) -> None:
        """One chain: as many draws to warm up, by the same program, as to keep."""
        start = chain.start._replace(rng_key=jax.random.key(seed))
        _, state, (_, steps, _) = chain.run(start, num_draws)
        self.warmup_steps.append(int(steps.sum()))
        _, self.last, (values, steps, diverging) = chain.run(state, num_draws)
        self.hyperparameters.append(values)
        self.steps.append(int(steps.sum()))
        self.divergences += int(diverging.sum())

    def speeds(self, per_leapfrog: float) -> tuple[float, ...]:
        """ESS, steps a draw, time a step, time a draw, ESS a second, the same with warm-up; at a given time a step."""
        ess, total = effective_draws(self.hyperparameters), sum(self.steps)
        steps = total / sum(len(values["amplitude"]) for values in self.hyperparameters)
        rates = (ess / (total * per_leapfrog), ess / ((total + sum(self.warmup_steps)) * per_leapfrog))
        return ess, steps, per_leapfrog, steps * per_leapfrog, *rates


def make_data(name: str, n: int, m: int, seed: int):
    """Smooth function plus noise, uniform inputs; the basis does not depend on n."""
    rng = np.random.default_rng([seed, n])
    X = rng.uniform(size=(n, 1))
    y = np.sin(6 * X[:, 0]) + 0.5 * np.cos(15 * X[:, 0]) + 0.2 * rng.standard_normal(n)
    if name == "laplace":
        basis = laplace_eigenfunctions(m)
    else:
        basis = sgp.FourierBasis.from_data(jax.random.key(seed), np.linspace(0, 1, 1001)[:, None], m)
    return sgp.sufficient_statistics(basis, X, y), basis.host_features(X), y


def seconds_per_leapfrog(chains: dict[int, Chain], records: dict[int, Record], repeats: int) -> dict[int, float]:
    """Medians over short runs from the last states, n in turn, so that drifts of the machine hit all alike."""
    seconds: dict[int, list[float]] = {n: [] for n in chains}
    states = {n: record.last for n, record in records.items()}
    for _ in range(repeats):
        for n, chain in chains.items():
            spent, states[n], (_, steps, _) = chain.run(states[n], TIMED_DRAWS)
            seconds[n].append(spent / int(steps.sum()))
    return {n: median(values) for n, values in seconds.items()}


def continue_on_rows(rows: Chain, state: Any, budget: float) -> tuple[list[float], list[int], list[dict[str, Any]]]:
    """Go on from a warmed-up state with the n rows until the time is up, at least for two draws."""
    seconds, steps, values = [], [], []
    while sum(seconds) < budget or len(seconds) < 2:
        spent, state, (value, num_steps, _) = rows.run(state, 1)
        seconds.append(spent)
        steps.append(int(num_steps[0]))
        values.append(value)
    return seconds, steps, values


def effective_draws(hyperparameters: list[dict[str, Any]]) -> float:
    """Of the slowest hyperparameter, over all chains; each entry is one chain."""
    return min(float(effective_sample_size(np.stack([np.asarray(v[site]) for v in hyperparameters]))) for site in SITES)


def compare(name: str, args: argparse.Namespace) -> dict[str, bool]:
    sizes, largest = args.rows, max(args.rows)
    data = {n: make_data(name, n, args.features, args.seed) for n in sizes}
    forms = [f"n = {n:,}: rank {int(data[n][0].compressed.rank)}, {data[n][0].evidence_cost}" for n in sizes]
    print(f"\n{name} basis, m = {args.features}; {'; '.join(forms)}")
    ours, chains = {n: Record() for n in sizes}, {n: Chain(collapsed, (data[n][0],), args.draws) for n in sizes}
    for seed in range(args.chains):
        for n in sizes:
            ours[n].add(chains[n], seed, args.draws)
    our_step = seconds_per_leapfrog(chains, ours, args.repeats)
    table, outcomes, ratios = [], {}, {}
    for n in sizes:
        stats, Phi, y = data[n]
        # Part 1: how the explicit chain moves.
        moves, rows = Chain(explicit_compressed, (stats,), args.peer_draws), Chain(explicit, (stats.basis, Phi, y), 1)
        points = [moves.start.z, jax.tree.map(lambda z: z + 0.1, moves.start.z)]
        values = [[float(chain.potential(z, chain.data)) for z in points] for chain in (moves, rows)]
        np.testing.assert_allclose(*values, rtol=1e-9, err_msg="the two forms of the explicit model disagree")
        peer = Record()
        for seed in range(args.peer_chains):
            peer.add(moves, 100 + seed, args.peer_draws)
        # Part 2: what a step over the rows costs.
        seconds, steps, drawn = continue_on_rows(rows, peer.last, args.budget)
        direct = ""
        if len(seconds) >= 100:
            series = {site: np.concatenate([value[site] for value in drawn]) for site in SITES}
            direct = effective_draws([series]) / sum(seconds)
        per_leapfrog = median(s / k for s, k in zip(seconds, steps, strict=True))
        a, b = ours[n].speeds(our_step[n]), peer.speeds(per_leapfrog)
        ratios[n] = a[-2] / b[-2]
        outcomes[f"{name}: no divergences of ours at n = {n:,}"] = ours[n].divergences == 0
        count = f"{args.peer_chains} x {args.peer_draws}, and {len(seconds)} over rows"
        table.append([f"{n:,}", "ours", *shown(a), "", ours[n].divergences, f"{args.chains} x {args.draws}"])
        table.append(["", "explicit", *shown(b), direct, peer.divergences, count])
        judged = verdict(ratios[n] >= TARGET, args.smoke) if n == largest else "no target here"
        table.append(["", "ratio", "", "", "", "", ratios[n], a[-1] / b[-1], "", "", f">= {TARGET}: {judged}"])
    columns = ["n", "model", "ESS", "steps/draw", "time/step", "time/draw", "ESS/s", "with warm-up", "direct"]
    wins = [f"n = {n:,}" for n, ratio in ratios.items() if ratio < 1]
    print_table(
        [*columns, "divergent", "chains x draws (and as many to warm up)"],
        table,
        "ESS: of the slowest hyperparameter. Steps: leapfrog steps. Neither compilation nor the pass over the data is\n"
        f"timed. Explicit weights win by ESS/s: {', '.join(wins) or 'nowhere here'}.",
    )
    target = f"{name}: at least {TARGET}x the ESS/s of explicit weights at n = {largest:,} ({ratios[largest]:,.0f}x)"
    outcomes[target] = ratios[largest] >= TARGET
    for what, index in (("step", 2), ("draw", 3)):
        times = [ours[n].speeds(our_step[n])[index] for n in sizes]
        spread = max(times) / min(times)
        outcomes[f"{name}: our time a {what} flat in n within 10% (largest / smallest {spread:.3f})"] = spread <= 1.1
    return outcomes


def shown(speeds: tuple[float, ...]) -> list[Any]:
    ess, steps, step, draw, rate, rate_with_warmup = speeds
    return [ess, steps, duration(step), duration(draw), rate, rate_with_warmup]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--smoke", action="store_true", help="tiny sizes, to see that the script runs")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rows", type=int, nargs="+", default=[2_000, 20_000, 200_000])
    parser.add_argument("--features", type=int, default=100)
    parser.add_argument("--bases", nargs="+", default=["fourier", "laplace"], choices=["fourier", "laplace"])
    parser.add_argument("--draws", type=int, default=1000, help="draws of a chain, and of its warm-up")
    parser.add_argument("--chains", type=int, default=4, help="chains of ours")
    parser.add_argument("--repeats", type=int, default=25, help="timings of ours, each of 100 draws")
    parser.add_argument("--peer-chains", type=int, default=2)
    parser.add_argument("--peer-draws", type=int, default=600, help="the same for the explicit model")
    parser.add_argument("--budget", type=float, default=45.0, help="seconds of sampling on the n rows, for each n")
    args = parser.parse_args()
    if args.smoke:
        args.rows, args.features, args.draws, args.chains, args.budget = [300, 900], 8, 60, 2, 1.0
        args.peer_chains, args.peer_draws, args.repeats = 1, 60, 3
    numpyro.enable_x64()
    print_header("NUTS: collapsed against explicit weights", {k: v for k, v in vars(args).items() if k != "smoke"})
    outcomes = {}
    for name in args.bases:
        outcomes |= compare(name, args)
    print_conclusion(outcomes, args.smoke)


if __name__ == "__main__":
    main()
