"""The service on Ray Serve: two replicas and one learner, with the parts of this folder.

    pip install "ray[serve]"
    python examples/serving/ray_serve.py [--seconds 20]

Ray starts the replicas, balances them, collects calls and restarts what dies. Decisions, rewards and the snapshot go the same way
as without it: the log is a file or a PostgreSQL database, and only the learner writes the snapshot. A replica that Ray moves to
another machine needs a log and a snapshot that it can reach there: a database, and a shared file system.

The script plays sixteen clients against it, and compares the learner's state with the log replayed.
"""

import argparse
import asyncio
import threading
import time
from pathlib import Path
from typing import Any

import ray
from client import Client
from fastapi import FastAPI, HTTPException
from fleet import folder_in, free_port
from load import is_replayed, quantiles, visit
from ray import serve
from settings import Settings, one_thread

from torchonline.feedback import ConflictError, follow, load_snapshot
from torchonline.feedback.records import checked_id, checked_reward
from torchonline.serving import Replica
from torchonline.serving.replica import Watcher

app = FastAPI()


@serve.deployment(num_replicas=2, ray_actor_options={"num_cpus": 0.5})
@serve.ingress(app)
class Decider:
    """A replica that decides and logs."""

    def __init__(self, settings: Settings) -> None:
        one_thread()
        self.replica = Replica(settings, settings.open_log())
        self.watcher = Watcher(self.replica)
        self.watcher.start()

    @serve.batch(max_batch_size=256, batch_wait_timeout_s=0.0)
    async def answer(self, calls: list[Any]) -> list[Any]:
        return await asyncio.to_thread(self.replica.answer, calls)

    @app.post("/decide")
    async def decide(self, body: dict[str, Any]) -> dict[str, Any]:
        decision = await self.answer(self.replica.checked(body.get("id"), body.get("context"), body.get("mask")))
        if isinstance(decision, ConflictError):
            raise HTTPException(409, str(decision))
        return {"id": decision.id, "action": decision.action, "probability": decision.probability}

    @app.post("/reward")
    async def reward(self, body: dict[str, Any]) -> dict[str, str]:
        return {"outcome": await self.answer((checked_id(body["id"]), checked_reward(body["value"])))}


@serve.deployment(num_replicas=1, ray_actor_options={"num_cpus": 0.5})
class Learner:
    """The one learner. A second one would be refused by the lock on the snapshot."""

    def __init__(self, settings: Settings) -> None:
        one_thread()
        self.stopped = threading.Event()
        policy, log = settings.make_policy(), settings.open_log()
        options: dict[str, Any] = {"every": settings.every, "stop": self.stopped.is_set, "encoder": settings.encoder}
        self.thread = threading.Thread(target=follow, args=(policy, log, settings.snapshot), kwargs=options)
        self.thread.start()

    def __del__(self) -> None:
        self.stopped.set()
        self.thread.join()

    def __call__(self) -> str:
        return "follows"


async def play(port: int, seconds: float) -> tuple[float, dict[str, list[float]]]:
    """Play sixteen clients, and return decisions a second and times to answer."""
    times: dict[str, list[float]] = {"decide": [], "reward": [], "value": []}
    people, start = [Client(port) for _ in range(16)], time.perf_counter()
    await asyncio.gather(*(visit(person, i, start + seconds, 0.0, times) for i, person in enumerate(people)))
    return len(times["decide"]) / (time.perf_counter() - start), times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=20.0)
    options = parser.parse_args()
    settings = Settings(folder=folder_in(Path("outputs/serving")))
    here = str(Path(__file__).parent)
    ray.init(num_cpus=2, log_to_driver=False, runtime_env={"env_vars": {"PYTHONPATH": here, "OMP_NUM_THREADS": "1"}})
    port = free_port()
    serve.start(http_options={"port": port})
    serve.run(Learner.bind(settings), name="learner", route_prefix="/learner")
    serve.run(Decider.bind(settings), name="decider", route_prefix="/")
    rate, times = asyncio.run(play(port, options.seconds))
    print(
        "| decisions a second | decide: p50 | p99 | most, ms | reward: p50 | p99 | most, ms |\n|---|---|---|---|---|---|---|"
    )
    print(f"| {rate:.0f} | {quantiles(times['decide'])} | {quantiles(times['reward'])} |")
    time.sleep(3.0)  # the learner catches up
    serve.shutdown()
    ray.shutdown()
    policy, log = settings.make_policy(), settings.open_log()
    snapshot = load_snapshot(settings.snapshot, policy)
    same = is_replayed(policy, log)
    print(
        f"{log.counts()['known']} rewards, {snapshot.learnt} learnt; state equal to the log replayed, bit for bit: {same}"
    )


if __name__ == "__main__":
    main()
