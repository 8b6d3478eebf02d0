"""Compressed likelihoods: what they cost in plain passes, and how near their hyperparameters are to the exact ones.

Cost: rows of two classes, a Fourier basis over two inputs. One plain pass (`sufficient_statistics` of the same rows)
and the whole compression alternate in one run; target: the compression in under 12 plain passes. Memory is the peak
of a process of its own for each number of rows, chunks generated on the fly; target: flat.

Accuracy: lengthscale and amplitude of a kernel on 30 features and a level, sampled by NUTS from the compressed
likelihood, and by NUTS from the rows with explicit weights (what `numpyro.contrib.hsgp` does). Shown are the
difference of the means in standard deviations of the exact posterior, the ratio of the widths of 90% intervals, and
the effective draws a second of the slowest of both, compression, compilation and warm-up included. The
differences have Monte Carlo errors of about √(2/effective draws). With many rows explicit weights take hours; with
``--reference whitened`` the same exact posterior is sampled in the coordinates of the expansion
(`sgp.explicit_model`), in which few steps are needed. Targets, of expansions without correction at n = 10,000 and
more: means within 0.1 standard deviations, widths within 5%.

    python benchmarks/likelihoods.py --smoke
    python benchmarks/likelihoods.py                                    # minutes: 100,000 rows, accuracy at 1,000
    python benchmarks/likelihoods.py --rows 1000000 --features 500 --accuracy-rows 1000 10000 100000 --draws 4000
"""

from __future__ import annotations

import argparse
import multiprocessing
import time
from collections.abc import Callable, Iterator
from statistics import median
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from common import duration, peak_gib, print_conclusion, print_header, print_table
from numpyro.diagnostics import effective_sample_size
from numpyro.infer import MCMC, NUTS

import ppl_sgp as sgp

CHUNK, SITES = 2**16, ("lengthscale", "amplitude")
LEVEL = 3.0  # prior standard deviation of the level


def basis_of(m: int) -> sgp.FourierBasis:
    return sgp.FourierBasis.sample(jax.random.key(0), sgp.Matern52(0.5), m, 2)


