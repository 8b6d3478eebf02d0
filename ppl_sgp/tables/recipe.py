"""The frozen recipe that makes inputs of the columns of a table, by name."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from tqdm.auto import tqdm

from .._internal import checks
from .._internal.pytree import pytree_dataclass, static
from .chunks import TableChunks, as_triple, floating, names_of, require_columns
from .columns import CategoryColumn, ColumnEncoding, DateColumn, NumberColumn, is_missing
from .readers import Block, is_table, reader_of
from .summaries import KINDS, ColumnSummary

MISSING = ("refuse", "drop", "indicator")
UNSEEN = ("refuse", "prior")
CHUNK = 65_536


@pytree_dataclass
class Recipe:
    """How rows of a table become inputs X and outputs y; made by :func:`recipe`, and frozen.

    Nothing is learned from the tables that it is applied to: centres, spreads and levels are those of the table that it
    was made of. Other columns, in any order, do not matter.

    :ivar encodings: how each column of the table becomes columns of X: a ``NumberColumn``, ``DateColumn`` or
        ``CategoryColumn``.
    :ivar output: the name of y; several, in a tuple, if there are several outputs.
    :ivar row_weights: the name of the column of relative noise precisions, or ``None``.
    :ivar drop: whether training rows with missing values are left out.

    .. doctest::

        >>> import pandas as pd, ppl_sgp as sgp
        >>> table = pd.DataFrame({"km": [1.0, 2.0, 4.0], "line": ["red", "blue", "red"], "minutes": [3.0, 5.0, 9.0]})
        >>> recipe = sgp.recipe(table, output="minutes")
        >>> recipe.columns, recipe(pd.DataFrame({"line": ["blue"], "km": [2.0]})).tolist()
        (('km', 'line'), [[0.0, 0.0]])
    """

    encodings: tuple[ColumnEncoding, ...]
    output: str | tuple[str, ...] | None = static()
    row_weights: str | None = static(default=None)
    drop: bool = static(default=False)

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of the columns of the table that X is made of."""
        return tuple(encoding.name for encoding in self.encodings)

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns of X, shape (d,): those of the inputs, and of indicators of missing values."""
        return tuple(column for encoding in self.encodings for column in encoding.columns)

    @property
    def input_dim(self) -> int:
        """The number of columns of X, d."""
        return len(self.columns)

    def __call__(self, table: Any) -> np.ndarray:
        """Inputs X of the rows of a table, shape (n, d), float64. The output need not be there.

        :param table: as :func:`recipe` takes it.
        :raises ValueError: for columns that are missing or of another kind, missing values, and levels that the recipe
            has not seen, with the name of the column.
        """
        table, reader = reader_of(table, CHUNK, "recipe")
        require_columns("recipe", reader.names, self.inputs)
        self._check_zones(reader.zoned)
        parts, first = [np.zeros((0, self.input_dim))], 0
        for block in reader.read(list(self.inputs)):
            parts.append(self._encoded(block, first))
            first += len(parts[-1])
        return np.concatenate(parts)

    def rows(self, table: Any, *, chunk_size: int = CHUNK) -> TableChunks:
        """Rows of a table as chunks ``(X, y)`` or ``(X, y, row_weights)``, which may be iterated again.

        :func:`~ppl_sgp.sufficient_statistics` of a basis that has the recipe makes them itself.

        :param table: as :func:`recipe` takes it.
        :param chunk_size: rows in memory at a time.
        :raises ValueError: for a recipe without an output; while iterating, as :meth:`__call__`.
        """
        if self.output is None:
            raise ValueError('recipe: it was made without an output. Make it with the name of y: `output="..."`.')
        checks.whole_number("chunk_size", chunk_size, 1, "recipe")
        table, reader = reader_of(table, chunk_size, "recipe")
        names = [*self.inputs, *names_of(self.output), *names_of(self.row_weights)]
        require_columns("recipe", reader.names, names)
        self._check_zones(reader.zoned)
        again = functools.partial(self.rows, chunk_size=chunk_size)
        return TableChunks(table, reader.read, again, names, self._rows_of)

    def source(self, rows: Any, y: Any, chunk_size: int | None) -> tuple[Any, int | None]:
        """Rows for a pass, and its size of chunks: of a table, or of an iterable of tables; others as they are.

        :param rows: a table, an iterable of tables or of chunks ``(X, y)``, or inputs.
        :param y: outputs, or ``None`` where tables and chunks have them.
        """
        if is_table(rows):
            return (self.rows(rows, chunk_size=chunk_size or CHUNK), None) if y is None else (self(rows), chunk_size)
        chunked = isinstance(rows, Iterable) and not isinstance(rows, TableChunks) and not hasattr(rows, "shape")
        return (_Tables(self, rows) if chunked and y is None else rows), chunk_size

    def _encoded(self, block: Block, first: int) -> np.ndarray:
        return np.concatenate([each.encode(block[each.name], first) for each in self.encodings], axis=1)

    def _rows_of(self, block: Block, first: int) -> tuple[tuple[np.ndarray, ...], int]:
        """Rows ``(X, y)`` or ``(X, y, row_weights)`` of a block, and how many were left out."""
        outputs = names_of(self.output)
        names = [*outputs, *names_of(self.row_weights)]
        targets = {name: floating("recipe", name, block[name], name in outputs) for name in names}
        absent = {name: np.isnan(values) for name, values in targets.items()}
        if self.drop:
            absent |= {each.name: each.missing_in(block[each.name]) for each in self.encodings}
        kept = ~np.any(list(absent.values()), axis=0)
        if not self.drop and not kept.all():
            row = int(np.argmin(kept))
            name = next(name for name, bad in absent.items() if bad[row])
            raise ValueError(
                f'recipe: {name!r} is missing at row {first + row}. Make the recipe with `missing="drop"`, which '
                "leaves such rows out and counts them in `.num_dropped`, or leave them out first."
            )
        X = self._encoded({each.name: block[each.name][kept] for each in self.encodings}, first)
        arrays = [values[kept] for values in targets.values()]
        y = np.stack(arrays[: len(outputs)], axis=1) if isinstance(self.output, tuple) else arrays[0]
        return (X, y, *arrays[len(outputs) :]), int(np.sum(~kept))

    def _check_zones(self, zoned: frozenset[Any]) -> None:
        for encoding in self.encodings:
            if isinstance(encoding, DateColumn) and encoding.zoned != (encoding.name in zoned):
                had, has = ("a", "none") if encoding.zoned else ("no", "one")
                raise ValueError(
                    f"the column {encoding.name!r} had {had} time zone when the recipe was made, and now has {has}: "
                    "instants would be off by hours. Convert it first, as with `.dt.tz_localize`."
                )

    def __repr__(self) -> str:
        made = [f"  {encoding}" for encoding in map(_described, self.encodings)]
        target = "no output" if self.output is None else f"output {', '.join(names_of(self.output))}"
        return "\n".join([f"Recipe({self.input_dim} inputs, {target})", *made])


class _Tables:
    """Chunks of rows of several tables, one after the other."""

    def __init__(self, recipe: Recipe, tables: Iterable[Any]) -> None:
        self._recipe, self._tables = recipe, tables

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        for table in self._tables:
            yield from self._recipe.rows(table) if is_table(table) else [table]


def rows_of_table(recipe: Recipe | None, X: Any, y: Any, row_weights: Any) -> tuple[Any, Any, Any]:
    """Inputs, outputs and row weights of a table, if that is what is given in place of X; others as they are.

    Missing values leave rows out as the recipe says.
    """
    if recipe is None or X is None or not is_table(X):
        return X, y, row_weights
    if y is not None:
        return recipe(X), y, row_weights
    chunks = [as_triple(chunk) for chunk in recipe.rows(X)]
    if not chunks:
        raise ValueError("recipe: the table has no rows, or none without missing values.")
    X, y, of_table = zip(*chunks, strict=True)
    return np.concatenate(X), np.concatenate(y), row_weights if of_table[0] is None else np.concatenate(of_table)


def inputs_of_table(recipe: Recipe | None, X: Any) -> Any:
    """Inputs of a table, if that is what is given in place of X; others as they are."""
    return X if recipe is None or X is None or not is_table(X) else recipe(X)


def _described(encoding: ColumnEncoding) -> str:
    if isinstance(encoding, CategoryColumn):
        text = f"{len(encoding.levels)} levels"
    elif isinstance(encoding, DateColumn):
        first = np.datetime64("1970-01-01") + np.timedelta64(int(np.floor(encoding.origin)), "D")
        text = f"days since {first}, {float(encoding.high):.6g} of them"
    elif isinstance(encoding, NumberColumn):
        text = f"(x - {float(encoding.centre):.6g})/{float(encoding.spread):.6g}"
    indicated = ", missing values indicated" if encoding.missing == "indicator" else ""
    return f"{encoding.name}: {encoding.kind}, {text}{indicated}"


def recipe(
    table: Any,
    inputs: Sequence[str] | None = None,
    output: str | Sequence[str] | None = None,
    *,
    row_weights: str | None = None,
    kinds: Mapping[str, Any] | None = None,
    missing: str = "refuse",
    unseen: str = "refuse",
    progress: bool | None = None,
) -> Recipe:
    """Learn, by one pass over a table, how its columns become inputs of a model.

    Numbers become ``(x − median)/spread``, with the spread of a Gaussian of the same interquartile range (of at most
    100,000 rows, drawn at random); text, Booleans and pandas' categories become codes of levels; dates become days
    since the first one, those with a time zone in UTC. What was learned is frozen: see :class:`Recipe`. With it,
    :func:`~ppl_sgp.additive_basis` makes a basis, and any other by :class:`~ppl_sgp.TableBasis`.

    :param table: a table as :func:`~ppl_sgp.table_chunks` takes it (pandas, Polars, Arrow, Parquet, xarray, Dask, a
        dictionary of arrays), in chunks of which rows are read; or a list of such tables, which are read in turn.
    :param inputs: names of the columns that f depends on; default all others.
    :param output: the name of y; or several, for an output each. Needed for rows that have one.
    :param row_weights: the name of the column of relative noise precisions, if there is one.
    :param kinds: by name, the kind of columns that are not what they look like: ``"number"``, ``"category"`` (of whole
        numbers that are names), ``"date"``; or a list of levels, which may have some that do not occur.
    :param missing: what is done about missing inputs: ``"refuse"``; ``"drop"``, by which such rows are left out of
        training, as are those without an output, and counted; or ``"indicator"``, by which numbers and dates are zero
        (a typical value) where they are missing, with a column more that says so, and missing categories are a level.
    :param unseen: what is done about levels that are not in this table: ``"refuse"``; or ``"prior"``, by which f has
        the spread of the known levels there.
    :param progress: show a progress bar; default at a terminal, if it takes long.
    :raises ValueError: for columns that are missing, of a mixture of kinds, without values, with one value only, or of
        more than 1,000 levels, with their name and what to do.

    .. doctest::

        >>> import numpy as np, ppl_sgp as sgp
        >>> day = np.arange("2024-01-01", "2024-12-31", dtype="datetime64[D]")
        >>> sgp.recipe({"day": day, "hour": np.arange(365) % 24, "y": np.zeros(365)}, output="y")
        Recipe(2 inputs, output y)
          day: dates, days since 2024-01-01, 364 of them
          hour: numbers, (x - 11)/8.89561
    """
    if isinstance(inputs, str):
        raise ValueError(f"recipe: `inputs` must be a list of names; got {inputs!r}. Use [{inputs!r}].")
    for name, value, allowed in (("missing", missing, MISSING), ("unseen", unseen, UNSEEN)):
        if value not in allowed:
            raise ValueError(f"recipe: `{name}` must be one of {', '.join(map(repr, allowed))}; got {value!r}.")
    tables = [table] if is_table(table) else list(table)
    if not tables:
        raise ValueError("recipe: there is no table in the list.")
    target = output if output is None or isinstance(output, str) else tuple(output)
    others, given = [*names_of(target), *names_of(row_weights)], dict(kinds or {})
    summaries: dict[str, ColumnSummary] = {}
    first = 0
    with tqdm(desc="reading the table", unit=" rows", disable=progress is False or None, delay=1.0) as bar:
        for each in tables:
            _, reader = reader_of(each, CHUNK, "recipe")
            if inputs is None:
                inputs = [name for name in reader.names if name not in others]
            require_columns("recipe", reader.names, [*inputs, *others])
            summaries = summaries or _summaries(inputs, given, reader.zoned)
            for block in reader.read([*inputs, *others]):
                kept: Any = slice(None)
                if missing == "drop":  # nothing is learned from rows that are left out
                    kept = ~np.any([is_missing(values) for values in block.values()], axis=0)
                for name in inputs:
                    summaries[name].add(block[name][kept], first)
                first += len(block[inputs[0]])
                bar.update(len(block[inputs[0]]))
    if not first:
        raise ValueError("recipe: the table has no rows.")
    encodings = tuple(summary.encoding(missing, unseen) for summary in summaries.values())
    return Recipe(encodings, target, row_weights, missing == "drop")


def _summaries(inputs: Sequence[str], kinds: dict[str, Any], zoned: frozenset[Any]) -> dict[str, ColumnSummary]:
    unknown = [name for name in kinds if name not in inputs]
    if unknown:
        raise ValueError(f"recipe: `kinds` names {unknown}, which are not among the inputs {list(inputs)}.")
    for name, kind in kinds.items():
        if not isinstance(kind, (list, tuple)) and kind not in KINDS:
            raise ValueError(
                f"recipe: the kind of {name!r} must be one of {', '.join(map(repr, KINDS))}, or a list of levels; got "
                f"{kind!r}."
            )
    if not inputs:
        raise ValueError("recipe: there are no inputs. Name columns that f depends on in `inputs`.")
    return {name: ColumnSummary(name, kinds.get(name), name in zoned) for name in inputs}
