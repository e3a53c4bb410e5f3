r"""Learners whose regret grows with the change of gradients, beside FreeGrad: on real data, and where losses drift.

Zhao, Jacobsen, Cesa-Bianchi and Zhao (Gradient-variation regret bounds for unconstrained online learning, COLT 2026) bound
regret by :math:`\|u\|\sqrt{V_T} + L\|u\|^2`, :math:`V_T = \sum_t\|\nabla f_t(u) - \nabla f_{t-1}(u)\|^2`, without
knowing :math:`\|u\|`, the slope G or the smoothness L. FreeGrad's bound has :math:`\sum_t\|g_t\|^2` in place of
:math:`V_T`. The learners:

- *virtual clipping*: Algorithm 1 of the paper, with the last gradient as hint, the first gradient that is not 0 as its
  :math:`\gamma`, and :math:`\epsilon = 1`. *Constant 1*: the same with a factor 1 of its regularizer in place of 3;
- *last gradient as hint*: FreeGrad that learns from the errors of the hint (docs/parameter_free_theory.md);
- *learned hint*: the reduction of the paper's Algorithm 2 over two FreeGrads, in place of the two learners of the paper. The
  decision is :math:`x_t - y_tg_{t-1}`, and y learns from :math:`-\langle g_t, g_{t-1}\rangle`;
- per coordinate: d such learners in one dimension, with a wealth of 1 for :math:`\epsilon\gamma`;
- FreeGrad, CLA-OONS, Prodigy, Adam at torch's rate, and at the best of eleven rates from 1e-4 to 10 in hindsight, by cell.

All but the last have their defaults. There are five tables:

1. Online logistic regression on the streams of full_information.py, one pass over at most 5000 rows, with standardised features
   and with raw ones: mean logarithmic loss.
2. Gradients of means over batches of 16 and 256 rows, and of all rows, which are equal functions in all rounds: mean loss.
3. Calibration of an encoder and a new head on it, on drifting digits: the layers of online_calibration.py.
4. Forecasts of real series of river, in the order of time, by a linear model of the last three values: mean squared (over 2) and
   absolute error, in standard deviations of the series.
5. Regret on simulated streams, ``SEAStream``: independent noise; slow drift, which the last gradient predicts.

    python examples/benchmarks/gradient_variation.py    # about twenty minutes; seconds with --smoke

## Proofs

**From hints to variation** (Theorem 1 of the paper; docs/parameter_free_theory.md states it and the next). *Proof.* Let
`D_t = f_t(u) - f_t(x_t) - ⟨g_t, u - x_t⟩`, which is at least `‖g_t - ∇f_t(u)‖²/(2L)`. By way of the gradients at u,
`‖g_t - g_{t-1}‖² ≤ 3(2LD_t + ‖∇f_t(u) - ∇f_{t-1}(u)‖² + 2LD_{t-1})` for t ≥ 2. So the sum is at most
`‖g_1‖² + 3V_T(u) + 12L ΣD_t`. Regret is `Σ⟨g_t, x_t - u⟩ - ΣD_t`, and `B√(12L ΣD_t) - ΣD_t ≤ 3LB²`. ∎

**FreeGrad with a hint.** *Proof.* In n, n²/(2V + 2hn) increases and has the second derivative V²/(V + hn)³, so Φ is convex in
S, and `⟨m_t, x_t⟩ ≤ Φ(S_{t-1}, V_{t-1}) - Φ(S_{t-1} + m_t, V_{t-1})`. By Theorem 7 at S_{t-1} + m_t,
`⟨ẽ_t, x_t⟩ ≤ Φ(S_{t-1} + m_t, V_{t-1}) - Φ(S_t, V_t)`. The sum of both telescopes as without a hint, and what is cut from e_t
is cut from g_t. ∎

With `m_t = g_{t-1}` this has the leading term of the paper, with the factor 2 of FreeGrad in place of 6. The price of late
long gradients stays, with (h - h_1) max‖x_t‖ in it, which the paper's algorithms do not pay.

**Their Algorithm 1** minimises ⟨S + m, x⟩ + ψ(x) + γ‖x‖²/(2ε), with ψ of mirror descent with hints
(docs/parameter_free_theory.md), h in place of Z, and V = 4h² and the squares of errors, each clipped to the h before it. As
x = 0 before the first gradient that is not 0, whatever γ is, γ may be the length of that gradient, and decisions do not
depend on the unit of the loss.

- *Why it is slow.* While the square root is the smaller branch, ‖x‖ grows like exp(n²/(36V)), where FreeGrad has
  exp(n²/(2V)).
- *Its length in constant time.* Let ‖x‖ = α(exp(s²) - 1). The equation of their Proposition 1 is n = ψ'(s) + (γ/ε)α(exp(s²) -
  1), with ψ' = 6√V s up to s = √V/h, and 3(hs² + V/h) beyond. Both parts are convex and increase, and they meet with one
  slope, 6√V. So Newton's method falls to the root from the smaller of the bounds that each term alone gives.

**An error.** Propositions 1 and 10 say that `|‖x_{t+1}‖ - ‖x_t‖| ≤ ‖g_t - m_t + m_{t+1}‖/β`, with β = γ/ε. Only the upper
half holds: the proof bounds the increase of the regularizer's slope, and calls it an absolute value. With `m_t = g_{t-1}` and
`g_2 = g_1/2 ≠ 0`, the right side is 0 at t = 2, and S + m stays 2g_1. But V grows by ‖g_1‖²/4 and α falls, so ‖x_3‖ < ‖x_2‖.
The interval of the search must begin at 0.
"""

