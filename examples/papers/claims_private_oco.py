"""Every claim of the DP-TOFW paper, and what the saved results of ``private_oco*.py`` say of it.

A table of the site; docs/private_oco.md shows its main rows. It has a row for every algorithm, theorem, table, figure, rival and
application of the paper of Han, Liang, Liang, Wang, Yao and Zhang (2022). Numbers of ours are computed from the saved results.
"""

import math
import re
import statistics
from collections.abc import Iterable
from typing import Any

import private_oco_figures as figures
import private_oco_theorems as theorems
from claim import Claim, claims_table
from experiment import Results, Slope, saved, short
from private_oco import NORMS, Played
from private_oco_rates import RIVALS, least_worst_excess, mean_of, place_of, plan_of, setting_of
from private_streams import Setting

OCO, RATES, SPEED = "`private_oco.py`", "`private_oco_rates.py`", "`private_oco_speed.py`"
THEOREMS, FIGURES, NONE = "`private_oco_theorems.py`", "`private_oco_figures.py`", "none"
PRINTED, PROVED = "as printed, NOT PRIVATE", "equation (3.2)"


def span(values: Iterable[float]) -> str:
    """Return the least and the largest."""
    found = sorted(values)
    return f"{short(found[0])} to {short(found[-1])}"


def rough_span(values: Iterable[float]) -> str:
    """Return the least and the largest, with powers of ten."""
    found = sorted(map(theorems.rough, values), key=float)
    return found[0] if found[0] == found[-1] else f"{found[0]} to {found[-1]}"


def exponents(values: Iterable[float]) -> str:
    found = sorted(values)
    low, high = f"{found[0]:z.2f}", f"{found[-1]:z.2f}"
    return low if low == high else f"{low} to {high}"


class Regression:
    """Figures of Table 5.1 and Figure 5.1."""

    def __init__(self, results: Results) -> None:
        self.played = Played(results)

    def proved(self) -> str:
        return span(statistics.fmean(self.played.tuned(PROVED, cell)) for cell in self.played.cells)

    def over_paper(self, norm: float) -> str:
        ratios = self.played.of_paper(PRINTED, norm)
        return f"{span(ratios)} times the paper's numbers, median {short(statistics.median(ratios))}"

    def epsilons(self, name: str, norms: tuple[float, ...] = NORMS) -> str:
        """Return the epsilons of an algorithm, exact or from below."""
        found = []
        for cell in (cell for cell in self.played.cells if cell.norm in norms):
            known = self.played.runs(name, cell)[0]["epsilon"]
            found.append(self.played.results[f"losses, {cell}"] if known is None else known)
        return span(found)

    def below_paper(self) -> str:
        counts = [self.played.below_paper(norm) for norm in NORMS]
        default, tuned = (" and ".join(str(count[i]) for count in counts) for i in (0, 1))
        cells = len(self.played.of_paper(PRINTED, NORMS[0]))
        return f"default below the paper's number in {default} of {cells} cells, tuned in {tuned}"

    def audited(self, name: str) -> str:
        """Return the lower bound on epsilon that an audit gives."""
        (text,) = (text for job, text in self.played.results.items() if job.startswith(f"audit, {name}, "))
        (bound,) = re.findall(r"epsilon >= ([0-9.]+)", text)
        return bound

    def regret(self, name: str) -> str:
        return f"{statistics.fmean(self.played.least_regret(name)['regret']):.0f}"

    def suboptimality(self) -> str:
        default, tuned = (
            span(statistics.fmean(of("DPTOFW", cell)) for cell in self.played.cells)
            for of in (self.played.default, self.played.tuned)
        )
        return f"{default} by default, {tuned} tuned"

    def beaten(self, rival: str) -> str:
        """Count the cells in which DPTOFW has less, with a clip of 1."""
        cells = [cell for cell in self.played.cells if f"{rival}, {cell}" in self.played.results]
        ours, theirs = (
            [[run for run in self.played.runs(name, cell) if run["clip"] == 1.0] for cell in cells]
            for name in ("DPTOFW", rival)
        )

        def of(runs: list[dict[str, Any]]) -> list[float]:
            return [statistics.fmean(run["suboptimality"]) for run in runs]

        pairs = [(of(a), of(b)) for a, b in zip(ours, theirs, strict=True)]
        default, tuned = sum(a[0] < b[0] for a, b in pairs), sum(min(a) < min(b) for a, b in pairs)
        return f"`DPTOFW` has less in {default} of {len(cells)} cells by default, in {tuned} with step scales tuned"

    def least(self, rival: str) -> str:
        """Return the least of a rival's means."""
        cells = [cell for cell in self.played.cells if f"{rival}, {cell}" in self.played.results]
        runs = [run for cell in cells for run in self.played.runs(rival, cell)]
        return short(min(statistics.fmean(run["suboptimality"]) for run in runs))

    def step_time(self, name: str) -> str:
        found = [self.played.results[f"times, {cell}"][name] for cell in self.played.cells]
        return f"{statistics.median(found):.2f}"


