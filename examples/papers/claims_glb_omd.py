"""Every claim of the paper of GLB-OMD, and what the saved results say of it.

A table of docs/glb_omd.md, made by ``pages.py``: a row for every algorithm, theorem, figure, rival and extension of the paper of
Zhang, Xu, Zhao and Sugiyama (2025). Numbers of ours are computed from the saved results.
"""

from statistics import fmean
from typing import Any

from claim import Claim, claims_table
from experiment import Slope, saved, short
from glb_omd import MANY, TRIALS
from glb_rates import kappa_slope

MAIN, SPEED, TIME = "`glb_omd.py`", "`glb_omd_speed.py`", "`glb_omd_time.py`"
RATES, COVER, COVERAGE = "`glb_rates.py`", "`glb_omd_covertype.py`", "`glb_omd_coverage.py`"
MULTINOMIAL, NONE = "`multinomial.py`", "none"


class Figures:
    """Figures of the saved results."""

    def __init__(self) -> None:
        self.main, self.speed, self.time = saved("glb_omd"), saved("glb_omd_speed"), saved("glb_omd_time")
        self.rates, self.cover, self.coverage = (
            saved("glb_rates"),
            saved("glb_omd_covertype"),
            saved("glb_omd_coverage"),
        )
        self.multinomial, self.drift = saved("multinomial"), saved("glb_drift")

    def one(self, name: str, rewards: str, norm: int, arms: str = "fixed", trials: int = MANY) -> dict[str, Any]:
        return self.main[f"{name}: {rewards}, S = {norm}, {arms} arms, {trials} trials"]

    def regret(self, name: str, rewards: str, *norms: int, arms: str = "fixed", trials: int = MANY) -> str:
        found = (self.one(name, rewards, norm, arms, trials)["regret"] for norm in norms)
        return " and ".join(short(fmean(regret)) for regret in found)

    def lost(self, name: str, rewards: str, norm: int) -> str:
        found = [self.one(name, rewards, norm, arms) for arms in ("fixed", "redrawn")]
        return f"{' and '.join(str(one['missed']) for one in found)} of {len(found[0]['regret'])}"

    def covertype(self, name: str, kind: str) -> str:
        return short(fmean(self.cover[f"{name}, {kind}"]["regret"]))

    def round(self, name: str, t: str = "1500") -> str:
        times = self.speed["by round"]["times"][t]
        return f"{times[name] / times['LocalGLB']:.0f}"

    def moved(self, rewards: str, learner: str) -> str:
        return short(fmean(self.drift[f"{rewards}, turns, {learner}"]["regret"]))

    def times(self, name: str) -> str:
        found = self.time["Poisson"]["500"][name]
        return f"{found[0]:.1f} and {found[-1]:.1f}"

    def slope(self, job: str) -> str:
        regret = self.rates[job]["regret"]
        return f"{Slope.fit([500.0 * 2**k for k in range(len(regret))], regret).value:z.2f}"

    def kappa_slopes(self, learner: str) -> str:
        """Return the slopes in 1 / kappa* for clicks and for counts."""
        return " and ".join(f"{kappa_slope(self.rates, each, learner).value:z.2f}" for each in ("logistic", "Poisson"))

    def outcomes(self, name: str) -> str:
        settings = ("1, 0, 0, in between", "0, 0.5, 1", "0.6, 0, 1")
        return ", ".join(short(fmean(self.multinomial[f"{setting}, {name}"]["regret"])) for setting in settings)


