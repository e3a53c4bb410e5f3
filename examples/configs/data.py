"""Write the CSV files that the configurations of this folder read.

    python examples/configs/data.py [--output outputs/data] [--rounds 3000]

All are simulated, with raw features in units of their own:

- clicks.csv: the log of an old system that chose one of three banners at random: age, hour and visits of a person, the banner,
  its probability, and whether the person clicked.
- money.csv: what each of four offers would have earned from a customer, with a few very large amounts (Student's t with 2.1
  degrees of freedom).
- sensors.csv: whether a machine failed, after three readings in different units, whose effect turns around half way.
- salaries.csv: records of people, of which a private learner predicts one column; features have norm 1 at most.
"""

import argparse
from pathlib import Path

import numpy as np


def clicks(rounds: int, generator: np.random.Generator) -> dict[str, np.ndarray]:
    """Return the log of banners."""
    age, hour = generator.uniform(18, 80, rounds), generator.uniform(0, 24, rounds)
    visits = generator.poisson(3.0, rounds)
    banner = generator.choice(3, rounds, p=[0.5, 0.3, 0.2])
    slopes = np.array([[0.06, 0.0, 0.0], [-0.06, 0.0, 0.1], [0.0, 0.15, 0.0]])
    centred = np.stack([age - 49, hour - 12, visits - 3.0], 1)
    chance = 1.0 / (1.0 + np.exp(1.0 - (centred * slopes[banner]).sum(1)))
    click = (generator.random(rounds) < chance).astype(int)
    probability = np.array([0.5, 0.3, 0.2])[banner]
    return {
        "age": age.round(1),
        "hour": hour.round(2),
        "visits": visits,
        "banner": banner,
        "probability": probability,
        "click": click,
    }


def money(rounds: int, generator: np.random.Generator) -> dict[str, np.ndarray]:
    """Return what each offer would have earned."""
    x = generator.uniform(-1, 1, (rounds, 5))
    means = np.tanh(x @ generator.normal(size=(5, 4)))
    earned = means + 0.3 * generator.standard_t(2.1, (rounds, 4))
    columns = {f"x{i}": x[:, i].round(4) for i in range(5)}
    return columns | {f"offer{k}": earned[:, k].round(4) for k in range(4)}


def sensors(rounds: int, generator: np.random.Generator) -> dict[str, np.ndarray]:
    """Return readings and failures."""
    x = generator.normal(size=(rounds, 3)) * np.array([1.0, 300.0, 0.001])
    sign = np.where(np.arange(rounds) < rounds // 2, 1.0, -1.0)
    chance = 1.0 / (1.0 + np.exp(-sign * (2.0 * x[:, 0] + x[:, 1] / 300.0)))
    failed = (generator.random(rounds) < chance).astype(int)
    return {"vibration": x[:, 0], "pressure": x[:, 1], "current": x[:, 2], "one": np.ones(rounds), "failed": failed}


def salaries(rounds: int, generator: np.random.Generator) -> dict[str, np.ndarray]:
    """Return records of people."""
    x = generator.normal(size=(rounds, 3))
    x /= np.maximum(1.0, np.linalg.norm(x, axis=1, keepdims=True))
    salary = x @ np.array([0.8, -0.4, 0.2]) + 0.1 * generator.normal(size=rounds)
    return {"education": x[:, 0], "distance": x[:, 1], "years": x[:, 2], "salary": salary}


FILES = {"clicks": clicks, "money": money, "sensors": sensors, "salaries": salaries}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=Path("outputs/data"))
    parser.add_argument("--rounds", type=int, default=3000)
    parser.add_argument("--smoke", action="store_true", help="200 rounds, to see that it runs")
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    for number, (name, make) in enumerate(FILES.items()):
        columns = make(200 if options.smoke else options.rounds, np.random.default_rng(number))
        path = options.output / f"{name}.csv"
        rows = [",".join(map(str, row)) for row in zip(*(values.tolist() for values in columns.values()), strict=True)]
        path.write_text("\n".join([",".join(columns), *rows]) + "\n")
        print(path)


if __name__ == "__main__":
    main()
