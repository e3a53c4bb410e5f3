"""BibTeX of this library and of the papers that its learners come from."""

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import nn

from torchonline.core.options import is_ours
from torchonline.core.versions import home, version

# Of the latest release, or of what will be the next one.
YEAR = 2026
ICML, COLT = "International Conference on Machine Learning", "Conference on Learning Theory"
NEURIPS, UAI = "Advances in Neural Information Processing Systems", "Uncertainty in Artificial Intelligence"
AISTATS = "International Conference on Artificial Intelligence and Statistics"


class Paper(NamedTuple):
    """A paper: authors, title, venue and year, and what else is known of it."""

    authors: str
    title: str
    venue: str
    year: int
    arxiv: str = ""
    volume: str = ""
    is_journal: bool = False

    def bibtex(self, key: str) -> str:
        """Return the entry under a key."""
        kind, place = ("article", "journal") if self.is_journal else ("inproceedings", "booktitle")
        fields = {"author": self.authors, "title": f"{{{self.title}}}", place: self.venue, "volume": self.volume}
        fields |= {"year": str(self.year), "eprint": self.arxiv, "archivePrefix": "arXiv" if self.arxiv else ""}
        return entry("misc" if not self.venue else kind, key, fields)


# Titles and authors as in the docstrings, with first names; pages and volumes only where they are known.
PAPERS = {
    "abadi2016deep": Paper(
        r"Abadi, Mart{\'i}n and Chu, Andy and Goodfellow, Ian and McMahan, H. Brendan and Mironov, Ilya and Talwar, Kunal"
        " and Zhang, Li",
        "Deep learning with differential privacy",
        "ACM Conference on Computer and Communications Security",
        2016,
    ),
    "abbasi2011improved": Paper(
        r"Abbasi-Yadkori, Yasin and P{\'a}l, D{\'a}vid and Szepesv{\'a}ri, Csaba",
        "Improved Algorithms for Linear Stochastic Bandits",
        NEURIPS,
        2011,
    ),
    "abeille2017linear": Paper(
        "Abeille, Marc and Lazaric, Alessandro", "Linear Thompson sampling revisited", AISTATS, 2017
    ),
    "abeille2021instance": Paper(
        r"Abeille, Marc and Faury, Louis and Calauz{\`e}nes, Cl{\'e}ment",
        "Instance-Wise Minimax-Optimal Algorithms for Logistic Bandits",
        AISTATS,
        2021,
        "2010.12642",
    ),
    "asi2021private": Paper(
        "Asi, Hilal and Feldman, Vitaly and Koren, Tomer and Talwar, Kunal",
        "Private stochastic convex optimization: optimal rates in l1 geometry",
        ICML,
        2021,
    ),
    "auer2002finite": Paper(
        r"Auer, Peter and Cesa-Bianchi, Nicol{\`o} and Fischer, Paul",
        "Finite-time Analysis of the Multiarmed Bandit Problem",
        "Machine Learning",
        2002,
        volume="47",
        is_journal=True,
    ),
    "bassily2014private": Paper(
        "Bassily, Raef and Smith, Adam and Thakurta, Abhradeep",
        "Private empirical risk minimization: efficient algorithms and tight error bounds",
        "Symposium on Foundations of Computer Science",
        2014,
    ),
    "bassily2021non": Paper(
        r"Bassily, Raef and Guzm{\'a}n, Crist{\'o}bal and Nandi, Anupama",
        "Non-Euclidean differentially private stochastic convex optimization",
        COLT,
        2021,
    ),
    "bubeck2013bandits": Paper(
        r"Bubeck, S{\'e}bastien and Cesa-Bianchi, Nicol{\`o} and Lugosi, G{\'a}bor",
        "Bandits with Heavy Tail",
        "IEEE Transactions on Information Theory",
        2013,
        volume="59",
        is_journal=True,
    ),
    "chan2010private": Paper(
        "Chan, T.-H. Hubert and Shi, Elaine and Song, Dawn",
        "Private and continual release of statistics",
        "International Colloquium on Automata, Languages and Programming",
        2010,
    ),
    "chen2021impossible": Paper(
        "Chen, Liyu and Luo, Haipeng and Wei, Chen-Yu",
        "Impossible Tuning Made Possible: A New Expert Algorithm and Its Applications",
        COLT,
        2021,
    ),
    "chen2024optimistic": Paper(
        "Chen, Sijia and Zhang, Yu-Jie and Tu, Wei-Wei and Zhao, Peng and Zhang, Lijun",
        "Optimistic online mirror descent for bridging stochastic and adversarial online convex optimization",
        "Journal of Machine Learning Research",
        2024,
        volume="25",
        is_journal=True,
    ),
    "cutkosky2018black": Paper(
        "Cutkosky, Ashok and Orabona, Francesco",
        "Black-box reductions for parameter-free online learning in Banach spaces",
        COLT,
        2018,
    ),
    "cutkosky2019artificial": Paper(
        "Cutkosky, Ashok", "Artificial constraints and hints for unbounded online learning", COLT, 2019
    ),
    "defazio2023learning": Paper(
        "Defazio, Aaron and Mishchenko, Konstantin", "Learning-rate-free learning by D-Adaptation", ICML, 2023
    ),
    "defazio2024road": Paper(
        "Defazio, Aaron and Yang, Xingyu and Mehta, Harsh and Mishchenko, Konstantin and Khaled, Ahmed and Cutkosky, Ashok",
        "The road less scheduled",
        NEURIPS,
        2024,
    ),
    "duchi2011adaptive": Paper(
        "Duchi, John and Hazan, Elad and Singer, Yoram",
        "Adaptive subgradient methods for online learning and stochastic optimization",
        "Journal of Machine Learning Research",
        2011,
        volume="12",
        is_journal=True,
    ),
    "dvijotham2024efficient": Paper(
        "Dvijotham, Krishnamurthy and McMahan, H. Brendan and Pillutla, Krishna and Steinke, Thomas and Thakurta, Abhradeep",
        "Efficient and near-optimal noise generation for streaming differential privacy",
        "Symposium on Foundations of Computer Science",
        2024,
    ),
    "dwork2010differential": Paper(
        "Dwork, Cynthia and Naor, Moni and Pitassi, Toniann and Rothblum, Guy N.",
        "Differential privacy under continual observation",
        "ACM Symposium on Theory of Computing",
        2010,
    ),
    "faury2022jointly": Paper(
        r"Faury, Louis and Abeille, Marc and Jun, Kwang-Sung and Calauz{\`e}nes, Cl{\'e}ment",
        "Jointly Efficient and Optimal Algorithms for Logistic Bandits",
        AISTATS,
        2022,
        "2201.01985",
    ),
    "fichtenberger2023constant": Paper(
        "Fichtenberger, Hendrik and Henzinger, Monika and Upadhyay, Jalaj",
        "Constant matters: fine-grained error bound on differentially private continual observation",
        ICML,
        2023,
    ),
    "filippi2010parametric": Paper(
        r"Filippi, Sarah and Capp{\'e}, Olivier and Garivier, Aur{\'e}lien and Szepesv{\'a}ri, Csaba",
        "Parametric Bandits: The Generalized Linear Case",
        NEURIPS,
        2010,
    ),
    "foster2020beyond": Paper(
        "Foster, Dylan J. and Rakhlin, Alexander",
        "Beyond UCB: optimal and efficient contextual bandits with regression oracles",
        ICML,
        2020,
    ),
    "han2022private": Paper(
        "Han, Yuxuan and Liang, Zhicong and Liang, Zhipeng and Wang, Yang and Yao, Yuan and Zhang, Jiheng",
        "On private online convex optimization: optimal algorithms in lp-geometry and high dimensional contextual bandits",
        "",
        2022,
        "2206.08111",
    ),
    "hassibi1996optimality": Paper(
        "Hassibi, Babak and Sayed, Ali H. and Kailath, Thomas",
        "H-infinity optimality of the LMS algorithm",
        "IEEE Transactions on Signal Processing",
        1996,
        volume="44",
        is_journal=True,
    ),
    "honaker2015efficient": Paper(
        "Honaker, James",
        "Efficient use of differentially private binary trees",
        "Theory and Practice of Differential Privacy",
        2015,
    ),
    "huang2023tackling": Paper(
        "Huang, Jiayi and Zhong, Han and Wang, Liwei and Yang, Lin F.",
        "Tackling Heavy-Tailed Rewards in Reinforcement Learning with Function Approximation: Minimax Optimal and"
        " Instance-Dependent Regret Bounds",
        NEURIPS,
        2023,
        "2306.06836",
    ),
    "huber1964robust": Paper(
        "Huber, Peter J.",
        "Robust estimation of a location parameter",
        "Annals of Mathematical Statistics",
        1964,
        is_journal=True,
    ),
    "ivgi2023dog": Paper(
        "Ivgi, Maor and Hinder, Oliver and Carmon, Yair",
        "DoG is SGD's best friend: a parameter-free dynamic step size schedule",
        ICML,
        2023,
    ),
    "jacobsen2022parameter": Paper("Jacobsen, Andrew and Cutkosky, Ashok", "Parameter-free mirror descent", COLT, 2022),
    "jun2017scalable": Paper(
        "Jun, Kwang-Sung and Bhargava, Aniruddha and Nowak, Robert and Willett, Rebecca",
        "Scalable Generalized Linear Bandits: Online Computation and Hashing",
        NEURIPS,
        2017,
        "1706.00136",
    ),
    "kairouz2021practical": Paper(
        "Kairouz, Peter and McMahan, H. Brendan and Song, Shuang and Thakkar, Om and Thakurta, Abhradeep and Xu, Zheng",
        "Practical and private (deep) learning without sampling or shuffling",
        ICML,
        2021,
    ),
    "kang2023heavy": Paper(
        "Kang, Minhyun and Kim, Gi-Soo", "Heavy-tailed Linear Bandit with Huber Regression", UAI, 2023
    ),
    "khaled2023dowg": Paper(
        "Khaled, Ahmed and Mishchenko, Konstantin and Jin, Chi",
        "DoWG unleashed: an efficient universal parameter-free gradient descent method",
        NEURIPS,
        2023,
    ),
    "lee2024unified": Paper(
        "Lee, Junghyun and Yun, Se-Young and Jun, Kwang-Sung",
        "A Unified Confidence Sequence for Generalized Linear Models, with Applications to Bandits",
        NEURIPS,
        2024,
        "2407.13977",
    ),
    "li2023variance": Paper(
        "Li, Xiang and Sun, Qiang",
        "Variance-aware robust reinforcement learning with linear function approximation under heavy-tailed rewards",
        "",
        2023,
        "2303.05606",
    ),
    "mcmahan2010adaptive": Paper(
        "McMahan, H. Brendan and Streeter, Matthew",
        "Adaptive bound optimization for online convex optimization",
        COLT,
        2010,
    ),
    "medina2016no": Paper(
        r"Medina, Andr{\'e}s Mu{\~n}oz and Yang, Scott",
        "No-regret Algorithms for Heavy-tailed Linear Bandits",
        ICML,
        2016,
    ),
    "mhammedi2020lipschitz": Paper(
        "Mhammedi, Zakaria and Koolen, Wouter M.",
        "Lipschitz and comparator-norm adaptivity in online learning",
        COLT,
        2020,
    ),
    "mishchenko2024prodigy": Paper(
        "Mishchenko, Konstantin and Defazio, Aaron",
        "Prodigy: an expeditiously adaptive parameter-free learner",
        ICML,
        2024,
    ),
    "neu2015explore": Paper(
        "Neu, Gergely",
        "Explore no more: improved high-probability regret bounds for non-stochastic bandits",
        NEURIPS,
        2015,
    ),
    "orabona2016coin": Paper(
        r"Orabona, Francesco and P{\'a}l, D{\'a}vid",
        "Coin betting and parameter-free online learning",
        NEURIPS,
        2016,
    ),
    "orabona2018scale": Paper(
        r"Orabona, Francesco and P{\'a}l, D{\'a}vid",
        "Scale-free online learning",
        "Theoretical Computer Science",
        2018,
        volume="716",
        is_journal=True,
    ),
    "riquelme2018deep": Paper(
        "Riquelme, Carlos and Tucker, George and Snoek, Jasper",
        "Deep Bayesian bandits showdown",
        "International Conference on Learning Representations",
        2018,
    ),
    "russac2019weighted": Paper(
        r"Russac, Yoan and Vernade, Claire and Capp{\'e}, Olivier",
        "Weighted Linear Bandits for Non-Stationary Environments",
        NEURIPS,
        2019,
    ),
    "russac2020algorithms": Paper(
        r"Russac, Yoan and Capp{\'e}, Olivier and Garivier, Aur{\'e}lien",
        "Algorithms for Non-Stationary Generalized Linear Bandits",
        "",
        2020,
        "2003.10113",
    ),
    "russac2021self": Paper(
        r"Russac, Yoan and Faury, Louis and Capp{\'e}, Olivier and Garivier, Aur{\'e}lien",
        "Self-Concordant Analysis of Generalized Linear Bandits with Forgetting",
        AISTATS,
        2021,
        "2011.00819",
    ),
    "sachs2022between": Paper(
        r"Sachs, Sarah and Hadiji, H{\'e}di and van Erven, Tim and Guzm{\'a}n, Crist{\'o}bal",
        "Between stochastic and adversarial online convex optimization: improved regret bounds via smoothness",
        NEURIPS,
        2022,
    ),
    "sawarni2024generalized": Paper(
        "Sawarni, Ayush and Das, Nirjhar and Barman, Siddharth and Sinha, Gaurav",
        "Generalized Linear Bandits with Limited Adaptivity",
        NEURIPS,
        2024,
        "2404.06831",
    ),
    "shao2018almost": Paper(
        "Shao, Han and Yu, Xiaotian and King, Irwin and Lyu, Michael R.",
        "Almost Optimal Algorithms for Linear Stochastic Bandits with Heavy-Tailed Payoffs",
        NEURIPS,
        2018,
        "1810.10895",
    ),
    "shariff2018differentially": Paper(
        "Shariff, Roshan and Sheffet, Or", "Differentially private contextual linear bandits", NEURIPS, 2018
    ),
    "wang2025heavy": Paper(
        "Wang, Jing and Zhang, Yu-Jie and Zhao, Peng and Zhou, Zhi-Hua",
        "Heavy-Tailed Linear Bandits: Huber Regression with One-Pass Update",
        ICML,
        2025,
        "2503.00419",
    ),
    "wang2025parameter": Paper(
        "Wang, Shuche and Barik, Adarsh and Zhao, Peng and Tan, Vincent Y. F.",
        "Parameter-free algorithms for the Stochastically Extended Adversarial model",
        NEURIPS,
        2025,
        "2510.04685",
    ),
    "welford1962note": Paper(
        "Welford, B. P.",
        "Note on a method for calculating corrected sums of squares and products",
        "Technometrics",
        1962,
        is_journal=True,
    ),
    "xue2020nearly": Paper(
        "Xue, Bo and Wang, Guanghui and Wang, Yimu and Zhang, Lijun",
        "Nearly Optimal Regret for Stochastic Linear Bandits with Heavy-Tailed Payoffs",
        "International Joint Conference on Artificial Intelligence",
        2020,
        "2004.13465",
    ),
    "xue2023efficient": Paper(
        "Xue, Bo and Wang, Yimu and Wan, Yuanyu and Yi, Jinfeng and Zhang, Lijun",
        "Efficient Algorithms for Generalized Linear Bandits with Heavy-tailed Rewards",
        NEURIPS,
        2023,
        "2310.18701",
    ),
    "zhang2023online": Paper(
        "Zhang, Yu-Jie and Sugiyama, Masashi",
        "Online (Multinomial) Logistic Bandit: Improved Regret and Constant Computation Cost",
        NEURIPS,
        2023,
    ),
    "zhang2025generalized": Paper(
        "Zhang, Yu-Jie and Xu, Sheng-An and Zhao, Peng and Sugiyama, Masashi",
        "Generalized Linear Bandits: Almost Optimal Regret with One-Pass Update",
        NEURIPS,
        2025,
        "2507.11847",
    ),
    "zinkevich2003online": Paper(
        "Zinkevich, Martin",
        "Online convex programming and generalized infinitesimal gradient ascent",
        ICML,
        2003,
    ),
}

