"""Real process groups, for tests: a function runs on each rank of a few processes, which cannot hang for ever."""

import multiprocessing
import os
import pickle
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
from torch import distributed

# Processes start from one that has imported these, and has no threads.
CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["torchonline", "torchonline.callbacks", "torchonline.models", "tests.process_groups"])

# Seconds. A collective that one rank does not join fails first, then the process ends, then it is killed.
OF_A_COLLECTIVE, OF_A_PROCESS = 60, 240


def on_ranks(world_size: int, function: Callable[..., Any], *arguments: Any) -> list[Any]:
    """Return what a function of a test module returns on each rank of a gloo group.

    The function gets ``arguments`` and asks torch.distributed for its rank. An error on any rank is raised here, with its
    traceback.
    """
    # multiprocessing would share the memory of tensors with processes that end.
    job = pickle.dumps((function, arguments))
    with tempfile.TemporaryDirectory() as folder:
        ends, processes = [], []
        for rank in range(world_size):
            receive, send = CONTEXT.Pipe(duplex=False)
            process = CONTEXT.Process(target=_rank, args=(rank, world_size, folder, send, job))
            process.start()
            send.close()
            ends.append(receive)
            processes.append(process)
        try:
            deadline = time.monotonic() + OF_A_PROCESS
            answers = [_answer(rank, end, deadline) for rank, end in enumerate(ends)]
        finally:
            for process in processes:
                process.join(timeout=10)
                process.kill()
                process.join()
    failed = [f"rank {rank}:\n{said}" for rank, (is_error, said) in enumerate(answers) if is_error]
    if failed:
        raise AssertionError("\n".join(failed))
    return [value for _, value in answers]


def _answer(rank: int, end: Connection, deadline: float) -> tuple[bool, Any]:
    if not end.poll(max(0.0, deadline - time.monotonic())):
        return True, f"no answer within {OF_A_PROCESS} seconds"
    try:
        return pickle.loads(end.recv_bytes())
    except EOFError:
        return True, "the process has ended without an answer"


def _rank(rank: int, world_size: int, folder: str, send: Connection, job: bytes) -> None:
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.set_num_threads(1)
    torch.manual_seed(0)
    warnings.filterwarnings("error", category=UserWarning)
    try:
        function, arguments = pickle.loads(job)
        distributed.init_process_group(
            "gloo",
            init_method=f"file://{Path(folder) / 'store'}",
            rank=rank,
            world_size=world_size,
            timeout=timedelta(seconds=OF_A_COLLECTIVE),
        )
        value = function(*arguments)
        distributed.barrier()  # no rank ends while another still talks to it
        send.send_bytes(pickle.dumps((False, value)))
        distributed.destroy_process_group()
    except BaseException:
        send.send_bytes(pickle.dumps((True, traceback.format_exc())))
