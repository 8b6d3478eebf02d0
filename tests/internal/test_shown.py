"""What objects show of themselves: names and sizes, not pages of numbers."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ppl_sgp as sgp

X = np.random.default_rng(0).uniform(0, 1, (60, 2))
Y = np.sin(6 * X[:, 0])
KERNEL = sgp.SquaredExponential(0.3)


def made() -> dict:
    fourier = sgp.FourierBasis.from_data(jax.random.key(0), X, 40)
    statistics = sgp.sufficient_statistics(sgp.CentredBasis(X[:30], KERNEL), X, Y)
    return {
        "kernel": sgp.SquaredExponential(np.ones(20)) * sgp.Matern32(np.ones(20)),
        "basis": fourier,
        "points": sgp.NystromBasis(X[:30], KERNEL),
        "stack": sgp.stack(sgp.LinearBasis(2), fourier),
        "prior": fourier.weight_prior(KERNEL),
        "selected": sgp.select_inducing_points(jax.random.key(0), X, KERNEL, 20),
        "relevance vectors": sgp.fit_relevance_vectors(statistics),
        "classifier": sgp.fit_relevance_classifier(fourier, X, (Y > 0).astype(int)),
    }


@pytest.mark.relaxed_promotion
def test_large_arrays_are_shown_by_type_and_shape():
    for name, value in made().items():
        assert len(repr(value)) < 1500, name
        assert type(value).__name__ in repr(value)
    assert repr(made()["selected"]).startswith("InducingPoints(points=float64[20,2], indices=int64[20],")


def test_small_arrays_and_numbers_are_shown_as_they_are():
    @sgp.pytree_dataclass
    class Pair:
        left: object
        right: object = 1.0

    assert repr(Pair(np.arange(3.0), np.float64(0.5))) == "Pair(left=array([0., 1., 2.]), right=0.5)"
    assert repr(Pair((np.zeros((2, 5)),), {"a": list(range(9))})) == (
        "Pair(left=(float64[2,5],), right={'a': [0, 1, 2, 3, 4, 5, … 3 more]})"
    )
    shown = []
    jax.jit(lambda pair: shown.append(repr(pair)))(Pair(jnp.ones(9)))
    assert shown[0].startswith(f"Pair(left={jnp.result_type(float)}[9], right=")


def test_a_class_keeps_a_text_of_its_own():
    @sgp.pytree_dataclass
    class Quiet:
        numbers: object

        def __repr__(self) -> str:
            return "quiet"

    assert repr(Quiet(np.ones(100))) == "quiet"


def test_placement_shows_what_was_chosen_and_its_report_the_table():
    placed = sgp.place(jax.random.key(0), X, Y, num_features=10)
    assert repr(placed).startswith("Placed(basis='") and "noise_scale=" in repr(placed)
    assert f"num_features={placed.statistics.num_features}" in repr(placed) and "<table>" in placed._repr_html_()
    assert repr(placed.report) == str(placed.report)