# The papers of a class and its subclasses. A class of this library without a paper has none of its own: a policy is cited by its
# estimator.
OF_CLASS = {
    "AdaECOLogRegression": ("faury2022jointly",),
    "AdaGrad": ("duchi2011adaptive", "mcmahan2010adaptive"),
    "AdaOFULRegression": ("li2023variance",),
    "AdaptiveRidgeRegression": (),
    "BLT": ("dvijotham2024efficient",),
    "BMMRegression": ("xue2020nearly",),
    "BTCRegression": ("xue2020nearly",),
    "BanditHead": ("riquelme2018deep",),
    "CAOONS": ("wang2025parameter",),
    "CLAOONS": ("wang2025parameter",),
    "CRMMRegression": ("xue2023efficient",),
    "CRTMRegression": ("xue2023efficient",),
    "CRTRegression": ("medina2016no",),
    "CappedGLBOMD": ("zhang2025generalized",),
    "CoinBetting": ("orabona2016coin",),
    "DAdaptation": ("defazio2023learning",),
    "DPFTRL": ("kairouz2021practical",),
    "DPHDB": ("han2022private",),
    "DPPOFW": ("han2022private",),
    "DPTOFW": ("han2022private",),
    "DPUCB": ("shariff2018differentially",),
    "DiscountedGLMRegression": ("russac2020algorithms", "russac2021self"),
    "DiscountedHeavyTailRegression": ("russac2019weighted",),
    "DiscountedRidgeRegression": ("russac2019weighted",),
    "DisjointArms": (),
    "DoG": ("ivgi2023dog",),
    "DoWG": ("khaled2023dowg",),
    "ECOLogRegression": ("faury2022jointly",),
    "EpsilonGreedy": ("auer2002finite",),
    "ExpertEnsemble": ("chen2021impossible",),
    "FixedArms": (),
    "FreeGrad": ("mhammedi2020lipschitz",),
    "GLMRegression": ("zhang2025generalized",),
    "GLMUCBRegression": ("filippi2010parametric",),
    "GLOCRegression": ("jun2017scalable",),
    "Greedy": (),
    "HeavyOFULRegression": ("huang2023tackling",),
    "HeavyTailRegression": ("wang2025heavy",),
    "HonakerTree": ("honaker2015efficient",),
    "HuberBanditRegression": ("kang2023heavy",),
    "HuberRegression": ("wang2025heavy",),
    "LocalGLMRegression": ("zhang2025generalized", "faury2022jointly"),
    "LocalMD": ("asi2021private",),
    "MENURegression": ("shao2018almost",),
    "MLogBRegression": ("zhang2023online",),
    "MoMRegression": ("medina2016no",),
    "MsMwC": ("chen2021impossible", "wang2025parameter"),
    "MsMwCMaster": ("chen2021impossible", "wang2025parameter"),
    "MultinomialLogisticBandit": ("zhang2023online",),
    "NeuralLinearBandit": ("riquelme2018deep",),
    "NoisySFW": ("bassily2021non",),
    "NoisySGD": ("bassily2014private", "abadi2016deep"),
    "NormalizedLMS": ("hassibi1996optimality",),
    "OFTRL": ("sachs2022between",),
    "OFUGLBRegression": ("lee2024unified",),
    "OFULogRRegression": ("abeille2021instance",),
    "OGD": ("zinkevich2003online",),
    "OONS": ("wang2025parameter",),
    "OptimisticOMD": ("chen2024optimistic",),
    "ParameterFreeMirrorDescent": ("jacobsen2022parameter",),
    "Prodigy": ("mishchenko2024prodigy",),
    "RSGLinCBRegression": ("sawarni2024generalized",),
    "RadiusSelector": ("neu2015explore",),
    "RarelySwitchingRegression": ("abbasi2011improved",),
    "RidgeRegression": ("abbasi2011improved",),
    "RobustRidgeRegression": ("huber1964robust",),
    "RobustUCBRegression": ("bubeck2013bandits",),
    "StandardScaler": ("welford1962note",),
    "SOLOFTRL": ("orabona2018scale",),
    "ScaleFreeCoinBetting": ("cutkosky2018black", "cutkosky2019artificial"),
    "ScaledPolicy": (),
    "ScheduleFree": ("defazio2024road",),
    "SharedRadiusSelector": ("neu2015explore",),
    "Softmax": (),
    "SquareCB": ("foster2020beyond",),
    "SquareRoot": ("fichtenberger2023constant",),
    "SystemIdentification": ("wang2025heavy",),
    "TOFURegression": ("shao2018almost",),
    "ThompsonSampling": ("abeille2017linear",),
    "Tree": ("chan2010private", "dwork2010differential"),
    "UCB": (),
}

