"""Every claim of the paper of OONS, and what the saved results say of it.

A table of docs/oons.md, made by ``pages.py``: a row for every algorithm, theorem, table and rival of the paper of Wang, Barik,
Zhao and Tan (NeurIPS 2025), which has no experiments and no applications. Numbers of ours are computed from the saved results.
"""

from statistics import fmean

from claim import Claim, claims_table
from experiment import saved, short
from parameter_free import (
    EXAMPLES,
    GROWTHS,
    NORM_ROUNDS,
    ROUNDS,
    Regrets,
    comparator_settings,
    example_slope,
    growth_slope,
)

FREE, BOUNDS, SPEED, CALIBRATION = (
    "`parameter_free.py`",
    "`oons_bounds.py`",
    "`parameter_free_speed.py`",
    "`online_calibration.py`",
)
NONE = "none"
PROOFS = "[proof](parameter_free_theory.md#oons)"


class Figures:
    """Figures of the saved results."""

    def __init__(self) -> None:
        self.regrets, self.bounds = Regrets(saved("parameter_free")), saved("oons_bounds")
        self.speed = saved("parameter_free_speed")

    def slopes(self, learner: str) -> str:
        """Return the slopes in T where the noise stays, and where its sum stays."""
        fixed, constant = (growth_slope(self.regrets, growth, learner, ROUNDS).value for growth in list(GROWTHS)[:2])
        return f"{fixed:z.2f} and {constant:z.2f}"

    def comparator(self, learner: str) -> str:
        """Return the regrets at the comparators of norms 0.1, 1, 10 and 100."""
        return ", ".join(short(self.regrets.mean(learner, setting)) for setting in comparator_settings(NORM_ROUNDS))

    def example(self, meta: str) -> str:
        (name,) = (name for name in EXAMPLES if name == f"{meta}, preset paper")
        return f"{example_slope(self.regrets, name, ROUNDS):z.2f}"

    def bound(self, job: str) -> str:
        return short(fmean(self.bounds[job]["regret"]))

    def step(self, learner: str) -> str:
        times = self.speed["one size"]
        return f"{times[learner] / times['OFUL']:.1f}"


