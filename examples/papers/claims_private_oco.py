"""Every claim of the DP-TOFW paper, and what the saved results of ``private_oco*.py`` say of it.

A table of docs/private_oco.md, made by ``pages.py``: a row for every algorithm, theorem, table, figure, rival and application of
the paper of Han, Liang, Liang, Wang, Yao and Zhang (2022). Numbers of ours are computed from the saved results.
"""

import math
import re
import statistics
from collections.abc import Iterable
from typing import Any

from claim import Claim, claims_table
from experiment import Results, Slope, saved, short
from private_oco import NORMS, Played
from private_oco_rates import RIVALS, least_worst_excess, mean_of, place_of, plan_of, setting_of
from private_streams import Setting

OCO, RATES, SPEED = "`private_oco.py`", "`private_oco_rates.py`", "`private_oco_speed.py`"
NONE = "none"
PRINTED, PROVED = "as printed, NOT PRIVATE", "equation (3.2)"


def span(values: Iterable[float]) -> str:
    """Return the least and the largest."""
    found = sorted(values)
    return f"{short(found[0])} to {short(found[-1])}"


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


def late_step(speed: Results) -> str:
    """Return the median time of a step in the later half of a long run over that in the first half."""
    *_, (steps, *_) = run = speed["a long run"]
    seconds = [part[-1] for part in run]
    half = len(run) // 2
    ratio = statistics.median(seconds[half:]) / statistics.median(seconds[:half])
    return f"{ratio:.2f} times as long in the second half of {steps} steps as in the first"