# The papers of one value of an option: its name and this value.
OF_OPTION = {"neu2015explore": ("rule", "exp4")}


def entry(kind: str, key: str, fields: dict[str, str]) -> str:
    """Return a BibTeX entry of the fields that are not empty."""
    lines = [f"  {name} = {{{value}}}," for name, value in fields.items() if value]
    return "\n".join([f"@{kind}{{{key},", *lines, "}"])


class Citable:
    """Mixin of learners, policies, heads and optimizers, which name their papers."""

    def cite(self) -> None:
        """Print the BibTeX of this library, and of the papers of this object.

        The papers of its parts are among them. A heuristic of this library has no paper: its docstring says where it comes from.
        :func:`torchonline.core.citations.bibtex` returns the text.
        """
        cite(self)


def papers(of: Any) -> list[str]:
    """Return the keys of the papers of an object and its parts, each once."""
    classes = [(part, cls) for part in _parts(of) for cls in type(part).__mro__ if is_ours(cls)]
    found = [(part, key) for part, cls in classes for key in OF_CLASS.get(cls.__name__, ())]
    return list(dict.fromkeys(key for part, key in found if _is_used(key, part)))


def _is_used(key: str, part: Any) -> bool:
    """Return whether an object has the option that a paper is about."""
    name, value = OF_OPTION.get(key, ("", None))
    return not name or getattr(part, name) == value