def theory(of: Figures) -> list[Claim]:
    constants = {(row[0], row[1]): row for row in of.main["The instances"]}
    ridge, radius = constants["logistic", 3][6:8]
    most = max(max(row[:2]) for job, row in of.coverage.items() if "bursts" not in job and "all or none" not in job)
    return [
        Claim(
            "Algorithm 1, GLB-OMD",
            "one pass; a round costs the same at any time",
            "`GLBOMD`",
            "yes",
            SPEED,
            f"a round of LocalGLB at t = 3000 takes {of.speed['by round']['late']:.2f} times one at t = 100",
        ),
        Claim(
            "Theorem 1",
            "an ellipsoid holds the truth at all times",
            '`GLBOMD(radius="paper", ridge=theory_ridge())`',
            "yes, with the ridge of the theorem",
            MAIN,
            f"S = 3, clicks: ridge {short(ridge)}, first radius {short(radius)}; "
            f"{of.lost('GLB-OMD, theorem', 'logistic', 3)} sets lost",
        ),
        Claim(
            "Theorem 1 with the ridge of the experiments, d",
            "the same set",
            '`GLBOMD(radius="paper")`',
            "no: outside the theorem, and it may fail",
            MAIN,
            f"counts, S = 7: {of.lost('GLB-OMD, paper', 'Poisson', 7)} sets lost",
        ),
        Claim(
            "A set for any ridge",
            "not in the paper",
            '`GLBOMD(radius="empirical")`, `LocalGLB`',
            "[proved](generalized_linear_theory.md#the-proof)",
            COVERAGE,
            f"at most {most} of 1000 lost at delta = 0.05",
        ),
        Claim(
            "Theorem 2",
            "regret of S² d √(T / kappa*)",
            "[growth](#growth-of-the-regret)",
            "LocalGLB nearly; with the empirical radius steeper than ½ in T for clicks and in 1 / kappa*; not with the theorem's "
            "ridge; no S beyond kappa* is seen; d not tried",
            RATES,
            f"slopes in T on the circle: empirical {of.slope('T, logistic, circle, GLB-OMD, empirical')}, theorem "
            f"{of.slope('T, logistic, circle, GLB-OMD, theorem')}, LocalGLB {of.slope('T, logistic, circle, LocalGLB')}; "
            "in 1 / kappa*, clicks and counts: empirical "
            f"{of.kappa_slopes('GLB-OMD, empirical')}, LocalGLB {of.kappa_slopes('LocalGLB')}",
        ),
        Claim(
            "Theorem 2 for counts",
            "the same",
            "`CappedGLBOMD`",
            "with scores cut at S‖x‖, which the proof needs and the algorithm lacks; it has more regret",
            MAIN,
            f"S = 3: {of.regret('GLB-OMD, capped', 'Poisson', 3)}, as it is {of.regret('GLB-OMD, empirical', 'Poisson', 3)}",
        ),
        Claim(
            "Table of bounds and costs",
            "the rates and costs of all",
            "the rows of the rivals",
            "costs yes; rates of rivals not tried, for want of time",
            SPEED,
            "see the rivals",
        ),
    ]


