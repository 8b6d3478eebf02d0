"""One thing that is wrong with a run, in plain words, and what to do about it."""

from __future__ import annotations

from typing import NamedTuple


class Finding(NamedTuple):
    """A finding of :func:`~ppl_sgp.report`.

    :ivar check: the name of the check.
    :ivar symptom: what was found, with its number and the bound.
    :ivar remedy: what to do.
    """

    check: str
    symptom: str
    remedy: str