class Rates:
    """Figures of the measured rates."""

    def __init__(self, results: Results) -> None:
        self.results, self.plan = results, plan_of(results)

    def rates(self, axis: str, norms: tuple[float, ...], kind: str = "tuned") -> str:
        """Return exponents of the excess of linear regression, where something is learnt."""
        found = []
        for norm in norms:
            line = [setting for setting in self.plan.rates()[axis] if setting.norm == norm]
            runs = {setting: self.results[f"rates, {setting}"] for setting in line}
            learnt = [s for s in line if statistics.fmean(runs[s]["tuned"]) < 0.5 * runs[s]["zero"]] or line
            found.append(Slope.fit([setting_of(axis, s) for s in learnt], [runs[s][kind] for s in learnt]).value)
        return exponents(found)

    def hard_lines(self, axis: str, epsilon: float) -> list[list[Setting]]:
        return [line for line in self.plan.hard()[axis] if line[0].epsilon == epsilon]

    def hard(self, axis: str, epsilon: float, norms: tuple[float, ...], last: int = 0) -> list[float]:
        """Return exponents of the worst excess over linear losses, default and tuned."""
        found = []
        for line in self.hard_lines(axis, epsilon):
            if line[0].norm in norms:
                part = line[-last:]
                for kind in ("default", "tuned"):
                    runs = [self.results[f"hard, {setting}"][kind]["excess"] for setting in part]
                    found.append(Slope.fit([setting_of(axis, setting) for setting in part], runs).value)
        return found

    def over_least(self) -> str:
        """Return the worst excess without privacy over the lower bound, against n."""
        settings = [setting for line in self.hard_lines("n", math.inf) for setting in line]
        runs = [self.results[f"hard, {setting}"] for setting in settings]
        least = [least_worst_excess(setting) for setting in settings]
        return short(
            max(
                statistics.fmean(run[kind]["excess"]) / bound
                for run, bound in zip(runs, least, strict=True)
                for kind in ("default", "tuned")
            )
        )

    def interior(self, place: str, epsilon: float) -> str:
        """Return exponents of the excess within one run."""
        settings = [s for s in self.plan.interior() if place_of(s) == place and s.epsilon == epsilon]
        times = self.plan.times()
        return exponents(Slope.fit(times, self.results[f"interior, {setting}"]["excess"]).value for setting in settings)

    def growth(self) -> str:
        """Return the growth of the regret in the last doubling over that before, inside, at all epsilons."""
        found = []
        for setting in (setting for setting in self.plan.interior() if place_of(setting) == "inside"):
            *_, first, second, third = mean_of(self.results[f"interior, {setting}"]["regret"])
            found.append((third - second) / (second - first))
        return span(found)

    def price(self) -> str:
        """Return the regret at epsilon = 1 over that without privacy at the last time, inside."""
        inside = [setting for setting in self.plan.interior() if place_of(setting) == "inside"]
        ends = {
            (setting.norm, setting.epsilon): mean_of(self.results[f"interior, {setting}"]["regret"])[-1]
            for setting in inside
        }
        return span(ends[norm, 1.0] / ends[norm, math.inf] for norm in {setting.norm for setting in inside})

    def entry(self) -> str:
        """Return by how much the excess at p = 1 grows with d, with Gumbel noise."""
        found = []
        for (_, noise), settings in self.plan.entry().items():
            if noise == "gumbel":
                means = mean_of([self.results[f"entry, {noise}, {setting}"] for setting in settings])
                found.append(means[-1] / means[0])
        (settings, *_) = self.plan.entry().values()
        return f"{span(found)} times from d = {settings[0].dim} to {settings[-1].dim}, where √d grows {self._root():.0f} times"

    def _root(self) -> float:
        (settings, *_) = self.plan.entry().values()
        return math.sqrt(settings[-1].dim / settings[0].dim)

    def laplace(self) -> str:
        """Return the excess with Laplace noise over that with the better one of the others, where something is learnt."""
        found = []
        for setting in self.plan.all_vertices():
            means = {
                name: statistics.fmean(self.results[f"p1, {name}, {setting}"]) for name in ("gumbel", "laplace", "blt")
            }
            if min(means.values()) < 0.9:
                found.append(means["laplace"] / min(means["gumbel"], means["blt"]))
        return f"{span(found)} times the excess of the better one of Gumbel noise and the BLT"

    def bandit(self, name: str) -> str:
        games = self.plan.bandit()
        runs = [self.results[f"bandit, {name}, {game}"] for game in games]
        return f"{Slope.fit([game.dim for game in games], runs).value:z.2f}"

    def logistic(self) -> str:
        """Return the regret over that of arms at random, by epsilon."""
        found = []
        for game in self.plan.logistic():
            ours, chance = (
                statistics.fmean(self.results[f"logistic, {name}, {game}"]) for name in ("DPHDB", "uniform")
            )
            found.append(f"{ours / chance:.2f} at epsilon {game.epsilon:g}")
        return f"regret over that of arms at random: {', '.join(found)}".replace("epsilon inf", "infinity")

    def sgd(self) -> str:
        """Compare NoisySGD with DPTOFW."""
        runs = [self.results[f"sgd, {setting}"] for setting in self.plan.sgd()]
        default = sum(statistics.fmean(run["NoisySGD"]["1"]) < statistics.fmean(run["default"]) for run in runs)
        tuned = sum(min(mean_of(list(run["NoisySGD"].values()))) < statistics.fmean(run["tuned"]) for run in runs)
        times = span(run["time"] for run in runs)
        said = f"it has less than `DPTOFW` in {default} of {len(runs)} cells by default, in {tuned} tuned"
        return f"{said}; a run takes {times} times as long"

    def conditional(self) -> str:
        """Count the cells in which LocalMD with a promise has less than its rivals."""
        runs = [self.results[f"smooth, {loss}, {setting}"] for loss, setting in self.plan.smooth()]
        counts = [sum(statistics.fmean(run["1"]) < statistics.fmean(run[name]) for run in runs) for name in RIVALS]
        said = [f"{name} in {count}" for name, count in zip(RIVALS, counts, strict=True)]
        return f"with a promise of smooth losses it has less than {', '.join(said)} of {len(runs)} cells"


