"""Every claim of the paper of OONS, and what the saved results say of it.

A table of the site; docs/oons.md shows its main rows. It has a row for every claim of the paper of Wang, Barik, Zhao
and Tan (NeurIPS 2025), in its order and with its appendices, and for its rivals. It has no experiments and no
applications. Numbers of ours are computed from the saved results.
"""

import math
from statistics import fmean

from claim import Claim, claims_table
from experiment import load, saved, short
from oons_bounds import LENGTHS, form, power_of
from parameter_free import (
    EXAMPLES,
    GROWTHS,
    NORM_ROUNDS,
    ROUNDS,
    Regrets,
    allowance,
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
PROOFS = "[proof](parameter_free_theory.md#oons)"
NOWHERE, NONE = "nowhere", "none"
SHORT_PROOF = "[proof](parameter_free_theory.md#errata-of-the-paper-in-a-few-lines)"


class Figures:
    """Figures of the saved results."""

    def __init__(self) -> None:
        self.regrets, self.bounds = Regrets(saved("parameter_free")), saved("oons_bounds")
        self.speed = saved("parameter_free_speed")
        self.seconds = {name: run["seconds"] for name, run in load("oons_bounds")["runs"].items()}

    def slopes(self, learner: str) -> str:
        """Return the slopes in T where the noise stays, and where its sum stays."""
        fixed, constant = (growth_slope(self.regrets, growth, learner, ROUNDS).value for growth in list(GROWTHS)[:2])
        return f"{fixed:z.2f} and {constant:z.2f}"

    def comparator(self, learner: str) -> str:
        """Return the regrets at the comparators of norms 0.1, 1, 10 and 100."""
        return ", ".join(short(self.regrets.mean(learner, setting)) for setting in comparator_settings(NORM_ROUNDS))

    def over_worst(self, learner: str) -> str:
        """Return regret over G |u| sqrt T at the comparators of norms 10 and 100."""
        settings = comparator_settings(NORM_ROUNDS)[-2:]
        found = (self.regrets.mean(learner, setting) / (setting.norm * allowance(setting)) for setting in settings)
        return " and ".join(map(short, found))

    def example(self, meta: str) -> str:
        (name,) = (name for name in EXAMPLES if name == f"{meta}, preset paper")
        return f"{example_slope(self.regrets, name, ROUNDS):z.2f}"

    def mean(self, job: str) -> float:
        return fmean(self.bounds[job]["regret"])

    def bound(self, job: str) -> str:
        return short(self.mean(job))

    def ratios(self, learner: str) -> str:
        """Return the ratios of regret to the form of Table 1 at the least and the largest T."""
        found = [
            self.mean(f"T = {rounds}: {learner}") / form(learner, self.bounds[f"T = {rounds}: sums"])
            for rounds in (LENGTHS[0], LENGTHS[-1])
        ]
        return " and ".join(map(short, found))

    def turned(self, learner: str) -> str:
        """Return the power of T without a ball where gradients turn once."""
        return power_of(list(LENGTHS), [self.mean(f"turn, T = {rounds}: {learner}") for rounds in LENGTHS])

    def hardest(self, learner: str) -> str:
        """Return regret over |u| sqrt T on the hardest losses, for |u| = 1, 10, 100 and T = 1024."""
        norms = (1, 10, 100)
        found = (self.mean(f"hardest, T = 1024, |u| = {norm}: {learner}") / (norm * 32.0) for norm in norms)
        return ", ".join(map(short, found))

    def tail(self, learner: str) -> str:
        """Return the quantile 0.99 over the mean, on expected losses and on those drawn."""
        found = self.bounds[f"tail, T = 512: {learner}"]
        return " and ".join(f"{found[of][3] / found[of][0]:.2f}" for of in ("expected", "drawn"))

    def floor(self) -> str:
        found = {learner: self.bound(f"floor, T = 64: {learner}") for learner in ("OONS", "KT", "FreeGrad")}
        return ", ".join(f"{learner} {regret}" for learner, regret in found.items())

    def radius(self, sigma: str) -> str:
        """Return the radius of CLA-OONS and its bound, in the mean."""
        found, sums = (self.bounds[f"radius, sigma = {sigma}, T = 4096{part}"] for part in ("", ": sums"))
        total = sums["deviation"] + sums["gradients"]
        bound = fmean(1.0 + 2.0 * math.sqrt(total / first) for first in found["first"])
        return f"{short(fmean(found['radius']))} and {short(bound)}"

    def step(self, learner: str) -> str:
        times = self.speed["one size"]
        return f"{times[learner] / times['OFUL']:.1f}"


def problem(of: Figures) -> list[Claim]:
    """Return the claims of the abstract and of Sections 1 and 2."""
    many, cells = of.bounds["as many cells, T = 1024: sums"], of.bounds["independent, 16 cells: sums"]
    drifting = of.mean("drift = 1: Optimistic OMD") / form("Optimistic OMD", of.bounds["drift = 1: sums"])
    implicit = of.seconds["hints, 1 cells: OONS, implicit"] / of.seconds["hints, 1 cells: OONS, last"]
    errors = of.bounds["implicit, 16 cells, T = 2048"]["errors"]
    ends = [
        short(of.mean(name) / form("Mirror descent", of.bounds[f"{name}: sums"]))
        for name in ("implicit, 16 cells, T = 128", "implicit, 16 cells, T = 2048")
    ]
    return [
        Claim(
            "Abstract; contributions 1 to 3",
            "regret by sigma² and Sigma² with D and G known, G known, and neither known",
            "`OONS`, `CAOONS`, `CLAOONS`",
            "in part: OONS does; CA-OONS after a change of equation (5); CLA-OONS by its bound, while its regret grows nearly "
            "like T in noise",
            FREE,
            f"slopes in T, theory 0.50 and 0.00: OONS {of.slopes('OONS')}, CA-OONS {of.slopes('CA-OONS')}, CLA-OONS "
            f"{of.slopes('CLA-OONS')}",
        ),
        Claim(
            "Abstract; contribution 2",
            "the first parameter-free algorithms for this model",
            "[equation (2)](#equation-2-and-implicit-hints)",
            "in part: equation (2), by an earlier method, is free of D too, by the largest variance; by sigma² no "
            "earlier one is cited",
            "by proof",
            f"16 cells: largest variance {short(cells['largest_variance'])}, sigma² {short(cells['variance'])}",
        ),
        Claim(
            "Table 1, row of OFTRL and OMD",
            "√sigma² + √Sigma², with D and G known",
            "`OFTRL`, `OptimisticOMD`, [forms](#the-forms-of-the-bounds)",
            f"yes: below twice the form on every stream; OMD's ratio still grows, to {drifting:.2f} at the largest drift",
            BOUNDS,
            f"regret over the form, T = 256 and 4096: OFTRL {of.ratios('OFTRL')}, OMD {of.ratios('Optimistic OMD')}",
        ),
        Claim(
            "Table 1, row of OONS",
            "√sigma² + √Sigma², up to logarithms",
            "`OONS`, [forms](#the-forms-of-the-bounds)",
            "yes",
            BOUNDS,
            f"regret over the form, T = 256 and 4096: {of.ratios('OONS')}",
        ),
        Claim(
            "Table 1, row of CA-OONS",
            "‖u‖² + ‖u‖(√sigma² + √Sigma²), with G known",
            "`CAOONS`, [forms](#the-forms-of-the-bounds)",
            "in part: after the change of equation (5), and for ‖u‖ from the unit of length on",
            BOUNDS,
            f"regret over the form, T = 256 and 4096: {of.ratios('CA-OONS')}",
        ),
        Claim(
            "Table 1, row of CLA-OONS",
            "‖u‖²(√sigma² + √Sigma²) + ‖u‖⁴ + √(sigma + G)",
            "`CLAOONS`, [forms](#the-forms-of-the-bounds)",
            "in part: the proof holds with other constants; measured, the ratio rises with T and with the noise",
            BOUNDS,
            f"regret over the form, T = 256 and 4096: {of.ratios('CLA-OONS')}",
        ),
        Claim(
            "Section 1.1, bounds of other papers",
            "‖u‖G√T with G known; with G unknown, terms in ‖u‖³, ‖u‖² and G²",
            f"the rivals below; {SHORT_PROOF}",
            "in part: the bound of Mhammedi and Koolen lacks its ‖u‖√V, and as printed is below the lower bound ‖u‖G√T",
            "by proof",
            "at ‖u‖ = T^(1/8): G√T printed, G T^(5/8) needed",
        ),
        Claim(
            "Section 1.1, Jacobsen and Cutkosky 2023",
            "‖u‖G√T + L‖u‖²√T for ‖g‖ ≤ G + L‖x‖",
            NOWHERE,
            "cited",
            NONE,
            "gradients may grow with x; all bounds of this page have their longest, G",
        ),
        Claim(
            "Section 1.1, Sachs et al. 2023",
            "adapts to an unknown strong convexity, by a search of steps whose range takes D and G",
            NOWHERE,
            "cited",
            NONE,
            "no bound of this page uses strong convexity",
        ),
        Claim(
            "Section 2.1, the model",
            "adversarial and stochastic losses, and what is between, are special cases",
            "`SEAStream`, `RandomOrderStream`, `CorruptedStream`, [streams](#kinds-of-streams)",
            "yes",
            BOUNDS,
            ", ".join(
                f"{kind} {of.bound(f'{kind}: OONS')}"
                for kind in ("independent", "drift alone", "random order, one pass", "corrupted")
            )
            + " (OONS)",
        ),
        Claim(
            "Section 2.2, step of Sachs et al.",
            "OFTRL has the rates; its step depends on D and G",
            '`OFTRL`, `OFTRL(schedule="minimum")`, the printed step in `oons_bounds.py`',
            "in part: rates yes, with less regret than OONS; the printed step has D and no G, and more regret",
            BOUNDS,
            f"T = 4096: {of.bound('T = 4096: OFTRL')}, least of two {of.bound('T = 4096: OFTRL, least of two')}, printed step "
            f"{of.bound('T = 4096: OFTRL, step as printed')}, OONS {of.bound('T = 4096: OONS')}",
        ),
        Claim(
            "Section 2.2, step of Chen et al.",
            "optimistic OMD has the rates, with D and G in its step",
            "`OptimisticOMD`",
            "yes",
            BOUNDS,
            f"T = 4096: {of.bound('T = 4096: Optimistic OMD')}",
        ),
        Claim(
            "Equation (2); Appendix B.1",
            "with implicit hints, ‖u‖(√largest variance + √Sigma²)",
            "[hints](#equation-2-and-implicit-hints)",
            "in part: it follows from Theorem 5 of Jacobsen and Cutkosky 2022, which is cited; measured, errors are below those "
            "of B.1, and the ratio to the form falls with T; with 16 cells the implicit equation was not solved in all rounds",
            BOUNDS,
            f"16 cells, T = 128 and 2048: ratios {ends[0]} and {ends[1]}; errors at T = 2048 {short(fmean(errors))}",
        ),
        Claim(
            "Equation (2), the worst case",
            "at most ‖u‖√T",
            "`ParameterFreeMirrorDescent`, [worst case](#the-worst-case-of-ca-oons)",
            "cited: by the same theorem; the figure is no test, as a learner at 0 has it too",
            BOUNDS,
            f"over ‖u‖√T, ‖u‖ = 1, 10, 100: {of.hardest('Mirror descent')}",
        ),
        Claim(
            "Section 2.2, implicit updates",
            "the bound by the largest variance takes an update that costs far more",
            "[hints](#equation-2-and-implicit-hints)",
            "yes: 32 gradients a round by iteration",
            BOUNDS,
            f"{implicit:.0f} times the time of explicit hints (OONS)",
        ),
        Claim(
            "Section 2.2, the RVU property",
            "a bound in sigma² takes a negative term in the movement of x_t",
            "the last terms of (1) and (2) of ours, [proof](parameter_free_theory.md#oons)",
            "yes: OONS has it, and the proof of Theorem 3.2 uses it",
            "by proof",
            "with the negative term the first term of our (1) has the factor 1.17; without it, 0.68",
        ),
        Claim(
            "Section 2.2 and Proposition A.1",
            "the largest variance is at least the variance, and can be T times it",
            "`SEAStream(cells=...)`, [streams](#kinds-of-streams), [as many cells](#as-many-cells-as-rounds)",
            "yes; the regret follows the variance",
            BOUNDS,
            f"T = 1024 cells: {short(many['variance'])} and {short(many['largest_variance'])}; OONS "
            f"{of.bound('as many cells, T = 64: OONS')} at T = 64, {of.bound('as many cells, T = 1024: OONS')} at 1024",
        ),
        Claim(
            "Remark after Proposition A.1",
            "bounds in the largest variance can be T times looser",
            f"{SHORT_PROOF}; [as many cells](#as-many-cells-as-rounds)",
            "no: the sums differ by a factor of order T, the bounds, their roots, by one of order √T",
            BOUNDS,
            f"T = 1024: {short(many['largest_variance'] / many['variance'])} times, the roots "
            f"{short(math.sqrt(many['largest_variance'] / many['variance']))} times",
        ),
    ]


def newton(of: Figures) -> list[Claim]:
    """Return the claims of Section 3 and Appendix C."""
    late = of.speed["long run"]["OONS, eigen"][0]
    within, anywhere = (of.bounds[f"sparse, {name} coordinates"]["shares"][-1][1] for name in (8, 64))
    filled = of.bounds["sparse, 64 coordinates"]["shares"][-1][0]
    return [
        Claim(
            "Algorithm 1, OONS",
            "optimistic online Newton steps in a ball of known radius",
            "`OONS`",
            "yes; with a ridge that has the unit of the loss by default",
            SPEED,
            f"a step costs the same at all times: {late:.2f} times; d = 32: {of.step('OONS, eigen')} of OFUL's, frozen "
            f"{of.step('OONS, frozen')}",
        ),
        Claim(
            "Theorem 3.1, (3)",
            "regret by the errors of the hints, on every sequence",
            f"Theorem 1, {PROOFS}, with smaller constants",
            "in part: ln(·) needs the 1 + of Lemma C.3's proof; without it the first term is below 0 for T < 64 D z",
            "tests",
            "1000 random and adversarial sequences for each preset",
        ),
        Claim(
            "Equation (4)",
            "steps of min{1/(64 D z_T), 1/(D√V)}",
            f"`OONS`; {PROOFS}",
            "yes; z_t does for z_T",
            "by proof",
            "a growing z_t costs (4 look/cap) R (z_T - z_1)",
        ),
        Claim(
            "Theorem 3.2",
            "regret of √sigma² + √Sigma², up to logarithms",
            "Corollary 2, [growth](#regret-against-t)",
            "yes",
            FREE,
            f"slopes in T {of.slopes('OONS')}; theory 0.50 and 0.00",
        ),
        Claim(
            "Remark 3.3, against OMD",
            "without a known D, the D√V of OMD may give regret of order T",
            "[without a ball](#learners-without-a-ball)",
            "yes: even T^1.5",
            BOUNDS,
            f"power of T: `AdaGrad`, scale-free mirror descent, {of.turned('AdaGrad')}",
        ),
        Claim(
            "Remark 3.3, D in (3)",
            "D(z_T - z_1) is the only term with D",
            SHORT_PROOF,
            "no: 64 η D z ≤ 1 makes the first term at least 64 D z r ln(·), and with (4) D multiplies √V too, as in OMD; only "
            "E.1's rate has no D",
            "by proof",
            "64 D z",
        ),
        Claim(
            "Lemmas C.1, C.2",
            "inequalities of one and of two proximal steps",
            f"steps 1 and 2, {PROOFS}",
            "in part: C.1's last divergence has its arguments swapped, which changes nothing for OONS",
            "by proof",
            "equal for squares, not for entropies",
        ),
        Claim(
            "Lemma C.3",
            "`0 ≤ b_t ≤ 2‖v_t‖²` in A_t⁻¹, v_t being the corrected error, and their sum",
            f"steps 4 and 7, {PROOFS}",
            "in part: `b_t ≤ ‖v_t‖²` is true too; the sum needs its 1 + in ln(·)",
            "tests",
            "the sums beneath Theorem 1",
        ),
        Claim(
            "Lemma C.4",
            "Σ s_t/√(s_1 + ... + s_t) ≤ 2√(s_1 + ... + s_T)",
            f"Corollary 1, {PROOFS}",
            "yes; but η_t has the sum to t - 1, so its use needs the cap of η_t",
            "by proof",
            "2 + 1/cap in place of 2",
        ),
        Claim(
            "Lemma C.5",
            "errors of hints by noise (8 times), drift and movement (4 times each)",
            f"Corollary 2, {PROOFS}",
            "yes, with m_1 = 0",
            BOUNDS,
            f"T = 512: errors {short(fmean(of.bounds['hints, 1 cells: OONS, last']['errors']))}, 8 times the noise alone "
            f"{short(8.0 * of.bounds['hints, 1 cells: sums']['variance'])}",
        ),
        Claim(
            "Appendix C.4, inverse",
            "the formula of Sherman, Morrison and Woodbury makes a step O(d²)",
            '`OONS(form="frozen")`',
            "in part: the multiple of I in A_t changes with η_t, so it has to be held; rounds that project cost O(d³)",
            SPEED,
            f"d = 32: {of.step('OONS, frozen')} of OFUL's step, exact {of.step('OONS, eigen')}",
        ),
        Claim(
            "Appendix C.4, sketch",
            "less memory and time; guarantees are future work",
            f'`OONS(form="sketch")`, {PROOFS}',
            "yes: O(dr), with the price in the bound",
            SPEED,
            f"d = 32: {of.step('OONS, sketch')} of OFUL's step",
        ),
        Claim(
            "Appendix C.4, sparsity",
            "sparse gradients avoid O(d²)",
            f"[sparse gradients](#sparse-gradients); {SHORT_PROOF}",
            "in part: the inverse stays sparse only where all gradients have the same few places; a sparse factor of A helps "
            "only while A stays sparse",
            BOUNDS,
            f"d = 64, t = 256, 2 places each: inverse filled {within:.0%} within 8 coordinates, {anywhere:.0%} anywhere, A "
            f"{filled:.0%}",
        ),
    ]


def adaptive(of: Figures) -> list[Claim]:
    """Return the claims of Section 4.1 and Appendix D."""
    return [
        Claim(
            "Algorithm 2, CA-OONS; equation (5)",
            "regret is at most a learner's and that of the weights, at losses ⟨∇f_t(x^j), x^j⟩",
            '`CAOONS(meta="paper")`, [counter-example](#the-counter-example-to-equation-5)',
            "no: (5) is false for losses that are not linear",
            FREE,
            f"slope in T of the counter-example: printed {of.example('paper')}, values {of.example('values')}, linear "
            f"{of.example('linear')}",
        ),
        Claim(
            "Equation (7), the grid of rates",
            "whole powers of 2 between G D_j and G D_j√T",
            "`MsMwCMaster`",
            "in part: it is empty where T < 4 and no power of 2 is there; it does not scale with the losses",
            "tests",
            "the grid here starts at the least range",
        ),
        Claim(
            "Algorithm 3, MsMwC-Master; Table 2; Lemma D.1",
            "weights over learners of different ranges, in three layers",
            "`MsMwCMaster`",
            "in part: after three changes, a square, the middle rates and the grid; D_iΓ_i lacks a G",
            "tests",
            "the bound holds on some hundred sequences",
        ),
        Claim(
            "Algorithm 5, MsMwC",
            "multi-scale weights with hints",
            "`MsMwC`",
            "in part: with m^j read as the hint h^j, and D_φ as that of the round",
            "tests",
            "the bound holds on some hundred sequences",
        ),
        Claim(
            "Theorem 4.1, (8)",
            "regret of ‖u‖² + ‖u‖(√sigma² + √Sigma²)",
            '`CAOONS(meta="values")`, [comparators](#the-comparator)',
            "in part: false for the printed losses; proved with values, for ‖u‖ from the unit of length on; with constants that "
            "other learners do not have",
            FREE,
            f"‖u‖ = 0.1, 1, 10, 100: {of.comparator('CA-OONS')}; KT {of.comparator('KT')}",
        ),
        Claim(
            "Theorem 4.1, small comparators",
            "regret falls with ‖u‖",
            f"{SHORT_PROOF}; [comparators](#the-comparator)",
            "no: at u = 0 (8) says 0; the proof has D_1 = 2 below ‖u‖ = 2",
            FREE,
            f"‖u‖ = 0.1 and 1: {', '.join(of.comparator('CA-OONS').split(', ')[:2])}",
        ),
        Claim(
            "Appendix D.4, case 3",
            "for ‖u‖ > 2^N regret is at most 2G‖u‖²",
            "[proof](parameter_free_theory.md#ca-oons)",
            "yes: all decisions are shorter than u, and T ≤ 2^N, the logarithm being to base 2",
            "by proof",
            "2GT‖u‖ ≤ 2G‖u‖²",
        ),
        Claim(
            "Section 4.1, a domain of diameter D",
            "(8) gives D² + D(√sigma² + √Sigma²)",
            "`CAOONS(domain=...)`, [domains](parameter_free.md#domains)",
            "in part: after the change of equation (5); proved for every convex set in a ball",
            "tests",
            "Theorem 1 on four domains",
        ),
        Claim(
            "Section 4.1, the worst case",
            "only ‖u‖² + ‖u‖√T, where others have ‖u‖√T",
            "(12) of ours, [proof](parameter_free_theory.md#ca-oons), [comparators](#the-comparator)",
            "yes, as printed: from the ridge 4z² and from ‖u‖ > 2^N; with our ridge ‖u‖G√T up to logarithms and d, for ‖u‖ from "
            "the unit of length to D_N",
            FREE,
            f"over G‖u‖√T, ‖u‖ = 10 and 100: {of.over_worst('CA-OONS')}, the paper's constants "
            + of.over_worst("CA-OONS, paper's constants"),
        ),
        Claim(
            "Remark 4.2",
            "a conjecture: ‖u‖² cannot be avoided by first-order learners",
            "(11) of ours, [proof](parameter_free_theory.md#oons), [floor](#a-floor-for-one-gradient-a-round)",
            "in part: power 4/3, for deterministic learners with one query a round and bounds free of d (d = 2T)",
            BOUNDS,
            f"T = 64, floor 4: {of.floor()}",
        ),
        Claim(
            "Remark 4.2, conversions",
            "to offline rates: regret by gradient variation to L d_0²/T², worst-case regret to G d_0/√T",
            NOWHERE,
            "cited",
            NONE,
            "why the paper expects ‖u‖²; no bound on regret",
        ),
        Claim(
            "Remark 4.3",
            "both bounds, by smoothness and in the worst case, are hard to have at once",
            "(7) and (12) of ours, [proof](parameter_free_theory.md#ca-oons)",
            "in part: where G is known, as here, CA-OONS with values has both, up to d and logarithms, for ‖u‖ from the unit of "
            "length to D_N; without G it stays open",
            f"{BOUNDS}, {FREE}",
            f"over the form, T = 4096: {of.ratios('CA-OONS').split(' ')[-1]}; over G‖u‖√T, ‖u‖ = 10 and 100: "
            f"{of.over_worst('CA-OONS')}",
        ),
        Claim(
            "Remark 4.3, Kreisler et al. 2024",
            "the best universal method offline: UnixGrad with DoG's steps; it needs a range of parameters",
            NOWHERE,
            "cited",
            NONE,
            "`DoG` alone is a rival here",
        ),
        Claim(
            "Remark 4.4, doubling",
            "without T at most a logarithm more, by epochs or by sleeping learners",
            "`CAOONS(horizon=None)`, [doubling](#doubling)",
            "in part: yes with at least one learner, where N_1 = 0 is printed; sleeping learners cost less than epochs",
            BOUNDS,
            f"‖u‖ = 1: told T {of.bound('doubling, values, 1: told T')}, epochs {of.bound('doubling, values, 1: epochs')}, "
            f"sleeping {of.bound('doubling, values, 1: sleeping')}",
        ),
    ]


def lipschitz(of: Figures) -> list[Claim]:
    """Return the claims of Section 4.2 and Appendix E, and the questions of Section 5."""
    quiet, noisy = (of.bounds[f"radius, sigma = {sigma}, T = 4096"] for sigma in (0, 0.3))
    sums = of.bounds["radius, sigma = 0, T = 4096: sums"]
    return [
        Claim(
            "Section 4.2, truncation",
            "‖g̃_t - m_t‖ ≤ B_{t-1}, which is known before the round",
            "`CLAOONS`",
            "yes, for B_0 > 0",
            "by proof",
            "‖g_t - m_t‖/B_t ≤ 1",
        ),
        Claim(
            "Algorithm 4, CLA-OONS; Theorem 4.5",
            "neither the comparator nor the lengths of gradients are known",
            "`CLAOONS`, [growth](#regret-against-t)",
            "in part: by its bound, corrected, whose G D_T grows like √T; its regret grows nearly like T in noise",
            FREE,
            f"slopes in T {of.slopes('CLA-OONS')}",
        ),
        Claim(
            "Theorem 4.5, the form √(sigma + G)",
            "the radius is at most of the order √(sigma_{1:T} + G_{1:T})",
            "[radius](#the-radius-of-cla-oons)",
            "yes: equation (9) of ours, proved and met",
            BOUNDS,
            f"T = 4096, D_T and its bound: sigma = 0.3, {of.radius('0.3')}; sigma = 0, {of.radius('0')}",
        ),
        Claim(
            "Section 4.2 and Appendix E, the radius",
            "it changes O(log T) times and stays below √T",
            "`CLAOONS`, [radius](#the-radius-of-cla-oons)",
            "in part: below 2√T; at most 1 + ½ log₂ T changes",
            BOUNDS,
            f"T = 4096, sigma = 0.3: largest D_T {short(max(noisy['radius']))} for √T = 64, changes {max(noisy['starts'])}",
        ),
        Claim(
            "CLA-OONS, units",
            "nothing must be known",
            "`CLAOONS(gradient_scale=None)`, [scale](#the-scale-of-gradients)",
            "in part: by default here; not with the scale of 1 that the paper's proof begins with",
            BOUNDS,
            f"gradients times 0.0001: {of.bound('scale 0.0001: CLA-OONS')}; with the scale 1: "
            f"{of.bound('scale 0.0001: CLA-OONS, gradient_scale=1')}; FreeGrad {of.bound('scale 0.0001: FreeGrad')}",
        ),
        Claim(
            "Remark 4.6, the term √G_{1:T}",
            "it does no harm, as √sigma² and √Sigma² are of order √T too, in the worst case",
            "[radius](#the-radius-of-cla-oons)",
            "in part: in the worst case; where noise and drift are 0 the term alone is √(G T), and the regret does not need it",
            BOUNDS,
            f"sigma = 0, T = 4096: √G_{{1:T}} {short(math.sqrt(sums['gradients']))}, regret {short(fmean(quiet['regret']))}",
        ),
        Claim(
            "Remark 4.6, many learners",
            "‖u‖√(rV) + ‖u‖³, but not by sigma² and Sigma²",
            "`ExpertEnsemble`",
            "run: learners of all radii with G known, and constants of ours; more regret than KT",
            FREE,
            of.comparator("Expert ensemble"),
        ),
        Claim(
            "Remark 4.6, movement",
            "without a ball, the movement of x_t in the errors cannot be paid by that of a learner",
            "(7) of ours, [proof](parameter_free_theory.md#ca-oons)",
            "in part: with values each learner has its own gradients and pays for its own movement, for G known; G unknown stays "
            "open",
            "by proof",
            "half of the negative term of our (2) pays",
        ),
        Claim(
            "Remark 4.6, Cutkosky 2019 on combining",
            "asks for ‖g‖, ‖m‖ ≤ 1: not Lipschitz-adaptive",
            NOWHERE,
            "cited",
            NONE,
            "G known, as for CA-OONS",
        ),
        Claim(
            "Section 1.1 and Remark 4.6, earlier methods",
            "parameter-free methods so far have no bounds by sigma² and Sigma²",
            "`CoinBetting`, `FreeGrad`, `ParameterFreeMirrorDescent`",
            "yes, of bounds: no proof of theirs has a negative term in the movement of x_t; measured, FreeGrad has less regret",
            BOUNDS,
            f"T = 4096: FreeGrad {of.bound('T = 4096: FreeGrad')}, OONS {of.bound('T = 4096: OONS')}, CA-OONS "
            f"{of.bound('T = 4096: CA-OONS')}",
        ),
        Claim(
            "Open: less dependence on ‖u‖",
            "‖u‖² where D and G are unknown",
            "`FreeGrad`",
            "run: ‖u‖√V up to logarithms, which is not by sigma² and Sigma², and (2 max‖x_t‖ + ‖u‖)h for late long gradients; "
            "less regret than CLA-OONS at every ‖u‖",
            FREE,
            f"CLA-OONS {of.comparator('CLA-OONS')}; FreeGrad {of.comparator('FreeGrad')}",
        ),
        Claim(
            "Open: O(1) gradients a round",
            "CA-OONS takes O(log T)",
            '`CAOONS(meta="linear")`, (6) and (12) of ours, [proof](parameter_free_theory.md#ca-oons)',
            "run: one gradient a round; by sigma² and Sigma² proved for linear losses only, measured for Huber's too",
            BOUNDS,
            f"over the form, T = 256 and 4096: {of.ratios('CA-OONS, linear')}; with values {of.ratios('CA-OONS')}",
        ),
        Claim(
            "Open: two bounds, one learner",
            "‖u‖² + ‖u‖(√sigma² + √Sigma²) and ‖u‖G√T",
            '`CAOONS(meta="values")`, (7) and (12) of ours, [proof](parameter_free_theory.md#ca-oons)',
            "run: it has both, up to d and logarithms, for ‖u‖ from the unit of length to D_N, which is at least T; with "
            "O(log T) queries a round and three layers, where a simple algorithm is asked for",
            FREE,
            f"over G‖u‖√T, ‖u‖ = 10 and 100: {of.over_worst('CA-OONS')}",
        ),
        Claim(
            "Open: high probability",
            "only the expected regret is bounded; a bound by sigma² and Sigma² is not trivial",
            "(10) of ours, [proof](parameter_free_theory.md#oons), [tails](#high-probability)",
            "run: for known G and convex losses, as drawn: 8G² ln(1/p) more under the root, no ln(1/p) at sigma²; expected "
            "losses for OONS only, with √(sigma² ln(1/p)) more; not for CLA-OONS",
            BOUNDS,
            f"T = 512, quantile 0.99 over the mean, expected losses and as drawn: OONS {of.tail('OONS')}, CA-OONS "
            f"{of.tail('CA-OONS')}, CLA-OONS {of.tail('CLA-OONS')}",
        ),
    ]


def rivals(of: Figures) -> list[Claim]:
    def comparator(name: str, claim: str, shown: str, verdict: str) -> Claim:
        return Claim(f"Rival: {name}", claim, f"`{shown}`", verdict, FREE, of.comparator(name))

    return [
        Claim(
            "Assumption 2.2, domains",
            "convex sets with a known diameter",
            "`OONS(domain=...)`, [domains](parameter_free.md#domains)",
            "yes: boxes, simplices and polytopes inside the ball",
            "tests",
            "Theorem 1 on four domains",
        ),
        comparator(
            "Mirror descent",
            "parameter-free, by the largest variance",
            "ParameterFreeMirrorDescent",
            "run: more regret than KT; its bound has Σ‖g_t - g_{t-1}‖²; (2) takes implicit hints, which it has not",
        ),
        comparator(
            "Scale-free coin betting",
            "Cutkosky 2019: G‖u‖³ + ‖u‖G√T, with nothing known",
            "ScaleFreeCoinBetting",
            "run: knows nothing; constants of ours; less regret than CLA-OONS up to ‖u‖ = 1",
        ),
        comparator(
            "SOLO FTRL",
            "Orabona and Pál 2018: ‖u‖²G√T",
            "SOLOFTRL",
            "run: knows nothing; wants the unit of length; less regret than CLA-OONS up to ‖u‖ = 10",
        ),
        Claim(
            "Rival: scale-free mirror descent",
            "of Orabona and Pál 2018 the paper cites the bound of FTRL; of OMD without D see Remark 3.3",
            "`AdaGrad`, which has these steps, [without a ball](#learners-without-a-ball)",
            "run: without a ball its regret is 0.0809 T^1.5 where gradients turn once; in noise it is ahead of OONS",
            BOUNDS,
            f"T = 4096: {of.bound('turn, T = 4096: AdaGrad')}, power of T {of.turned('AdaGrad')}; in noise "
            f"{of.bound('no ball, T = 4096: AdaGrad')}, OONS {of.bound('T = 4096: OONS')}",
        ),
        comparator(
            "FreeGrad",
            "Mhammedi and Koolen 2020: parameter-free and scale-free",
            "FreeGrad",
            "run: knows nothing, and has less regret than CLA-OONS",
        ),
        Claim(
            "Rival: Cutkosky and Mhammedi 2024",
            "‖u‖G√T + ‖u‖² + G², with nothing known",
            NOWHERE,
            "cited: not run; the best cited bound where D and G are unknown, as for CLA-OONS",
            NONE,
            "in this setting `FreeGrad` was run, and has less regret than CLA-OONS",
        ),
        comparator("KT", "Orabona and Pál 2016: ‖u‖G√T, the best known", "CoinBetting", "run: the one to beat"),
        comparator("DoG", "parameter-free SGD", "DoG", "run: no regret bound is claimed"),
        comparator("DoWG", "parameter-free SGD", "DoWG", "run: no regret bound is claimed"),
        comparator(
            "D-Adaptation", "not cited: an estimate of the distance", "DAdaptation", "run: no regret bound is claimed"
        ),
        comparator("Prodigy", "not cited: the same, with Adam", "Prodigy", "run: no regret bound is claimed"),
        Claim(
            "Rivals: schedule-free, SGD, Adam",
            "not cited: learners with a rate",
            "[what it is worth](parameter_free_measured.md#what-it-is-worth)",
            "run: beside all others, with one budget",
            CALIBRATION,
            "[table](parameter_free_measured.md#what-it-is-worth)",
        ),
    ]


def claims() -> list[Claim]:
    """Return every claim of the paper."""
    of = Figures()
    return [*problem(of), *newton(of), *adaptive(of), *lipschitz(of), *rivals(of)]


def tables() -> dict[str, str]:
    """Return the table of every claim."""
    return {"Every claim": claims_table("O", claims())}
