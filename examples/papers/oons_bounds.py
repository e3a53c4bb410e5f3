r"""Bounds of the paper of OONS against measured regret, on streams between stochastic and adversarial.

Table 1 of Wang, Barik, Zhao and Tan (Parameter-free algorithms for the Stochastically Extended Adversarial model) compares
bounds on the expected regret by their forms, without constants and logarithms:

- OFTRL, optimistic OMD, OONS: :math:`\sqrt{\sigma^2_{1:T}} + \sqrt{\Sigma^2_{1:T}}`, in a known ball;
- CA-OONS: :math:`\|u\|^2 + \|u\|(\sqrt{\sigma^2_{1:T}} + \sqrt{\Sigma^2_{1:T}})`;
- CLA-OONS: :math:`\|u\|^2(\sqrt{\sigma^2_{1:T}} + \sqrt{\Sigma^2_{1:T}}) + \|u\|^4 + \sqrt{\sigma_{1:T} + G_{1:T}}`;
- equation (2), for the parameter-free mirror descent of Jacobsen and Cutkosky with an implicit hint:
  :math:`\|u\|(\sqrt{\tilde\sigma^2_{1:T}} + \sqrt{\Sigma^2_{1:T}})`.

The script plays Huber losses in 5 dimensions with :math:`\|u\| = 1`, measures the sums on the same streams with
``StreamVariation``, and divides regret by the form, which has the right unit here, since losses have slope and curvature 1. A
form that is right up to logarithms has ratios that do not grow. There are ten experiments:

1. *Table 1* as T, sigma and the drift vary, one at a time.
2. *Kinds of streams*: independent losses; drift alone; noise that depends on the point (Proposition A.1 of the paper); a random
   order, in one pass and in many; corrupted losses.
3. *Equation (2)*: the hint :math:`m_t = \nabla f_{t-1}(x_t)` at the new point, which x_t itself depends on. It is found by damped
   iteration, whose remaining error the table shows. Of the errors of the hint it should remove what the movement of x_t adds.
4. *Doubling* (Remark 4.4): CA-OONS told T; restarted in epochs of 1, 2, 4, ... rounds, each with its own learners; and as
   ``horizon=None``, whose learners wake one by one.
5. *CLA-OONS and the scale of gradients*: regret when all gradients are multiplied by a number, and the radius that it grows to
   beside :math:`1 + 2\sqrt{(\sigma_{1:T} + G_{1:T})/z_1}`.
6. *High probability*, which the paper leaves open: quantiles of regret over 1000 trials, of the losses that were drawn too.
7. *Learners without a ball* where the gradient is -1 in the first half of the rounds and 1 in the second: scale-free mirror
   descent loses more than linearly in T.
8. *A floor* (Remark 4.2): on a smoothed maximum of linear functions no deterministic learner with one gradient a round has less
   than :math:`\frac12G\|u\|\sqrt T`, although nothing varies (proof below).
9. *The worst case* of CA-OONS: linear losses that are hardest, for comparators of all lengths.
10. *Sparse gradients* (Appendix C.4): how soon A and its inverse fill.

Regret is measured on expected losses, over the same 10 trials for all; ± is one standard error.

    python examples/papers/oons_bounds.py    # a few minutes of processor time; seconds with --quick

## Proofs

Equations (1) to (12) are those of [the theory](parameter_free_theory.md). Other numbers are those of the paper.

**A floor** (Remark 4.2). Let a learner be deterministic and get one gradient, and the value, a round. For all G, r > 0 and
every T there are one convex function F of 2T coordinates, G-Lipschitz and L-smooth with `L = 5.2 G T^{3/2}/r`, and a u of
length r, such that the learner's regret on F_t = F for T rounds is at least

```text
(11)  ½ G r √T  ≥  0.288 (G r)^{2/3} (L r²)^{1/3}.
```

*Proof.* Let G = 1, `μ = r/(5.2 T^{3/2})` and γ = 2.1μ. For orthonormal v_1, ..., v_T let `F°(x) = max_i ⟨v_i, x⟩ - iγ`, which
is convex and 1-Lipschitz, and let F be its Moreau envelope, `F(x) = min_y F°(y) + ‖x - y‖²/(2μ)`. F is convex, 1-Lipschitz
and (1/μ)-smooth, `F° - μ/2 ≤ F ≤ F°`, and the minimiser y is within μ of x.

*The vectors.* In round t choose v_t orthogonal to x_1, ..., x_t and to the vectors before it. Then ⟨v_i, x_t⟩ = 0 for i ≥ t.
Within μ of x_t the term of t is at least -μ - tγ and those of i > t are at most μ - iγ, which is less. So the value and the
gradient of F at x_t are those of the envelope of the maximum over i ≤ t, and can be told before the other vectors are chosen.

*The regret.* F(x_t) ≥ F°(x_t) - μ/2 ≥ -Tγ - μ/2. For `u = -(r/√T) Σv_i`, F(u) ≤ -r/√T. Each round costs at least
`r/√T - 2.6Tμ = r/(2√T)`. ∎

Here σ = 0, and Σ² ≤ G², as only the first round, from F_0 = 0, counts. So no deterministic learner with one query a round has
a bound ‖u‖(√σ² + √Σ²) whose factor is free of d and polynomial in ln T: it needs another term, of power 4/3 in ‖u‖ at least.

*What it does not say.* (11) has d = 2T and T = (Lr/5.2G)^{2/3}, and says nothing at a fixed d, nor of several queries a
round, as CA-OONS with values makes and an implicit hint needs. The paper conjectures the power 2, of L‖u‖² in our (7). One
loss that stays cannot decide: a learner told G, L and r has, up to logarithms, `Σ min{Gr/√t, Lr²/t²}`, of order
(Gr)^{2/3}(Lr²)^{1/3}.

**High probability for expected losses**, beside [Corollary 3](parameter_free_theory.md#oons). `ΣF_t(x_t) - F_t(u)` is at most
the left side of (10) and the martingale `Σ⟨∇F_t(x_t) - g_t, x_t - u⟩`. Its terms are at most 4GR, with variances of at most
4R²σ_t². For one u and T and a fixed bound σ², Freedman's inequality adds `4R√((e-2)σ² ln(2/p)) + 8GR ln(2/p)` to (10), with
2/p for 1/p there. Here √(ln(1/p)) multiplies σ, and f_t need not be convex.

**High probability of CA-OONS**, beside (7). For `"values"`, convex f_t, a given horizon, one u with ‖u‖ ≤ D_N and p in (0,
1), with probability at least 1 - p the regret as drawn is at most (7) with `√(2(e-1)σ² + Σ² + 8G² ln(2/p))` for
`√(2σ² + Σ²)`. For all such u at once it is ln(2N/p).

*Proof.* The proof of (7) takes expectations of two sums only: of α_t² of learner i, and of A_t², for which 0 ≤ A_t² ≤ 4G²D²
and E[A_t² | past] ≤ D²σ_t². Each has the bound of Corollary 3 with probability 1 - p/2. Both are of learner i, which is the
same for all u with the same i, and there are N learners. ∎

For expected losses nothing is proved: in the martingale of Corollary 3 x_t is the mixture, which may be D_N long.

**The worst case of CA-OONS.** One learner, told G, has (7) and (12), Õ(‖u‖G√T) for ℓ ≤ ‖u‖ ≤ D_N, which the paper leaves
open. C has the factor d, which the best known bounds ‖u‖G√T have not. The paper's ‖u‖² in the worst case comes from its
ridge, as ½c_1‖u‖² of (1) is of order z²‖u‖² with `"paper"` and of order z‖u‖²/R ≤ z‖u‖ by default, and from its case ‖u‖ >
2^N, which (12) excludes.

**CLA-OONS between stochastic and adversarial**, with (8) of the theory. Theorem 1 also has `-¼(z_1/ℓ)‖x_t - x_{t-1}‖²` in all
rounds that do not begin an epoch. With C the coefficient of √V in (8), √V is replaced by 2√(2σ² + Σ²) + 2G√M, and 4C²L²ℓ/z_1
is added. An adaptive ridge is not proved here: its drift would be of order D_T²√V/ℓ.

**The logarithm in (3)** needs its `1 +`, which the proof of Lemma C.3 has. Let d = T = 1, ‖u‖ = D = 1, m_1 = 0, z_1 = ‖g_1‖ =
1 and η_1 = 1/64. Regret against u = -g_1 is 1. But ln(Tη_1z_T/z_1)/η_T = -64 ln 64 = -266, while the other terms are at most
1.02: no constant in O(·) makes their sum 1.

**D in (3).** Remark 3.3 says that D(z_T - z_1) is the only term with D. Theorem 3.1 asks for 64η_tDz_T ≤ 1, so its first term
is at least 64Dz_T times r ln(·). With (4), 1/η_T is max{64Dz_T, D√V}: D multiplies √V too, as C.3 prints it. Only the rate of
E.1 has no D at √V.

**(8) at u = 0.** There it says that regret is Õ(0). Let the losses be linear, g_1 ≠ 0, and g_2 = Gx_2/‖x_2‖: then regret
against 0 after two rounds is G‖x_2‖ > 0. The proof has D_1 = 2 for ‖u‖ < 2 (Case 1). So ‖u‖ is to be read as max{‖u‖, D_1},
as in (8) of the theory.

**(10), Lemma C.1.** The last divergence is D(x_{t+1}, x_t), not D(x_t, x_{t+1}). The two are equal for the squares of OONS,
and not for entropies.

**The rise of A_t** in C.2 is 4(η_{t+1}z²_{t+1} - η_tz²_t)I, not 4η_t(z²_{t+1} - z²_t)I: the latter is larger, so an
inequality holds where the paper has an equality. A_t ⪰ A_{t-1} need not hold.

**The remark after Proposition A.1.** There σ̃²_{1:T}/σ²_{1:T} is of order T. Bounds have roots of the two sums, so their
ratio is of order √T, not T.

**The bound of Mhammedi and Koolen in Section 1.1** lacks ‖u‖√V. As printed, G‖u‖³ + G√(...) is of order G√T for ‖u‖ =
T^{1/8}, where no learner has less than a constant times G‖u‖√T = GT^{5/8} on all sequences.

**Scale-free mirror descent without a ball**, `AdaGrad` with c = 1. In one dimension let g = -1 for n = T/2 rounds, then 1 for
n. All u have the same loss, 0. The decision climbs to about 2√n and comes back by 2(√T - √n) only. Up to O(T), regret is

```text
-Σ_{t≤n} 2√t + Σ_{n<t≤T} (4√n - 2√t)  =  (4 - 8√2/3) n^{3/2}  =  0.0809 T^{3/2}.
```

That is more than linear in T, for every u. [Measured](oons.md#learners-without-a-ball).

**Sparse gradients** (C.4). If all gradients are within the same s coordinates, A_t is a multiple of I and a block of s rows.
If their places move, the places that have met are one block of A_t⁻¹. Sherman and Morrison's formula keeps this inverse,
which fills. A sparse factor of A_t helps only while A_t stays sparse: [47% of it is filled at t =
256](oons.md#sparse-gradients). C.4 does not count the projection onto 𝒳 in the norm of A_t either: it needs the spectrum of
A_t, or several solves.
"""

