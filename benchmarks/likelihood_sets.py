"""Classes and counts that packages ship, for `likelihood_peers.py`. NumPy and pandas only."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

Rows = tuple[np.ndarray, np.ndarray]


def affairs() -> Rows:
    """Whether there was an affair, by eight answers to a survey of 6,366 (Fair 1978)."""
    import statsmodels.api as sm

    table = sm.datasets.fair.load_pandas().data
    return table.drop(columns="affairs").to_numpy(float), (table["affairs"] > 0).to_numpy(float)


def cancer() -> Rows:
    """Whether one of 569 tumours is benign, by 30 measurements (Street, Wolberg & Mangasarian 1993)."""
    from sklearn.datasets import load_breast_cancer

    X, y = load_breast_cancer(return_X_y=True)
    return X, y.astype(float)


def delays() -> Rows:
    """Whether one of 20,000 flights arrived over a quarter of an hour late: day, hour, distance, origin."""
    from nycflights_tables import nycflights

    table = nycflights("flights").dropna(subset=["arr_delay"]).sample(20_000, random_state=0)
    departure = table["sched_dep_time"]
    inputs = {
        "month": table["month"] + table["day"] / 31,
        "hour": departure // 100 + departure % 100 / 60,
        "distance": table["distance"],
        "Newark": table["origin"].eq("EWR"),
        "Kennedy": table["origin"].eq("JFK"),
    }
    return np.stack([np.asarray(each, float) for each in inputs.values()], axis=1), np.asarray(
        table["arr_delay"] > 15, float
    )


def visits() -> Rows:
    """Visits to a doctor in a year, of 20,190 insured, by nine numbers (RAND health insurance experiment)."""
    import statsmodels.api as sm

    table = sm.datasets.randhie.load_pandas().data
    return table.drop(columns="mdvis").to_numpy(float), table["mdvis"].to_numpy(float)


def departures() -> Rows:
    """Departures from an airport in an hour of a day: 19,485 hours by origin, day of the year and of the week, hour."""
    import pandas as pd
    from nycflights_tables import nycflights

    table = nycflights("flights")
    table["date"] = pd.to_datetime(table[["year", "month", "day"]])
    table = table[table["hour"] >= 5].groupby(["origin", "date", "hour"]).size().reset_index(name="count")
    date = table["date"].dt
    inputs = (table["origin"].eq("EWR"), table["origin"].eq("JFK"), date.dayofyear, date.dayofweek, table["hour"])
    return np.stack([np.asarray(each, float) for each in inputs], axis=1), table["count"].to_numpy(float)


#: By name: the rows, and whether outcomes are classes, else counts.
SETS: dict[str, tuple[Callable[[], Rows], bool]] = {
    "affairs": (affairs, True),
    "cancer": (cancer, True),
    "delays": (delays, True),
    "visits": (visits, False),
    "departures": (departures, False),
}
