"""The simulator finds no difference to the truth. `CALA_SEED=7` runs one seed again."""

from __future__ import annotations

import os

import pytest

from simulator import Simulator

SEEDS = [int(os.environ["CALA_SEED"])] if "CALA_SEED" in os.environ else [1, 2, 3, 4, 5]


def simulated(folder, seed: int, steps: int) -> dict[str, int]:
    step = 0
    try:
        with Simulator(folder, seed) as simulator:
            for step in range(1, steps + 1):  # noqa: B007
                simulator.step()
            simulator.check_all()
            return simulator.counts
    except AssertionError as error:
        last = "\n".join(simulator.log)
        raise AssertionError(f"seed {seed}, step {step}, after\n{last}") from error


def test_a_few_steps(tmp_path):
    assert len(simulated(tmp_path, 0, 60)) >= 5


@pytest.mark.long
@pytest.mark.parametrize("seed", SEEDS)
def test_ten_thousand_steps(tmp_path, record_property, seed):
    record_property("steps", simulated(tmp_path, seed, 2000))