def chunks(n: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    rng = np.random.default_rng(0)
    for start in range(0, n, CHUNK):
        X = rng.uniform(-1, 1, (min(CHUNK, n - start), 2))
        f = 1.5 * np.sin(4 * X[:, 0]) * np.cos(3 * X[:, 1]) - 1
        yield X, (rng.random(len(X)) < 1 / (1 + np.exp(-f))).astype(float)


def compress(basis: Any, X: Any, y: Any, method: str = "averaged") -> sgp.CompressedLikelihood:
    prior = basis.weight_prior(sgp.Matern52(0.5, 1.5))
    return sgp.compress_likelihood(basis, X, y, sgp.likelihoods.Bernoulli(), prior, method=method)


def peak_memory(n: int, m: int, queue: multiprocessing.Queue) -> None:
    compress(basis_of(m), lambda: chunks(n), None)
    queue.put(peak_gib())


def cost(args: argparse.Namespace) -> dict[str, bool]:
    basis = basis_of(args.features)
    X, y = (np.concatenate(parts) for parts in zip(*chunks(args.rows), strict=True))
    times: dict[str, list[float]] = {"plain pass": [], "averaged": [], "mode": []}
    passes: dict[str, str] = {"plain pass": "1"}
    compress(basis, X[:1000], y[:1000])  # compiles
    for _ in range(args.repeats):
        for name in times:
            begun = time.perf_counter()
            if name == "plain pass":
                sgp.sufficient_statistics(basis, X, y)
            else:
                trace = compress(basis, X, y, name).trace
                over_all = sum(1 for each in trace if each.num_rows == len(X))
                passes[name] = f"{over_all}, and {len(trace) - over_all} over some rows"
            times[name].append(time.perf_counter() - begun)
    ratios = {name: median(each) / median(times["plain pass"]) for name, each in times.items()}
    rows = [[name, passes[name], duration(median(times[name])), f"{ratios[name]:.2f}"] for name in times]
    print_table(["", "passes", "time", "plain passes"], rows, f"{len(X):,} rows, m = {args.features}.")
    peaks, context = [], multiprocessing.get_context("spawn")
    for n in args.memory_rows:
        queue: multiprocessing.Queue = context.Queue()
        process = context.Process(target=peak_memory, args=(n, args.features, queue))
        process.start()
        peaks.append(queue.get())
        process.join()
    print_table(["rows", "peak memory"], [[n, f"{p:.3f} GiB"] for n, p in zip(args.memory_rows, peaks, strict=True)])
    return {
        f"compression in under 12 plain passes: {ratios['averaged']:.1f}": ratios["averaged"] < 12,
        "memory flat within 10%": max(peaks) <= 1.1 * min(peaks),
    }


def data_of(family: str, n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, sgp.likelihoods.Likelihood]:
    x = rng.uniform(-1, 1, n)
    f = 1.5 * np.sin(4 * x)
    if family == "bernoulli":
        return x[:, None], (rng.random(n) < 1 / (1 + np.exp(-f))).astype(float), sgp.likelihoods.Bernoulli()
    if family == "rare":
        return x[:, None], (rng.random(n) < 1 / (1 + np.exp(4.5 - f))).astype(float), sgp.likelihoods.Bernoulli()
    if family == "poisson":
        return x[:, None], rng.poisson(np.exp(f)).astype(float), sgp.likelihoods.Poisson()
    if family == "negative binomial":
        rate = np.exp(f) * rng.gamma(2.0, 0.5, n)
        prior = dist.LogNormal(np.log(3.0), 1.5)
        return x[:, None], rng.poisson(rate).astype(float), sgp.likelihoods.NegativeBinomial(prior)
    logits = np.stack([f, -f, 0 * f], axis=1) + rng.gumbel(size=(n, 3))
    return x[:, None], np.argmax(logits, axis=1).astype(float), sgp.likelihoods.Categorical(3, reference=True)


FAMILIES = ("bernoulli", "rare", "poisson", "negative binomial", "softmax")


def weight_prior(basis: Any) -> Any:
    lengthscale = numpyro.sample("lengthscale", dist.LogNormal(np.log(0.4), 0.7))
    amplitude = numpyro.sample("amplitude", dist.LogNormal(0.0, 1.0))
    return basis.weight_prior((sgp.SquaredExponential(lengthscale, amplitude), sgp.DiagonalPrior(LEVEL)))


def collapsed(stats: sgp.CompressedLikelihood) -> None:
    sgp.observe("y", stats, weight_prior(stats.basis))


def explicit(basis: Any, Phi: Any, y: Any, likelihood: Any) -> None:
    prior, K = weight_prior(basis), likelihood.num_latents
    if K == 1:
        eta = sgp.latent("f", basis, prior)(features=Phi)
    else:
        with numpyro.plate("latent", K):
            eta = sgp.latent("f", basis, prior)(features=Phi).T
    free = likelihood.free_parameters(np.asarray(y))
    parameters = jnp.array([numpyro.sample(each.name, dist.Normal(each.loc, each.scale)) for each in free])
    numpyro.factor("y", jnp.sum(likelihood.log_prob(eta, y, parameters)))


def sampled(model: Callable[..., Any], draws: int, *arguments: Any) -> tuple[dict[str, np.ndarray], float]:
    """Draws of the hyperparameters by chain, and the effective ones of the slowest."""
    mcmc = MCMC(
        NUTS(model),
        num_warmup=draws // 2,
        num_samples=draws,
        num_chains=2,
        chain_method="sequential",
        progress_bar=False,
    )
    mcmc.run(jax.random.key(1), *arguments)
    by_chain = {name: np.asarray(mcmc.get_samples(group_by_chain=True)[name]) for name in SITES}
    return by_chain, min(float(effective_sample_size(each)) for each in by_chain.values())


def interval_width(draws: np.ndarray) -> float:
    """Of the equal-tailed 90% interval; its relative Monte Carlo error is about 0.9/√(effective draws)."""
    low, high = np.quantile(draws, [0.05, 0.95])
    return float(high - low)


def accuracy(args: argparse.Namespace) -> dict[str, bool]:
    rows, outcomes = [], {}
    for n in args.accuracy_rows:
        for family in args.families:
            X, y, likelihood = data_of(family, n, np.random.default_rng(0))
            basis = sgp.stack(sgp.LaplaceBasis(30, centre=[0.0], boundary=[1.5]), sgp.ConstantBasis(1))
            begun = time.perf_counter()
            reference = basis.weight_prior((sgp.SquaredExponential(0.4, 1.0), sgp.DiagonalPrior(LEVEL)))
            stats = sgp.compress_likelihood(basis, X, y, likelihood, reference, model=collapsed)
            ours, effective = sampled(collapsed, args.draws, stats)
            rate = effective / (time.perf_counter() - begun)
            begun = time.perf_counter()
            if args.reference == "whitened":
                peer, effective = sampled(sgp.explicit_model(collapsed), args.draws, sgp.explicit_rows(stats, X, y))
            else:
                peer, effective = sampled(explicit, args.draws, basis, basis(X), jnp.asarray(y), likelihood)
            peer_rate = effective / (time.perf_counter() - begun)
            shift, width = [], []
            for name in SITES:
                one, other = np.log(ours[name].ravel()), np.log(peer[name].ravel())
                shift.append(float(abs(one.mean() - other.mean()) / other.std()))
                width.append(interval_width(one) / interval_width(other))
            rows.append([family, n, *shift, *width, rate, peer_rate, f"{rate / peer_rate:.0f}"])
            print(rows[-1], flush=True)
            if n >= 10_000 and family != "rare":
                near = max(shift) < 0.1 and all(abs(each - 1) < 0.05 for each in width)
                outcomes[f"{family}, n = {n:,}: means within 0.1 sd, widths within 5%"] = near
    print_table(
        ["", "rows", "shift ℓ", "shift a", "width ℓ", "width a", "ours/s", f"{args.reference}/s", "times"],
        rows,
        "Shifts in standard deviations, of logarithms; effective draws a second of the slowest, all included.",
    )
    return outcomes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--smoke", action="store_true", help="a minute")
    parser.add_argument("--features", type=int, default=200)
    parser.add_argument("--rows", type=int, default=100_000, help="for times")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--memory-rows", type=int, nargs="+", default=[50_000, 500_000])
    parser.add_argument("--accuracy-rows", type=int, nargs="*", default=[1000])
    parser.add_argument("--families", nargs="+", default=FAMILIES, choices=FAMILIES)
    parser.add_argument("--draws", type=int, default=1000, help="a chain, of two")
    parser.add_argument("--reference", choices=("explicit", "whitened"), default="explicit", help="sampled on rows")
    args = parser.parse_args()
    if args.smoke:
        args.features, args.rows, args.repeats, args.memory_rows = 40, 20_000, 1, [5000, 20_000]
        args.accuracy_rows, args.families, args.draws = [200], ["bernoulli", "softmax"], 100
    numpyro.enable_x64()
    print_header("Compressed likelihoods", {k: v for k, v in vars(args).items() if k != "smoke"})
    print_conclusion(cost(args) | accuracy(args), args.smoke)


if __name__ == "__main__":
    main()
