"""Every claim of the paper of GLB-OMD, and what the saved results say of it.

A table of the site; docs/glb_omd.md shows its main rows. It has a row for every algorithm, theorem, lemma, figure,
rival and extension of the paper of Zhang, Xu, Zhao and Sugiyama (2025). Numbers of ours are computed from the saved
results or from the formulas.
"""

import math
from statistics import fmean, median
from typing import Any

from claim import Claim, claims_table
from experiment import Slope, load, saved, short
from glb_omd import EVERY, EXACT_ROUNDS, MANY, TRIALS, regret_at
from glb_omd_learners import Problem
from glb_rates import SPACES, dim_slope, kappa_slope, norm_slope, round_slope, told_slope

from torchonline import Gamma, Logistic

MAIN, SPEED, TIME = "`glb_omd.py`", "`glb_omd_speed.py`", "`glb_omd_time.py`"
RATES, COVER, COVERAGE = "`glb_rates.py`", "`glb_omd_covertype.py`", "`glb_omd_coverage.py`"
MULTINOMIAL, ERRATA, FORMULA, COUNT, NONE = "`multinomial.py`", "`glb_errata.py`", "a formula", "a count", "none"
ROUNDS = ("100", "1500", "3000")
ERRATA_PROOFS = "../examples/papers/glb_errata.py"
PROOFS = f"[proof]({ERRATA_PROOFS})"


class Figures:
    """Figures of the saved results."""

    def __init__(self) -> None:
        self.main, self.speed, self.time = saved("glb_omd"), saved("glb_omd_speed"), saved("glb_omd_time")
        self.rates, self.cover, self.coverage = (
            saved("glb_rates"),
            saved("glb_omd_covertype"),
            saved("glb_omd_coverage"),
        )
        self.multinomial, self.drift, self.errata = saved("multinomial"), saved("glb_drift"), saved("glb_errata")

    def one(self, name: str, rewards: str, norm: int, arms: str = "fixed", trials: int = MANY) -> dict[str, Any]:
        return self.main[f"{name}: {rewards}, S = {norm}, {arms} arms, {trials} trials"]

    def regret(self, name: str, rewards: str, *norms: int, arms: str = "fixed", trials: int = MANY) -> str:
        *found, last = (short(fmean(self.one(name, rewards, norm, arms, trials)["regret"])) for norm in norms)
        return f"{', '.join(found)} and {last}" if found else last

    def lost(self, name: str, rewards: str, norm: int) -> str:
        found = [self.one(name, rewards, norm, arms) for arms in ("fixed", "redrawn")]
        return f"{' and '.join(str(one['missed']) for one in found)} of {len(found[0]['regret'])}"

    def ten(self, name: str, norm: int) -> str:
        """Return the regret of the 10 trials after all rounds, for clicks."""
        return self.regret(name, "logistic", norm, trials=TRIALS)

    def early(self, name: str) -> str:
        """Return the regret of the 10 trials after 1000 rounds, for clicks and S = 3, 5, 7, 9."""
        runs = (self.one(name, "logistic", norm, trials=TRIALS) for norm in (3, 5, 7, 9))
        return ", ".join(short(regret_at(one, EXACT_ROUNDS)[0]) for one in runs)

    def tenth(self, name: str, t: str = "1500") -> str:
        """Return the time of a round at t, LocalGLB = 1."""
        times = self.speed["by round"]["times"][t]
        return f"{times[name] / times['LocalGLB']:.1f}"

    def dim_slopes(self, learner: str) -> str:
        return " and ".join(f"{dim_slope(self.rates, arms, learner).value:z.2f}" for arms in SPACES)

    def norm_slope(self, learner: str) -> str:
        return f"{norm_slope(self.rates, learner).value:z.2f}"

    def costs(self, name: str, *norms: int) -> str:
        """Return the time of a round for clicks, as a multiple of LocalGLB's, by S."""
        return ", ".join(f"{self.one(name, 'logistic', norm, trials=TRIALS)['time']:.1f}" for norm in norms)

    def radius(self, name: str) -> str:
        return short(self.one(name, "logistic", 3)["radius"])

    def whole(self) -> str:
        """Return the seconds of 3000 median rounds of GLB-OMD."""
        return f"{3000 * self.speed['by round']['times']['1500']['GLBOMD']:.2f}"

    def seconds(self, norm: int) -> str:
        runs = load("glb_omd")["runs"]
        return f"{runs[f'GLB-OMD, paper: Poisson, S = {norm}, fixed arms, {TRIALS} trials']['seconds']:.1f}"

    def growth(self, name: str) -> str:
        """Return the time of a round early and late, LocalGLB = 1."""
        times = self.speed["by round"]["times"]
        return " to ".join(f"{times[t][name] / times[t]['LocalGLB']:.1f}" for t in ("100", "3000"))

    def rates_of(self, name: str) -> str:
        """Return the measured powers of T, 1 / kappa* and kappa."""
        slopes = (
            round_slope(self.rates, name),
            kappa_slope(self.rates, "logistic", name),
            told_slope(self.rates, name),
        )
        return "powers of T {:z.2f}, of 1 / kappa* {:z.2f}, of kappa {:z.2f}".format(*(one.value for one in slopes))

    def lemma(self) -> str:
        most = max(max(one["most"]) for job, one in self.errata.items() if job.startswith("Lemma 3"))
        return f"{most:.2f}"

    def covertype(self, name: str, kind: str) -> str:
        return short(fmean(self.cover[f"{name}, {kind}"]["regret"]))

    def faster(self, name: str) -> str:
        """Return the time of a round for clicks at t = 1500, GLB-OMD = 1."""
        times = self.speed["by round"]["times"]["1500"]
        return f"{times[name] / times['GLBOMD']:.0f}"

    def ratio(self, name: str) -> float:
        """Return the time of 3000 rounds for counts, S = 3, GLB-OMD = 1."""
        return float(self.one(name, "Poisson", 3)["time"] / self.one("GLB-OMD, paper", "Poisson", 3)["time"])

    def faster_for_counts(self, name: str) -> str:
        """Return the time of 500 rounds for counts, GLB-OMD = 1, over all S."""
        times = self.time["Poisson"]["500"]
        found = [theirs / ours for theirs, ours in zip(times[name], times["GLB-OMD, paper"], strict=True)]
        return f"{min(found):.0f} to {max(found):.0f}"

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


