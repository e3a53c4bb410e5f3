"""One bandit that several processes share: each serves its own visitors, and all learn from all.

A visitor may see one of ten arms with sixteen features. Rewards have Student-t noise with 2.1 degrees of freedom, which has a
variance and no fourth moment. Each process has visitors of its own (another seed), decides from the state of the last sync, and
queues what it observes. Every ``--every`` rounds all processes learn the rounds of all.

The script plays the same visitors twice: with one learner for all processes, and with a learner of each process's own. It prints
the mean regret of a process, whether all processes hold one state, bit for bit, and whether its confidence set holds the truth.
The first process saves the state.

    python examples/distributed/bandit.py                               # one process, seconds
    torchrun --standalone --nproc-per-node 2 examples/distributed/bandit.py
"""

import argparse
import os
from datetime import timedelta
from pathlib import Path

import torch
from torch import Tensor, distributed

from torchonline import AnytimeHeavyTailUCB
from torchonline.distributed import SharedLearner
from torchonline.environments import StudentT
from torchonline.metrics import has_missed

DIM, ARMS = 16, 10
NOISE = StudentT(2.1, scale=0.2)
# A process that is not heard of for so long has failed.
TIMEOUT = timedelta(minutes=2)


def make_policy() -> AnytimeHeavyTailUCB:
    return AnytimeHeavyTailUCB(DIM, noise_scale=NOISE.moment_norm(2.0), theta_bound=1.0, delta=0.05)


def units(generator: torch.Generator, *shape: int) -> Tensor:
    """Return random unit vectors."""
    return torch.nn.functional.normalize(torch.randn(*shape, generator=generator, dtype=torch.float64), dim=-1)


def play(shared: SharedLearner | None, policy: AnytimeHeavyTailUCB, rank: int, rounds: int, every: int) -> float:
    """Play one process's visitors, with a shared learner or alone. Return the regret."""
    theta = units(torch.Generator().manual_seed(0), DIM)  # the same truth for all processes
    visitors = torch.Generator().manual_seed(1 + rank)
    regret = 0.0
    for t in range(rounds):
        arms = units(visitors, ARMS, DIM)
        means = arms @ theta
        k = policy.select(arms)
        reward = means[k] + NOISE.sample((), visitors)
        regret += float(means.max() - means[k])
        if shared is None:
            policy.step(arms, k, reward)
            continue
        shared.observe(arms, k, reward)
        # All processes come here equally often, or they would wait for one another.
        if (t + 1) % every == 0 or t + 1 == rounds:
            shared.sync()
    return regret


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=1000, help="of each process")
    parser.add_argument("--every", type=int, default=5, help="rounds of a process between two syncs")
    parser.add_argument("--learn-on", default="leader", choices=("leader", "all", "sums"))
    parser.add_argument("--output", type=Path, default=Path("outputs"), help="folder of the state")
    parser.add_argument("--smoke", action="store_true", help="200 rounds, to see that it runs")
    options = parser.parse_args()
    rounds = 200 if options.smoke else options.rounds
    torch.set_num_threads(1)
    if "RANK" in os.environ:  # torchrun has set it
        distributed.init_process_group("gloo", timeout=TIMEOUT)

    policy = make_policy()
    shared = SharedLearner(policy, learn_on=options.learn_on)
    ranks = shared.ranks
    together = play(shared, policy, ranks.rank, rounds, options.every)
    alone = play(None, make_policy(), ranks.rank, rounds, options.every)

    regrets = ranks.all_gather((together, alone))
    state = torch.cat([buffer.double().flatten() for buffer in policy.estimator.state().values()])
    is_one = all(torch.equal(state, other) for other in ranks.all_gather(state))
    if ranks.rank == 0:
        mean_together, mean_alone = (sum(each) / ranks.size for each in zip(*regrets, strict=True))
        theta = units(torch.Generator().manual_seed(0), DIM)
        count = "1 process" if ranks.size == 1 else f"{ranks.size} processes"
        learnt = int(policy.estimator.rounds)
        print(f"{count}, {rounds} rounds each, learn_on={options.learn_on!r}: {learnt} learnt")
        print(f"mean regret of a process: {mean_together:.1f} with the shared learner, {mean_alone:.1f} alone")
        is_covered = not has_missed(policy.estimator, theta)
        print(f"one state on all processes: {is_one}; the confidence set holds the truth: {is_covered}")
        options.output.mkdir(parents=True, exist_ok=True)
        torch.save(policy.state_dict(), options.output / "bandit.pt")
    if distributed.is_initialized():
        distributed.destroy_process_group()


if __name__ == "__main__":
    main()