def bibtex(of: Any = None) -> str:
    r"""Return the BibTeX of this library and of a learner's papers.

    Args:
        of: a learner, policy, head or optimizer of this library, or a subclass's; a module with such parts; or None for the
            library alone.

    Raises:
        TypeError: ``of`` is something else, such as a class, a module without such parts, or one in TorchScript, whose papers are
            not known.

    Example:
        >>> print(bibtex(RidgeRegression(2)).partition("@inproceedings")[2])
        {abbasi2011improved,
          author = {Abbasi-Yadkori, Yasin and P{\'a}l, D{\'a}vid and Szepesv{\'a}ri, Csaba},
          title = {{Improved Algorithms for Linear Stochastic Bandits}},
          booktitle = {Advances in Neural Information Processing Systems},
          year = {2011},
        }
    """
    wanted = "expected a learner, policy, head or optimizer, or None"
    if isinstance(of, type):
        raise TypeError(f"of: {wanted}, got the class {of.__name__}; construct one, because its parts are cited too")
    if isinstance(of, torch.jit.ScriptModule):
        raise TypeError(f"of: {wanted}, got TorchScript, whose papers are not known; cite what it was made from")
    if of is not None and not any(is_ours(cls) for part in _parts(of) for cls in type(part).__mro__):
        raise TypeError(f"of: {wanted}, got {type(of).__name__}")
    return "\n\n".join([_library(), *(PAPERS[key].bibtex(key) for key in papers(of))])