def leading_term(of: Figures, T: int) -> float:
    """Return the leading term of Theorem 2 on the circle with S = 3, with the constants of its proof."""
    ridge, slope, kappa, dim, norm = 112.0, 0.25, of.rates["S = 3, LocalGLB"]["kappa"][0], 2, 3.0
    eta = 1.0 + norm
    beta = 4.0 * ridge * norm**2 + 2.0 * eta * math.log(100.0)
    beta += 6.0 * dim * eta**2 * math.log(2.0 + 2.0 * slope * T / ridge)
    gamma = 2.0 * math.sqrt(beta * 2.0 * dim * (1.0 + slope) * math.log1p(T * slope / (dim * ridge)))
    return 2.0 * gamma * math.sqrt(T / kappa)


def flat_radius() -> float:
    """Return the radius of Theorem 1 for R = 0 and d = 2, S = C = g = 1, t = 1000, delta = 0.01."""
    ridge = 2.0
    return math.sqrt(4.0 * ridge + 2.0 * math.log(100.0) + 12.0 * math.log(2.0 + 2.0 * 1000 / ridge))


def theory(of: Figures) -> list[Claim]:
    constants = {(row[0], row[1]): row for row in of.main["The instances"]}
    ridge, radius = constants["logistic", 3][6:8]
    most = max(max(row[:2]) for job, row in of.coverage.items() if "bursts" not in job and "all or none" not in job)
    balls, radii = (
        {
            rewards: " and ".join(short(constants[rewards, norm][k]) for norm in (3, 9))
            for rewards in ("logistic", "Poisson")
        }
        for k in (4, 7)
    )
    theorem, empirical = "GLB-OMD, theorem", "GLB-OMD, empirical"
    condition, lemma = of.errata["(43)"], of.errata["Lemma 8, Poisson"]
    one, batched = (
        times["GLBOMD"] / times["OFUL"] for times in map(of.speed["d = 32"].get, ("one learner", "a batch of 256"))
    )
    return [
        Claim(
            "Abstract, Algorithm 1: cost",
            "O(1) time and memory a round, in one pass",
            "`GLBOMD`",
            "yes",
            SPEED,
            f"a round at t = 100, 1500, 3000, LocalGLB = 1: {', '.join(of.tenth('GLBOMD', t) for t in ROUNDS)}; LocalGLB's "
            f"at 3000 takes {of.speed['by round']['late']:.2f} times that at 100",
        ),
        Claim(
            "Proposition 1; Theorem 2, cost",
            "O(d³ + d² K) time with K arms, O(d²) memory",
            "`GLBOMD`",
            "yes: d³ only in rounds that project, which need H and not only its inverse",
            SPEED,
            f"d = 32, K = 20: {one:.2f} times OFUL's round",
        ),
        Claim(
            "Section 2.1, kappa",
            "of order exp(S) for clicks and counts",
            "`GeneralizedLinearBandit.kappa`",
            "yes",
            MAIN,
            f"in the ball, S = 3 and 9: clicks {balls['logistic']}, counts {balls['Poisson']}",
        ),
        Claim(
            "Assumption 3, examples",
            "R is 1 for Bernoulli and Poisson, 0 for Gaussian and exponential rewards",
            "`Link.self_concordance`",
            "in part: exponential rewards have R = 2 / abs(z), infinite at 0; with an offset they fail Assumption 3 too, which "
            "is for all z",
            FORMULA,
            f"`Gamma(3.0)` on [-1, 1]: R = {Gamma(3.0).self_concordance(1.0):.1f}",
        ),
        Claim(
            "Section 2.2, bounded rewards",
            "rewards in [0, R] make the link R-self-concordant",
            "`Logistic`, `Binomial`",
            "in part: for g ≥ 1; the constant is R / g",
            FORMULA,
            "rewards 0 or 1 with natural parameter z / g: the mean is the sigmoid of z / g",
        ),
        Claim(
            "Remark 1",
            "unbounded rewards too: Gaussian, Poisson",
            "`Gaussian`, `Poisson`, `Gamma`, `CustomLink`",
            "yes: and gamma and others, with the empirical radius",
            f"{COVERAGE}, {MAIN}",
            f"gamma: LocalGLB {of.regret('LocalGLB', 'Gamma', 1)}, OFUL {of.regret('OFUL', 'Gamma', 1)}; sinh: LocalGLB "
            f"{of.regret('LocalGLB', 'custom (sinh)', 2)}, OFUL {of.regret('OFUL', 'custom (sinh)', 2)}",
        ),
        Claim(
            "Theorem 1",
            "an ellipsoid holds the truth at all times",
            '`GLBOMD(radius="paper", ridge=theory_ridge())`',
            "yes: with the ridge of the theorem, and Assumption 3 for all z",
            MAIN,
            f"S = 3, clicks: ridge {short(ridge)}, first radius {short(radius)}; "
            f"{of.lost('GLB-OMD, theorem', 'logistic', 3)} sets lost",
        ),
        Claim(
            "Appendix F.1, ridge d",
            "the same set with ridge d, which favourable data allow",
            '`GLBOMD(radius="paper")`',
            "no: outside the theorem, and sets fail",
            MAIN,
            f"counts, S = 7: {of.lost('GLB-OMD, paper', 'Poisson', 7)} sets lost",
        ),
        Claim(
            "Theorem 1, radius",
            "the radius does not depend on kappa",
            "[instances](#the-instances)",
            "in part: it has no 1 / c, but the largest slope C, exp(S) for counts",
            MAIN,
            f"first radius, S = 3 and 9: clicks {radii['logistic']}, counts {radii['Poisson']}",
        ),
        Claim(
            "Theorems 1 and 2, O-forms",
            "radius O(S R √(d (S² R + log(t / δ)))), and the regret of it",
            PROOFS,
            "in part: for R and S from about 1 on; at R = 0, which the paper lists, both are 0",
            FORMULA,
            f"R = 0, d = 2, S = 1, t = 1000, δ = 0.01: the radius of the theorem is {flat_radius():.1f}",
        ),
        Claim(
            "Abstract, Section 1",
            "the one-pass estimator is as efficient as maximum likelihood",
            "`GLBOMD`, `OFUGLB`",
            "in part: with the empirical radius; the printed radii are far larger",
            MAIN,
            f"last radius, clicks, S = 3: printed {of.radius('GLB-OMD, paper')}, theorem {of.radius('GLB-OMD, theorem')}, "
            f"empirical {of.radius('GLB-OMD, empirical')}, OFUGLB's ellipsoid {of.radius('OFUGLB')}",
        ),
        Claim(
            "A set for any ridge",
            "not in the paper",
            '`GLBOMD(radius="empirical")`, `LocalGLB`',
            "run: [proved](generalized_linear_theory.md#the-proof)",
            COVERAGE,
            f"at most {most} of 1000 lost at delta = 0.05",
        ),
        Claim(
            "Remark 2, Section 3.2",
            "earlier one-pass sets are wider by √log t, or need a warm-up",
            "`OFULMLogB`, `ECOLog`, `AdaECOLog`",
            "in part: OFUL-MLogB's is wider; ECOLog needs no warm-up and is not wider",
            MAIN,
            f"last radius, clicks, S = 3: GLB-OMD {of.radius('GLB-OMD, paper')}, with the theorem's ridge "
            f"{of.radius('GLB-OMD, theorem')}, OFUL-MLogB {of.radius('OFUL-MLogB')}, ECOLog {of.radius('ECOLog')}",
        ),
        Claim(
            "Theorem 2 in T",
            "regret of order √T, up to logarithms",
            "[growth](#growth-of-the-regret)",
            "in part: LocalGLB is near ½; with the theorem's ridge regret is linear, and the bound exceeds T",
            RATES,
            f"powers of T on the circle: theorem {of.slope(f'T, logistic, circle, {theorem}')}, empirical "
            f"{of.slope(f'T, logistic, circle, {empirical}')}, LocalGLB {of.slope('T, logistic, circle, LocalGLB')}; leading "
            f"term at T = 16000: {short(leading_term(of, 16000))}",
        ),
        Claim(
            "Theorem 2 in kappa*",
            "regret of order √(1 / kappa*)",
            "[growth](#growth-of-the-regret)",
            "in part: LocalGLB is near ½, GLB-OMD steeper",
            RATES,
            f"powers of 1 / kappa*, clicks and counts: theorem {of.kappa_slopes(theorem)}, empirical "
            f"{of.kappa_slopes(empirical)}, LocalGLB {of.kappa_slopes('LocalGLB')}",
        ),
        Claim(
            "Theorem 2 in S, Section 3.3",
            "S² in the leading term, where OFUGLB has no S",
            "[growth](#growth-of-the-regret)",
            "yes, as an upper bound: no S beyond kappa* is seen",
            RATES,
            f"powers of S: theorem {of.norm_slope(theorem)}, empirical {of.norm_slope(empirical)}, LocalGLB "
            f"{of.norm_slope('LocalGLB')}",
        ),
        Claim(
            "Theorem 2 in d",
            "regret of order d in the leading term, d² in the other",
            "[growth](#growth-of-the-regret)",
            "yes, as an upper bound: all powers are below 1",
            RATES,
            f"powers of d, balls and circles: theorem {of.dim_slopes(theorem)}, empirical {of.dim_slopes(empirical)}, LocalGLB "
            f"{of.dim_slopes('LocalGLB')}",
        ),
        Claim(
            "Theorem 2 for counts",
            "the same bound",
            "`CappedGLBOMD`",
            "in part: with scores cut at S‖x‖, which the proof needs and the algorithm lacks; it has more regret",
            MAIN,
            f"S = 3: {of.regret('GLB-OMD, capped', 'Poisson', 3)}, as it is {of.regret(empirical, 'Poisson', 3)}",
        ),
        Claim(
            "Section 3.2, beside OFUL",
            "no harder than linear bandits, in regret and cost",
            "`GLBOMD`, `OFUL`",
            "in part: in cost; S² in the leading term has no counterpart",
            SPEED,
            f"a round at d = 32, OFUL = 1: one learner {one:.2f}, a batch of 256 {batched:.2f}",
        ),
        Claim(
            "Discussion of Lee and Oh; Appendix E",
            "condition (43) is unlikely to hold",
            PROOFS,
            "yes: as the paper restates it, it holds for no C_s ≥ 1 at all; we have not read the other paper",
            ERRATA,
            f"d = 1, 2, 5, 16, rho from 0.1 to 10: it holds in {condition['holds']} of {condition['of']} cases",
        ),
        Claim(
            "Lemmas 1 and 4, (8)",
            "a step's error is at most the inverse regret",
            f"steps 1 and 2 of the [proof](generalized_linear_theory.md#the-proof), and [the rest]({ERRATA_PROOFS})",
            "in part: Lemma 4's first display lacks a factor RS, which (11) has",
            NONE,
            "an identity and a Taylor formula",
        ),
        Claim(
            "Lemmas 2 and 5",
            "losses of the truth exceed mix losses by log(1 / delta) at most",
            "[proof](generalized_linear_theory.md#the-proof), step 4",
            "yes",
            COVERAGE,
            f"at most {most} of 1000 sets lost at delta = 0.05",
        ),
        Claim(
            "Lemma 3",
            "mix losses are at most the next estimate's losses, the squared steps over 3 η and 3/2 d η log(...)",
            PROOFS,
            "yes, by a proof of ours; the paper's, Lemma 6, has 3 d η, which Theorem 1 uses",
            ERRATA,
            f"at most {of.lemma()} d η log(...) in play",
        ),
        Claim(
            "Lemma 8",
            "mean slopes with weight 1 - v are at least the slope at either end over 2 + R times the distance",
            PROOFS,
            "in part: at z1, which the paper uses; at z2 it is false",
            ERRATA,
            f"exp, {lemma['of']} pairs: {lemma['fails'][0]} fail at z1, {lemma['fails'][1]} at z2",
        ),
        Claim(
            "Lemmas 9 to 13",
            "Ville's inequality, normal moments, elliptical potential, two facts on divergences",
            PROOFS,
            "in part: 9, 10, 12 and 13 hold; 11 prints the norm of V for that of its inverse, and asks for a ridge of 1",
            NONE,
            "Lemma 10: (1 - 7/16)^(-1/2) = 4/3",
        ),
        Claim(
            "Section 3.3",
            "the leading term is that of maximum likelihood in T, kappa and d; Sawarni et al. have kappa_X in the second; bounds "
            "that follow the arms' geometry are open",
            "[rates](#rates-of-the-rivals)",
            "cited",
            NONE,
            "not computed",
        ),
        Claim(
            "Section 4.2",
            "log(1 / δ) in place of O((log t)³) of Zhang and Sugiyama (2023); earlier analyses are bound to the logistic link",
            "`OFULMLogB`, `ECOLog`",
            "cited",
            NONE,
            "not computed",
        ),
        Claim(
            "Section 6, Table 1",
            "weaker conditions than self-concordance, by Liu et al. (2024), whom Table 1 names for OFUGLB too",
            "not here",
            "cited",
            NONE,
            "not computed",
        ),
    ]


