"""Generalized linear bandits: counts for the errata of the GLB-OMD paper, each beside a proof.

The proofs are below the command. The paper is that of Zhang, Xu, Zhao and Sugiyama (Generalized linear bandits: almost optimal
regret with one-pass update, 2025).

- **Condition (43)** of its Appendix E, which restates what the proof of another paper needs: the integral of exp(-|u|^2 / 2)
  over a ball of radius 3 rho is at most that of exp(-C |u|^2 / 2) over the ball of radius rho, for a C >= 1. Here
  rho^2 = gamma^2 / (4 c) and u = H^(1/2) theta / sqrt(c). The script counts where it holds, and prints the largest C with which
  it does.
- **Lemma 3** has 3/2 d eta where Lemma 6 proves 3 d eta. The script plays GLB-OMD with the ridge and the radius of its theorem,
  and prints the largest quotient of the sum that the lemmas bound by d eta log(2 + 2 C t / (lambda g)), over rounds and trials.
- **Lemma 8**, left side of (37): the integral of (1 - v) mu'(z1 + v (z2 - z1)) is at least mu'(z) / (2 + R |z2 - z1|), for z = z1
  and for z = z2. The script counts the pairs of a grid where it fails.

    python examples/papers/glb_errata.py    # a minute; seconds with --quick

## Proofs

Letters are the paper's: H_s, theta_s, lam, eta = 1 + RS, C = C_mu. The steps of [the
proof](generalized_linear_theory.md#the-proof) are those of the confidence sets of `LocalGLMRegression` and `GLMRegression`.

**Theorem 1 where the link ends.** Lemmas 6 and 7 average the loss over the normal law N(theta_{s+1}, alpha H_s^{-1}), so that
the theorem needs Assumption 3 for all z in R. An exponential or gamma law with offset b has no loss from b on. So
`E l = infinity`, Lemma 6 bounds nothing, and the theorem does not cover these laws, nor a `CustomLink`, whose R is promised
for the predictors that may occur. `GLBOMD` has no guarantee there with the radii "paper" and "tight". Our proof covers these
links: P_s lives on [-B, B], and R is that of [-B, B].

**Condition (43), Appendix E.** As the paper restates (C.15) of Lee and Oh (2025), which we have not read, their proof needs a
constant `C_s >= 1` such that

```text
integral of exp(-|theta|^2 / (2 c)) over |theta| <= 3 gamma / 2
    <=   integral of exp(-C_s |theta|^2 / (2 c)) over |theta| <= gamma / 2,
```

with norms of H_s. The paper says that the condition does not hold in general. *No C_s >= 1 satisfies it*, for any gamma > 0,
c > 0, any H_s and any dimension. With `u = H_s^{1/2} theta / sqrt(c)` and `rho = gamma / (2 sqrt(c))`, both sides are
integrals over u with the same factor in front, over |u| <= 3 rho on the left and over |u| <= rho on the right. For
`C_s >= 1`,

```text
right side  <=  integral of exp(-|u|^2 / 2) over |u| <= rho  <  integral of exp(-|u|^2 / 2) over |u| <= 3 rho  =  left side.
```

The last step is strict, since the shell between rho and 3 rho has a positive integral. A constant in [0, 1) can do, but only
where rho is large enough for d (for C_s = 0 the right side is the volume of a ball of radius rho): for d from 1 to 16 none
does at rho = 1, and at rho = 4 the largest is from 1 - 0.0001 down to 0.9.

**Lemma 4 and (8)** hold, with three conditions: |x| <= 1, self-concordance on [-S, S], and `lam >= 6 eta R S C/g` for (8).
Step 1 of [the proof](generalized_linear_theory.md#the-proof) is an equality. By the optimality of (3),
`v'(theta_{s+1} - th*)` is at most

```text
<grad l(theta_{s+1}) - grad l~(theta_{s+1}), theta_{s+1} - th*>  =  mu''(xi) (x'Delta)^2 x'(theta_{s+1} - th*) / (2 g)
    <=  R S C |Delta|^2 / g,
```

with a point xi between the two predictors. This is (19). Step 2 holds with eta = 1 + RS, by Lemma 8 at z_1. So a step adds at
most `2 eta [l(z*) - l(y)] - |Delta|^2 in H_s + 2 eta R S C |Delta|^2 / g`, which is (11). And |Delta|^2 is at most 1/lam
times its square in H_s, so under the condition on lam the last two terms are at most -2/3 of it.

**Lemma 3 and Lemma 6.** With P_s = N(theta_s, 3 eta H_s^{-1} / 2), Lemma 3 of Section 4 bounds the sum of
`m_s(P_s) - l_s(theta_{s+1}) - |theta_{s+1} - theta_s|^2 / (3 eta)` by `3/2 d eta log(2 + 2 C t / (lam g))`. The formal
statement, Lemma 6 of Appendix A, has `2 d alpha log(...)`, and alpha = 3 eta / 2 makes that `3 d eta log(...)`, twice as
much. The paper proves Lemma 6, and uses it in (14) and in the radius of Theorem 1, with `6 d eta^2 = 2 eta 3 d eta`. *Lemma 3
holds all the same*, if self-concordance holds on all of R, |x| <= 1, H_s >= lam I, `lam >= 64 d alpha R^2 / 7`, and
`lam >= 2 C/g`, which (27) needs. The ridge of Theorem 1 is enough, since 14 >= 64 * 1.5 / 7 = 13.71. The factor 2 is lost in
Lemma 7: `2 alpha` there can be `0.604 alpha`.

Let a = R x'(theta - theta_{s+1}), which is normal with the variance `v = R^2 alpha q`, where `q = x'H_s^{-1}x`. With w for
the weight mu'(x'theta_{s+1})/g, self-concordance gives `mu'(y + h) <= mu'(y) exp(R|h|)`, hence

```text
D(theta, theta_{s+1})  <=  w (exp(|a|) - 1 - |a|) / R^2,      E D  <=  w E (exp(|a|) - 1 - |a|) / R^2  =  h(v) alpha q w,
h(v) = (2 exp(v / 2) Phi(sqrt(v)) - 1 - sqrt(2 v / pi)) / v.
```

h increases, because h(v) is the mean of `n^2 f(sqrt(v) |n|)` for a standard normal n, and `f(x) = (exp(x) - 1 - x)/x^2`
increases. The condition on lam makes `v <= 7/(64 d) <= 7/64`, and h(7/64) = 0.604. (For R = 0, `E D = alpha q w / 2`.) By
(27), `q w <= log det M_s - log det M_{s-1}`. The sum over s is at most `d log(1 + 2 C t / (lam g))`. So term (a) of Lemma 6
adds `0.604 d alpha = 0.906 d eta` times the logarithm, and `0.906 <= 3/2`. In the same way the radius of Theorem 1 holds with
`1.82 d eta^2` for `6 d eta^2`.

**Lemma 8, left side of (37)**, is claimed for z = z_1 and, "by symmetry", for z = z_2. The weight 1 - v is not symmetric, and
the second claim is false: mu' = exp, R = 1, z_1 = 0 and z_2 = 10 give 220.15 on the right of the inequality and 1835.5 on the
left. Lemma 4 uses it only for the point of expansion, which is z_1. (36) and the right side of (37) hold at both ends.

**Displays of Appendix A and Section 4.** Lemma 4's first display has the factor C(2 + 2RS)/g, where (11) has RSC(2 + 2RS)/g.
(19) lacks an absolute value, and cites |theta_s - theta_{s+1}| <= 2S for |theta_{s+1} - th*| <= 2S. (11), the end of A.1 and
Section 4.1 have H_t, where (5) needs H_{t+1}; Lemma 4 has it. (22) has alpha where Lemma 7 has 2 alpha; the final bound has 2
alpha. Lemma 7 names H_{s+1} in words, where Q_s has H_s. M_t is defined with lam/2 and displayed with lam, so log(2 + ...)
stands where log(1 + ...) would do. Section 4.2 cites (28) for (12), and Section 4.1 Lemma 7 for (7).

**The O-forms of Theorems 1 and 2** put RS for eta = 1 + RS. At R = 0, the Gaussian law, both right sides are 0; the radius of
Theorem 1 is 10.0 at d = 2, S = C = g = 1, t = 1000 and delta = 0.01. The forms need R and S from about 1 on.

**Theorem 2, displays (28) to (35).**

- Taylor's formula with the weight 1 - v has no factor 1/2 in term (b). The bound of term (b) stays, because the integral of
  1 - v is 1/2.
- With `H~_t = g H_t` the norm of x in `H_t^{-1}` is sqrt(g) times that in `H~_t^{-1}`; (30), (33) and (35) divide by sqrt(g)
  or g, and have to multiply. For logistic and Poisson rewards g = 1.
- Lemma 11 prints the norm in V_t for that in V_t^{-1}. It asks for a ridge of at least 1, and is used with lam g, which
  nothing makes that large. The repair: `lam g >= 2 C` makes each term at most 1/2, so that the sum is at most
  `2 d log(1 + T Z^2 / (d lam g))`.
- (32) lacks the factor kappa. With `z_t = X_t / sqrt(kappa)`, where 1/kappa <= C, the same repair gives
  `2 d kappa log(1 + T / (g kappa d lam))` for every kappa. (33) has the factor.
- The last O drops `gamma_1^2 R` and `gamma_1 sqrt(2 gamma_2 R)` beside gamma_2. This needs kappa >= 1, which is not assumed.
- The bound hides constants "independent of d, kappa, S, R and T". Two of them are C and g: (33) has sqrt(1 + C) and C, and
  lam has C. For Poisson rewards C = exp(S).

**Lemmas 9, 10, 12 and 13** hold. For Lemma 10, Jensen's inequality and `(1 - 7/16)^{-1/2} = 4/3`; the others are standard.

**Appendix E** prints the logistic loss with `+ r x'theta`. It is `-r x'theta + log(1 + exp(x'theta))`. And the factor that a
truncated law saves is sqrt(log T), not sqrt(T).
"""