def theory(of: Figures) -> list[Claim]:
    late = of.speed["long run"]["OONS, eigen"][0]
    return [
        Claim(
            "Algorithm 1, OONS",
            "optimistic online Newton steps in a ball of known radius",
            "`OONS`",
            "yes",
            SPEED,
            f"a step costs the same at all times: {late:.2f} times; d = 32: {of.step('OONS, eigen')} of OFUL's, frozen "
            f"{of.step('OONS, frozen')}",
        ),
        Claim(
            "Theorem 3.1",
            "regret by the errors of the hints, on every sequence",
            f"Theorem 1, {PROOFS}, with smaller constants",
            "yes",
            "tests",
            "1000 random and adversarial sequences for each preset",
        ),
        Claim(
            "Theorem 3.2",
            "regret of √(sigma² + Sigma²), up to logarithms",
            "[growth](#regret-against-t)",
            "yes",
            FREE,
            f"slopes in T {of.slopes('OONS')}; theory 0.50 and 0.00",
        ),
        Claim(
            "Appendix C.4, sketch and inverse",
            "O(d²), and O(dr) with a sketch",
            '`OONS(form="frozen")`, `form="sketch"`',
            "yes, after a change: the formula of Sherman and Morrison does not apply as printed",
            SPEED,
            f"d = 32: sketch {of.step('OONS, sketch')} of OFUL's step",
        ),
        Claim(
            "Algorithm 2, CA-OONS; equation (5)",
            "an unknown comparator costs a logarithm",
            "`CAOONS`",
            "not as printed: equation (5) is false for losses that are not linear",
            FREE,
            f"slope in T of the counter-example: printed {of.example('paper')}, values {of.example('values')}, linear "
            f"{of.example('linear')}",
        ),
        Claim(
            "Theorem 4.1",
            "regret of ‖u‖√(sigma² + Sigma²) + ‖u‖²",
            '`CAOONS(meta="values")`, [comparators](#the-comparator)',
            "after the change; with constants that other learners do not have",
            FREE,
            f"‖u‖ = 0.1, 1, 10, 100: {of.comparator('CA-OONS')}; KT {of.comparator('KT')}",
        ),
        Claim(
            "Algorithm 3, MsMwC-Master; Lemma D.1",
            "weights over learners of different ranges",
            "`MsMwCMaster`",
            "after three changes: a square, the middle rates, the grid",
            "tests",
            "the bound holds on some hundred sequences",
        ),
        Claim(
            "Algorithm 5, MsMwC",
            "multi-scale weights with hints",
            "`MsMwC`",
            "yes, with two indices corrected",
            "tests",
            "the bound holds on some hundred sequences",
        ),
        Claim(
            "Remark 4.4, doubling",
            "no horizon is needed",
            "`CAOONS(horizon=None)`, [doubling](#doubling)",
            "yes; learners that sleep cost less than epochs",
            BOUNDS,
            f"‖u‖ = 1: told T {of.bound('doubling, values, 1: told T')}, epochs {of.bound('doubling, values, 1: epochs')}, "
            f"sleeping {of.bound('doubling, values, 1: sleeping')}",
        ),
        Claim(
            "Algorithm 4, CLA-OONS; Theorem 4.5",
            "neither the comparator nor the lengths of gradients are known",
            "`CLAOONS`",
            "by its bound, whose G D_T grows like √T; its regret grows nearly like T in noise",
            FREE,
            f"slopes in T {of.slopes('CLA-OONS')}",
        ),
        Claim(
            "Theorem 4.5, the form √(sigma + G)",
            "the radius is of the order √(sigma_{1:T} + G_{1:T})",
            "[radius](#the-radius-of-cla-oons)",
            "yes: equation (9) of ours, proved and met",
            BOUNDS,
            f"T = 4096, sigma = 0.3: D_T is {short(fmean(of.bounds['radius, sigma = 0.3, T = 4096']['radius']))}",
        ),
        Claim(
            "CLA-OONS, units",
            "nothing must be known",
            "`CLAOONS(gradient_scale=None)`, [scale](#the-scale-of-gradients)",
            "by default here; not with the scale of 1 that the paper begins with",
            BOUNDS,
            f"gradients times 0.0001: {of.bound('scale 0.0001: CLA-OONS')}; begun with 1 "
            f"{of.bound('scale 0.0001: CLA-OONS, gradient_scale=1')}; FreeGrad {of.bound('scale 0.0001: FreeGrad')}",
        ),
        Claim(
            "Equation (2)",
            "implicit hints have errors by the largest variance",
            "[hints](#equation-2-and-implicit-hints)",
            "the hints can be had by iteration; the noise of these streams does not react to x_t, so the bound is not tested",
            BOUNDS,
            f"16 cells: OONS {of.bound('hints, 16 cells: OONS, last')}, implicit {of.bound('hints, 16 cells: OONS, implicit')}",
        ),
        Claim(
            "Proposition A.1",
            "the largest variance can be far above the variance",
            "`SEAStream(cells=...)`, [streams](#kinds-of-streams)",
            "yes; regret follows the variance",
            BOUNDS,
            f"OONS {of.bound('independent, 16 cells: OONS')} with a largest variance of ten times, "
            f"{of.bound('independent: OONS')} without",
        ),
        Claim(
            "Table 1",
            "the forms of the bounds of all learners",
            "[forms](#the-forms-of-the-bounds)",
            "as upper bounds: the ratios of regret to form stay within a factor of three for OONS, OFTRL and CA-OONS, and rise "
            "with the noise for CLA-OONS",
            BOUNDS,
            f"OONS at T = 256 and 4096: {of.bound('T = 256: OONS')} and {of.bound('T = 4096: OONS')}",
        ),
        Claim(
            "Streams: independent, adversarial, random order, corrupted, drift",
            "special cases of the model",
            "`SEAStream`, `RandomOrderStream`, `CorruptedStream`, [streams](#kinds-of-streams)",
            "yes",
            BOUNDS,
            ", ".join(
                f"{kind} {of.bound(f'{kind}: OONS')}"
                for kind in ("independent", "drift alone", "random order, one pass", "corrupted")
            )
            + " (OONS)",
        ),
    ]