import argparse
import functools
import importlib
import math
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from full_information import STREAMS, in_units, present
from torch import Tensor, nn
from torch.nn.functional import softplus

from torchonline import CLAOONS, FreeGrad
from torchonline.baselines import Prodigy
from torchonline.environments import SEAStream

SEEDS, ROWS, STEPS, ROUNDS, TRIALS, DIM = 5, 5000, 300, (1024, 4096, 16384), 10, 5
RATES = [10.0 ** (k / 2) for k in range(-8, 3)]
BATCHES = {"16 rows": 16, "256 rows": 256, "all rows": None}
SERIES = ("TrumpApproval", "WaterFlow", "AirlinePassengers")
DRIFTS = {"noise": {"sigma": 1.0}, "slow drift": {"sigma": 0.1, "drift": 0.3, "period": 16}}

sys.path.append(str(Path(__file__).resolve().parents[1]))
online_calibration = importlib.import_module("online_calibration")

Shape = tuple[int, ...]  # seeds and coordinates
Learner = Any  # with predict(), queries() and step(gradients)


class VirtualClipping:
    """Algorithm 1 of the paper, for a batch of seeds; ``constant`` is the factor of its regularizer.

    A coordinate of its own waits at 0 until the sizes of its gradients sum to 3 times the largest, as in FreeGrad.
    """

    def __init__(self, shape: Shape, *, per_coordinate: bool = False, constant: float = 3.0) -> None:
        self.per_coordinate, self.constant = per_coordinate, constant
        self.gradient_sum, self.hint, self.decision = (np.zeros(shape) for _ in range(3))
        lengths = shape if per_coordinate else (*shape[:-1], 1)
        self.first, self.largest, self.length_sum = (np.zeros(lengths) for _ in range(3))
        self.square_sum, self.share_sum = np.zeros(lengths), np.zeros(lengths)

    def length(self, x: np.ndarray) -> np.ndarray:
        return np.abs(x) if self.per_coordinate else np.sqrt((x * x).sum(-1, keepdims=True))

    def predict(self) -> Tensor:
        return torch.from_numpy(self.decision)

    def queries(self) -> Tensor:
        return self.predict().unsqueeze(-2)

    def step(self, gradients: Tensor) -> None:
        g = gradients.reshape(self.decision.shape).numpy()
        if self.per_coordinate:
            waits = self.first == 0.0
            self.largest = np.where(waits, np.maximum(self.largest, np.abs(g)), self.largest)
            self.length_sum += np.abs(g)
            self.first = np.where(waits & (self.length_sum >= 3.0 * self.largest), self.largest, self.first)
            g = np.where(waits, 0.0, g)
        error = self.length(g - self.hint)
        if not self.per_coordinate:
            self.first = np.where(self.first == 0.0, error, self.first)
            self.largest = np.where(self.largest == 0.0, error, self.largest)
        seen, M = self.first > 0.0, np.where(self.largest > 0.0, self.largest, 1.0)
        clipped = np.minimum(error, M)
        self.square_sum += clipped**2
        self.share_sum += (clipped / M) ** 2
        self.largest = np.maximum(self.largest, error)
        self.gradient_sum += g
        self.hint = g.copy()
        theta = -(self.gradient_sum + self.hint)
        n, gamma = self.length(theta), np.where(seen, self.first, 1.0)
        M, B = np.maximum(M, self.largest), 4.0 + self.share_sum
        V = 4.0 * M**2 + self.square_sum
        epsilon = 1.0 / gamma if self.per_coordinate else 1.0
        alpha = epsilon / (np.sqrt(B) * np.log(B) ** 2)
        size = alpha * np.expm1(depth(n, V, M, gamma / epsilon * alpha, self.constant) ** 2)
        self.decision = np.where(seen, size / np.where(n > 0.0, n, 1.0), 0.0) * theta


