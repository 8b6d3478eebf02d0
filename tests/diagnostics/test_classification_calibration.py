"""Scores of class probabilities against values worked out by hand, and against simulated labels."""

import numpy as np
import pytest
from scipy.special import softmax
from scipy.stats import entropy

from ppl_sgp.diagnostics.classification_calibration import calibrate_classification, predictive_entropy

pytestmark = pytest.mark.float64_only

PROBABILITIES = [[0.5, 0.3, 0.2], [0.1, 0.8, 0.1], [0.0, 0.0, 1.0], [0.6, 0.4, 0.0]]
LABELS = [0, 2, 2, 0]  # right, wrong, right, right


def with_confidence(confidence, num_classes):
    """A row for each confidence: that of class 0; the other classes share the rest."""
    confidence = np.asarray(confidence)[:, None]
    rest = np.repeat((1 - confidence) / (num_classes - 1), num_classes - 1, axis=1)
    return np.concatenate([confidence, rest], axis=1)


def test_four_rows_by_hand():
    scores = calibrate_classification(PROBABILITIES, LABELS, num_bins=2)
    np.testing.assert_array_equal(scores["count"], [1, 3])
    np.testing.assert_allclose(scores["accuracy"], [1, 2 / 3])
    np.testing.assert_allclose(scores["confidence"], [0.5, 0.8])
    np.testing.assert_allclose(scores["midpoint"], [0.25, 0.75])
    np.testing.assert_allclose(scores["ece"], 0.25 * 0.5 + 0.75 * (0.8 - 2 / 3))
    np.testing.assert_allclose(scores["ece_midpoint"], 0.25 * 0.75 + 0.75 * (0.75 - 2 / 3))
    # (0.25 + 0.09 + 0.04), (0.01 + 0.64 + 0.81), 0, (0.16 + 0.16)
    np.testing.assert_allclose(scores["brier"], (0.38 + 1.46 + 0 + 0.32) / 4)
    np.testing.assert_allclose(scores["brier_mean"], 0.18)
    np.testing.assert_allclose(scores["error_rate"], 0.25)
    np.testing.assert_allclose(scores["mean_negative_log_likelihood"], -np.log(0.5 * 0.1 * 1.0 * 0.6) / 4)
    np.testing.assert_allclose(scores["entropy"], [entropy(row) for row in PROBABILITIES])
    assert dict(scores.sizes) == {"bin": 2, "obs": 4} and scores["bin"].values.tolist() == [1, 2]


def test_bins_are_open_below_and_closed_above():
    edges = np.arange(1, 21) / 20
    scores = calibrate_classification(with_confidence(edges, 40), np.zeros(20, int))
    np.testing.assert_array_equal(scores["count"], np.ones(20))  # 0.55 · 20 > 11 and the like must not move a row
    np.testing.assert_allclose(scores["confidence"], edges)
    above = calibrate_classification(with_confidence(np.nextafter(edges[:-1], 1), 40), np.zeros(19, int))
    np.testing.assert_array_equal(above["count"], [0] + [1] * 19)
    certain = calibrate_classification([[1.0, 0.0], [1.0 + 1e-7, 0.0]], [0, 0])  # as float32 rounds
    assert certain["count"][-1] == 2


def test_empty_bins_have_no_accuracy_and_no_part_in_the_errors():
    scores = calibrate_classification([[1.0, 0.0], [0.0, 1.0]], [0, 1])
    assert np.isnan(scores["accuracy"][:-1]).all() and np.isnan(scores["confidence"][:-1]).all()
    assert scores["ece"] == 0
    np.testing.assert_allclose(scores["ece_midpoint"], 1 / 40)  # the thesis's, of a perfect prediction
    assert scores["brier"] == 0 and scores["error_rate"] == 0 and scores["mean_negative_log_likelihood"] == 0


def test_of_equal_probabilities_the_first_class_is_predicted():
    scores = calibrate_classification([[0.5, 0.5], [0.5, 0.5]], [0, 1])
    assert scores["error_rate"] == 0.5


def test_certain_and_wrong_is_infinitely_bad():
    scores = calibrate_classification([[1.0, 0.0], [0.5, 0.5]], [1, 0])
    assert scores["mean_negative_log_likelihood"] == np.inf
    np.testing.assert_allclose(scores["brier"], (2 + 0.5) / 2)


