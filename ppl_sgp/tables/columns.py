"""Columns of a table as numbers: each kind's encoding, frozen when it was learned."""

from __future__ import annotations

import abc
import datetime
import decimal
import numbers
from typing import Any

import numpy as np

from .._internal.pytree import pytree_dataclass, static

#: What is done about missing values: an error; an indicator of its own (of categories a level).
MISSING = ("refuse", "indicator")
#: The level that stands for a missing category, in messages and results.
NO_LEVEL = "missing"
DAY = np.timedelta64(1, "D")
EPOCH = np.datetime64("1970-01-01")


class ColumnEncoding(abc.ABC):
    """How a column of a table becomes columns of X.

    :ivar name: that of the column.
    :ivar missing: ``"refuse"`` or ``"indicator"``.
    """

    name: str
    missing: str

    @property
    @abc.abstractmethod
    def kind(self) -> str:
        """What the column holds, in messages: numbers, a category, dates."""

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns of X that it makes: the value, and perhaps the indicator that it is missing."""
        return (self.name, f"{self.name} is missing") if self.missing == "indicator" else (self.name,)

    @abc.abstractmethod
    def encode(self, values: np.ndarray, first: int) -> np.ndarray:
        """Values of this column as columns of X, shape (n, k).

        :param values: what a table has in it, shape (n,).
        :param first: the number of the first of these rows, for messages.
        :raises ValueError: for values of another kind, missing ones and unseen levels, with the name of the column.
        """

    def missing_in(self, values: np.ndarray) -> np.ndarray:
        """Which values are missing, without an indicator that says so; shape (n,)."""
        return is_missing(values) if self.missing == "refuse" else np.zeros(len(values), dtype=bool)

    def _with_indicator(self, encoded: np.ndarray, absent: np.ndarray, first: int) -> np.ndarray:
        """Encoded values with a typical one, zero, in place of missing ones, which are indicated or refused."""
        if self.missing == "indicator":
            return np.stack([np.where(absent, 0.0, encoded), absent], axis=1)
        if absent.any():
            raise ValueError(
                f"{self.name!r} is missing at row {first + int(np.argmax(absent))}. Impute missing values, or make the "
                'recipe with `missing="indicator"`.'
            )
        return encoded[:, None]

    def _refuse_kind(self, found: str, remedy: str) -> ValueError:
        return ValueError(f"the column {self.name!r} holds {self.kind} in the recipe; got {found}. {remedy}")


@pytree_dataclass
class NumberColumn(ColumnEncoding):
    """A column of numbers, as ``(x − centre)/spread``.

    :ivar centre: the median, in units of the column.
    :ivar spread: a robust standard deviation, that of a Gaussian of the same interquartile range.
    :ivar low: the least value that the recipe has seen.
    :ivar high: the largest one.
    """

    centre: Any
    spread: Any
    low: Any
    high: Any
    name: str = static()
    missing: str = static(default="refuse")
    kind = "numbers"

    def encode(self, values: np.ndarray, first: int) -> np.ndarray:
        found = kind_of(values)
        if found not in ("numbers", "nothing"):
            remedy = "Parse text as numbers first, as with `pandas.to_numeric`." if found == "text" else AS_BEFORE
            raise self._refuse_kind(found, remedy)
        x = values.astype(np.float64)
        infinite = np.isinf(x)
        if infinite.any():
            raise ValueError(
                f"{self.name!r} is {x[infinite][0]} at row {first + int(np.argmax(infinite))}. Leave such rows out, or "
                "make their values missing."
            )
        return self._with_indicator((x - self.centre) / self.spread, np.isnan(x), first)


@pytree_dataclass
class DateColumn(ColumnEncoding):
    """A column of instants, as days since the first that the recipe has seen. Those with a time zone are in UTC.

    :ivar origin: that first instant, in days since 1970.
    :ivar low: days of the first one: zero.
    :ivar high: days of the last one.
    :ivar resolution: the largest unit of which all that were seen are multiples, in days: 1 for dates without a time.
    :ivar zoned: whether they have a time zone.
    """

    origin: Any
    low: Any
    high: Any
    resolution: Any
    name: str = static()
    zoned: bool = static(default=False)
    missing: str = static(default="refuse")
    kind = "dates"

    def encode(self, values: np.ndarray, first: int) -> np.ndarray:
        found = kind_of(values)
        if found not in ("dates", "nothing"):
            raise self._refuse_kind(found, "Parse them first, as with `pandas.to_datetime`.")
        days = days_of(values)
        return self._with_indicator(days - self.origin, np.isnan(days), first)


@pytree_dataclass
class CategoryColumn(ColumnEncoding):
    """A column of levels (text, Booleans or whole numbers), as codes 0, 1, …, K − 1; unseen ones from K on, if allowed.

    :ivar levels: the levels, in order; ``None`` is the level of missing values.
    :ivar unseen: ``"refuse"``; or ``"prior"``: f at further levels has the spread of the others. Their codes count them
        in one table, in the order of their text.
    """

    levels: tuple[Any, ...] = static()
    name: str = static()
    unseen: str = static(default="refuse")
    missing: str = static(default="refuse")
    kind = "a category"

    @property
    def columns(self) -> tuple[str, ...]:
        """The name of the column."""
        return (self.name,)

    @property
    def labels(self) -> tuple[str, ...]:
        """Names of the levels."""
        return tuple(NO_LEVEL if level is None else str(level) for level in self.levels)

    def encode(self, values: np.ndarray, first: int) -> np.ndarray:
        codes = {level: float(code) for code, level in enumerate(self.levels)}
        present = levels_of(values, self.name)
        encoded = np.array([codes.get(level, np.nan) for level in present])
        unknown = np.isnan(encoded)
        if unknown.any():
            row = int(np.argmax(unknown))
            if None in present and None not in codes:
                row = present.index(None)
                raise ValueError(
                    f"{self.name!r} is missing at row {first + row}. Impute missing values, or make the recipe with "
                    '`missing="indicator"`, which makes them a level.'
                )
            kinds = {kind_of(np.array([level], dtype=object)) for level in self.levels if level is not None}
            found = kind_of(np.array([present[row]], dtype=object))
            if found not in kinds:
                raise self._refuse_kind(found, f"Its levels are {', '.join(kinds)}, such as {self.levels[0]!r}.")
            new = sorted({str(level) for level, bad in zip(present, unknown, strict=True) if bad})
            if self.unseen == "refuse":
                raise ValueError(
                    f"the column {self.name!r} has levels that the recipe has not seen: {_some(new)}, first at row "
                    f"{first + row}; it knows {_some(self.labels)}. Leave such rows out, make the recipe of rows that "
                    'have them all, or with `unseen="prior"`, by which new levels have the spread of the others.'
                )
            further = {level: float(code) for code, level in enumerate(new, start=len(codes))}
            encoded[unknown] = [further[str(level)] for level, bad in zip(present, unknown, strict=True) if bad]
        return encoded[:, None]


AS_BEFORE = "Pass the column as it was when the recipe was made."


def _some(names: Any) -> str:
    return ", ".join(names[:8]) + ", …" * (len(names) > 8)


def kind_of(values: np.ndarray) -> str:
    """What an array holds: numbers, Booleans, text, dates, durations, nothing (all is missing), or a mixture."""
    if values.dtype.kind in "iufbMmUT":
        return {"b": "Booleans", "M": "dates", "m": "durations", "U": "text", "T": "text"}.get(
            values.dtype.kind, "numbers"
        )
    kinds = sorted({_kind_of_type(kind) for kind in set(map(type, values[~is_missing(values)].tolist()))})
    return " and ".join(kinds) or "nothing"


def _kind_of_type(kind: type) -> str:
    for name, types in KINDS.items():
        if issubclass(kind, types):
            return name
    return kind.__name__


#: Kinds by the types of Python that have them; a Boolean is a number to Python.
KINDS: dict[str, tuple[type, ...]] = {
    "Booleans": (bool, np.bool_),
    "durations": (datetime.timedelta, np.timedelta64),
    "numbers": (numbers.Real, decimal.Decimal),
    "text": (str,),
    "dates": (datetime.date, np.datetime64),
}


def is_missing(values: np.ndarray) -> np.ndarray:
    """Whether each value is ``None``, NaN, or the instant that is none; shape (n,)."""
    if values.dtype.kind in "fMm":
        return np.isnan(values) if values.dtype.kind == "f" else np.isnat(values)
    if values.dtype.kind != "O":
        return np.zeros(len(values), dtype=bool)
    # pandas' NA is neither equal to itself nor different: a comparison with it has no truth.
    return np.array([value is None or not _equals_itself(value) for value in values.tolist()], dtype=bool)


def _equals_itself(value: Any) -> bool:
    return type(value) is str or (type(value).__name__ != "NAType" and bool(value == value))


def days_of(values: np.ndarray) -> np.ndarray:
    """Instants as days since 1970, float64; NaN where missing."""
    if values.dtype.kind == "O":
        values = np.array([None if bad else value for value, bad in zip(values, is_missing(values), strict=True)])
        values = values.astype("datetime64[us]")
    elif values.dtype.kind != "M":  # nothing but missing numbers
        return np.full(len(values), np.nan)
    whole = values.astype("datetime64[D]")  # of the days alone, so that nanoseconds keep their digits
    with np.errstate(invalid="ignore"):
        days = (whole - EPOCH) / DAY + (values - whole) / DAY
    return np.where(np.isnat(values), np.nan, days)


def levels_of(values: np.ndarray, name: str) -> list[Any]:
    """Values of a category as text, Booleans and whole numbers of Python, and ``None`` where missing."""
    kind = kind_of(values)
    if not set(kind.split(" and ")) <= {"text", "Booleans", "numbers", "nothing"}:
        raise ValueError(f"the column {name!r} holds {kind}, which are no levels of a category.")
    if kind == "text" and values.dtype.kind == "O":
        return [value if type(value) is str else None for value in values.tolist()]
    absent = is_missing(values)
    levels = [None if bad else _plain(value) for value, bad in zip(values.tolist(), absent.tolist(), strict=True)]
    fractions = [level for level in levels if isinstance(level, float)]
    if fractions:
        raise ValueError(
            f"the column {name!r} holds {fractions[0]}: levels of a category are text, Booleans or whole numbers."
        )
    return levels


def _plain(value: Any) -> Any:
    if isinstance(value, (bool, str)):
        return value
    return int(value) if value == value // 1 else float(value)