def depth(n: np.ndarray, V: np.ndarray, M: np.ndarray, slope: np.ndarray, constant: float) -> np.ndarray:
    """Solve the equation of Proposition 1 for s, where the length of the decision is alpha (exp(s^2) - 1).

    ``slope`` is alpha beta. The right side is convex in s, and Newton's method falls to the root from the least of two bounds.
    """
    c, root_V = constant, np.sqrt(V)
    bend = root_V / M
    s = np.where(n <= 2.0 * c * root_V * bend, n / (2.0 * c * root_V), np.sqrt(np.maximum(n / (c * M) - bend**2, 0.0)))
    s = np.minimum(s, np.sqrt(np.log1p(n / slope)))
    for _ in range(8):
        rise = 2.0 * c * np.where(s <= bend, root_V, M * s) + 2.0 * slope * s * np.exp(s**2)
        s = np.maximum(s - (right_side(s, V, M, slope, c) - n) / rise, 0.0)
    return s


def right_side(s: np.ndarray, V: np.ndarray, M: np.ndarray, slope: np.ndarray, c: float) -> np.ndarray:
    """Return the right side of the equation of Proposition 1."""
    root_V = np.sqrt(V)
    return np.where(s <= root_V / M, 2.0 * c * root_V * s, c * (M * s**2 + V / M)) + slope * np.expm1(s**2)


def largest_error(count: int = 200_000) -> float:
    """Return the largest relative error of the equation of Proposition 1 over random values."""
    random = np.random.default_rng(0)
    M, V, n, slope = (10.0 ** random.uniform(low, high, count) for low, high in ((-8, 8), (-3, 8), (-8, 9), (-12, 3)))
    V, n, slope = M**2 * (4.0 + V), M * n, M * slope
    return float(np.abs(right_side(depth(n, V, M, slope, 3.0), V, M, slope, 3.0) / n - 1.0).max())


