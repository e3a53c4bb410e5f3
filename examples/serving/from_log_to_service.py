"""From the log of an old system to a service that learns: evaluate, warm up, serve, watch, export.

The old system is the RAND Health Insurance Experiment: from 1974 to 1982 families were assigned to insurance plans at random. A
round is one person in one year, the action one of four plans, the reward 1 if the year was cheap: if it cost less than half of
all years do. Cost sharing makes people use less care, so the strict plans must win; no conclusion about welfare follows. Who
was assigned what by which probability is estimated by counts within site and year.

1. Half of the families are the old log, on which three candidates are evaluated before they decide anything.
2. A policy learns the old log in blocks. Its snapshot is the service's first.
3. The service starts. The other half of the families asks it for a plan. Where its plan is the one that the family had, the
   year's reward is known and is sent; elsewhere the decision stays open.
4. The report for the operator is written, the service stops, and the policy is exported.

    python examples/serving/from_log_to_service.py [--output outputs/from_log_to_service]    # a minute
"""

import argparse
import asyncio
import shutil
import time
from pathlib import Path

import torch
from client import Client
from fleet import running
from settings import Settings, one_thread
from torch import Tensor

import torchonline
from torchonline.datasets import health_insurance
from torchonline.export import to_torchscript
from torchonline.feedback import Decision, follow, load_snapshot
from torchonline.off_policy import (
    BanditLog,
    bootstrap_interval,
    bootstrap_values,
    doubly_robust,
    overlap,
    predicted_rewards,
    propensities,
    snips,
)

PLANS = ("free", "25-50 %", "95 %", "deductible")
# Of the plans of `health_insurance`: 25 %, mixed and 50 % were offered together.
PLAN = torch.tensor([0, 1, 1, 1, 2, 3])
YEAR = 365.0 * 86400.0


def read(families: int | None) -> tuple[BanditLog, BanditLog]:
    """Return the log of the experiment in two halves, by families."""
    context, plan, cost, site, year, _, family = health_insurance().tensors
    action = PLAN[plan]
    probability = (
        propensities(torch.stack((site, year), 1), action, len(PLANS)).gather(1, action.unsqueeze(1)).squeeze(1)
    )
    reward = (cost < cost.median()).double()
    log = BanditLog(
        arms=len(PLANS),
        action=action,
        reward=reward,
        probability=probability,
        context=context,
        groups=family,
        time=year,
    )
    order = torch.randperm(int(family.max()) + 1, generator=torch.Generator().manual_seed(0))[:families]
    halves = order.chunk(2)
    return tuple(log[torch.isin(family, half).nonzero().squeeze(1)] for half in halves)  # type: ignore[return-value]


def always(log: BanditLog, plan: int) -> Tensor:
    """Return the probabilities of a policy that always takes one plan."""
    return torch.eye(log.arms, dtype=torch.float64)[plan].expand(len(log), -1)


def evaluate(old: BanditLog, settings: Settings) -> None:
    """Print what three candidates would have earned, evaluated on families that they have not learnt from."""
    in_first = old.groups % 2 == 0  # type: ignore[operator]
    learnt, held_out = old[in_first.nonzero().squeeze(1)], old[(~in_first).nonzero().squeeze(1)]
    candidate = settings.make_policy()
    candidate.learn(learnt.context, learnt.action, learnt.reward)
    predicted = predicted_rewards(settings.make_policy(), held_out)
    print(f"as it was: {held_out.reward.mean():.3f} cheap years, of {len(held_out)} held-out years\n")
    print("| candidate | effective sample size | SNIPS | doubly robust | 95 % interval |\n|---|---|---|---|---|")
    draws = {}
    for name, target in (
        ("always free", always(held_out, 0)),
        ("always 95 %", always(held_out, 2)),
        ("learnt", candidate),
    ):
        robust = doubly_robust(held_out, target, predicted)
        low, high = bootstrap_interval(robust)[:2]
        size = overlap(held_out, target).effective_sample_size
        print(
            f"| {name} | {size:.0f} | {snips(held_out, target).value:.3f} | {robust.value:.3f} | {low:.3f} to {high:.3f} |"
        )
        draws[name] = bootstrap_values(robust)  # of the same resamples for all
    difference = (draws["always 95 %"] - draws["learnt"]).quantile(torch.tensor([0.025, 0.975], dtype=torch.float64))
    print("\nalways 95 % less learnt: {:.3f} to {:.3f}".format(*difference.tolist()))