def state(name: str) -> str:
    """Return how many numbers a learner keeps, for 1000 and for 3000 rounds."""
    policies = (EVERY[name].build(Problem(2, Logistic(), 3.0, (), rounds)) for rounds in (1000, 3000))
    return " and ".join(str(sum(buffer.numel() for buffer in policy.buffers())) for policy in policies)


def bounds(of: Figures) -> list[Claim]:
    """Return the rows of Tables 1 and 2."""

    def row(table: int, name: str, says: str, shown: str, verdict: str) -> Claim:
        return Claim(
            f"Table {table}: {name}",
            says,
            f"`{shown}`, [rates](#rates-of-the-rivals)",
            verdict,
            RATES,
            of.rates_of(name),
        )

    return [
        row(
            1,
            "GLM-UCB",
            "regret kappa (log T)^1.5 √T",
            "GLMUCB",
            "in part: below the bound in kappa; steeper in T up to 2000",
        ),
        row(1, "GLOC", "regret kappa log T √T", "GLOC", "in part: below the bound in kappa; steeper in T up to 4000"),
        row(
            1,
            "OFUGLB",
            "regret log T √(T / kappa*)",
            "OFUGLB",
            "in part: below the rate in T; steeper in 1 / kappa*; 4 trials of 640 rounds, for its cost",
        ),
        row(
            1,
            "OFUGLB-e",
            "the same rate, with an ellipsoid, in OFUGLB's paper",
            "OFUGLBRegression",
            "in part: the rate in T; steeper in 1 / kappa*",
        ),
        Claim(
            "Table 1: RS-GLinCB",
            "regret log T √(T / kappa*)",
            "`RSGLinCB`, [rates](#rates-of-the-rivals)",
            "in part: linear, since with the constants of its theory all of these rounds are warm-up",
            RATES,
            f"power of T {round_slope(of.rates, 'RS-GLinCB').value:.2f}",
        ),
        row(
            1,
            "RS-GLinCB, program",
            "the same, with the constants of its authors' program",
            'RSGLinCB(constants="program")',
            "in part: the rate in T; steeper in 1 / kappa*",
        ),
        row(
            1,
            "GLB-OMD, theorem",
            "regret log T √(T / kappa*)",
            "GLBOMD(ridge=theory_ridge())",
            "in part: linear in T and in 1 / kappa* at these lengths",
        ),
        row(
            1,
            "GLB-OMD, empirical",
            "the same, with this library's radius",
            "GLBOMD",
            "in part: the rate in T, steeper in 1 / kappa*",
        ),
        row(
            2,
            "ECOLog",
            "regret log T √(T / kappa*)",
            "ECOLog",
            "in part: no kappa; steeper in T up to 4000 and in 1 / kappa*",
        ),
        row(
            2,
            "ada-OFU-ECOLog",
            "the same, with a warm-up set",
            "AdaECOLog",
            "in part: no kappa; steeper in T up to 2000 and in 1 / kappa*",
        ),
        row(
            2,
            "OFUL-MLogB",
            "regret (log T)^1.5 √(T / kappa*)",
            "OFULMLogB",
            "in part: no kappa; linear in T up to 4000, steeper in 1 / kappa*",
        ),
        Claim(
            "Tables 1 and 2: memory",
            "O(t) for GLM-UCB, OFUGLB and RS-GLinCB, O(1) for the others",
            "`torchonline.baselines`",
            "in part: ada-OFU-ECOLog keeps its warm-up rounds here",
            COUNT,
            f"numbers of state, d = 2, T = 1000 and 3000: GLM-UCB {state('GLM-UCB')}, OFUGLB {state('OFUGLB')}, RS-GLinCB "
            f"{state('RS-GLinCB')}, ada-OFU-ECOLog {state('ada-OFU-ECOLog')}, ECOLog {state('ECOLog')}, OFUL-MLogB "
            f"{state('OFUL-MLogB')}, GLOC {state('GLOC')}, GLB-OMD {state('GLB-OMD, paper')}",
        ),
        Claim(
            "Tables 1 and 2: time of a round",
            "grows with t for GLM-UCB, OFUGLB, RS-GLinCB, ECOLog, and not for GLOC, OFUL-MLogB, GLB-OMD",
            "[time](#time)",
            "in part: ECOLog's does not, since its solver takes a fixed number of steps here",
            SPEED,
            f"t = 100 to 3000, LocalGLB = 1: GLM-UCB {of.growth('GLM-UCB')}, OFUGLB {of.growth('OFUGLB')}, RS-GLinCB "
            f"{of.growth('RS-GLinCB')}, ECOLog {of.growth('ECOLog')}, GLOC {of.growth('GLOC')}",
        ),
    ]