def test_calibrated_and_over_confident_probabilities_are_told_apart(rng):
    logits = 1.5 * rng.normal(size=(20_000, 5))
    truth = softmax(logits, axis=1)
    labels = np.argmax(logits + rng.gumbel(size=logits.shape), axis=1)
    scores = calibrate_classification(truth, labels)
    error = np.sqrt(scores["confidence"] * (1 - scores["confidence"]) / scores["count"])
    filled = scores["count"] > 50
    assert filled.sum() >= 14
    assert (np.abs(scores["accuracy"] - scores["confidence"]) < 4 * error)[filled].all()
    # A calibrated prediction's ece is that of noise, a mean of at most (1/4 · bins/n)^½ times (2/π)^½: 0.013.
    assert scores["ece"] < 0.013
    confident = calibrate_classification(softmax(3 * logits, axis=1), labels)
    assert confident["ece"] > 0.15
    assert (confident["accuracy"] < confident["confidence"])[confident["count"] > 50].all()
    assert confident["error_rate"] == scores["error_rate"]
    for score in ("brier", "mean_negative_log_likelihood"):
        assert confident[score] > scores[score]
    # In expectation the log score and the Brier score of the truth are its own entropies.
    np.testing.assert_allclose(scores["mean_negative_log_likelihood"], scores["entropy"].mean(), atol=0.03)
    np.testing.assert_allclose(scores["brier"], 1 - np.mean(np.sum(truth**2, axis=1)), atol=0.01)


def test_entropy():
    rows = [[1.0, 0.0, 0.0], [0.0, 0.25, 0.75], [1 / 3, 1 / 3, 1 / 3]]
    expected = [0.0, -0.25 * np.log(0.25) - 0.75 * np.log(0.75), np.log(3)]
    np.testing.assert_allclose(predictive_entropy(rows), expected)


def test_single_precision_probabilities_of_many_classes_are_taken(rng):
    probabilities = softmax(rng.normal(size=(50, 1000)).astype(np.float32), axis=1)
    assert probabilities.dtype == np.float32
    assert predictive_entropy(probabilities).shape == (50,)


@pytest.mark.parametrize(
    ("probabilities", "message"),
    [
        ([0.5, 0.5], r"shape \(n, K\).*got \(2,\).*np.stack"),
        ([[1.0], [1.0]], r"two classes; got \(2, 1\)"),
        (np.empty((0, 3)), r"at least one row.*got \(0, 3\)"),
        ([[0.5, np.nan], [0.5, 0.5]], "not finite; drop those rows"),
        ([[1.5, -0.5], [0.5, 0.5]], "must not be negative; got -0.5.*softmax"),
        ([[0.5, 0.5], [0.5, 0.4]], "must sum to one; got a sum of 0.9"),
    ],
)
def test_what_are_no_probabilities_is_refused(probabilities, message):
    with pytest.raises(ValueError, match=f"calibrate_classification: .*{message}"):
        calibrate_classification(probabilities, [0, 0])
    with pytest.raises(ValueError, match=f"predictive_entropy: .*{message}"):
        predictive_entropy(probabilities)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([0, 1], r"shape \(4,\).*got \(2,\)"),
        ([[0], [1], [2], [0]], r"shape \(4,\).*got \(4, 1\)"),
        ([0.0, 1.0, 2.0, 0.0], "must be integers.*got float64"),
        (["a", "b", "c", "a"], r"must be integers.*np.searchsorted\(classes, labels\)"),
        ([0, 1, 2, 3], "from 0 to 2.*got 0 to 3"),
        ([0, -1, 2, 0], "from 0 to 2.*got -1 to 2"),
    ],
)
def test_what_are_no_labels_is_refused(labels, message):
    with pytest.raises(ValueError, match=message):
        calibrate_classification(PROBABILITIES, labels)


@pytest.mark.parametrize("num_bins", [0, 2.5, True])
def test_bins_are_counted(num_bins):
    with pytest.raises(ValueError, match="`num_bins` must be an integer of 1 or more"):
        calibrate_classification(PROBABILITIES, LABELS, num_bins=num_bins)