def experiments(of: Figures) -> list[Claim]:
    return [
        Claim(
            "Clicks, S = 3, 5, 7: regret",
            "that of OFUGLB, far below GLOC",
            "[tables](#all-settings)",
            "not with the printed radius; with this library's",
            MAIN,
            f"S = 3 and 5: paper {of.regret('GLB-OMD, paper', 'logistic', 3, 5)}, empirical "
            f"{of.regret('GLB-OMD, empirical', 'logistic', 3, 5)}, LocalGLB {of.regret('LocalGLB', 'logistic', 3, 5)}, OFUGLB "
            f"{of.regret('OFUGLB', 'logistic', 3, 5)}, GLOC {of.regret('GLOC', 'logistic', 3, 5)}",
        ),
        Claim(
            "Counts, S = 3, 5, 7: regret",
            "the same",
            "[tables](#all-settings)",
            "no",
            MAIN,
            f"S = 3: paper {of.regret('GLB-OMD, paper', 'Poisson', 3)}, empirical "
            f"{of.regret('GLB-OMD, empirical', 'Poisson', 3)}, LocalGLB {of.regret('LocalGLB', 'Poisson', 3)}, OFUGLB "
            f"{of.regret('OFUGLB', 'Poisson', 3)}",
        ),
        Claim(
            "Figures of running time",
            "orders of magnitude faster than OFUGLB",
            "[time](#time)",
            "depends on OFUGLB's solver and on whether arms stay",
            SPEED,
            f"t = 1500, LocalGLB = 1: {of.round('OFUGLB')}, arms that stay {of.round('OFUGLB, arms that stay')}, scipy "
            f"{of.round('OFUGLB, scipy')}",
        ),
        Claim(
            "Figure 3c, time against S",
            "GLB-OMD's does not depend on S",
            "[time](#time)",
            "yes; nor does the rivals'",
            TIME,
            f"S = 3 and 9, LocalGLB at 3 = 1: paper {of.times('GLB-OMD, paper')}, OFUGLB {of.times('OFUGLB')}",
        ),
        Claim(
            "Values of kappa",
            "21, 137, 963 for clicks, 18, 127, 882 for counts",
            "[instances](#the-instances)",
            "consistent with one arm set in the unit ball, which is not stated",
            MAIN,
            f"ours {short(constants_of(of, 'logistic', 3))} and {short(constants_of(of, 'Poisson', 3))} at S = 3",
        ),
        Claim(
            "Figure 4, Covertype: regret",
            "that of OFUGLB, far below GLOC, all radii shrunk",
            "[Covertype](#covertype)",
            "with a factor of 0.1; by theory hardly better than uniform choice",
            COVER,
            f"times 0.1: {of.covertype('GLB-OMD, paper', 'times 0.1')}, OFUGLB {of.covertype('OFUGLB', 'times 0.1')}, GLOC "
            f"{of.covertype('GLOC', 'times 0.1')}; theory {of.covertype('GLB-OMD, paper', 'times 1')}",
        ),
        Claim(
            "Figure 4c, Covertype: time",
            "faster than OFUGLB",
            "[Covertype](#covertype)",
            "yes",
            COVER,
            f"a round of OFUGLB takes {of.cover['OFUGLB, time'] / of.cover['GLB-OMD, paper, time']:.0f} times GLB-OMD's",
        ),
    ]


def constants_of(of: Figures, rewards: str, norm: int) -> float:
    """Return kappa of the arms."""
    return next(row[3] for row in of.main["The instances"] if row[:2] == [rewards, norm])


def rivals(of: Figures) -> list[Claim]:
    def row(name: str, claim: str, shown: str, verdict: str, trials: int) -> Claim:
        theirs, ours = (of.regret(each, "logistic", 3, 9, trials=trials) for each in (name, "LocalGLB"))
        return Claim(f"Rival: {name}", claim, f"`{shown}`", verdict, MAIN, f"clicks, S = 3 and 9: {theirs}; LocalGLB {ours}")

    def many(name: str, claim: str, shown: str, verdict: str) -> Claim:
        return row(name, claim, shown, verdict, MANY)

    def few(name: str, claim: str, shown: str, verdict: str) -> Claim:
        return row(name, claim, shown, verdict, TRIALS)

    exact = of.one("OFULog-r", "logistic", 3, trials=TRIALS), of.one("OFULog-r, program", "logistic", 3, trials=TRIALS)
    return [
        many("GLOC", "one pass, regret with kappa", "GLOC", "yes, far behind"),
        many("ECOLog", "one pass, for clicks", "ECOLog", "about as good as GLB-OMD with the printed radius"),
        many(
            "ada-OFU-ECOLog",
            "the same with a warm-up set",
            "AdaECOLog",
            "level with ECOLog on redrawn arms at S = 3 and 5; elsewhere its warm-up takes long",
        ),
        many(
            "OFU-ECOLog, 100 rounds",
            "the same after rounds of pure exploration",
            "AdaECOLog(warm_up_rounds=100)",
            "the paper asks for millions of such rounds; with 100, a heuristic, it pays for them",
        ),
        many("OFUL-MLogB", "one pass, for clicks", "OFULMLogB", "explores for long"),
        few("GLM-UCB", "maximum likelihood, regret with kappa", "GLMUCB", "explores for long"),
        few("GLM-UCB, growing", "the same, ridge d log(1 + t)", 'GLMUCB(ridge="growing")', "the same"),
        few("RS-GLinCB", "rare fits, without kappa", "RSGLinCB", "all warm-up"),
        few(
            "RS-GLinCB, program",
            "with its authors' constants",
            'RSGLinCB(constants="program")',
            "a heuristic: learns at S = 3 and 5, all warm-up at 9",
        ),
        few("OFUGLB-e", "maximum likelihood, ellipsoid", "OFUGLBRegression", "learns"),
        few("OFUGLB-e, growing", "the same, ridge d log(1 + t)", 'OFUGLBRegression(ridge="growing")', "the same"),
        Claim(
            "Rival: OFUGLB",
            "maximum likelihood, the best regret",
            "`OFUGLB`",
            "learns; LocalGLB has less regret for clicks, more for counts",
            MAIN,
            f"clicks, S = 3 and 5: {of.regret('OFUGLB', 'logistic', 3, 5)}; LocalGLB {of.regret('LocalGLB', 'logistic', 3, 5)}",
        ),
        Claim(
            "Rival: OFULog-r",
            "convex relaxation, for clicks",
            '`OFULogR`, `OFULogR(constants="program")`',
            "near random in 1000 rounds, with its authors' constants too",
            MAIN,
            " and ".join(short(fmean(one["regret"])) for one in exact),
        ),
    ]