import itertools
import math
from typing import Any

import numpy as np
import torch
from experiment import Experiment, Job, Results, listed, table
from glb_omd_learners import ALGORITHMS, Game, Problem

from torchonline import Logistic, Poisson
from torchonline.environments import GeneralizedLinearBandit
from torchonline.links import Link

DIMS, SHOWN = (1, 2, 5, 16), (0.5, 1.0, 2.0, 3.0, 4.0)
LINKS: dict[str, type[Link]] = {"logistic": Logistic, "Poisson": Poisson}
WORLDS = (("logistic", 3.0, 2), ("logistic", 3.0, 8), ("Poisson", 2.0, 2), ("Poisson", 2.0, 8))


def tails(dim: int, square: float) -> tuple[float, float]:
    """Return the chi-square distribution function and its complement."""
    a, x = (torch.tensor(0.5 * number, dtype=torch.float64) for number in (dim, square))
    return float(torch.special.gammainc(a, x)), float(torch.special.gammaincc(a, x))


def excess(dim: int, rho: float, constant: float) -> float:
    """Return the right side of (43) less its left side, both over (2 pi)^(d/2)."""
    share = constant ** (-0.5 * dim)
    (inside, outside), (larger, beyond) = tails(dim, constant * rho**2), tails(dim, 9.0 * rho**2)
    # From C = 1 on, complements tell what is left of two numbers close to 1.
    return share * inside - larger if constant < 1.0 else share - 1.0 - share * outside + beyond