def experiments(of: Figures) -> list[Claim]:
    paper = "GLB-OMD, paper"
    few = {name: of.regret(name, "logistic", 3, 5, trials=TRIALS) for name in (paper, "OFUGLB")}
    late = of.one(paper, "logistic", 9)["regret"]
    above = {row[0]: row for row in of.main["Poisson rewards above 100"]}
    arms = of.cover["arms of seed 7"]
    others = "arms with means {:.3f} to {:.3f}".format(*of.cover["arms"]["means"])
    return [
        Claim(
            "Abstract; Figures 1a and 1b",
            "regret only modestly above OFUGLB's",
            "[tables](../examples/papers/glb_omd.py)",
            "in part: over the paper's 10 trials; over 100 with this library's radius alone",
            MAIN,
            f"S = 3 and 5: 10 trials {few[paper]}, OFUGLB {few['OFUGLB']}; 100 trials {of.regret(paper, 'logistic', 3, 5)}, "
            f"empirical {of.regret('GLB-OMD, empirical', 'logistic', 3, 5)}, OFUGLB {of.regret('OFUGLB', 'logistic', 3, 5)}",
        ),
        Claim(
            "Figure 1: OFUGLB",
            "the least regret of the paper's methods, at the highest cost",
            "`OFUGLB`",
            "in part: on arms that stay, least at S = 3, and at 5 after 3000 rounds only; not at 7 and 9 after 1000; on redrawn "
            "arms, least at all S; LocalGLB has less",
            MAIN,
            f"1000 rounds, S = 3, 5, 7, 9: {of.early('OFUGLB')}; GLB-OMD {of.early(paper)}; ECOLog {of.early('ECOLog')}; "
            f"LocalGLB {of.early('LocalGLB')}; 3000 rounds, S = 5: {of.ten('OFUGLB', 5)}, GLB-OMD {of.ten(paper, 5)}, ECOLog "
            f"{of.ten('ECOLog', 5)}",
        ),
        Claim(
            "Figure 1: GLOC",
            "the fastest, with large regret",
            "`GLOC`",
            "yes",
            f"{MAIN}, {SPEED}",
            f"a round at t = 1500: {of.tenth('GLOC')} of LocalGLB's, GLB-OMD {of.tenth('GLBOMD')}; regret, S = 3 and 5: "
            f"{of.regret('GLOC', 'logistic', 3, 5)}, GLB-OMD {of.regret(paper, 'logistic', 3, 5)}",
        ),
        Claim(
            "Figure 1: ECOLog",
            "GLB-OMD is comparable and slightly better, and cheaper",
            "`ECOLog`",
            "in part: comparable, not better; as cheap",
            f"{MAIN}, {SPEED}",
            f"S = 3 and 5: {of.regret(paper, 'logistic', 3, 5)}, ECOLog {of.regret('ECOLog', 'logistic', 3, 5)}; a round at t = "
            f"1500: {of.tenth('GLBOMD')} and {of.tenth('ECOLog')}",
        ),
        Claim(
            "Figure 1: RS-GLinCB",
            "GLB-OMD is comparable and slightly better, and cheaper",
            '`RSGLinCB(constants="program")`',
            "yes: level at S = 3, far better beyond",
            MAIN,
            f"S = 3 and 5: {few[paper]}, RS-GLinCB {of.regret('RS-GLinCB, program', 'logistic', 3, 5, trials=TRIALS)}; a round, "
            f"LocalGLB = 1: {of.costs(paper, 3)} and {of.costs('RS-GLinCB, program', 3)}",
        ),
        Claim(
            "Appendix F.1, parameters",
            "all parameters are those of theory, but for the ridge",
            "`RSGLinCB`",
            "no: Appendix F.3 shrinks all sets, and Figure 1 hardly has RS-GLinCB by its theory, which is all warm-up",
            MAIN,
            f"clicks, S = 3: RS-GLinCB by theory {of.ten('RS-GLinCB', 3)}, with its program's constants "
            f"{of.ten('RS-GLinCB, program', 3)}, GLB-OMD {few[paper].split(' and ')[0]}",
        ),
        Claim(
            "Figure 1c: cost against kappa",
            "GLB-OMD's is constant, RS-GLinCB's grows",
            "[time](#time)",
            "yes",
            MAIN,
            f"a round, S = 3, 5, 7, 9: {of.costs(paper, 3, 5, 7, 9)}; RS-GLinCB {of.costs('RS-GLinCB, program', 3, 5, 7, 9)}",
        ),
        Claim(
            "Figures 3a and 3b",
            "regret does not grow with S",
            "[tables](../examples/papers/glb_omd.py)",
            "in part: it falls in the paper's 10 trials; of 100, a few never find the best arm at S = 7 and 9",
            MAIN,
            f"S = 3, 5, 7, 9: 10 trials {of.regret(paper, 'logistic', 3, 5, 7, 9, trials=TRIALS)}; 100 trials "
            f"{of.regret(paper, 'logistic', 3, 5, 7, 9)}, at S = 9 with a median of {short(median(late))}",
        ),
        Claim(
            "Figures 3a and 3b: RS-GLinCB",
            "very sensitive to S, by its warm-up",
            '`RSGLinCB(constants="program")`',
            "yes",
            MAIN,
            f"S = 3, 5, 7, 9: {of.regret('RS-GLinCB, program', 'logistic', 3, 5, 7, 9, trials=TRIALS)}",
        ),
        Claim(
            "Figure 2: regret",
            "only modestly above OFUGLB's",
            "[tables](../examples/papers/glb_omd.py)",
            "no",
            MAIN,
            f"S = 3: paper {of.regret(paper, 'Poisson', 3)}, empirical "
            f"{of.regret('GLB-OMD, empirical', 'Poisson', 3)}, LocalGLB {of.regret('LocalGLB', 'Poisson', 3)}, OFUGLB "
            f"{of.regret('OFUGLB', 'Poisson', 3)}",
        ),
        Claim(
            "Figure 2: rewards",
            "at most 100 with high probability",
            "[rewards](#rewards-told-to-be-bounded)",
            "in part: at S = 3; not at 5 and 7",
            MAIN,
            f"S = 3, 5, 7: the best arm pays more in {', '.join(f'{above[norm][3]:.0%}' for norm in (3, 5, 7))} of rounds",
        ),
        Claim(
            "Figure 2: GLM-UCB, RS-GLinCB",
            "told that rewards are at most 100",
            "[rewards](#rewards-told-to-be-bounded)",
            "run: both explore for longer",
            MAIN,
            f"S = 3, 5: GLM-UCB {of.regret('GLM-UCB, rewards to 100', 'Poisson', 3, 5, trials=TRIALS)}, as it is "
            f"{of.regret('GLM-UCB', 'Poisson', 3, 5, trials=TRIALS)}; RS-GLinCB, program "
            f"{of.regret('RS-GLinCB, program, rewards to 100', 'Poisson', 3, 5, trials=TRIALS)}, as it is "
            f"{of.regret('RS-GLinCB, program', 'Poisson', 3, 5, trials=TRIALS)}",
        ),
        Claim(
            "Figures 1c and 2c: time",
            "1000 times faster than OFUGLB for counts",
            "[time](#time)",
            "no: by one order for counts, and by two for clicks; it depends on OFUGLB's solver and on whether arms stay",
            f"{MAIN}, {TIME}, {SPEED}",
            f"GLB-OMD = 1: counts, 3000 rounds, S = 3, {of.ratio('OFUGLB'):.0f}; 500 rounds, all S, "
            f"{of.faster_for_counts('OFUGLB')}, redrawn arms {of.faster_for_counts('OFUGLB, redrawn arms')}; clicks, t = 1500, "
            f"{of.faster('OFUGLB')}, scipy {of.faster('OFUGLB, scipy')}",
        ),
        Claim(
            "Figure 3c: GLB-OMD",
            "less than a second for 3000 rounds, whatever S",
            "[time](#time)",
            "yes: for choices and learning, whatever S; about a second with the environment",
            f"{SPEED}, {TIME}, {MAIN}",
            f"3000 median rounds for clicks {of.whole()} s; counts, S = 3 and 9, LocalGLB at 3 = 1: {of.times(paper)}; three "
            f"runs with environment {of.seconds(3)} and {of.seconds(9)} s",
        ),
        Claim(
            "Figure 3c: OFUGLB",
            "its time grows with S, from 2783 s at 3 to 7568 s at 9",
            "[time](#time)",
            "no: not with our solver",
            TIME,
            f"S = 3 and 9, LocalGLB at 3 = 1: {of.times('OFUGLB')}",
        ),
        Claim(
            "(44): OFUGLB's set",
            "radius² at most log(1 / delta) + d log(max(e, 2 e S L / d))",
            "`OFUGLB`",
            "yes: with c = min(1, d / (2 S L))",
            FORMULA,
            "the infimum, at this c; if d ≥ 2 S L, c = 1 and it is 2 S L ≤ d",
        ),
        Claim(
            "(44): OFUGLB's cost",
            "for counts L_t = e^S t + log(d / δ), which makes OFUGLB's steps costly",
            "`OFUGLB`",
            "run: L is the constant of the observed losses here, which the proof allows",
            TIME,
            f"time at S = 3 and 9, LocalGLB at 3 = 1: {of.times('OFUGLB')}",
        ),
        Claim(
            "Values of kappa",
            "21, 137, 963 for clicks, 18, 127, 882 for counts",
            "[instances](#the-instances)",
            "in part: one arm set in the unit ball has them, which is not stated",
            MAIN,
            f"ours {short(constants_of(of, 'logistic', 3))} and {short(constants_of(of, 'Poisson', 3))} at S = 3",
        ),
        Claim(
            "Appendix F.3: arms",
            "mean rewards from 0.103 to 0.881, S = 6, kappa = 200",
            "[Covertype](#covertype)",
            "in part: the means of one start of k-means; kappa is 405 at S = 6, and the best fit is longer",
            COVER,
            f"means {arms['means'][0]:.3f} to {arms['means'][1]:.3f}, the best fit has norm {arms['norm']:.1f}",
        ),
        Claim(
            "Figure 4a: regret",
            "that of OFUGLB, far below GLOC, all radii shrunk",
            "[Covertype](#covertype)",
            "in part: with a factor of 0.1; by theory hardly better than uniform choice",
            COVER,
            f"{others}, times 0.1: {of.covertype(paper, 'times 0.1')}, OFUGLB {of.covertype('OFUGLB', 'times 0.1')}, GLOC "
            f"{of.covertype('GLOC', 'times 0.1')}; theory {of.covertype(paper, 'times 1')}",
        ),
        Claim(
            "Figures 4b and 4c: time",
            "faster than OFUGLB",
            "[Covertype](#covertype)",
            "yes",
            COVER,
            f"{others}: a round of OFUGLB takes {of.cover['OFUGLB, time'] / of.cover['GLB-OMD, paper, time']:.0f} times "
            "GLB-OMD's",
        ),
        Claim(
            "Appendix F.3: earlier algorithms",
            "traditional algorithms explore too much on noisy data",
            "[Covertype](#covertype)",
            "in part: by theory they do, and GLB-OMD as printed hardly less",
            COVER,
            f"{others}, theory: GLM-UCB {of.covertype('GLM-UCB', 'times 1')}, GLOC {of.covertype('GLOC', 'times 1')}, "
            f"uniform {short(1000 * of.cover['arms']['uniform'])}, GLB-OMD {of.covertype(paper, 'times 1')}",
        ),
        Claim(
            "Appendix F.3, Figure 4c",
            "faster, without loss of robustness or performance",
            "[Covertype](#covertype)",
            "in part: with radii times 0.1; by theory OFUGLB has a third of the regret",
            COVER,
            f"{others}: times 0.1 {of.covertype(paper, 'times 0.1')}, OFUGLB {of.covertype('OFUGLB', 'times 0.1')}; theory "
            f"{of.covertype(paper, 'times 1')} and {of.covertype('OFUGLB', 'times 1')}",
        ),
    ]