class HintedFreeGrad(FreeGrad):
    """FreeGrad that learns from the errors of a hint, the last gradient."""

    def __init__(self, dim: int, **options: Any) -> None:
        super().__init__(dim, **options)
        self.hint = torch.zeros_like(self.decision)

    def step(self, gradients: Tensor, values: Tensor | None = None) -> None:
        g = gradients.reshape(self.hint.shape)
        super().step(g - self.hint, values)
        lengths = (self.root_gradient_square_sum, self.largest_gradient_norm, self.first_gradient_norm)
        has_begun = lengths[-1].reshape(*g.shape[:-1], -1) > 0.0
        gradient_sum = self.gradient_sum
        gradient_sum += self.hint * has_begun
        self.hint = g * has_begun
        gradient_sum += self.hint
        self._decide_(*(torch.where(length > 0.0, length, 1.0) for length in lengths))
        gradient_sum -= self.hint


class LearnedHint:
    """The reduction of Algorithm 2 over FreeGrad: a decision minus y times the last gradient."""

    def __init__(self, shape: Shape, *, per_coordinate: bool = False) -> None:
        *seeds, dim = shape
        self.base = FreeGrad(dim, per_coordinate=per_coordinate, batch_shape=tuple(seeds))
        self.factor = FreeGrad(dim if per_coordinate else 1, per_coordinate=True, batch_shape=tuple(seeds))
        self.hint = torch.zeros(shape, dtype=torch.float64)

    def predict(self) -> Tensor:
        return self.base.predict() - self.factor.predict() * self.hint

    def queries(self) -> Tensor:
        return self.predict().unsqueeze(-2)

    def step(self, gradients: Tensor) -> None:
        g = gradients.reshape(self.hint.shape)
        product = -g * self.hint
        self.base.step(g)
        self.factor.step(product if self.factor.dim == self.base.dim else product.sum(-1, keepdim=True))
        self.hint = g.clone()


class Adam:
    """torch's Adam, of a batch of seeds."""

    def __init__(self, shape: Shape, *, rate: float = 1e-3) -> None:
        self.weight = nn.Parameter(torch.zeros(shape, dtype=torch.float64))
        self.optimizer = torch.optim.Adam([self.weight], lr=rate)

    def predict(self) -> Tensor:
        return self.weight.detach()

    def queries(self) -> Tensor:
        return self.predict().unsqueeze(-2)

    def step(self, gradients: Tensor) -> None:
        self.weight.grad = gradients.reshape(self.weight.shape).clone()
        self.optimizer.step()


def ours(cls: Callable[..., Learner], **options: Any) -> Callable[[Shape], Learner]:
    """Return a maker of a learner of the library, by the shape."""
    return lambda shape: cls(shape[-1], batch_shape=shape[:-1], **options)


# By name: makers, of which the best in hindsight counts.
FREE: dict[str, list[Callable[[Shape], Learner]]] = {
    "FreeGrad": [ours(FreeGrad)],
    "FreeGrad, last gradient as hint": [ours(HintedFreeGrad)],
    "FreeGrad, learned hint": [LearnedHint],
    "virtual clipping": [VirtualClipping],
    "virtual clipping, constant 1": [partial(VirtualClipping, constant=1.0)],
}
EACH: dict[str, list[Callable[[Shape], Learner]]] = {
    "FreeGrad per coordinate": [ours(FreeGrad, per_coordinate=True)],
    "per coordinate, last gradient as hint": [ours(HintedFreeGrad, per_coordinate=True)],
    "per coordinate, learned hint": [partial(LearnedHint, per_coordinate=True)],
    "virtual clipping per coordinate": [partial(VirtualClipping, per_coordinate=True)],
    "virtual clipping per coordinate, constant 1": [partial(VirtualClipping, per_coordinate=True, constant=1.0)],
}
CLA = {"CLA-OONS": [ours(CLAOONS)]}
RIVALS: dict[str, list[Callable[[Shape], Learner]]] = {
    "Prodigy": [ours(Prodigy)],
    "Adam": [Adam],
    "Adam, best rate": [partial(Adam, rate=rate) for rate in RATES],
}