def largest(dim: int, rho: float) -> float:
    """Return the largest C with (43), 0 if there is none above 1e-9. The right side falls with C."""
    low, high = 1e-9, 1.0
    if excess(dim, rho, low) < 0.0:
        return 0.0
    for _ in range(60):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if excess(dim, rho, middle) >= 0.0 else (low, middle)
    return low


def condition(points: int) -> dict[str, Any]:
    radii, constants = np.geomspace(0.1, 10.0, points), np.geomspace(1.0, 100.0, points)
    found = [excess(*case) >= 0.0 for case in itertools.product(DIMS, map(float, radii), map(float, constants))]
    return {"holds": sum(found), "of": len(found), "largest": [[largest(dim, rho) for rho in SHOWN] for dim in DIMS]}


def play(rewards: str, norm: float, dim: int, rounds: int, trials: int, seed: int) -> dict[str, Any]:
    """Return the largest quotient of Lemma 3's sum by d eta log(2 + 2 C t / lambda), by trial."""
    link = LINKS[rewards]()
    environment = GeneralizedLinearBandit(
        dim, 20, link=link, theta_norm=norm, redraw=True, batch_shape=(trials,), seed=seed
    )
    game = Game(ALGORITHMS["GLB-OMD, theorem"].build(Problem(dim, link, norm, (trials,), rounds)), environment)
    estimator: Any = game.policy.estimator
    eta, steepest = estimator.eta, link.max_slope(norm)
    nodes, weights = (torch.from_numpy(each) for each in np.polynomial.hermite_e.hermegauss(48))
    log_weights = (weights / weights.sum()).log()
    total, most = torch.zeros(trials, dtype=torch.float64), torch.full((trials,), -math.inf, dtype=torch.float64)
    for t in range(1, rounds + 1):
        arms = environment.arms()
        index = game.policy.select(arms)
        x, reward, _ = environment.pull(index)
        theta, V = estimator.theta_hat.clone(), estimator.V.clone()
        width = estimator.width(x)
        game.policy.step(arms, index, reward)
        z, y = (x * theta).sum(-1), (x * estimator.theta_hat).sum(-1)
        points = z.unsqueeze(-1) + (1.5 * eta) ** 0.5 * width.unsqueeze(-1) * nodes
        gain = link.log_partition(y).unsqueeze(-1) - link.log_partition(points)
        gain = gain + reward.unsqueeze(-1) * (points - y.unsqueeze(-1))
        move = estimator.theta_hat - theta
        squared = torch.einsum("bi,bij,bj->b", move, V, move)
        total -= torch.logsumexp(log_weights + gain, -1) + squared / (3.0 * eta)
        most = torch.maximum(most, total / (dim * eta * math.log(2.0 + 2.0 * steepest * t / estimator.ridge)))
    return {"most": most.tolist()}