def constants_of(of: Figures, rewards: str, norm: int) -> float:
    """Return kappa of the arms."""
    return next(row[3] for row in of.main["The instances"] if row[:2] == [rewards, norm])


def rivals(of: Figures) -> list[Claim]:
    def row(name: str, claim: str, shown: str, verdict: str, trials: int) -> Claim:
        theirs, ours = (of.regret(each, "logistic", 3, 9, trials=trials) for each in (name, "LocalGLB"))
        return Claim(
            f"Rival: {name}", claim, f"`{shown}`", verdict, MAIN, f"clicks, S = 3 and 9: {theirs}; LocalGLB {ours}"
        )

    def many(name: str, claim: str, shown: str, verdict: str) -> Claim:
        return row(name, claim, shown, verdict, MANY)

    def few(name: str, claim: str, shown: str, verdict: str) -> Claim:
        return row(name, claim, shown, verdict, TRIALS)

    exact = of.one("OFULog-r", "logistic", 3, trials=TRIALS), of.one("OFULog-r, program", "logistic", 3, trials=TRIALS)
    return [
        many("GLOC", "one pass, regret with kappa", "GLOC", "run: far behind"),
        many("ECOLog", "one pass, for clicks", "ECOLog", "run: about as good as GLB-OMD with the printed radius"),
        many(
            "ada-OFU-ECOLog",
            "the same with a warm-up set",
            "AdaECOLog",
            "run: level with ECOLog on redrawn arms at S = 3 and 5; elsewhere its warm-up takes long",
        ),
        many(
            "OFU-ECOLog, 100 rounds",
            "the same after rounds of pure exploration",
            "AdaECOLog(warm_up_rounds=100)",
            "run: its paper asks for millions of such rounds; with 100, a heuristic, it pays for them",
        ),
        many("OFUL-MLogB", "one pass, for clicks", "OFULMLogB", "run: explores for long"),
        few("GLM-UCB", "maximum likelihood, regret with kappa", "GLMUCB", "run: explores for long"),
        few("GLM-UCB, growing", "the same, ridge d log(1 + t)", 'GLMUCB(ridge="growing")', "run: as with ridge d"),
        few("RS-GLinCB", "rare fits, without kappa", "RSGLinCB", "run: all warm-up"),
        few(
            "RS-GLinCB, program",
            "with its authors' constants",
            'RSGLinCB(constants="program")',
            "run: a heuristic, learns at S = 3 and 5, all warm-up at 9",
        ),
        few("OFUGLB-e", "maximum likelihood, ellipsoid", "OFUGLBRegression", "run: learns"),
        few(
            "OFUGLB-e, growing",
            "the same, ridge d log(1 + t)",
            'OFUGLBRegression(ridge="growing")',
            "run: as with ridge d",
        ),
        Claim(
            "Rival: OFUGLB",
            "maximum likelihood, the best regret",
            "`OFUGLB`",
            "run: LocalGLB has less regret for clicks, more for counts",
            MAIN,
            f"clicks, S = 3 and 5: {of.regret('OFUGLB', 'logistic', 3, 5)}; LocalGLB {of.regret('LocalGLB', 'logistic', 3, 5)}",
        ),
        Claim(
            "Rival: OFULog-r",
            "convex relaxation, for clicks",
            '`OFULogR`, `OFULogR(constants="program")`',
            "run: near random in 1000 rounds, with its authors' constants too",
            MAIN,
            " and ".join(short(fmean(one["regret"])) for one in exact),
        ),
    ]


