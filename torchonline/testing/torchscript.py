"""Rule 8: TorchScript is the same learner."""

import copy
import io
from typing import Any

import torch

from torchonline.testing.rules import rule
from torchonline.testing.subject import BATCH_SHAPES, Shape, Subject, on_reals, with_gradients
from torchonline.testing.tools import (
    require,
    require_close,
    require_close_state,
    require_refused_mask,
    require_state,
    snapshot,
    snapshot_of_script,
)


def saved_and_loaded(learner: Any) -> Any:
    """Return a scripted learner by way of a file."""
    file = io.BytesIO()
    torch.jit.save(learner, file)
    file.seek(0)
    return torch.jit.load(file)


@rule(8)
def script_agrees_with_eager(subject: Subject) -> None:
    """A script has the same answers and state over 100 rounds and eight logs.

    A batch plays 30 rounds. The second half runs in a loaded file. Logs have blocks and masks, or none. The state dict loads
    into an eager learner.
    """
    for batch_shape in BATCH_SHAPES:
        eager = subject.build(batch_shape=batch_shape)
        # A copy, because a scripted module shares the buffers of its original.
        scripted = copy.deepcopy(torch.jit.script(subject.build(batch_shape=batch_shape)))
        for seed in (0, 1):
            rounds = subject.stream(15 if batch_shape else 50, batch_shape, seed)
            require_close(subject.play(eager, rounds), subject.play(scripted, rounds))
            require_close_state(snapshot(eager), snapshot_of_script(scripted, eager))
            ours, theirs = subject.ask(eager, rounds[0]), subject.ask(scripted, rounds[0])
            require_close(ours[: len(theirs)], theirs)
            learn_logs(subject, eager, scripted, batch_shape, 4 * seed)
            require(not any(buffer.requires_grad for buffer in scripted.buffers()), "a scripted buffer requires grad")
            require_close_state(snapshot(eager), snapshot_of_script(scripted, eager), 1e-8)
            scripted = saved_and_loaded(scripted) if seed == 0 else scripted
        tables = {name for name, _ in eager.named_buffers()} - set(eager.state_dict())
        require(set(scripted.state_dict()) - tables == set(eager.state_dict()), "the script has other buffers")
        fresh = subject.build(batch_shape=batch_shape)
        fresh.load_state_dict(scripted.state_dict())
        require_state(snapshot_of_script(scripted, eager), fresh, "loaded from a script")
        scripted.learn(**subject.log(13, batch_shape), block_size=0)  # ends
        if not subject.takes_mask:
            require_refused_mask(scripted, subject.log(13, batch_shape), torch.ones(*batch_shape, 13) > 0.0)


def learn_logs(subject: Subject, eager: Any, scripted: Any, batch_shape: Shape, seed: int) -> None:
    """Teach both learners the same logs, with and without blocks and masks."""
    mask = torch.rand(*batch_shape, 13) < 0.5 if subject.takes_mask else None
    for number, (size, learnt) in enumerate(((None, None), (4, None), (None, mask), (1000, mask))):
        log = subject.log(13, batch_shape, seed + number)
        if number % 2:
            log["noise_scale"] = None
        for learner in (eager, scripted):
            given = on_reals(with_gradients, log)
            if number == 0:
                learner.step(**given)
            learner.learn(**given, block_size=size, mask=learnt)