def cite(of: Any = None) -> None:
    """Print the BibTeX of this library and of a learner's papers.

    ``torchonline.cite()`` prints the library's entry alone. ``learner.cite()`` of every learner, policy, head and optimizer is
    ``torchonline.cite(learner)`` and names the papers of its parts too.
    :func:`torchonline.core.citations.bibtex` returns the text. A heuristic of this library has no paper: its docstring says where
    it comes from.

    Args:
        of: a learner, policy, head or optimizer; None for the library alone.

    Raises:
        TypeError: ``of`` is something else, such as a class, a module without such parts, or one in TorchScript, whose papers are
            not known.
    """
    print(bibtex(of))


def _library() -> str:
    """Return the entry of this library, with the release's number or the next one's."""
    number = version()
    release = re.match(r"\d+(\.\d+)+((a|b|rc)\d+)?(\.post\d+)?", number)
    fields = {"author": "{The torchonline developers}", "title": "{torchonline: online learners as PyTorch modules}"}
    fields |= {"year": str(YEAR), "url": home(), "version": release[0] if release else ""}
    is_release = release is not None and release[0] == number
    return entry("software", "torchonline", fields | {"note": "" if is_release else "development version"})


def _parts(of: Any) -> Iterator[Any]:
    """Yield an object, its modules, its learners, and the noise of all of these."""
    for part in of.modules() if isinstance(of, nn.Module) else (of,):
        yield part
        yield getattr(part, "noise", None)
    for learner in getattr(of, "learners", ()):
        yield from _parts(learner)