class Theorems:
    """Figures of the theorems with their constants."""

    def __init__(self, results: Results) -> None:
        self.results, self.plan = results, theorems.plan_of(results)
        self.balls = theorems.checks(results, self.plan, False)
        self.vertices = theorems.checks(results, self.plan, True)

    def _as_proved(self, epsilon: float, is_vertex: bool) -> list[theorems.Checked]:
        """Return the settings of the algorithms as the paper has them, for all p."""
        found = self.vertices if is_vertex else self.balls
        return [one for one in found if one.setting.epsilon == epsilon and one.learner != "default"]

    def over(self, bound: str, what: str, epsilon: float, is_vertex: bool = False) -> str:
        """Return a bound over the largest of the trials, as proved, for all p."""
        kept = self._as_proved(epsilon, is_vertex)
        return rough_span(one.over(getattr(one.bounds, bound), what) for one in kept)

    def total(self, bound: str, epsilon: float, is_vertex: bool = False) -> str:
        """Return the sum of a bound over the largest regret, as proved, for all p."""
        return rough_span(one.total(getattr(one.bounds, bound)) for one in self._as_proved(epsilon, is_vertex))

    def growth(self, what: str, epsilon: float, learner: str, is_vertex: bool = False) -> str:
        """Return the exponents in t of the last four times."""
        found = self.vertices if is_vertex else self.balls
        kept = [one for one in found if (one.setting.epsilon, one.learner) == (epsilon, learner)]
        times = self.plan.times[-4:]
        return exponents(Slope.fit(times, one.run[what][-4:]).value for one in kept)

    def useful(self, bound: str, is_vertex: bool = False) -> str:
        """Return from which n a bound at epsilon = 1 is below the excess of the decision 0."""
        found = [one for one in (self.vertices if is_vertex else self.balls) if one.setting.epsilon == 1.0]
        powers = sorted({one.useful_from(bound) for one in found if one.learner != "default"}, key=float)
        return powers[0] if len(powers) == 1 else f"{powers[0]} to {powers[-1]}"

    def trials(self) -> str:
        """Return in how many settings of 1 < p the bounds hold, in all trials."""
        found = [one for one in self.balls if one.learner != "default"]
        return f"{sum(one.holds() for one in found)} of {len(found)} settings, all trials"

    def curvature(self) -> str:
        """Return exponents in d of the measured excess and of Theorem 3.6 for p = 1."""
        said = []
        for line in self.plan.curvature():
            runs = [self.results[f"curvature, {setting}"]["excess"][0] for setting in line]
            bound = [[theorems.vertex_bounds(setting).strong(setting.rounds)] for setting in line]
            dims = [setting.dim for setting in line]
            fits = (Slope.fit(dims, numbers).value for numbers in (runs, bound))
            said.append("measured {:.2f}, bound {:.2f} at ε = ".format(*fits) + f"{line[0].epsilon:g}")
        return "; ".join(said).replace("ε = inf", "infinity")

    def arms(self, what: str, name: str, epsilon: float) -> str:
        run = self.results[f"arms, epsilon = {epsilon:g}"][name][what]
        return f"{Slope.fit(self.plan.arms()[0]['times'], run).value:.2f}"

    def horizon(self, name: str) -> str:
        games = self.plan.horizon()[name]
        runs = [self.results[f"horizon, {name}, {game}"] for game in games]
        return f"{Slope.fit([game.rounds for game in games], runs).value:.2f}"

    def margin(self) -> tuple[str, str, str]:
        """Return lambda, its share of d, and what gamma must be, at the largest d."""
        told = self.plan.margin()[-1]
        run = self.results[f"margin, d = {told['dim']}"]
        least, nu = statistics.fmean(run["lambda"]), statistics.fmean(run["nu"])
        return short(least), short(least / told["dim"]), short(12.0 / math.sqrt(2.0) * nu)

    def last(self, name: str, is_vertex: bool = False) -> str:
        """Compare a rival that releases one decision with ours, by default and tuned."""
        cells = self.plan.last(is_vertex)
        runs = [self.results[f"last, {setting}"] for setting in cells]
        default = [statistics.fmean(run[name][0]) / statistics.fmean(run["ours"][0]) for run in runs]
        tuned = [min(mean_of(run[name])) / min(mean_of(run["ours"])) for run in runs]
        return f"{span(default)} times our excess by default, {span(tuned)} times tuned"

    def regret(self, losses: str, learner: str, axis: str) -> str:
        line = self.plan.regret()[losses, axis]
        runs = [self.results[f"regret, {losses}, {learner}, {setting}"] for setting in line]
        values = [setting.rounds if axis == "T" else setting.dim for setting in line]
        return f"{Slope.fit(values, runs).value:z.2f}"

    def noise(self) -> str:
        """Return the least epsilon of the noise as printed with the program's constants, at p = 1.5."""
        return f"at least {short(theorems.noise_of(self.results, self.plan, 1.5)[0][0])}"

    def audited(self) -> str:
        (bound,) = re.findall(r"epsilon >= ([0-9.]+)", self.results["audit"])
        return bound


class Figures:
    """Figures 5.2 and 5.3, and the printed rows of the rivals in Table 5.1."""

    def __init__(self, results: Results) -> None:
        self.drawn, self.rivals = figures.Drawn(results), figures.Rivals()

    def robust(self, norm: float) -> str:
        """Return the worst over the best mean over the step scales, of the rival, ours and as printed."""
        (cell,) = (cell for cell in self.drawn.first if cell.norm == norm)
        found = {name: self.drawn.robustness(name, cell) for name in figures.players(norm)}
        said = (f"{name.split(',')[0]} {short(whole)} and {short(near)}" for name, (whole, near) in found.items())
        return f"p = {norm:g}: {', '.join(said)}"

    def race(self, of: str) -> str:
        """Return a verdict on Figure 5.3."""
        return next(said for said in figures.race_verdicts(self.drawn) if said.startswith(of))

    def _said(self, norm: float) -> list[str]:
        start = f"p = {norm:g}: "
        return [said.removeprefix(start) for said in figures.rivals_verdicts(self.rivals) if said.startswith(start)]

    def weak(self, norm: float) -> str:
        """Return the printed rival over ours tuned, and how often ours has less than the printed OFW."""
        return "; ".join(self._said(norm)[:2])

    def seconds(self, norm: float) -> str:
        return self._said(norm)[-1]