def warm_up(old: BanditLog, settings: Settings) -> None:
    """Bring the old log into the service's, and learn it in blocks."""
    start = time.perf_counter()
    with settings.open_log() as log:
        rounds = zip(old.context, old.action.tolist(), old.probability.tolist(), old.time.tolist(), strict=True)
        log.decide_many(
            [
                Decision(f"old {i}", x, k, p, None, settings.encoder, (3 + year) * YEAR)
                for i, (x, k, p, year) in enumerate(rounds)
            ]
        )
        log.reward_many([(f"old {i}", reward) for i, reward in enumerate(old.reward.tolist())], time=12 * YEAR)
        middle = time.perf_counter()
        snapshot = follow(settings.make_policy(), log, settings.snapshot, blocks=True, encoder=settings.encoder)
    print(f"\nwarm start: {snapshot.learnt} rounds learnt, {snapshot.refused} refused")
    print(f"seconds: {middle - start:.1f} to log them, {time.perf_counter() - middle:.1f} to learn them")


async def visit(port: int, new: BanditLog) -> tuple[float, int]:
    """Send the other families to the service, and return the weighted mean reward and the number of known rewards."""
    client = Client(port)
    weighted = weights = 0.0
    known = 0
    for i in range(len(new)):
        _, answer = await client.post("/decide", {"id": f"new {i}", "context": new.context[i].tolist()})
        if answer["action"] == int(new.action[i]):
            value = float(new.reward[i])
            await client.post("/reward", {"id": answer["id"], "value": value})
            weighted, weights, known = (
                weighted + value / float(new.probability[i]),
                weights + 1 / float(new.probability[i]),
                known + 1,
            )
    _, health = await client.get("/health")
    client.close()
    print(f"\nservice: {len(new)} decisions, {known} rewards; the last snapshot was at position {health['position']}")
    return weighted / weights, known


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=Path("outputs/from_log_to_service"))
    parser.add_argument("--smoke", action="store_true", help="120 families")
    options = parser.parse_args()
    one_thread()
    folder = options.output.resolve() / "service"
    shutil.rmtree(folder, ignore_errors=True)
    settings = Settings(folder=folder, dim=6, actions=len(PLANS), window=20 * YEAR)
    old, new = read(120 if options.smoke else None)
    evaluate(old, settings)
    warm_up(old, settings)
    asked = {"SERVING_DIM": "6", "SERVING_ACTIONS": "4", "SERVING_WINDOW": str(settings.window)}
    with running(folder, 1, **asked) as fleet:
        value, _ = asyncio.run(visit(fleet.port, new))
    print(f"cheap years: {new.reward.mean():.3f} as it was, {value:.3f} under the service, by self-normalised weights")
    policy = settings.make_policy()
    snapshot = load_snapshot(settings.snapshot, policy)
    print(f"learner: {snapshot.learnt} rounds learnt, position {snapshot.position}")
    with settings.open_log() as log:
        page = torchonline.report(log, options.output / "report.html", policy=policy)
    print(f"report: {page.name}, {page.stat().st_size // 1024} KiB")
    file = to_torchscript(policy, options.output / "policy.pt")
    scores = file(new.context[:1000]), policy(new.context[:1000])
    print(f"file: scores of 1000 decisions differ by {float((scores[0] - scores[1]).abs().max()):.1e} at most")


if __name__ == "__main__":
    main()