def rivals(of: Figures) -> list[Claim]:
    def comparator(name: str, claim: str, shown: str, verdict: str) -> Claim:
        return Claim(f"Rival: {name}", claim, f"`{shown}`", verdict, FREE, of.comparator(name))

    return [
        Claim(
            "Rival: OFTRL, its least of two steps",
            "the rates of OONS, knowing G, D and L",
            '`OFTRL`, `OFTRL(schedule="minimum")`',
            "yes, with less regret than OONS",
            BOUNDS,
            f"T = 4096: {of.bound('T = 4096: OFTRL')}, least of two {of.bound('T = 4096: OFTRL, least of two')}, OONS "
            f"{of.bound('T = 4096: OONS')}",
        ),
        Claim(
            "Rival: optimistic mirror descent",
            "the same rates",
            "`OptimisticOMD`",
            "yes",
            BOUNDS,
            f"T = 4096: {of.bound('T = 4096: Optimistic OMD')}",
        ),
        comparator(
            "Mirror descent",
            "parameter-free, by the largest variance",
            "ParameterFreeMirrorDescent",
            "yes, with more regret than KT",
        ),
        comparator(
            "Expert ensemble",
            "Chen, Luo and Wei: learners of all radii, weighed",
            "ExpertEnsemble",
            "knows G and T; recalled in part",
        ),
        comparator(
            "Scale-free coin betting",
            "Cutkosky and Orabona 2018, Cutkosky 2019: hints, artificial constraints",
            "ScaleFreeCoinBetting",
            "knows nothing; constants of ours",
        ),
        comparator(
            "SOLO FTRL", "scale-free, with the square of ‖u‖", "SOLOFTRL", "knows nothing; wants the unit of length"
        ),
        Claim(
            "Rival: scale-free mirror descent",
            "scale-free steps",
            "`AdaGrad`, which has these steps",
            "not tried without a ball: its regret there is linear in T",
            NONE,
            "none",
        ),
        comparator(
            "FreeGrad", "parameter-free and scale-free", "FreeGrad", "knows nothing, and has less regret than CLA-OONS"
        ),
        comparator("KT", "coin betting", "CoinBetting", "the one to beat"),
        comparator("DoG", "distance over gradients, for one loss and noise", "DoG", "no regret bound is claimed"),
        comparator("DoWG", "the same, weighted", "DoWG", "no regret bound is claimed"),
        comparator(
            "D-Adaptation", "an estimate of the distance, for one loss", "DAdaptation", "no regret bound is claimed"
        ),
        comparator("Prodigy", "the same, with Adam", "Prodigy", "no regret bound is claimed"),
        Claim(
            "Rivals: schedule-free, SGD, Adam",
            "with a rate",
            "[what it is worth](parameter_free_measured.md#what-it-is-worth)",
            "beside all others, with one budget",
            CALIBRATION,
            "[table](parameter_free_measured.md#what-it-is-worth)",
        ),
        Claim(
            "Domains",
            "convex sets with a known diameter",
            "`OONS(domain=...)`, [domains](parameter_free.md#domains)",
            "yes: boxes, simplices and polytopes inside the ball",
            "tests",
            "Theorem 1 on four domains",
        ),
        Claim(
            "Open: one query, high probability",
            "named as open",
            '`CAOONS(meta="linear")`',
            "one query works, without the rate for L > 0; high probability not tried",
            FREE,
            of.comparator("CA-OONS, linear"),
        ),
    ]


def claims() -> list[Claim]:
    """Return every claim of the paper."""
    of = Figures()
    return [*theory(of), *rivals(of)]


def tables() -> dict[str, str]:
    """Return the table of every claim."""
    return {"Every claim": claims_table("O", claims())}