def rows(found: Regression, rates: Rates, speed: Results) -> list[Claim]:
    """Return the rows: item, what the paper says, where it is here, whether it reproduces, script and figure."""
    inf, below_two = math.inf, (1.5, 2.0)
    errata, noise = "[errata](#errata-that-matter-here)", "[worth of the noise](#what-the-noise-is-worth)"
    table51, hard = "[Table 5.1](#table-51)", "[hard linear losses](#hard-linear-losses)"
    by_proof = f"{errata}, by proof"
    convex, regret = "[strongly convex](#strongly-convex-with-θ-inside)", "[regret](#regret)"
    bandit, against_d, rivals = "[Figure 5.1](#figure-51)", "[DPHDB against d](#dphdb-against-d)", "[rivals](#rivals)"
    private = [
        Claim(
            "DP-TOFW, with Algorithm 2, the recursive gradient",
            "one private Frank-Wolfe step a record",
            f"`DPTOFW`, {table51}",
            "yes, with weights 1/t, for which the first gradient is not biased",
            OCO,
            f"suboptimality at (1, 1/T)-privacy {found.suboptimality()}; the decision 0 has 1",
        ),
        Claim(
            "DP-POFW, p = 1",
            "the same, with Laplace noise on the choice of a vertex",
            "`DPPOFW`, [many features](#p--1-with-many-features)",
            "yes; other noise is better",
            RATES,
            f"Laplace noise has {rates.laplace()}",
        ),
        Claim(
            "DP-HDB",
            "a learner an arm, preselection, and the greedy arm",
            f"`DPHDB`, {bandit}",
            "not with the noise as printed; with this library's",
            OCO,
            f"regret {found.regret('DP-HDB, printed')} as printed, {found.regret('DP-HDB')} by default, "
            f"{found.regret('uniform')} of arms at random",
        ),
        Claim(
            "Lemma 2.1",
            "generalized Gaussian noise with σ² = 2κ log(1/δ) s²/ε² is (ε, δ)-private",
            by_proof,
            "for a moderate ε only",
            NONE,
            "none: a proof",
        ),
        Claim(
            "Lemmas 3.1 and 5.1, Algorithm 4",
            "how such noise is drawn; the authors' program of the time draws it in this way",
            noise,
            "not as printed: the scale is to be 2 sigma², and not 2 sigma",
            OCO,
            f"as printed, ε is {found.epsilons(PRINTED, (inf,))} at p = infinity, at least "
            f"{found.epsilons(PRINTED, (1.5,))} at p = 1.5, for a claimed 1; the audit shows at least {found.audited(PRINTED)}",
        ),
        Claim(
            "Algorithm 5",
            "a tree of noise for all prefix sums",
            f'{errata}; `mechanism="tree"` is without this error',
            "not for the last prefix, if n is a power of 2",
            NONE,
            "none: by reading",
        ),
        Claim(
            "Theorem 3.1",
            "DP-TOFW with the noise of equation (3.2) is (ε, δ)-private",
            noise,
            "yes, with much to spare",
            OCO,
            f"ε is {found.epsilons(PROVED)} for a claimed 1; the audit shows at least {found.audited(PROVED)}",
        ),
        Claim(
            "Theorem 3.4",
            "DP-POFW with Laplace noise is (ε, δ)-private",
            by_proof,
            "for all records but the first",
            NONE,
            "not tried: no audit, because the library has its own scale, for which all records are covered",
        ),
        ("Theorem 4.1", "DP-HDB is jointly private", by_proof, "with each arm's own clock only", NONE, "none: a proof"),
    ]
    rate_rows = [
        Claim(
            "Theorems 3.2, 3.3, 3.5, 3.6; Corollaries 3.1, 3.2",
            "rates of the excess risk",
            "the rows of rates below",
            "see there",
            RATES,
            "not tried one by one: we know their rates, and not which has which",
        ),
        Claim(
            "Rate, convex losses, records",
            "κ^½ n^-½",
            hard,
            "yes, hard linear losses attain it",
            RATES,
            f"exponents in n without privacy {exponents(rates.hard('n', inf, (*below_two, inf)))}",
        ),
        Claim(
            "Rate, convex losses, noise: powers of d",
            "(κd)^½ / (nε)",
            hard,
            "yes, where noise is large",
            RATES,
            f"exponents in d at ε = 0.5: {exponents(rates.hard('d', 0.5, below_two))} for p ≤ 2, "
            f"{exponents(rates.hard('d', 0.5, (inf,)))} for p = infinity",
        ),
        Claim(
            "Rate, convex losses, noise: powers of n",
            "(κd)^½ / (nε)",
            hard,
            "not n^-1 itself: a logarithm and the records' term remain",
            RATES,
            f"steepest exponent of the last three n at ε = 0.25: "
            f"{min(rates.hard('n', 0.25, (*below_two, inf), 3)):.2f}",
        ),
        Claim(
            "Rate, strongly convex losses, θ* inside",
            "the square of these terms",
            f"[rates](#rates), {convex}",
            "yes; faster than 1/n where noise is large",
            RATES,
            f"exponents in n: {rates.interior('inside', inf)} without privacy, {rates.interior('inside', 1.0)} at ε = 1; "
            f"in d at ε = 4, tuned: {rates.rates('d', below_two)} for p ≤ 2, {rates.rates('d', (inf,))} for p = infinity",
        ),
        Claim(
            "Rate, θ* on the sphere",
            "t^-½",
            convex,
            "faster there; linear losses attain it",
            RATES,
            f"exponents in t at ε = 1 {rates.interior('on the sphere', 1.0)}",
        ),
        Claim(
            "Equation (3.7)",
            "the regret grows by a logarithm, θ* inside",
            regret,
            "yes",
            RATES,
            f"a doubling of t adds {rates.growth()} times what the one before added",
        ),
        Claim(
            "Abstract: optimal for 1 < p ≤ 2, and for p > 2 as good as without privacy",
            "the excess meets lower bounds",
            hard,
            "without privacy it may be so; with privacy not tried: we have no lower bound with privacy for these losses",
            RATES,
            f"without privacy at most {rates.over_least()} times a lower bound of any learner",
        ),
        Claim(
            "Abstract: p = 1",
            "the excess hardly depends on d",
            hard,
            "yes on the losses tried, with Gumbel noise in the place of Laplace noise",
            RATES,
            f"at ε = 64 and 16 it grows {rates.entry()}",
        ),
        Claim(
            "Abstract: linear time",
            "one pass over the records",
            "[time of a step](privacy_measured.md#time-of-a-step)",
            "yes",
            SPEED,
            f"a step takes {late_step(speed)}",
        ),
        Claim(
            "Abstract: variance reduction on a stream that is not stationary",
            "the recursive gradient has small errors there too",
            "nowhere by itself; the arms of `DPHDB` are such streams",
            "not tried: the paper has no experiment of it, and our streams are stationary",
            NONE,
            "none",
        ),
        Claim(
            "Abstract: logarithmic regret of DP-HDB",
            "the regret grows with log d and log T only",
            against_d,
            "not with privacy; without it, in d. T: not tried, one length only",
            RATES,
            f"exponent in d {rates.bandit('DPHDB')} for `DPHDB`, {rates.bandit('no privacy')} without privacy",
        ),
    ]
    experiments = [
        Claim(
            "Table 5.1, rows of OFW",
            "suboptimality 0.0003 to 0.98 at (1, 1/T)-privacy",
            table51,
            "not with the noise that is proved; with the noise as printed, which is not private",
            OCO,
            f"proved noise {found.proved()}, the decision 0 has 1; as printed {found.over_paper(1.5)} at p = 1.5, "
            f"{found.over_paper(inf)} at p = infinity",
        ),
        Claim(
            "Table 5.1, risk and time of OFW",
            "risks, and seconds of a run",
            "[risk and time](#risk-and-time)",
            "risks follow from the suboptimality; seconds not tried, they are of other machines",
            OCO,
            f"a step as printed takes {found.step_time(PRINTED)} times that of `DPTOFW`, "
            f"without noise {found.step_time('no privacy')} times",
        ),
        Claim(
            "Table 5.1, NoisySFW",
            "a rival at p = 1.5",
            f"`NoisySFW`, {rivals}",
            "OFW's lead shows with `DPTOFW`; the printed rows are not tried, we compare with runs of our own",
            OCO,
            found.beaten("NoisySFW"),
        ),
        Claim(
            "Table 5.1, NoisySGD",
            "a rival at p = infinity, of many passes",
            "`NoisySGD`, [many passes](#many-passes)",
            "no lead of OFW: with exact accounting, many passes are better; the printed rows are not tried",
            RATES,
            rates.sgd(),
        ),
        Claim(
            "Table 5.1, LocalMD",
            "a rival at p = 1.5 that does not converge",
            f"`LocalMD`, {rivals}, [smooth losses](#smooth-losses-by-promise)",
            "yes, with noise for gradients of any kind; it learns if someone promises that losses are smooth",
            f"{OCO}, {RATES}",
            f"least mean suboptimality of all cells and step scales {found.least('LocalMD')}, the decision 0 has 1; "
            f"{rates.conditional()}",
        ),
        Claim(
            "Figure 5.1, DP-HDB against DP-UCB",
            "DP-HDB is far better",
            bandit,
            "not as printed; with this library's noise, in our environment",
            OCO,
            f"regret as printed {found.regret('DP-HDB, printed')} and {found.regret('DP-UCB, original')}; "
            f"by default {found.regret('DP-HDB')} and {found.regret('DP-UCB')}; tuned {found.regret('DP-HDB, tuned')} and "
            f"{found.regret('DP-UCB, tuned')}; arms at random {found.regret('uniform')}",
        ),
        Claim(
            "Figures 5.2 and 5.3",
            "not known to us",
            "nowhere",
            "not tried: the copy that we worked from does not have them",
            NONE,
            "none",
        ),
        Claim(
            "Application: private regression on a stream",
            "a stream is learnt at (1, 1/T)-privacy",
            f"`DPTOFW`, {table51}",
            "yes",
            OCO,
            f"{found.below_paper()} (p = 1.5 and infinity)",
        ),
        Claim(
            "Application: generalized linear bandits with many features",
            "the first private ones with logarithmic regret",
            "`DPHDB(link=Logistic())`, [binary rewards](#binary-rewards)",
            "it learns; for the regret's growth see the row of the abstract",
            RATES,
            rates.logistic(),
        ),
    ]
    return private + rate_rows + experiments


def claims() -> list[Claim]:
    """Return every claim of the paper."""
    return rows(Regression(saved("private_oco")), Rates(saved("private_oco_rates")), saved("private_oco_speed"))


def tables() -> dict[str, str]:
    """Return the table of every claim."""
    return {"Every claim": claims_table("P", claims())}