def extensions(of: Figures) -> list[Claim]:
    return [
        Claim(
            "Extension, Section 3.2: rarely switching",
            "combine the estimator with rare updates",
            "`RarelySwitchingGLB`",
            "run: up to a third more regret at S = 3",
            MAIN,
            f"clicks, S = 3: {of.regret('Rarely switching', 'logistic', 3)}, LocalGLB {of.regret('LocalGLB', 'logistic', 3)}",
        ),
        Claim(
            "Extension: multinomial logistic bandits",
            "a related problem, several outcomes",
            "`MultinomialLogisticBandit`",
            "run: a proved set; a binary model fails where revenues lie in between",
            MULTINOMIAL,
            "revenues in between, and two that a binary model can do: "
            f"{of.outcomes('multinomial')}; LocalGLB {of.outcomes('LocalGLB')}; uniform {of.outcomes('uniform')}",
        ),
        Claim(
            "Extension: a parameter that drifts",
            "not in the paper",
            "`DiscountedGLB`",
            "run: a heuristic; it forgets, and follows",
            "`glb_drift.py`",
            f"clicks, a turn: {of.moved('clicks', 'DiscountedGLB, tuned')}, LocalGLB {of.moved('clicks', 'LocalGLB')}; counts: "
            f"{of.moved('counts', 'DiscountedGLB, tuned')} and {of.moved('counts', 'LocalGLB')}",
        ),
        Claim(
            "Extension, Section 3.2: Thompson sampling",
            "the set allows it",
            '`ThompsonSampling(..., scale="theorem")`',
            "run: five times LocalGLB's regret for clicks, four for counts",
            MAIN,
            f"S = 3, clicks {of.regret('Thompson', 'logistic', 3)}, counts {of.regret('Thompson', 'Poisson', 3)}; LocalGLB "
            f"{of.regret('LocalGLB', 'logistic', 3)} and {of.regret('LocalGLB', 'Poisson', 3)}",
        ),
        Claim(
            "Extension, Sections 3.3 and 6: warm-up",
            "a warm-up may remove S and weaken kappa in the smaller term",
            "`LocalGLB`, `AdaECOLog`",
            "run: LocalGLB takes curvature from its current set instead, without warm-up rounds",
            MAIN,
            f"clicks, S = 3: LocalGLB {of.regret('LocalGLB', 'logistic', 3)}, ada-OFU-ECOLog "
            f"{of.regret('ada-OFU-ECOLog', 'logistic', 3)}",
        ),
        Claim(
            "Applications",
            "recommendation, medicine, pricing; none measured",
            "[clicks and counts on real data](clicks_and_counts.md)",
            "run: clicks and counts of real data",
            "`clicks.py`, `counts.py`",
            "[tables](clicks_and_counts.md)",
        ),
    ]


def claims() -> list[Claim]:
    """Return every claim of the paper."""
    of = Figures()
    return [*theory(of), *bounds(of), *experiments(of), *rivals(of), *extensions(of)]


def tables() -> dict[str, str]:
    """Return the table of every claim."""
    return {"Every claim": claims_table("G", claims())}
