"""What one pass over a table learns of its columns, from which their encodings are made."""

from __future__ import annotations

from typing import Any

import numpy as np

from .columns import CategoryColumn, ColumnEncoding, DateColumn, NumberColumn, days_of, is_missing, kind_of, levels_of

#: Rows, drawn at random, that medians and spreads are taken from.
SAMPLE = 100_000
#: Levels above which a column is no category, but a name for each of its rows.
MOST_LEVELS = 1000
#: Interquartile range of a standard Gaussian.
NORMAL_RANGE = 1.3489795003921634
#: Units of dates, in days, the largest first: weeks need no unit of their own.
UNITS = (1.0, 1 / 24, 1 / 1440, 1 / 86400)
#: Kinds that may be asked for, and those that columns have of themselves.
KINDS = ("number", "category", "date")
NATURAL = {"numbers": "number", "text": "category", "Booleans": "category", "dates": "date"}


class ColumnSummary:
    """Kind, range, levels and missing values of one column; blocks of its values are added.

    :param name: that of the column.
    :param kind: one of ``KINDS``, or a list of levels; ``None`` for the kind that the values have.
    :param zoned: whether it holds instants with a time zone.
    """

    def __init__(self, name: str, kind: Any, zoned: bool) -> None:
        self.name, self.kind, self.zoned = name, kind, zoned
        self.num_missing, self._first_missing = 0, 0
        self._found: set[str] = set()
        self._levels: set[Any] = set()
        self._low, self._high, self._resolution = np.inf, -np.inf, UNITS[0]
        self._sample = _Sample()

    def add(self, values: np.ndarray, first: int) -> None:
        """Further values, shape (n,), of which ``first`` is the number of the first row."""
        self._found |= set(kind_of(values).split(" and ")) - {"nothing"}
        absent = is_missing(values)
        if absent.any() and not self.num_missing:
            self._first_missing = first + int(np.argmax(absent))
        self.num_missing += int(absent.sum())
        kind = self._resolved()
        if kind == "category":
            self._add_levels(values)
        elif kind is not None:
            numbers = (days_of(values) if kind == "date" else values.astype(np.float64))[~absent]
            if not np.isfinite(numbers).all():
                raise ValueError(f"recipe: {self.name!r} is infinite in rows from {first} on. Leave such rows out.")
            if len(numbers):
                self._low, self._high = min(self._low, numbers.min()), max(self._high, numbers.max())
            if kind == "date":
                self._resolution = next(
                    (unit for unit in UNITS if unit <= self._resolution and _whole(numbers, unit)), 0.0
                )
            self._sample.add(numbers)

    def _resolved(self) -> str | None:
        """The kind, as far as it is known; values that do not fit are refused."""
        found = " and ".join(sorted(self._found))
        asked = "category" if isinstance(self.kind, (list, tuple)) else self.kind
        natural = NATURAL.get(found)
        if not found or (asked == "category" and self._found <= {"text", "numbers", "Booleans"}):
            return asked
        if natural is not None and asked in (None, natural):
            return natural
        remedy = {
            "text": "Parse it first, as with `pandas.to_numeric` or `pandas.to_datetime`.",
            "durations": "Divide them by their unit first, as by `numpy.timedelta64(1, 's')`, to make them numbers.",
        }.get(found, "Make the column of one kind: numbers, text or dates." if asked is None else "Leave `kinds` out.")
        wanted = "numbers, text, Booleans or dates" if asked is None else f"a {asked}, as `kinds` says"
        raise ValueError(f"recipe: the column {self.name!r} must hold {wanted}; got {found}. {remedy}")

    def _add_levels(self, values: np.ndarray) -> None:
        self._levels |= set(levels_of(values, self.name))
        if len(self._levels) > MOST_LEVELS and not isinstance(self.kind, (list, tuple)):
            raise ValueError(
                f"recipe: the column {self.name!r} has more than {MOST_LEVELS} levels, and each would be a feature. "
                "Leave it out of `inputs`, or merge rare levels into one first. If it holds dates or numbers as text, "
                "parse them, as with `pandas.to_datetime`."
            )

    def encoding(self, missing: str, unseen: str) -> ColumnEncoding:
        """The frozen encoding. Missing values are indicated where there were some and ``missing`` says so.

        :raises ValueError: for a column without values, or with one value alone.
        """
        kind = self._resolved()
        if kind is None:
            raise ValueError(f"recipe: the column {self.name!r} has no values. Leave it out of `inputs`.")
        if self.num_missing and missing == "refuse":
            raise ValueError(
                f"recipe: {self.name!r} is missing in {self.num_missing} rows, the first of them row "
                f'{self._first_missing}. Impute missing values, or pass `missing="drop"`, which leaves such rows out '
                'of training, or `missing="indicator"`, by which f has a value of its own there.'
            )
        indicated = "indicator" if self.num_missing else "refuse"
        if kind == "category":
            return CategoryColumn(self._ordered(indicated), self.name, unseen, indicated)
        if self._low == self._high and indicated == "refuse":
            raise self._never_varies(self._low)
        if kind == "date":
            span = self._high - self._low
            return DateColumn(self._low, 0.0, span, self._resolution, self.name, self.zoned, indicated)
        centre, spread = self._sample.centre_and_spread()
        return NumberColumn(centre, spread, self._low, self._high, self.name, indicated)

    def _ordered(self, missing: str) -> tuple[Any, ...]:
        """The levels in order, those that were given as they were; that of missing values last."""
        known = self._levels - {None}
        if isinstance(self.kind, (list, tuple)):
            levels = levels_of(np.array(self.kind, dtype=object), self.name)
            unknown = sorted(map(str, known - set(levels)))
            if unknown or len(set(levels)) < len(levels):
                wrong = f"lack {unknown}, which occur" if unknown else "are not distinct"
                raise ValueError(f"recipe: the levels of {self.name!r} in `kinds` {wrong}.")
        else:
            levels = sorted(known, key=lambda level: (isinstance(level, str), level))
        if len(levels) + (missing == "indicator") < 2:
            raise self._never_varies(levels[0])
        return (*levels, *([None] if missing == "indicator" else []))

    def _never_varies(self, value: Any) -> ValueError:
        return ValueError(
            f"recipe: the column {self.name!r} is {value} in all rows, so it says nothing. Leave it out of `inputs`."
        )


def _whole(numbers: np.ndarray, unit: float) -> bool:
    """Whether days are multiples of a unit, to a millisecond."""
    return bool(np.all(np.abs(numbers / unit - np.rint(numbers / unit)) * unit < 1e-3 / 86400))


class _Sample:
    """Numbers drawn at random, with equal chances, from a stream of unknown length; always the same ones of it."""

    def __init__(self) -> None:
        self._rng, self._keys, self._values = np.random.default_rng(0), np.zeros(0), np.zeros(0)

    def add(self, numbers: np.ndarray) -> None:
        keys = np.concatenate([self._keys, self._rng.random(len(numbers))])
        values = np.concatenate([self._values, numbers])
        kept = np.argpartition(keys, SAMPLE)[:SAMPLE] if len(keys) > SAMPLE else slice(None)
        self._keys, self._values = keys[kept], values[kept]

    def centre_and_spread(self) -> tuple[float, float]:
        """Median and robust standard deviation; the standard deviation itself where half of the values are equal."""
        low, middle, high = np.quantile(self._values, [0.25, 0.5, 0.75])
        spread = (high - low) / NORMAL_RANGE or np.std(self._values)
        return float(middle), float(spread) or 1.0
