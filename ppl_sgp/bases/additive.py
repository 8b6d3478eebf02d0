"""A stack for the columns of a table: level, lines, smooth functions, seasons, effects of levels, a joint part."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from .._internal import checks
from ..kernels import Kernel, Matern32
from ..tables.columns import CategoryColumn, ColumnEncoding, DateColumn, NumberColumn
from ..tables.recipe import Recipe
from .basis import Basis
from .categorical import CategoricalBasis
from .columns import InputColumns
from .constant import ConstantBasis
from .fourier import FourierBasis
from .laplace import LaplaceBasis
from .linear import LinearBasis
from .periodic import PeriodicBasis
from .stack import stack
from .table import TableBasis

#: Parts that are of no column alone.
INTERCEPT, LINEAR, JOINT = "intercept", "linear", "joint"
#: Functions of a number and of a date, and the boxes that they are on over what the recipe has seen: for Matern32 good
#: for lengthscales from a fourth and a tenth of the half-range (LaplaceBasis.suggest) up, longer ones being lines.
NUMBER_FUNCTIONS, DATE_FUNCTIONS, BOX = 40, 100, 2.75
#: Seasons of dates: their periods in days, and most harmonics.
SEASONS = {"day": (1.0, 8), "week": (7.0, 12), "year": (365.2425, 12)}
#: Periods that dates must have seen for a season, and steps of the dates in half a period of its last harmonic.
LEAST_PERIODS = 2.0


def additive_basis(
    key: jax.Array,
    recipe: Recipe,
    *,
    joint_features: int = 300,
    kernel: Callable[..., Kernel] = Matern32,
) -> TableBasis:
    """The stack of an additive model for the columns of a table, each part with a name.

    ============================  ===================================================================================
    part                          basis
    ============================  ===================================================================================
    ``intercept``                 :class:`~ppl_sgp.ConstantBasis`
    ``linear``                    lines in all numbers, dates and indicators of missing values
    the name of a number, a date  a smooth function, :class:`~ppl_sgp.LaplaceBasis` of 40 functions, of a date 100
    the name of a date and        :class:`~ppl_sgp.PeriodicBasis` without a constant, where dates span two periods (and
    ``day``, ``week``, ``year``   have a time, for a day)
    the name of a category        :class:`~ppl_sgp.CategoricalBasis`: an effect a level
    ``joint``                     what is not additive, of two or more numbers and dates: ``joint_features`` of
                                  :class:`~ppl_sgp.FourierBasis`, from kernels of the hyper-prior
    ============================  ===================================================================================

    :func:`~ppl_sgp.models.additive` is its model. For parts of your own, interactions with a category among them, make
    a stack, and a :class:`~ppl_sgp.TableBasis` of it; :class:`~ppl_sgp.InputColumns` knows columns by name.

    :param key: a JAX random key, for the joint part.
    :param recipe: from :func:`~ppl_sgp.recipe`.
    :param joint_features: features of the joint part, even; 0 for none.
    :param kernel: the class of kernel that the joint part is drawn for.
    :return: a :class:`~ppl_sgp.TableBasis`; ``basis.parts`` and ``basis.part_names`` has the parts.
    :raises ValueError: for columns called as a part of all columns is.

    .. doctest::

        >>> import jax, numpy as np, ppl_sgp as sgp
        >>> day = np.arange("2024-01-01", "2024-03-31", dtype="datetime64[D]")
        >>> table = {"date": day, "price": np.sqrt(np.arange(90.0)), "shop": np.tile(["a", "b"], 45)}
        >>> basis = sgp.additive_basis(jax.random.key(0), sgp.recipe(table), joint_features=40)
        >>> basis.part_names
        ('intercept', 'linear', 'date', 'date week', 'price', 'shop', 'joint')
    """
    if not isinstance(recipe, Recipe):
        raise ValueError(
            f"additive_basis: `recipe` must be what sgp.recipe(table) makes; got {type(recipe).__name__}. For arrays "
            "stack bases yourself."
        )
    columns, parts = InputColumns(recipe.columns), dict[str, Basis]()
    parts[INTERCEPT] = ConstantBasis(recipe.input_dim)
    smooth = [each for each in recipe.encodings if not isinstance(each, CategoryColumn)]
    lines = [column for each in smooth for column in each.columns]
    if lines:
        parts[LINEAR] = columns.select(LinearBasis(len(lines), bias=False), *lines)
    for each in recipe.encodings:
        for name, basis in _of_column(each).items():
            if name in parts or name in (INTERCEPT, LINEAR, JOINT):
                raise ValueError(
                    f"additive_basis: a column called {name!r} would be taken for a part of that name. Rename it, or "
                    "make a stack yourself."
                )
            parts[name] = columns.select(basis, each.name)
    if joint_features and len(smooth) > 1:
        features = _joint(key, smooth, joint_features, kernel)
        parts[JOINT] = columns.select(features, *(each.name for each in smooth))
    return TableBasis(stack(**parts), recipe)


def _of_column(encoding: ColumnEncoding) -> dict[str, Basis]:
    """The parts of one column, by name."""
    if isinstance(encoding, CategoryColumn):
        labels, unseen = encoding.labels, encoding.unseen
        return {encoding.name: CategoricalBasis(len(labels), labels=labels, unseen=unseen)}
    low, high = _range(encoding)
    middle, half = (low + high) / 2, (high - low) / 2
    number = DATE_FUNCTIONS if isinstance(encoding, DateColumn) else NUMBER_FUNCTIONS
    parts: dict[str, Basis] = {encoding.name: LaplaceBasis(number, [middle], [BOX * half])}
    if isinstance(encoding, DateColumn):
        for season, (period, harmonics) in SEASONS.items():
            step = float(encoding.resolution)
            most = min(harmonics, int(period / 2 / step) if step else harmonics)
            if most and high >= LEAST_PERIODS * period:
                parts[f"{encoding.name} {season}"] = PeriodicBasis(period, most, constant=False)
    return parts


def _range(encoding: Any) -> tuple[float, float]:
    """Least and largest value in X; of dates the origin is zero. Where one is missing, the value is zero."""
    low, high = float(encoding.low), float(encoding.high)
    if isinstance(encoding, NumberColumn):
        low, high = ((value - float(encoding.centre)) / float(encoding.spread) for value in (low, high))
    if encoding.missing == "indicator":
        low, high = min(low, 0.0), max(high, 0.0)
    return (low, high) if high > low else (low - 1, high + 1)


def _joint(key: jax.Array, columns: list[Any], number: int, kernel: Callable[..., Kernel]) -> FourierBasis:
    """Random features of several columns, for the hyper-prior of their lengthscales."""
    checks.whole_number("joint_features", number, 2, "additive_basis")
    ranges = np.array([_range(each) for each in columns])
    dates = np.array([isinstance(each, DateColumn) for each in columns])
    # Numbers have a standard deviation of about one; dates are spread over their range.
    centre = np.where(dates, ranges.mean(axis=1), 0.0)
    deviation = np.where(dates, np.ptp(ranges, axis=1) / 12**0.5, 1.0)
    typical = np.stack([centre - deviation, centre + deviation])
    return FourierBasis.from_data(key, typical, number, kernel, method="orthogonal")