def logistic_loss(learner: Learner, x: Tensor, y: Tensor) -> Tensor:
    """Return the losses of rows x ``(S, n, d)`` and signs y ``(S, n)`` at the decision, ``(S)``; the learner learns."""
    z = y * torch.einsum("snd,sd->sn", x, learner.predict().double())
    slopes = -y * torch.sigmoid(-z)
    learner.step((slopes.unsqueeze(-1) * x).mean(-2))
    return softplus(-z, threshold=700.0).mean(-1)


def one_pass(make: Callable[[Shape], Learner], x: Tensor, y: Tensor) -> Tensor:
    """Return the mean losses of one pass over rows ``(S, T, d)``."""
    learner = make((len(x), x.size(-1)))
    return torch.stack([logistic_loss(learner, x[:, t : t + 1], y[:, t : t + 1]) for t in range(x.size(1))]).mean(0)


def batched(make: Callable[[Shape], Learner], x: Tensor, y: Tensor, size: int | None, steps: int) -> Tensor:
    """Return the mean losses of steps on batches of rows that are drawn with replacement, or of all rows."""
    learner, generator = make((len(x), x.size(-1))), torch.Generator().manual_seed(0)
    losses = []
    for _ in range(steps):
        rows = slice(None) if size is None else torch.randint(x.size(1), (size,), generator=generator)
        losses.append(logistic_loss(learner, x[:, rows], y[:, rows]))
    return torch.stack(losses).mean(0)


@functools.cache
def rows_of(stream: str, kind: str, seeds: int, rows: int) -> tuple[Tensor, Tensor]:
    """Return rows ``(S, T, d)`` and signs of labels ``(S, T)``."""
    data = STREAMS[stream][2]()
    drawn = [in_units(data, kind, seed) for seed in range(seeds)]
    x, y = (torch.from_numpy(np.stack(values)[:, :rows]) for values in zip(*drawn, strict=True))
    return x, 2.0 * y - 1.0


tasks_of = functools.cache(online_calibration.make_tasks)


def layer_losses(makers: list[Callable[[Shape], Learner]], layer: str, seeds: int, rounds: int) -> list[Tensor]:
    """Return the mean losses of learners of a layer of online_calibration.py, by seed."""
    tasks, labels = tasks_of(rounds, seeds)
    learners = [make((seeds, tasks[layer].start.numel())) for make in makers]
    return list(online_calibration.step_all(tasks[layer], labels, learners, lambda: None).losses())


@functools.cache
def series(name: str) -> Tensor:
    """Return the values of a series of river, from 0 on."""
    from river import datasets

    values = torch.tensor([float(y) for _, y in getattr(datasets, name)()], dtype=torch.float64)
    return (values - values[0]) / values.std()


def forecast(make: Callable[[Shape], Learner], values: Tensor, is_squared: bool) -> Tensor:
    """Return the mean loss of forecasts by a linear model of the last three values, ``(1)``."""
    learner, losses = make((1, 4)), []
    for t in range(3, len(values)):
        x = torch.cat([values[t - 3 : t], torch.ones(1)]).unsqueeze(0)
        error = (x * learner.predict().double()).sum() - values[t]
        losses.append(0.5 * error**2 if is_squared else error.abs())
        learner.step((error if is_squared else error.sign()) * x)
    return torch.stack(losses).mean(0, keepdim=True)


def regret(make: Callable[[Shape], Learner], rounds: int, trials: int, **options: Any) -> Tensor:
    """Return the expected regret of each trial on Huber losses, with a comparator of length 1."""
    stream = SEAStream(DIM, loss="huber", batch_shape=(trials,), seed=1, **options)
    learner, total = make((trials, DIM)), torch.zeros(trials, dtype=torch.float64)
    for _ in range(rounds):
        total += stream.expected_regret(learner.predict())
        learner.step(stream.gradients(learner.queries()))
        stream.advance()
    return total