import math
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from experiment import Experiment, Job, Results, short, spread, table
from torch import Tensor

from torchonline import CAOONS, CLAOONS, OONS, DivergenceWarning, FreeGrad
from torchonline.baselines import OFTRL, SOLOFTRL, AdaGrad, CoinBetting, OptimisticOMD, ParameterFreeMirrorDescent
from torchonline.environments import CorruptedStream, RandomOrderStream, SEAStream
from torchonline.metrics import StreamVariation

DIM, TRIALS, SEED, RADIUS = 5, 10, 1, 2.0
LENGTHS, NOISES, DRIFTS = (256, 1024, 4096), (0.03, 0.1, 0.3, 1.0), (0.03, 0.1, 0.3, 1.0)
BASE: dict[str, Any] = {"kind": "independent", "sigma": 0.3, "drift": 0.1}
KINDS: dict[str, dict[str, Any]] = {
    "independent": {"kind": "independent", "sigma": 0.5},
    "drift alone": {"kind": "independent", "sigma": 0.0, "drift": 0.3},
    "independent, 16 cells": {"kind": "independent", "sigma": 0.5, "cells": 16},
    "random order, one pass": {"kind": "random order", "sigma": 0.5, "passes": 1},
    "random order, 32 passes": {"kind": "random order", "sigma": 0.5, "passes": 32},
    "corrupted": {"kind": "corrupted", "sigma": 0.3, "corruption": 2.0, "spacing": 32},
}
SCALES = (1e-4, 1.0, 1e4)
QUANTILES = (0.5, 0.9, 0.99)
TAILED = ("OONS", "CA-OONS", "CA-OONS, linear", "CLA-OONS", "Mirror descent", "FreeGrad")
HARDEST = ("CA-OONS", "CA-OONS, linear", "Mirror descent", "FreeGrad")