def extensions(of: Figures) -> list[Claim]:
    return [
        Claim(
            "Extension: rarely switching",
            "few changes of decisions",
            "`RarelySwitchingGLB`",
            "yes",
            MAIN,
            f"clicks, S = 3: {of.regret('Rarely switching', 'logistic', 3)}, LocalGLB {of.regret('LocalGLB', 'logistic', 3)}",
        ),
        Claim(
            "Extension: multinomial logistic bandits",
            "the same with several outcomes",
            "`MultinomialLogisticBandit`",
            "yes, with a proved set; a binary model fails where revenues lie in between",
            MULTINOMIAL,
            "revenues in between, and two that a binary model can do: "
            f"{of.outcomes('multinomial')}; LocalGLB {of.outcomes('LocalGLB')}; uniform {of.outcomes('uniform')}",
        ),
        Claim(
            "Extension: a parameter that drifts",
            "discounted estimates",
            "`DiscountedGLB`",
            "a heuristic; it forgets, and follows",
            "`glb_drift.py`",
            f"clicks, a turn: {of.moved('clicks', 'DiscountedGLB, tuned')}, LocalGLB {of.moved('clicks', 'LocalGLB')}; counts: "
            f"{of.moved('counts', 'DiscountedGLB, tuned')} and {of.moved('counts', 'LocalGLB')}",
        ),
        Claim(
            "Links beyond clicks and counts",
            "any canonical family",
            "`Gamma`, `CustomLink`",
            "yes: `Gamma` with an offset, which the paper lacks",
            f"{COVERAGE}, {MAIN}",
            f"gamma: LocalGLB {of.regret('LocalGLB', 'Gamma', 1)}, OFUL {of.regret('OFUL', 'Gamma', 1)}; sinh: LocalGLB "
            f"{of.regret('LocalGLB', 'custom (sinh)', 2)}, OFUL {of.regret('OFUL', 'custom (sinh)', 2)}",
        ),
        Claim(
            "Applications",
            "recommendation, counts",
            "[clicks and counts on real data](clicks_and_counts.md)",
            "not in the paper; measured there",
            "`clicks.py`, `counts.py`",
            "[tables](clicks_and_counts.md)",
        ),
    ]


def claims() -> list[Claim]:
    """Return every claim of the paper."""
    of = Figures()
    return [*theory(of), *experiments(of), *rivals(of), *extensions(of)]


def tables() -> dict[str, str]:
    """Return the table of every claim."""
    return {"Every claim": claims_table("G", claims())}
