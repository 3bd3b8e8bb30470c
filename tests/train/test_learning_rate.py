import pytest

from znnpy.config.models import TrainingSection
from znnpy.train.learning_rate import learning_rate

CASES = [
    ("constant", {0: 0.5, 99: 0.5}),
    ({"kind": "step", "every": 10, "factor": 0.5}, {0: 0.5, 9: 0.5, 10: 0.25, 25: 0.125}),
    ({"kind": "exponential", "every": 10, "factor": 0.25}, {0: 0.5, 5: 0.25, 10: 0.125}),
    ({"kind": "inv", "gamma": 0.1, "power": 0.5}, {0: 0.5, 30: 0.25, 80: 0.5 / 3}),
    ({"kind": "cosine", "final": 0.1}, {0: 0.5, 50: 0.275, 100: 0.05, 150: 0.05}),
    ({"kind": "cosine", "every": 50}, {25: 0.25, 50: 0.0, 99: 0.0}),
    ({"kind": "poly", "power": 2}, {0: 0.5, 50: 0.125, 100: 0.0, 150: 0.0}),
    ({"kind": "one_cycle", "pct_start": 0.21}, {0: 0.02, 20: 0.5, 99: 2e-6, 100: 2e-6}),
    ({"kind": "one_cycle", "every": 1}, {0: 2e-6, 5: 2e-6}),
    ({"kind": "one_cycle", "every": 10, "pct_start": 0.1}, {0: 0.5, 9: 2e-6, 99: 2e-6}),
    ({"kind": "constant", "warmup": {"iterations": 10, "start": 0.2}}, {0: 0.1, 5: 0.3, 10: 0.5}),
    ({"kind": "cosine", "warmup": 20}, {0: 0.005, 20: 0.5, 60: 0.25, 100: 0.0}),
    ({"kind": "poly", "warmup": 200}, {100: 0.2525, 199: 0.497525, 200: 0.5, 201: 0.0}),
    ({"kind": "inv", "gamma": 0.1, "power": 0.5, "warmup": 5}, {5: 0.5, 35: 0.25}),
]


@pytest.mark.parametrize("schedule", [schedule for schedule, _ in CASES])
@pytest.mark.parametrize(("batch", "base", "factor"), [(12, 3, 4), (2, 8, 0.25), (6, None, 1)])
def test_rates_are_scaled_by_the_batch(schedule, batch, base, factor):
    given = {"output_shape": (1, 1, 1), "iterations": 100, "schedule": schedule, "batch": batch}
    scaled = TrainingSection(**given, learning_rate=0.5, base_batch=base)
    plain = TrainingSection(**given, learning_rate=0.5 * factor)
    for iteration in (0, 7, 60, 99):
        assert learning_rate(scaled, iteration) == learning_rate(plain, iteration)


@pytest.mark.parametrize(("schedule", "expected"), CASES)
def test_rates(schedule, expected):
    training = TrainingSection(
        output_shape=(1, 1, 1), iterations=100, learning_rate=0.5, schedule=schedule
    )
    for iteration, rate in expected.items():
        assert learning_rate(training, iteration) == pytest.approx(rate, abs=1e-12)