def cell(runs: list[Tensor], digits: int = 3) -> str:
    """Return the mean and standard error of the best run, of losses by seed."""
    best = min(runs, key=lambda losses: float(losses.nan_to_num(nan=math.inf).mean()))
    mean = float(best.mean())
    form = f".{digits}f" if mean < 1e4 else ".1e"
    return f"{mean:{form}}" + (f" ± {float(best.std()) / math.sqrt(len(best)):{form}}" if len(best) > 1 else "")


def table(title: str, names: list[str], columns: dict[str, Callable[[str], str]]) -> list[str]:
    """Print a table row by row and return its lines."""
    lines = [f"| {title} | {' | '.join(columns)} |", "|---" * (1 + len(columns)) + "|"]
    print("", *lines, sep="\n")
    for name in names:
        lines.append(f"| {name} | {' | '.join(column(name) for column in columns.values())} |")
        print(lines[-1], flush=True)
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__.partition("\n## Proofs\n")[0], formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--output", type=Path, default=Path("outputs"), help="folder of the tables")
    parser.add_argument("--smoke", action="store_true", help="one stream of scikit-learn, two seeds and few rounds")
    options = parser.parse_args()
    smoke = options.smoke
    seeds, rows, steps, trials = (2, 40, 5, 2) if smoke else (options.seeds, ROWS, STEPS, TRIALS)
    lengths, layer_rounds = ((8, 16), 20) if smoke else (ROUNDS, 3000)
    streams = present(STREAMS, ["breast cancer"] if smoke else list(STREAMS))
    torch.set_num_threads(1)
    print(f"Means ± standard errors over {seeds} seeds, and {trials} trials of simulated streams.")
    print(f"Proposition 1 by 8 steps of Newton's method: the two sides differ by {largest_error():.0e} of n at most.")
    all_learners = FREE | EACH | RIVALS
    lines: list[str] = []
    for kind in ("standardised", "raw"):

        def passed(stream: str, name: str, kind: str = kind) -> str:
            data = rows_of(stream, kind, seeds, rows)
            return cell([one_pass(make, *data) for make in (all_learners | CLA)[name]])

        columns = {stream: partial(passed, stream) for stream in streams}
        lines += ["", *table(f"one pass, {kind}", [*FREE, *CLA, *EACH, *RIVALS], columns)]
    for stream in (stream for stream in streams if stream in ("spambase", "breast cancer")):
        data = rows_of(stream, "standardised", seeds, rows)

        def stepped(size: int | None, name: str, data: tuple[Tensor, Tensor] = data) -> str:
            return cell([batched(make, *data, size, steps) for make in all_learners[name]])

        columns = {title: partial(stepped, size) for title, size in BATCHES.items()}
        lines += ["", *table(f"{stream}, batches", list(all_learners), columns)]
    columns = {
        layer: lambda name, layer=layer: cell(layer_losses(all_learners[name], layer, seeds, layer_rounds))
        for layer in ("calibration", "new head")
    }
    lines += ["", *table("layers", list(all_learners), columns)]
    if not smoke and present(STREAMS, ["phishing"]):  # river is installed
        columns = {
            f"{name}, {loss}": lambda learner, name=name, loss=loss: cell(
                [forecast(make, series(name), loss == "squared") for make in all_learners[learner]]
            )
            for name in SERIES
            for loss in ("squared", "absolute")
        }
        lines += ["", *table("forecasts", list(all_learners), columns)]
    columns = {
        f"{kind}, T = {length}": lambda name, length=length, drift=drift: cell(
            [regret(make, length, trials, **drift) for make in (FREE | CLA)[name]], 1
        )
        for kind, drift in DRIFTS.items()
        for length in lengths
    }
    lines += ["", *table("regret", [*FREE, *CLA], columns)]
    options.output.mkdir(parents=True, exist_ok=True)
    (options.output / "gradient_variation.md").write_text("\n".join(lines[1:]) + "\n")


if __name__ == "__main__":
    main()
