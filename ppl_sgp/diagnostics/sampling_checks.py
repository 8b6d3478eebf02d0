"""What can be wrong with chains: R-hat, effective sample size, divergences, energy, tree depth."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpyro.diagnostics import effective_sample_size, split_gelman_rubin

from .finding import Finding

#: Largest R-hat and least effective draws for quantiles and means that can be reported (Vehtari et al. 2021).
MOST_R_HAT, LEAST_ESS = 1.01, 400
#: Draws of a chain below which R-hat and effective draws do not exist.
FEWEST_DRAWS = 4
#: Below this, momentum resampling explores the energy too slowly (Betancourt 2016).
LEAST_BFMI = 0.3
#: Share of trajectories that may end at the largest tree.
MOST_SATURATED = 0.05


def chain_findings(by_chain: dict[str, np.ndarray]) -> Iterator[Finding]:
    """Of draws by site, each of shape (chains, draws, …); nothing where no site was sampled."""
    if not by_chain:
        return
    chains, count = next(iter(by_chain.values())).shape[:2]
    if chains == 1:
        yield Finding(
            "one chain",
            "One chain cannot show that it has missed a part of the posterior.",
            "Run four: `MCMC(..., num_chains=4)`.",
        )
    if count < FEWEST_DRAWS:
        yield Finding(
            "effective sample size",
            f"Chains of {count} draws are too few to judge (at least {LEAST_ESS} effective draws).",
            "Run longer: more draws, or more chains.",
        )
        return
    r_hat = {name: _worst(split_gelman_rubin, values, np.max) for name, values in by_chain.items()}
    bad = {name: value for name, value in r_hat.items() if not value <= MOST_R_HAT}
    if bad:
        yield Finding(
            "R-hat",
            f"Chains disagree: R-hat is {_listed(bad, '.3f')} (at most {MOST_R_HAT}).",
            "Run longer. If that does not help, the posterior has several modes or ridges: look at `az.plot_trace`. "
            "Chains that started far off can start at `sgp.fit_evidence(model, stats).init_strategy()`.",
        )
    ess = {name: _worst(effective_sample_size, values, np.min) for name, values in by_chain.items()}
    low = {name: value for name, value in ess.items() if not value >= LEAST_ESS}
    if low:
        yield Finding(
            "effective sample size",
            f"Too few effective draws: {_listed(low, '.0f')} (at least {LEAST_ESS}).",
            "Run longer: more draws, or more chains.",
        )


def sampler_findings(extra: dict[str, np.ndarray], max_tree_depth: int | None) -> Iterator[Finding]:
    """Of what NUTS records beside draws, each of shape (chains, draws); what is missing is not checked."""
    divergences = int(np.sum(extra.get("diverging", 0)))
    if divergences:
        yield Finding(
            "divergences",
            f"{divergences} trajectories diverged, so a narrow part of the posterior is left out.",
            "Keep explicit weights non-centred (`latent(..., centred=False)`), give scales priors that keep away from "
            "zero, or raise `target_accept_prob`.",
        )
    if "energy" in extra and np.shape(extra["energy"])[1] >= FEWEST_DRAWS:
        energy = np.asarray(extra["energy"], dtype=np.float64)
        bfmi = np.mean(np.diff(energy, axis=1) ** 2, axis=1) / np.maximum(energy.var(axis=1), np.finfo(float).tiny)
        if bfmi.min() < LEAST_BFMI:
            yield Finding(
                "E-BFMI",
                f"The energy is explored slowly: E-BFMI is {bfmi.min():.2f} (at least {LEAST_BFMI}).",
                "The posterior has a funnel or heavy tails: use non-centred weights or marginalise them, and "
                "hyper-priors with lighter tails.",
            )
    if "num_steps" in extra and max_tree_depth is not None:
        saturated = float(np.mean(np.asarray(extra["num_steps"]) >= 2**max_tree_depth - 1))
        if saturated > MOST_SATURATED:
            yield Finding(
                "tree depth",
                f"{saturated:.0%} of trajectories end at the largest tree (depth {max_tree_depth}), before they turn.",
                "Scales of parameters differ too much: warm up longer, marginalise or whiten weights, or raise "
                "`max_tree_depth`.",
            )


def _worst(statistic: Any, values: np.ndarray, choose: Any) -> float:
    values = np.asarray(values, dtype=np.float64)
    flat = values.reshape(*values.shape[:2], -1)
    moving = np.ptp(flat, axis=(0, 1)) > 0
    if not moving.all():
        return float("nan")  # a chain that never moved
    return float(choose(statistic(flat)))


def _listed(values: dict[str, float], form: str) -> str:
    return ", ".join(f"{value:{form}} for {name!r}" for name, value in values.items())