def late_step(speed: Results) -> str:
    """Return the median time of a step in the later half of a long run over that in the first half."""
    *_, (steps, *_) = run = speed["a long run"]
    seconds = [part[-1] for part in run]
    half = len(run) // 2
    ratio = statistics.median(seconds[half:]) / statistics.median(seconds[:half])
    return f"{ratio:.2f} times as long in the second half of {steps} steps as in the first"


ERRATA, PROOFS = "[errata](#errata-that-matter-here)", "private_oco_theory.md"
CONSTANTS, LAST = (
    "[constants](#the-theorems-with-their-constants)",
    "[one decision at the end](#one-decision-at-the-end)",
)


def algorithms(found: Regression, rates: Rates, of: Theorems) -> list[Claim]:
    noise, table51 = "[worth of the noise](#what-the-noise-is-worth)", "[Table 5.1](#table-51)"
    return [
        Claim(
            "Algorithm 1, DP-TOFW; equation (3.1)",
            "one private Frank-Wolfe step a record, with an unbiased recursive gradient",
            f"`DPTOFW`, {table51}",
            "in part: with weights 1/t; as printed the first gradient is biased",
            OCO,
            f"suboptimality at (1, 1/T)-privacy {found.suboptimality()}; the decision 0 has 1",
        ),
        Claim(
            "Algorithm 2, DP-POFW",
            "the same for p = 1, with Laplace noise on the choice of a vertex",
            "`DPPOFW`, [many features](#p--1-with-many-features)",
            "yes; other noise is better",
            RATES,
            f"Laplace noise has {rates.laplace()}",
        ),
        Claim(
            "Algorithm 3, DP-HDB",
            "a learner an arm, preselection, and the greedy arm",
            "`DPHDB`, [Figure 5.1](#figure-51)",
            "in part: not with the noise as printed; with this library's",
            OCO,
            f"regret {found.regret('DP-HDB, printed')} as printed, {found.regret('DP-HDB')} by default, "
            f"{found.regret('uniform')} of arms at random",
        ),
        Claim(
            "Lemma 2.1",
            "generalized Gaussian noise with sigma² = 2 κ log(1/δ) s²/ε² is (ε, δ)-private",
            ERRATA,
            "in part: for a moderate ε only",
            NONE,
            "a proof",
        ),
        Claim(
            "Lemmas 3.1 and 5.1, Algorithm 4",
            "the squared norm of the noise has the law Gamma(d/2, scale 2 sigma); noise is drawn in this way",
            noise,
            "no: the scale is 2 sigma², as the paper's own proof has it",
            OCO,
            f"as printed, ε is {found.epsilons(PRINTED, (math.inf,))} at p = infinity (our inference), at least "
            f"{found.epsilons(PRINTED, (1.5,))} at p = 1.5, for a claimed 1, with βD + L = 14; {of.noise()} with the program's "
            f"8; the audit shows at least {found.audited(PRINTED)}",
        ),
        Claim(
            "Lemma 3.2",
            "the q norm is regular with κ = min{q - 1, e²(log d - 1)} and the index min{q - 1, log d - 1}, for q ≥ 2",
            ERRATA,
            "no: the index is one more, and κ is too small for few features",
            NONE,
            "a proof; for d = 5 the printed index is 0.609, of no norm, and for d = 2 the printed κ is negative",
        ),
        Claim(
            "Lemma 3.3",
            "for q < 2 it is regular with κ = d^(1 - 2/p) and a multiple of the Euclidean norm",
            "the normal noise at p = infinity",
            "yes",
            NONE,
            "a proof, by Hölder's inequality",
        ),
        Claim(
            "Algorithm 5",
            "a tree of noise for all prefix sums, in O(log n) memory",
            f'{ERRATA}; `mechanism="tree"` is without this error',
            "in part: not for the last prefix, if n is a power of 2",
            "tests",
            "by reading; memory O(d log n) here",
        ),
        Claim(
            "Theorem 3.1, equation (3.2)",
            "Algorithm 1 with this noise is (ε, δ)-private",
            noise,
            "in part: for a moderate ε, with κ and the index corrected; then with much to spare",
            OCO,
            f"ε is {found.epsilons(PROVED)} for a claimed 1; the audit shows at least {found.audited(PROVED)}",
        ),
        Claim(
            "Theorem 3.4",
            "Algorithm 2 with its Laplace noise is (ε, δ)-private",
            ERRATA,
            "in part: for a moderate ε, and for all records but the first; for the first if L ≤ βD",
            THEOREMS,
            f"an audit of the first record shows at least {of.audited()} for a claimed 1",
        ),
        Claim(
            "Theorem 4.1",
            "Algorithm 3 is jointly private",
            ERRATA,
            "in part: with each arm's own clock only",
            NONE,
            "a proof",
        ),
    ]