def pairs(rewards: str, points: int) -> dict[str, Any]:
    """Return on how many pairs Lemma 8's lower bound fails, at the first end and at the second."""
    link = LINKS[rewards]()
    ends = torch.linspace(-10.0, 10.0, points, dtype=torch.float64)
    first, second = (each.flatten() for each in torch.meshgrid(ends, ends, indexing="ij"))
    which = first != second
    first, second = first[which], second[which]
    integral = link.divergence(second, first) / (second - first) ** 2
    bounds = (link.slope(end) / (2.0 + (second - first).abs()) for end in (first, second))
    return {"fails": [int((integral < bound * (1.0 - 1e-9)).sum()) for bound in bounds], "of": len(first)}


def jobs(quick: bool) -> dict[str, Job]:
    rounds, trials, points = (20, 2, 5) if quick else (2000, 20, 41)
    found = {"(43)": Job(condition, {"points": points})}
    for rewards in LINKS:
        found[f"Lemma 8, {rewards}"] = Job(pairs, {"rewards": rewards, "points": points})
    for rewards, norm, dim in WORLDS:
        told = {"rewards": rewards, "norm": norm, "dim": dim, "rounds": rounds, "trials": trials, "seed": 1}
        found[f"Lemma 3, {rewards}, d = {dim}"] = Job(play, told)
    return found


def shown(constant: float) -> str:
    if not constant:
        return "none"
    return f"{constant:.3g}" if constant < 0.999 else f"1 - {1.0 - constant:.1g}"


def tables(results: Results) -> dict[str, str]:
    one = results["(43)"]
    cells = ([shown(value) for value in row] for row in one["largest"])
    lines = [f"Condition (43) with C from 1 to 100: it holds in {one['holds']} of {one['of']} cases."]
    for rewards in LINKS:
        lemma = results[f"Lemma 8, {rewards}"]
        first, second = lemma["fails"]
        lines.append(f"Lemma 8, {rewards}: of {lemma['of']} pairs, {first} fail with z = z1 and {second} with z = z2.")
    for rewards, norm, dim in WORLDS:
        most = results[f"Lemma 3, {rewards}, d = {dim}"]["most"]
        lines.append(
            f"Lemma 3, {rewards}, S = {norm:g}, d = {dim}: at most {max(most):.2f} d eta log(...) in {len(most)} trials."
        )
    return {
        "Counts": listed(lines),
        "Largest C with condition (43)": table(
            ("d", *(f"rho = {rho:g}" for rho in SHOWN)), [(dim, *row) for dim, row in zip(DIMS, cells, strict=True)]
        ),
    }


EXPERIMENT = Experiment(__file__, jobs, tables, seeds="1")

if __name__ == "__main__":
    EXPERIMENT.main(__doc__)