def stream_of(setting: dict[str, Any], rounds: int, trials: int) -> Any:
    """Return the stream of a setting, from its first round."""
    options: dict[str, Any] = {"loss": "huber", "batch_shape": (trials,), "seed": SEED}
    options |= {name: setting[name] for name in ("loss", "scale", "sigma", "comparator_norm") if name in setting}
    if setting["kind"] == "random order":
        return RandomOrderStream(DIM, losses=max(2, rounds // setting["passes"] // 2 * 2), **options)
    if setting["kind"] == "corrupted":
        return CorruptedStream(DIM, corruption=setting["corruption"], spacing=setting["spacing"], **options)
    return SEAStream(DIM, drift=setting.get("drift", 0.0), cells=setting.get("cells", 1), **options)


class PrintedOFTRL:
    """OFTRL with the step that the paper prints in Section 2.2, which depends on the diameter and not on G."""

    needs_values = False

    def __init__(self, trials: int) -> None:
        self.diameter, self.penalty = 2.0 * RADIUS, torch.zeros(trials, 1, dtype=torch.float64)
        self.total = self.hint = torch.zeros(trials, DIM, dtype=torch.float64)

    def predict(self) -> Tensor:
        x = -(self.total + self.hint) * self.diameter**2 / self.penalty.clamp(min=1e-300)
        return x * (RADIUS / x.norm(dim=-1, keepdim=True).clamp(min=1e-300)).clamp(max=1.0)

    queries = predict

    def step(self, gradients: Tensor, values: None = None) -> None:
        error = (gradients - self.hint).norm(dim=-1, keepdim=True)
        rate = self.diameter**2 / self.penalty.clamp(min=1e-300)
        self.penalty = self.penalty + torch.minimum(0.5 * rate * error.square(), self.diameter * error)
        self.total, self.hint = self.total + gradients, gradients


# By name: a learner by the stream, its length and its trials.
LEARNERS: dict[str, Callable[[Any, int, int], Any]] = {
    "OFTRL": lambda s, T, n: OFTRL(DIM, smoothness=1.0, **in_ball(s, n)),
    "OFTRL, least of two": lambda s, T, n: OFTRL(DIM, smoothness=1.0, schedule="minimum", **in_ball(s, n)),
    "OFTRL, step as printed": lambda s, T, n: PrintedOFTRL(n),
    "Optimistic OMD": lambda s, T, n: OptimisticOMD(DIM, smoothness=1.0, **in_ball(s, n)),
    "OONS": lambda s, T, n: OONS(DIM, **in_ball(s, n)),
    "CA-OONS": lambda s, T, n: CAOONS(DIM, horizon=T, lipschitz=s.lipschitz, batch_shape=(n,)),
    "CA-OONS, linear": lambda s, T, n: CAOONS(DIM, horizon=T, meta="linear", lipschitz=s.lipschitz, batch_shape=(n,)),
    "CLA-OONS": lambda s, T, n: CLAOONS(DIM, batch_shape=(n,)),
    "Mirror descent": lambda s, T, n: ParameterFreeMirrorDescent(DIM, lipschitz=s.lipschitz, batch_shape=(n,)),
    "FreeGrad": lambda s, T, n: FreeGrad(DIM, batch_shape=(n,)),
}
# By name: a learner without a ball, by the dimension, the bound on gradients, the length and the trials.
UNBOUNDED: dict[str, Callable[[int, float, int, int], Any]] = {
    "AdaGrad": lambda d, G, T, n: AdaGrad(d, batch_shape=(n,)),
    "SOLO FTRL": lambda d, G, T, n: SOLOFTRL(d, batch_shape=(n,)),
    "KT": lambda d, G, T, n: CoinBetting(d, lipschitz=G, batch_shape=(n,)),
    "FreeGrad": lambda d, G, T, n: FreeGrad(d, batch_shape=(n,)),
    "CLA-OONS": lambda d, G, T, n: CLAOONS(d, batch_shape=(n,)),
    "CA-OONS, linear": lambda d, G, T, n: CAOONS(d, horizon=T, meta="linear", lipschitz=G, batch_shape=(n,)),
}
FLOORED = ("OONS", "CA-OONS, linear", "KT", "FreeGrad")
KNOWN = ("OFTRL", "OFTRL, least of two", "OFTRL, step as printed", "Optimistic OMD", "OONS")


def in_ball(stream: Any, trials: int) -> dict[str, Any]:
    return {"radius_bound": RADIUS, "lipschitz": stream.lipschitz, "batch_shape": (trials,)}


def play(learner: str, setting: dict[str, Any], rounds: int, trials: int) -> dict[str, Any]:
    """Return the regret of each trial."""
    stream = stream_of(setting, rounds, trials)
    return {"regret": regret_of(LEARNERS[learner](stream, rounds, trials), stream, rounds).tolist()}


def regret_of(player: Any, stream: Any, rounds: int, factor: float = 1.0) -> Tensor:
    """Return the expected regret of each trial, with gradients multiplied by a factor."""
    total = torch.zeros(stream.batch_shape, dtype=torch.float64)
    for _ in range(rounds):
        total += stream.expected_regret(player.predict())
        points = player.queries()
        player.step(factor * stream.gradients(points), stream.values(points) if player.needs_values else None)
        stream.advance()
    return total


def measure(setting: dict[str, Any], rounds: int, trials: int) -> dict[str, float]:
    """Return the sums of the noise, the drift and the gradients, at 0, at u, and far from u on both sides of each axis."""
    stream, axes = stream_of(setting, rounds, trials), torch.eye(DIM, dtype=torch.float64)
    offsets = torch.cat([3.0 * axes, -3.0 * axes, torch.zeros(1, DIM, dtype=torch.float64)])
    points = torch.cat([stream.comparator.unsqueeze(-2) + offsets, torch.zeros(trials, 1, DIM)], -2)
    metric, largest = StreamVariation((trials,), points=points.size(-2)), 0.0
    variance = deviation = 0.0
    for _ in range(rounds):
        metric.update(stream, points)
        variance += float(stream.variance().mean())
        deviation += float(stream.deviation().mean())
        largest += float(stream.largest_variance().mean()) if isinstance(stream, SEAStream) else 0.0
        stream.advance()
    found = {name: float(value) for name, value in metric.compute().items()}
    # The first three are known exactly, and noisy when measured.
    return found | {
        "variance": variance,
        "deviation": deviation,
        "largest_variance": largest,
        "measured": found["variance"],
    }


class Implicit:
    """A learner whose hint is the gradient of the last loss at the new point.

    ``decide`` maps a hint to the decision, and ``tell`` writes both into the learner.
    """

    needs_values = False

    def __init__(self, learner: Any) -> None:
        self.learner, self.last, self.left = learner, None, []

    def decide(self, hint: Tensor) -> Tensor:
        learner: Any = self.learner
        if isinstance(learner, OONS):
            learner.set_hint(hint)
            return learner.predict()
        V = learner.error_square_sum
        theta = -(learner.gradient_sum + hint / learner.error_bound)
        n, alpha = theta.norm(dim=-1), learner.length_scale / (V.sqrt() * V.log() ** 2)
        exponent = torch.where(n <= 6.0 * V, n * n / (36.0 * V), n / 3.0 - V)
        return (alpha * exponent.expm1() / n.clamp(min=1e-300)).unsqueeze(-1) * theta

    def round_of(self, stream: Any) -> Tensor:
        """Return the decision of a round, before the stream has moved on from the last one."""
        learner: Any = self.learner
        x = learner.predict()
        for _ in range(30):
            found = self.decide(stream.gradients(x))
            x = 0.5 * (x + found)
        hint = stream.gradients(x)
        self.left.append(float((self.decide(hint) - x).norm(dim=-1).mean()))
        x = self.decide(hint)
        if not isinstance(learner, OONS):
            learner.hint.copy_(hint / learner.error_bound)
            learner.decision.copy_(x)
        return x


def play_hints(learner: str, is_implicit: bool, setting: dict[str, Any], rounds: int, trials: int) -> dict[str, Any]:
    """Return regret and the sum of the squared errors of the hint, of each trial, and the error left by the iteration."""
    stream = stream_of(setting, rounds, trials)
    player = LEARNERS[learner](stream, rounds, trials)
    implicit, errors = Implicit(player), torch.zeros(trials, dtype=torch.float64)
    unit = 1.0 if learner == "OONS" else player.error_bound
    regret = torch.zeros(trials, dtype=torch.float64)
    x = player.predict()
    for t in range(rounds):
        regret += stream.expected_regret(x)
        gradients = stream.gradients(x)
        errors += (gradients - unit * player.hint).square().sum(-1)
        player.step(gradients)
        x = implicit.round_of(stream) if is_implicit and t < rounds - 1 else player.predict()
        stream.advance()
    left = float(np.mean(implicit.left)) if implicit.left else 0.0
    return {"regret": regret.tolist(), "errors": errors.tolist(), "left": left}


def play_epochs(way: str, meta: str, norm: float, rounds: int, trials: int) -> dict[str, Any]:
    """Return the regret of CA-OONS told T, in epochs, or with sleeping learners."""
    stream = stream_of(BASE | {"comparator_norm": norm}, rounds, trials)
    told: dict[str, Any] = {"meta": meta, "lipschitz": stream.lipschitz, "batch_shape": (trials,)}
    if way != "epochs":
        player = CAOONS(DIM, horizon=rounds if way == "told T" else None, **told)
        return {"regret": regret_of(player, stream, rounds).tolist()}
    total, begun, length = torch.zeros(trials, dtype=torch.float64), 0, 1
    while begun < rounds:
        total += regret_of(CAOONS(DIM, horizon=length, **told), stream, min(length, rounds - begun))
        begun, length = begun + length, 2 * length
    return {"regret": total.tolist()}


def play_scale(learner: str, factor: float, rounds: int, trials: int) -> dict[str, Any]:
    """Return the regret where gradients are multiplied, and, of CLA-OONS, its last radius and first scale."""
    stream = stream_of(BASE, rounds, trials)
    if learner == "FreeGrad":
        return {"regret": regret_of(FreeGrad(DIM, batch_shape=(trials,)), stream, rounds, factor).tolist()}
    scale = None if learner == "CLA-OONS" else 1.0
    player = CLAOONS(DIM, gradient_scale=scale, batch_shape=(trials,))
    if learner == "CLA-OONS, tiny first gradient":  # a millionth of those to come
        player = CLAOONS(DIM, batch_shape=(trials,))
        player.step(1e-6 * factor * stream.gradients(player.predict()))
    first = factor * stream.gradients(player.predict()).norm(dim=-1)
    regret = quiet(lambda: regret_of(player, stream, rounds, factor))
    return {"regret": regret.tolist(), "radius": player.radius.tolist(), "first": first.tolist()}


def play_radius(sigma: float, rounds: int, trials: int) -> dict[str, Any]:
    """Return the radius of CLA-OONS after T rounds, and the length of its first gradient."""
    stream, player = (
        stream_of(BASE | {"sigma": sigma, "drift": 0.0}, rounds, trials),
        CLAOONS(DIM, batch_shape=(trials,)),
    )
    first = stream.gradients(player.predict()).norm(dim=-1)
    regret = quiet(lambda: regret_of(player, stream, rounds))
    found = {"regret": regret, "radius": player.radius, "first": first, "starts": player.restart_count}
    return {name: value.tolist() for name, value in found.items()}


def play_tail(learner: str, rounds: int, trials: int) -> dict[str, Any]:
    """Return the mean and the quantiles over trials of regret, on expected losses and on those that were drawn."""
    stream = stream_of(BASE, rounds, trials)
    player = LEARNERS[learner](stream, rounds, trials)
    expected, drawn = torch.zeros(trials, dtype=torch.float64), torch.zeros(trials, dtype=torch.float64)
    for _ in range(rounds):
        x = player.predict()
        expected += stream.expected_regret(x)
        drawn += stream.regret(x)
        points = player.queries()
        player.step(stream.gradients(points), stream.values(points) if player.needs_values else None)
        stream.advance()
    return {
        name: [float(each.mean()), *map(float, np.quantile(each.numpy(), QUANTILES))]
        for name, each in (("expected", expected), ("drawn", drawn))
    }


def play_turn(learner: str, rounds: int) -> dict[str, Any]:
    """Return the regret of gradients -1 in the first half of the rounds and 1 in the second, against any u."""
    player, total = UNBOUNDED[learner](1, 1.0, rounds, 1), 0.0
    for t in range(rounds):
        gradient = -1.0 if 2 * t < rounds else 1.0
        total += gradient * float(player.predict())
        player.step(torch.full_like(player.queries(), gradient))
    return {"regret": [total]}


def play_free(learner: str, rounds: int, trials: int) -> dict[str, Any]:
    stream = stream_of(BASE, rounds, trials)
    player = UNBOUNDED[learner](DIM, stream.lipschitz, rounds, trials)
    return {"regret": quiet(lambda: regret_of(player, stream, rounds)).tolist()}


def smoothed_maximum(x: Tensor, width: float) -> tuple[Tensor, Tensor]:
    """Return the Moreau envelope of max_i (x_i - 2.1 width i), ``(d)`` to a number, and its gradient."""
    shifted = x - 2.1 * width * torch.arange(1.0, x.numel() + 1.0, dtype=x.dtype)
    # The gradient is the projection of shifted / width onto the simplex.
    ordered = (shifted / width).sort(descending=True).values
    levels = (ordered.cumsum(0) - 1.0) / torch.arange(1.0, x.numel() + 1.0, dtype=x.dtype)
    gradient = (shifted / width - levels[int((ordered > levels).sum()) - 1]).clamp(min=0.0)
    return (gradient * shifted).sum() - 0.5 * width * gradient.square().sum(), gradient


def play_floor(learner: str, rounds: int) -> dict[str, Any]:
    """Return the regret on a smoothed maximum of T linear functions in T dimensions, with G = |u| = 1, and L."""
    width = 1.0 / (5.2 * rounds**1.5)
    if learner == "OONS":
        player: Any = OONS(rounds, radius_bound=2.0, lipschitz=1.0, batch_shape=(1,))
    else:
        player = UNBOUNDED[learner](rounds, 1.0, rounds, 1)
    best, _ = smoothed_maximum(torch.full((rounds,), -1.0 / math.sqrt(rounds), dtype=torch.float64), width)
    total = 0.0
    for _ in range(rounds):
        value, gradient = smoothed_maximum(player.predict()[0], width)
        total += float(value - best)
        player.step(gradient.expand_as(player.queries()).clone())
    return {"regret": [total], "smoothness": 1.0 / width}


def play_sparse(coordinates: int, rounds: list[int]) -> dict[str, Any]:
    """Return the shares of A and of its inverse that are not 0, where gradients have 2 of some of 64 coordinates."""
    learner, draws = OONS(64, radius_bound=2.0, lipschitz=1.0, form="frozen"), torch.Generator().manual_seed(SEED)
    shares = []
    for t in range(1, max(rounds) + 1):
        places = torch.randperm(coordinates, generator=draws)[:2]
        signs = torch.where(torch.rand(2, generator=draws) < 0.5, -0.5, 0.5).double()
        learner.step(torch.zeros(64, dtype=torch.float64).index_add(0, places, signs))
        if t in rounds:
            parts = (learner.curvature.matrix, learner.curvature.inverse)
            shares.append([float((part != 0.0).double().mean()) for part in parts])
    return {"shares": shares}


def quiet(run: Callable[[], Tensor]) -> Tensor:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DivergenceWarning)
        return run()


def settings(quick: bool) -> dict[str, tuple[dict[str, Any], int]]:
    """Return the settings of Table 1 and of the kinds of streams, with their lengths, by name."""
    lengths, middle = ((8, 16), 16) if quick else (LENGTHS, 1024)
    found = {f"T = {rounds}": (BASE, rounds) for rounds in lengths}
    found |= {f"sigma = {sigma:g}": (BASE | {"sigma": sigma}, middle) for sigma in NOISES}
    found |= {f"drift = {drift:g}": (BASE | {"drift": drift}, middle) for drift in DRIFTS}
    return found | {name: (kind, middle) for name, kind in KINDS.items()}


def jobs(quick: bool) -> dict[str, Job]:
    trials = 2 if quick else TRIALS
    found: dict[str, Job] = {}
    for name, (setting, rounds) in settings(quick).items():
        shared = {"setting": setting, "rounds": rounds, "trials": trials}
        found[f"{name}: sums"] = Job(measure, shared)
        found |= {f"{name}: {learner}": Job(play, {"learner": learner} | shared) for learner in LEARNERS}
    middle, few = (16, 8) if quick else (1024, 512)
    for cells in (1, 16):
        shared = {"setting": {"kind": "independent", "sigma": 0.3, "cells": cells}, "rounds": few, "trials": trials}
        found[f"hints, {cells} cells: sums"] = Job(measure, shared)
        for learner in ("OONS", "Mirror descent"):
            for kind in ("last", "implicit"):
                options = {"learner": learner, "is_implicit": kind == "implicit"} | shared
                found[f"hints, {cells} cells: {learner}, {kind}"] = Job(play_hints, options)
    for meta in ("values", "linear"):
        for norm in (1.0, 10.0):
            for way in ("told T", "epochs", "sleeping"):
                options = {"way": way, "meta": meta, "norm": norm, "rounds": middle - 1, "trials": trials}
                found[f"doubling, {meta}, {norm:g}: {way}"] = Job(play_epochs, options)
    for learner in ("CLA-OONS", "CLA-OONS, tiny first gradient", "CLA-OONS, gradient_scale=1", "FreeGrad"):
        for factor in SCALES:
            options = {"learner": learner, "factor": factor, "rounds": middle, "trials": trials}
            found[f"scale {factor:g}: {learner}"] = Job(play_scale, options)
    for sigma in (0.0, 0.3):
        for rounds in (8, 16) if quick else LENGTHS:
            options = {"sigma": sigma, "rounds": rounds, "trials": trials}
            found[f"radius, sigma = {sigma:g}, T = {rounds}"] = Job(play_radius, options)
            setting = BASE | {"sigma": sigma, "drift": 0.0}
            shared = {"setting": setting, "rounds": rounds, "trials": trials}
            found[f"radius, sigma = {sigma:g}, T = {rounds}: sums"] = Job(measure, shared)
    return found | {
        name: job for make in (jobs_of_hints, jobs_of_tails, jobs_without_ball) for name, job in make(quick)
    }


def jobs_of_hints(quick: bool) -> Iterator[tuple[str, Job]]:
    """Yield the jobs of equation (2) as T varies, and of Proposition A.1 with as many cells as rounds."""
    trials = 2 if quick else TRIALS
    for cells in (1, 16):
        for rounds in (4, 8) if quick else (128, 2048):
            shared = {
                "setting": {"kind": "independent", "sigma": 0.3, "cells": cells},
                "rounds": rounds,
                "trials": trials,
            }
            yield f"implicit, {cells} cells, T = {rounds}: sums", Job(measure, shared)
            options = {"learner": "Mirror descent", "is_implicit": True} | shared
            yield f"implicit, {cells} cells, T = {rounds}", Job(play_hints, options)
    for rounds in (8, 16) if quick else (64, 256, 1024):
        setting = {"kind": "independent", "sigma": 1.0 / math.sqrt(rounds), "cells": rounds}
        shared = {"setting": setting, "rounds": rounds, "trials": trials}
        yield f"as many cells, T = {rounds}: sums", Job(measure, shared)
        for learner in LEARNERS:
            yield f"as many cells, T = {rounds}: {learner}", Job(play, {"learner": learner} | shared)


def jobs_of_tails(quick: bool) -> Iterator[tuple[str, Job]]:
    for learner in TAILED:
        for rounds in (8, 16) if quick else (128, 512):
            options = {"learner": learner, "rounds": rounds, "trials": 20 if quick else 1000}
            yield f"tail, T = {rounds}: {learner}", Job(play_tail, options)


def jobs_without_ball(quick: bool) -> Iterator[tuple[str, Job]]:
    """Yield the jobs of learners without a ball, of the floor, of the worst case and of sparse gradients."""
    trials, lengths = (2, (8, 16)) if quick else (TRIALS, LENGTHS)
    for learner in UNBOUNDED:
        for rounds in lengths:
            yield f"turn, T = {rounds}: {learner}", Job(play_turn, {"learner": learner, "rounds": rounds})
            options = {"learner": learner, "rounds": rounds, "trials": trials}
            yield f"no ball, T = {rounds}: {learner}", Job(play_free, options)
    for learner in FLOORED:
        for rounds in (4, 8) if quick else (4, 16, 64):
            yield f"floor, T = {rounds}: {learner}", Job(play_floor, {"learner": learner, "rounds": rounds})
    for rounds, norm in [(length, 1.0) for length in lengths] + [(lengths[1], 10.0), (lengths[1], 100.0)]:
        setting = {"kind": "independent", "loss": "linear", "sigma": 1.0, "scale": 1.0 / math.sqrt(rounds)}
        shared = {"setting": setting | {"comparator_norm": norm}, "rounds": rounds, "trials": trials}
        for learner in HARDEST:
            yield f"hardest, T = {rounds}, |u| = {norm:g}: {learner}", Job(play, {"learner": learner} | shared)
    for coordinates in (8, 64):
        options = {"coordinates": coordinates, "rounds": [4, 8] if quick else [16, 64, 256]}
        yield f"sparse, {coordinates} coordinates", Job(play_sparse, options)


def form(learner: str, sums: dict[str, float]) -> float:
    """Return the form of a learner's bound, with |u| = 1."""
    root = math.sqrt(sums["variance"]) + math.sqrt(sums["drift"])
    if learner in KNOWN:
        return root
    if learner.startswith("CA-OONS"):
        return 1.0 + root
    if learner == "CLA-OONS":
        return root + 1.0 + math.sqrt(sums["deviation"] + sums["gradients"])
    return math.sqrt(sums["largest_variance"]) + math.sqrt(sums["drift"])


def regret_table(results: Results, names: list[str]) -> str:
    """Return regret and, in brackets, its ratio to the form of the bound, by setting."""
    rows = []
    for learner in LEARNERS:
        row = [learner]
        for name in names:
            regret, sums = results[f"{name}: {learner}"]["regret"], results[f"{name}: sums"]
            ratio = "" if learner == "FreeGrad" else f" ({short(float(np.mean(regret)) / form(learner, sums))})"
            row.append(f"{spread(regret)}{ratio}")
        rows.append(row)
    return table(["regret (over the form)", *names], rows)


def sums_table(results: Results, names: list[str]) -> str:
    """Return the sums that forms are made of, by setting."""
    marks = {
        "variance": "variance",
        "largest_variance": "largest variance",
        "deviation": "mean length of the noise",
        "drift": "drift",
        "gradients": "length of expected gradients",
    }
    rows = [[mark, *(short(results[f"{name}: sums"][key]) for name in names)] for key, mark in marks.items()]
    return table(["sum of", *names], rows)


def groups(results: Results) -> dict[str, list[str]]:
    """Return the settings of each table."""
    every = [name.removesuffix(": sums") for name in results if name.endswith(": sums") and name[0] not in "hr"]
    lengths, noises, drifts = (
        [name for name in every if name.startswith(start)] for start in ("T", "sigma", "drift =")
    )
    return {"T": lengths, "sigma": noises, "the drift": drifts, "the kind of stream": list(KINDS)}


def hints_table(results: Results) -> str:
    rows = []
    for cells in (1, 16):
        sums = results[f"hints, {cells} cells: sums"]
        for learner in ("OONS", "Mirror descent"):
            for kind in ("last", "implicit"):
                found = results[f"hints, {cells} cells: {learner}, {kind}"]
                row = [cells, learner, kind, spread(found["regret"]), spread(found["errors"]), f"{found['left']:.1e}"]
                rows.append([*row, short(2.0 * sums["variance"] + sums["drift"]), short(sums["largest_variance"])])
    header = (
        "cells",
        "learner",
        "hint",
        "regret",
        "errors of hints",
        "left by the iteration",
        "twice variance, and drift",
        "largest variance",
    )
    return table(header, rows)


def doubling_table(results: Results) -> str:
    ways = ("told T", "epochs", "sleeping")
    rows = []
    for meta in ("values", "linear"):
        for norm in ("1", "10"):
            found = [results[f"doubling, {meta}, {norm}: {way}"]["regret"] for way in ways]
            share = [f"{float(np.mean(each)) / float(np.mean(found[0])):.2f}" for each in found[1:]]
            rows.append([meta, norm, *map(spread, found), *share])
    return table(("meta", "‖u‖", *ways, "epochs / told", "sleeping / told"), rows)


def scale_table(results: Results) -> str:
    learners = ("CLA-OONS", "CLA-OONS, tiny first gradient", "CLA-OONS, gradient_scale=1", "FreeGrad")
    rows = [
        [learner, *(spread(results[f"scale {factor:g}: {learner}"]["regret"]) for factor in SCALES)]
        for learner in learners
    ]
    return table(["gradients times", *(f"{factor:g}" for factor in SCALES)], rows)


def radius_table(results: Results) -> str:
    rows = []
    for name in results:
        if name.startswith("radius") and not name.endswith("sums"):
            found, sums = results[name], results[f"{name}: sums"]
            total = sums["deviation"] + sums["gradients"]
            bounds = [1.0 + 2.0 * math.sqrt(total / first) for first in found["first"]]
            numbers = (sums["deviation"], sums["gradients"])
            row = [
                name.removeprefix("radius, "),
                spread(found["regret"]),
                spread(found["radius"]),
                short(max(found["radius"])),
            ]
            starts = f"{max(found['starts'])}"
            rows.append([*row, short(float(np.mean(bounds))), *map(short, numbers), starts])
    return table(
        ("", "regret", "D_T", "largest D_T", "its bound in the mean", "noise", "gradients", "most restarts"), rows
    )


def part_of(results: Results, start: str) -> list[str]:
    """Return the settings whose names begin so, in order."""
    return list(dict.fromkeys(name.split(":")[0] for name in results if name.startswith(start)))


def implicit_table(results: Results) -> str:
    """Return the regret of mirror descent with implicit hints, over the form of equation (2), as T varies."""
    rows = []
    for name in part_of(results, "implicit"):
        found, sums = results[name], results[f"{name}: sums"]
        regret, errors = float(np.mean(found["regret"])), float(np.mean(found["errors"]))
        cells = int(name.split()[1])
        most = (1.0 + 0.3 * math.sqrt(cells)) ** 2 + 6.0 * sums["largest_variance"] + 4.0 * sums["drift"]
        ratio = short(regret / form("Mirror descent", sums))
        row = [
            name.removeprefix("implicit, ").replace("1 cells", "1 cell"),
            spread(found["regret"]),
            ratio,
            short(errors),
            short(most),
        ]
        rows.append([*row, short(sums["variance"]), short(sums["largest_variance"])])
    header = ("", "regret", "over the form", "errors of hints", "their bound", "variance", "largest variance")
    return table(header, rows)


def cells_table(results: Results) -> str:
    names = part_of(results, "as many cells")
    rows = [
        [what, *(short(results[f"{name}: sums"][key]) for name in names)]
        for what, key in (("variance", "variance"), ("largest variance", "largest_variance"))
    ]
    rows += [[learner, *(spread(results[f"{name}: {learner}"]["regret"]) for name in names)] for learner in LEARNERS]
    return table(["", *(name.removeprefix("as many cells, ") for name in names)], rows)


def tails_table(results: Results) -> str:
    """Return the mean of regret and its quantiles over the mean."""
    rows = []
    for name in part_of(results, "tail"):
        for learner in TAILED:
            found = results[f"{name}: {learner}"]
            row = [learner, name.removeprefix("tail, T = ")]
            for of in ("expected", "drawn"):
                mean, *quantiles = found[of]
                row += [short(mean), " / ".join(f"{each / mean:.2f}" for each in quantiles)]
            rows.append(row)
    shares = "quantiles " + " / ".join(f"{level:g}" for level in QUANTILES) + " over it"
    return table(("learner", "T", "mean, expected losses", shares, "mean, losses as drawn", shares), rows)


def power_of(lengths: list[int], regrets: list[float]) -> str:
    """Return the power of T from the first length to the last."""
    if min(regrets[0], regrets[-1]) <= 0.0:
        return "none"
    return f"{math.log(regrets[-1] / regrets[0]) / math.log(lengths[-1] / lengths[0]):z.2f}"


def lengths_of(results: Results, start: str) -> list[int]:
    return [int(name.split("T = ")[1]) for name in part_of(results, start)]


def ball_table(results: Results) -> str:
    rows, lengths = [], lengths_of(results, "turn")
    for learner in UNBOUNDED:
        turned = [results[f"turn, T = {rounds}: {learner}"]["regret"][0] for rounds in lengths]
        free = [results[f"no ball, T = {rounds}: {learner}"]["regret"] for rounds in lengths]
        powers = power_of(lengths, turned), power_of(lengths, [float(np.mean(each)) for each in free])
        shown = [short(each) if each >= 0.0 else "below 0" for each in turned]
        rows.append([learner, *shown, powers[0], *map(spread, free), powers[1]])
    turns, streams = ([f"{what}, T = {rounds}" for rounds in lengths] for what in ("turn", "stream"))
    return table(("learner", *turns, "power of T", *streams, "power of T"), rows)


def floor_table(results: Results) -> str:
    rows = []
    for rounds in lengths_of(results, "floor"):
        found = {learner: results[f"floor, T = {rounds}: {learner}"] for learner in FLOORED}
        smoothness = found["OONS"]["smoothness"]
        row = [rounds, short(smoothness), short(0.5 * math.sqrt(rounds)), short(0.288 * smoothness ** (1 / 3))]
        rows.append([*row, *(short(one["regret"][0]) for one in found.values())])
    return table(("T", "L", "½G‖u‖√T", "0.288 (G‖u‖)^(2/3) (L‖u‖²)^(1/3)", *FLOORED), rows)


def hardest_table(results: Results) -> str:
    """Return regret and, in brackets, its ratio to |u| sqrt T."""
    names, rows = part_of(results, "hardest"), []
    for learner in HARDEST:
        row = [learner]
        for name in names:
            rounds, norm = (float(part.split(" = ")[1]) for part in name.split(", ")[1:])
            regret = results[f"{name}: {learner}"]["regret"]
            row.append(f"{spread(regret)} ({short(float(np.mean(regret)) / (norm * math.sqrt(rounds)))})")
        rows.append(row)
    heads = [name.removeprefix("hardest, ").replace("|u|", "‖u‖") for name in names]
    return table(["regret (over ‖u‖√T)", *heads], rows)


def sparse_table(results: Results) -> str:
    rows = []
    for name in part_of(results, "sparse"):
        shares = [f"{each:.0%}" for pair in results[name]["shares"] for each in pair]
        rows.append([name.removeprefix("sparse, "), *shares])
    made = len(results[name]["shares"])
    lengths = (16, 64, 256) if made == 3 else (4, 8)
    heads = [f"{part}, t = {length}" for length in lengths for part in ("A", "inverse")]
    return table(("gradients within", *heads), rows)


def tables(results: Results) -> dict[str, str]:
    made = {}
    for what, names in groups(results).items():
        made[f"Sums of the streams as {what} varies"] = sums_table(results, names)
        made[f"Table 1 as {what} varies"] = regret_table(results, names)
    made["Equation (2), explicit and implicit hints"] = hints_table(results)
    made["Doubling and sleeping learners (Remark 4.4)"] = doubling_table(results)
    made["CLA-OONS and FreeGrad by the scale of gradients"] = scale_table(results)
    made["The radius of CLA-OONS"] = radius_table(results)
    made["Equation (2), implicit hints as T varies"] = implicit_table(results)
    made["Proposition A.1, as many cells as rounds"] = cells_table(results)
    made["Quantiles of regret over trials"] = tails_table(results)
    made["Learners without a ball"] = ball_table(results)
    made["A floor for one gradient a round"] = floor_table(results)
    made["CA-OONS on the hardest linear losses"] = hardest_table(results)
    return made | {"Shares that are not 0 with sparse gradients": sparse_table(results)}


EXPERIMENT = Experiment(__file__, jobs, tables, seeds="1")

if __name__ == "__main__":
    EXPERIMENT.main(__doc__)