def excess_risk(rates: Rates, of: Theorems, speed: Results) -> list[Claim]:
    inf, below_two = math.inf, (1.5, 2.0)
    hard, convex = "[hard linear losses](#hard-linear-losses)", "[strongly convex](#strongly-convex-with-θ-inside)"
    return [
        Claim(
            "Proposition 3.1 (A.2)",
            "the gradient's error is of the order (√κ + √log(1/alpha)) (βD + G)/√t + sigma √d log n/t",
            CONSTANTS,
            "yes, but for the bias of the first gradient; the rate shows",
            THEOREMS,
            f"bound / largest error {of.over('gradient', 'error', inf)} without privacy, {of.over('gradient', 'error', 1.0)} at "
            f"ε = 1; exponents in t {of.growth('error', inf, 'proved')} and {of.growth('error', 1.0, 'proved')}",
        ),
        Claim(
            "Theorem 3.2 (A.1), 1 < p, convex",
            "excess of the order D(βD + G)(√κ + √log(n/alpha))/√t + log t (βD² + D sigma √d log n)/t",
            f"{CONSTANTS}, [proof]({PROOFS}#theorem-a1-twice-the-term-of-the-records)",
            "in part: the rate; the proof gives twice the first term, and on the boundary another start; vacuous at these n",
            THEOREMS,
            f"bound / largest excess {of.over('convex', 'excess', inf)} without privacy, {of.over('convex', 'excess', 1.0)} at "
            f"ε = 1; below the decision 0 from n = {of.useful('convex')} on; the bounds hold in {of.trials()}",
        ),
        Claim(
            "Theorem 3.2, the term of the records",
            "κ^½ n^-½",
            hard,
            "yes: hard linear losses attain it",
            RATES,
            f"exponents in n without privacy {exponents(rates.hard('n', inf, (*below_two, inf)))}",
        ),
        Claim(
            "Equations (3.3) and (3.5), the term of the noise in d",
            "√d/(tε) for p ≤ 2, d^(1 - 1/p)/(tε) for p > 2",
            hard,
            "yes, where noise is large",
            RATES,
            f"exponents in d at ε = 0.5: {exponents(rates.hard('d', 0.5, below_two))} for p ≤ 2, "
            f"{exponents(rates.hard('d', 0.5, (inf,)))} for p = infinity",
        ),
        Claim(
            "Equations (3.3) and (3.5), the term of the noise in n",
            "1/(tε), with log(log n/δ) only",
            f"{hard}, [proof]({PROOFS}#logarithms-and-powers-that-are-missing)",
            "in part: the theorem has three more factors of log n, and the records' term remains",
            RATES,
            f"steepest exponent of the last three n at ε = 0.25: "
            f"{min(rates.hard('n', 0.25, (*below_two, inf), 3)):.2f}",
        ),
        Claim(
            "Theorem 3.3 (A.2), strongly convex, θ* inside",
            "the squares of these terms over gamma² μ, with log n on the noise",
            f"{CONSTANTS}, [proof]({PROOFS}#theorem-a2-a-squared-logarithm-and-a-gap)",
            "in part: the last log n must be log² n, with larger constants, which we prove; vacuous at these n",
            THEOREMS,
            f"bound as printed / largest excess {of.over('strong', 'excess', inf)} without privacy, "
            f"{of.over('strong', 'excess', 1.0)} at ε = 1; below the decision 0 from n = {of.useful('strong')} on",
        ),
        Claim(
            "Equations (3.4) and (3.6)",
            "κ/t + κd/(tε)², with κ = d^(1 - 2/p) for p > 2",
            f"[rates](#rates), {convex}",
            "yes; faster than 1/n where noise is large",
            RATES,
            f"exponents in n: {rates.interior('inside', inf)} without privacy, {rates.interior('inside', 1.0)} at ε = 1; "
            f"in d at ε = 4, tuned: {rates.rates('d', below_two)} for p ≤ 2, {rates.rates('d', (inf,))} for p = infinity",
        ),
        Claim(
            "Section 3.1, θ* on the boundary",
            "Frank-Wolfe is slow there in general, even for strongly convex losses",
            convex,
            "in part: not on these balls, which are strongly convex sets for 1 < p ≤ 2, for which faster rates are known",
            RATES,
            f"exponents in t at ε = 1 {rates.interior('on the sphere', 1.0)}",
        ),
        Claim(
            "Abstract; remarks after (3.3) and (3.6): optimal for 1 < p ≤ 2, and for p > 2 if d ≤ nε²",
            "the excess meets lower bounds of the order 1/√t + √d/(tε), and d^(½ - 1/p)/√t without privacy",
            f"{hard}, [figure](#the-theorems-with-their-constants)",
            "in part: shown without privacy, up to logarithms; with privacy the exponents agree with the bound that it quotes",
            RATES,
            f"without privacy at most {rates.over_least()} times a lower bound of any learner",
        ),
        Claim(
            "Lemma 3.4 and Remark 3.3",
            "snowball SGD has the same rate for p > 2 in linear time, but needs β ≤ nε/d^(1 - 1/p)",
            LAST,
            "in part: it learns in linear time, with larger constants at p = infinity; β is small enough here in all cells",
            THEOREMS,
            f"snowball SGD {of.last('snowball SGD')}",
        ),
        Claim(
            "Theorem 3.5, p = 1, convex",
            "excess of 3 (βD² + A)/√(t + 1)",
            CONSTANTS,
            "yes; for a moderate ε θ* need not be inside; vacuous at these n",
            THEOREMS,
            f"bound / largest excess {of.over('convex', 'excess', inf, True)} without privacy, "
            f"{of.over('convex', 'excess', 1.0, True)} at ε = 1; there it is below the decision 0 from "
            f"n = {of.useful('convex', True)} on",
        ),
        Claim(
            "Theorem 3.6, p = 1, strongly convex, θ* inside",
            "excess of 9 (βD² + A)²/(gamma² μ (t + 1))",
            CONSTANTS,
            "yes, after a gap in the induction is closed; vacuous at these n",
            THEOREMS,
            f"bound / largest excess {of.over('strong', 'excess', inf, True)} without privacy, "
            f"{of.over('strong', 'excess', 1.0, True)} at ε = 1; there it is below the decision 0 from "
            f"n = {of.useful('strong', True)} on",
        ),
        Claim(
            "Table 1.1, Theorem 3.6",
            "log² d/(ε²n): the dimension only in logarithms",
            f"[curvature](#p--1-and-the-curvature), [proof]({PROOFS}#lemma-b1-a-hidden-factor-d)",
            "no: μ ≤ β/d in the l1 norm, which is a factor d",
            THEOREMS,
            f"exponents in d: {of.curvature()}",
        ),
        Claim(
            "Remark 3.4",
            "reductions to the strongly convex case by batches keep only the convex rate if the horizon is overestimated",
            "no such reduction is here",
            "in part: by reading; `NoisySFW` and `LocalMD`, cut by the horizon too, make no step or one if n ≥ 2n*",
            NONE,
            "their first batch has n/2 records",
        ),
        Claim(
            "Corollary 3.1; equations (3.8) and (3.10)",
            "regret of √T D(βD + G)(√κ + √log(T/alpha)), and a privacy term without √T",
            f"{CONSTANTS}, [regret](#regret)",
            "yes, up to the factor of Theorem A.1 and logarithms that (3.8) and (3.10) leave out",
            THEOREMS,
            f"sum of the bounds / regret {of.total('convex', inf)} without privacy, {of.total('convex', 1.0)} at ε = 1",
        ),
        Claim(
            "Corollary 3.2; equations (3.9) and (3.11)",
            "regret of a power of log T, θ* inside",
            f"[regret](#regret), [proof]({PROOFS}#logarithms-and-powers-that-are-missing)",
            "in part: with more logarithms: log T at least, and two of the noise in (3.9) and (3.11)",
            f"{THEOREMS}, {RATES}",
            f"a doubling of t adds {rates.growth()} times what the one before added; sum of the bounds / regret "
            f"{of.total('strong', inf)} without privacy, {of.total('strong', 1.0)} at ε = 1",
        ),
        Claim(
            "Equation (3.12), p = 1",
            "regret of log d √T/ε",
            "[p = 1](#p--1-and-the-curvature)",
            "in part: the bound holds, with more logarithms; the noise hides the gradients, so √T does not show",
            THEOREMS,
            f"exponents in t {of.growth('regret', 1.0, 'printed', True)} with the printed noise, "
            f"{of.growth('regret', 1.0, 'default', True)} by default; bounds / regret {of.total('convex', 1.0, True)}",
        ),
        Claim(
            "Equation (3.13), p = 1, θ* inside",
            "regret of (log d log² T/ε)²",
            f"[p = 1](#p--1-and-the-curvature), [proof]({PROOFS}#lemma-b1-a-hidden-factor-d)",
            "in part: with a factor d; at ε = 1 the noise still hides the gradients",
            THEOREMS,
            f"exponents in t {of.growth('regret', inf, 'printed', True)} without privacy, "
            f"{of.growth('regret', 64.0, 'printed', True)} at ε = 64; bounds / regret {of.total('strong', 1.0, True)}",
        ),
        Claim(
            "Abstract and Table 1.1: p = 1",
            "the excess hardly depends on d",
            hard,
            "yes on linear losses, with Gumbel noise in the place of Laplace noise",
            RATES,
            f"at ε = 64 and 16 it grows {rates.entry()}",
        ),
        Claim(
            "Abstract and Table 1.1: linear time",
            "O(n) gradients, batches of one record",
            "[time of a step](privacy_measured.md#time-of-a-step)",
            "yes: two gradients a record",
            SPEED,
            f"a step takes {late_step(speed)}",
        ),
        Claim(
            "Table 1.1, Bassily et al. 2021, 1 < p < 2",
            "κ/√n + κ√d/(εn^¾), in batches of n/2 and √n/2",
            "`NoisySFW`, [rivals](#rivals)",
            "run: it learns more slowly than `DPTOFW`",
            OCO,
            "see the row of Table 5.1",
        ),
        Claim(
            "Table 1.1, Asi et al. 2021, 1 < p ≤ 2",
            "the rate of Theorem 3.2 over p - 1, with n^(3/2) gradients",
            "`LocalMD`, [rivals](#rivals)",
            "run: one pass of it, with its noise for any losses, does not learn",
            OCO,
            "see the row of Table 5.1",
        ),
        Claim(
            "Table 1.1, Bassily et al. 2019, p = 2",
            "1/√n + √d/(εn), with min{n^(3/2), n^(5/2)/d} gradients in batches of √(εn)",
            "nowhere",
            "cited",
            NONE,
            "see the next row for many passes at p = infinity",
        ),
        Claim(
            "Table 1.1, Bassily et al. 2021, 2 < p",
            "the rate of Theorem 3.2, with n² gradients",
            "`NoisySGD`, [many passes](#many-passes)",
            "run: with exact accounting it is ahead of `DPTOFW` at p = infinity",
            RATES,
            rates.sgd(),
        ),
        Claim(
            "Table 1.1, Feldman et al. 2020, p = 2",
            "1/√n + √d/(εn), in linear time, one decision at the end",
            LAST,
            "run: tuned, snowball SGD has less at p = 2 and ε = 1 up to n = 4000, and more at ε = 8; phased SGD more everywhere",
            THEOREMS,
            f"phased SGD {of.last('phased SGD')}; snowball SGD {of.last('snowball SGD')}",
        ),
        Claim(
            "Table 1.1, Bassily et al. 2021, p = 1",
            "log d/(ε√n), with a first batch of n/2",
            LAST,
            "run: both tuned, it has less than `DPPOFW` at ε = 1 up to n = 4000, and more elsewhere",
            THEOREMS,
            f"polyhedral SFW {of.last('polyhedral SFW', True)}",
        ),
        Claim(
            "Table 1.1, Asi et al. 2021, p = 1",
            "√(log d/n) + (log d/(εn))^⅔, with batches of n/log² n; DP-POFW's rate is worse",
            LAST,
            "run without amplification by shuffling, so not at its rate: behind `DPPOFW`",
            THEOREMS,
            f"tree FW {of.last('tree FW', True)}",
        ),
        Claim(
            "Table 1.1, Asi et al. 2021, p = 1, strongly convex",
            "log d/n + (log d/(εn))^(4/3), with batches of n/(2 log n)",
            "nowhere",
            "cited",
            NONE,
            "its reduction by batches is not here; Theorem 3.6 beside it has a factor d",
        ),
        Claim(
            "Section 1.1, Bassily et al. 2022",
            "the rates of Theorem 3.2 in linear time, with large batches and trees",
            "nowhere",
            "cited",
            NONE,
            "released one decision at the end, as the rivals that were run",
        ),
        Claim(
            "Section 1.1: p near 1",
            "the rate of Asi et al. explodes like 1/(p - 1), that of DP-TOFW is bounded by log d",
            "[rates](#rates)",
            "in part: by κ ≤ (log d - 1) e², up to the constant; p = 1.25 is the least that was run",
            RATES,
            "[table against p](#rates)",
        ),
        Claim(
            "Section 1.1, p = 1: the gap to log d^⅔",
            "is due to the online setting, and not to the technique",
            "nowhere",
            "no: nothing in the paper shows it; no lower bound for streams is given",
            NONE,
            "none",
        ),
        Claim(
            "Section 1.1: a guarantee at every t",
            "1/t at each time, where rivals have a guarantee only after order n records",
            "[one run](#strongly-convex-with-θ-inside)",
            "yes, for strongly convex losses with θ* inside",
            RATES,
            f"exponents in t without privacy {rates.interior('inside', inf)}; `NoisySFW` stays at 0 for n/2 records",
        ),
        Claim(
            "Abstract, Table 1.1: no other method fits",
            "no existing rate-optimal method works on a stream under continual release",
            "`DPFTRL`, [rivals](#rivals)",
            "in part: DP-FTRL works there, with a regret that grows faster",
            f"{OCO}, {THEOREMS}",
            "see the row of Table 1.2",
        ),
        Claim(
            "After (3.4): tight for p = 2, and conjectured for 1 < p ≤ 2",
            "1/t + d/(tε)² is a lower bound for strongly convex losses",
            convex,
            "in part: the exponents agree; the upper bound has logarithms and 1/(gamma² μ) besides",
            RATES,
            "see the row of (3.4)",
        ),
        Claim(
            "Sections 1.2 and 3.3: privacy for free",
            "the privacy term of the regret is of a lower order than √T",
            "[regret](#regret)",
            "in part: by the bound; at these T the privacy term is the larger one",
            RATES,
            f"regret at ε = 1 over that without privacy, at the last t: {rates.price()}",
        ),
        Claim(
            "Table 1.2",
            "√T + √d/ε for stochastic convex losses; rivals, adversarial: √(dT)/ε, √d T^⅔/ε, and √T + d/ε for linear ones",
            "[regret of DP-FTRL](#regret-of-dp-ftrl)",
            "in part: regret grows more slowly than DP-FTRL's; like √d on linear losses only; Jain et al. not run",
            THEOREMS,
            f"exponents in T, linear losses: `DPTOFW` {of.regret('linear', 'DPTOFW', 'T')}, DP-FTRL "
            f"{of.regret('linear', 'DP-FTRL', 'T')}; regression {of.regret('regression', 'DPTOFW', 'T')} and "
            f"{of.regret('regression', 'DP-FTRL', 'T')}; in d, linear {of.regret('linear', 'DPTOFW', 'd')} and "
            f"{of.regret('linear', 'DP-FTRL', 'd')}",
        ),
    ]


def bandits(rates: Rates, of: Theorems) -> list[Claim]:
    against_d, against_t = "[DPHDB against d](#dphdb-against-d)", "[DPHDB against T](#dphdb-against-t)"
    arms, link = "[errors of an arm](#errors-of-an-arm)", f"{PROOFS}#theorem-42-a-condition-that-nothing-meets"
    least, share, gamma = of.margin()
    return [
        Claim(
            "Lemma 4.1 (B.3); abstract: variance reduction on a stream that is not stationary",
            "the error of an arm's gradient falls as 1/√t after the warm-up, where the learner itself chooses the records",
            arms,
            "yes: as fast as where chance chooses them",
            THEOREMS,
            f"exponents in t without privacy: {of.arms('error', 'greedy', math.inf)} greedy, "
            f"{of.arms('error', 'chance', math.inf)} by chance; at ε = 1 {of.arms('error', 'greedy', 1.0)}",
        ),
        Claim(
            "Lemma B.1",
            "after the warm-up an arm's loss is μλu-strongly convex in the l1 norm",
            f"[proof]({PROOFS}#lemma-b1-a-hidden-factor-d)",
            "no: in the Euclidean norm; in the l1 norm it is μλu/d",
            THEOREMS,
            f"environment of Figure 5.1, d = 50: λ = {least}, λ/d = {share}",
        ),
        Claim(
            "Lemma B.2",
            "the distribution of an arm's records moves by 2βηD in total variation",
            f"[proof]({link})",
            "in part: 2 nu ηD in its proof, and a factor M for each of two arms is lost",
            NONE,
            "a proof",
        ),
        Claim(
            "Theorem 4.2",
            "after a warm-up of log(dT) log T/ε² rounds an arm's squared l1 error is log²(dT) log T/(ε²t)",
            f"{arms}, [proof]({link})",
            "in part: 1/t shows; not proved: without a gap between arms its proof needs a gamma that no instance has",
            THEOREMS,
            f"exponents in t of the squared error: {of.arms('distance', 'greedy', math.inf)} without privacy, "
            f"{of.arms('distance', 'greedy', 1.0)} at ε = 1; gamma needed at d = 50: {gamma}, gamma here 0, and at most 1",
        ),
        Claim(
            "Theorem 4.3 in T; abstract: logarithmic regret",
            "regret of log²(dT/alpha) log² T/ε²",
            f"{against_t}, [proof]({link})",
            "in part: regret grows by a small power of T; not proved, since it rests on Theorem 4.2",
            THEOREMS,
            f"exponents in T from 2500 to 40,000: {of.horizon('DPHDB')} at ε = 1, {of.horizon('DPHDB at epsilon 8')} at 8, "
            f"{of.horizon('no privacy')} without privacy, arms at random {of.horizon('uniform')}",
        ),
        Claim(
            "Section 1.1: other p",
            "the bandit generalizes easily to 1 < p ≤ infinity",
            "`DPHDB` has p = 1 only",
            "no: stated without proof, and not built; nothing in the construction needs p = 1",
            NONE,
            "none",
        ),
        Claim(
            "Theorem 4.3 in d; Remark 4.1: poly-logarithmic in d",
            "the regret grows with log² d only",
            against_d,
            "in part: yes without privacy; not shown with it",
            RATES,
            f"exponent in d {rates.bandit('DPHDB')} for `DPHDB`, {rates.bandit('no privacy')} without privacy",
        ),
    ]


def experiments(found: Regression, rates: Rates, drawn: Figures) -> list[Claim]:
    table51, bandit, rivals = "[Table 5.1](#table-51)", "[Figure 5.1](#figure-51)", "[rivals](#rivals)"
    rows = "[printed rows](#the-rivals-printed-rows)"
    return [
        Claim(
            "Table 5.1, OFW, suboptimality",
            "0.0003 to 0.98 at (1, 1/T)-privacy",
            table51,
            "no with the noise that is proved; with the noise as printed, which is not private, nearly",
            OCO,
            f"proved noise {found.proved()}, the decision 0 has 1; as printed {found.over_paper(1.5)} at p = 1.5, "
            f"{found.over_paper(math.inf)} at p = infinity",
        ),
        Claim(
            "Table 5.1, NoisySFW; Section 5.3",
            "DP-TOFW significantly outperforms it at p = 1.5",
            f"`NoisySFW`, {rivals}, {rows}",
            "in part: it leads, by less than printed: the printed rival is weak",
            f"{OCO}, {FIGURES}",
            f"{drawn.weak(1.5)}; {found.beaten('NoisySFW')}",
        ),
        Claim(
            "Table 5.1, NoisySGD; Section 5.3",
            "DP-TOFW has a comparable risk at p = infinity, for much less computation",
            f"`NoisySGD`, [many passes](#many-passes), {rows}",
            "no: with exact accounting, 31 passes have less risk in about the same time",
            f"{RATES}, {FIGURES}",
            f"{drawn.weak(math.inf)}; {rates.sgd()}",
        ),
        Claim(
            "Table 5.1, risk",
            "0.00255 to 0.0915",
            "[risk and time](#risk-and-time)",
            "in part: it follows from the suboptimality, but four rows of NoisySGD are of another theta*",
            f"{OCO}, {FIGURES}",
            "; ".join(figures.instances_verdicts()[:-1]),
        ),
        Claim(
            "Table 5.1, time",
            "seconds of a run",
            f"[risk and time](#risk-and-time), {rows}",
            "in part: ratios only, since seconds are of another machine",
            f"{OCO}, {FIGURES}",
            f"{drawn.seconds(1.5)}; {drawn.seconds(math.inf)}; here a step as printed takes {found.step_time(PRINTED)} "
            f"times that of `DPTOFW`, without noise {found.step_time('no privacy')} times",
        ),
        Claim(
            "Table 5.1, LocalMD",
            "it does not converge at p = 1.5, whatever the learning rate",
            f"`LocalMD`, {rivals}, [smooth losses](#smooth-losses-by-promise)",
            "yes, with noise for gradients of any kind; it learns if someone promises that losses are smooth",
            f"{OCO}, {RATES}",
            f"least mean suboptimality of all cells and step scales {found.least('LocalMD')}, the decision 0 has 1; "
            f"{rates.conditional()}",
        ),
        Claim(
            "Figure 5.1",
            "DP-HDB has far less regret than DP-UCB",
            bandit,
            "in part: not as printed; with this library's noise, in our environment",
            OCO,
            f"regret as printed {found.regret('DP-HDB, printed')} and {found.regret('DP-UCB, original')}; "
            f"by default {found.regret('DP-HDB')} and {found.regret('DP-UCB')}; tuned {found.regret('DP-HDB, tuned')} and "
            f"{found.regret('DP-UCB, tuned')}; arms at random {found.regret('uniform')}",
        ),
        Claim(
            "Figure 5.2",
            "DP-TOFW is robust to the scaling of its learning rate, in comparison with NoisySFW and NoisySGD",
            "[Figure 5.2](#figure-52)",
            "in part: over a wide grid yes; near the best step scale `DPTOFW` gains little or nothing",
            FIGURES,
            f"worst / best mean over step scales from 1/8 to 4, and within a factor of 2 of the best: {drawn.robust(1.5)}; "
            f"{drawn.robust(math.inf)}",
        ),
        Claim(
            "Figure 5.3",
            "NoisySFW is faster in time, because it takes O(√n) steps",
            "[Figure 5.3](#figure-53)",
            "yes, with all records at hand, and at a higher suboptimality; record by record it learns later",
            FIGURES,
            f"{drawn.race('NoisySFW takes')}; {drawn.race('NoisySFW, by batch takes')}",
        ),
        Claim(
            "Section 1: private regression on a stream",
            "a stream is learnt under continual release",
            f"`DPTOFW`, {table51}",
            "yes",
            OCO,
            f"{found.below_paper()} (p = 1.5 and infinity)",
        ),
        Claim(
            "Abstract: generalized linear bandits with many features",
            "the first private ones with sublinear regret; links beyond the identity",
            "`DPHDB(link=Logistic())`, [binary rewards](#binary-rewards)",
            "in part: it learns; being the first is a claim of priority; for the growth see Theorem 4.3",
            RATES,
            rates.logistic(),
        ),
    ]


def claims() -> list[Claim]:
    """Return every claim of the paper."""
    found, rates = Regression(saved("private_oco")), Rates(saved("private_oco_rates"))
    of, speed = Theorems(saved("private_oco_theorems")), saved("private_oco_speed")
    drawn = Figures(saved("private_oco_figures"))
    rows = [*algorithms(found, rates, of), *excess_risk(rates, of, speed), *bandits(rates, of)]
    return rows + experiments(found, rates, drawn)


def tables() -> dict[str, str]:
    """Return the table of every claim."""
    return {"Every claim": claims_table("P", claims())}
