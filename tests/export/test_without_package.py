"""A scripted learner goes on learning in a process where ``import torchonline`` fails."""

import subprocess
import sys
from pathlib import Path

import torch

from tests.learners import close, play, snapshot, stream
from torchonline import AnytimeHeavyTailUCB, LocalGLB
from torchonline.export import to_torchscript
from torchonline.models import BanditHead

PROGRAM = """
import sys
import torch

sys.modules["torchonline"] = None
try:
    import torchonline
except ImportError:
    pass
else:
    raise SystemExit("torchonline is here")

folder = sys.argv[1]
policy = torch.jit.load(f"{folder}/policy.pt")
rounds = torch.load(f"{folder}/rounds.pt")
choices = []
for arms, reward, noise_scale in rounds:
    index = policy.select(arms)
    policy.step(arms, index, reward, noise_scale)
    choices.append(index)
torch.save((choices, dict(policy.state_dict())), f"{folder}/learnt.pt")
assert [name for name, module in sys.modules.items() if name.startswith("torchonline") and module] == []
"""


HEAD_PROGRAM = """
import sys
import torch

sys.modules["torchonline"] = None
head, rounds = torch.jit.load(f"{sys.argv[1]}/head.pt"), torch.load(f"{sys.argv[1]}/rounds.pt")
choices = []
for inputs, reward in rounds:
    choice = head.select(inputs)
    head.step(inputs, choice, reward)
    choices.append(choice)
torch.save((choices, dict(head.state_dict())), f"{sys.argv[1]}/learnt.pt")
"""


def test_an_encoder_with_a_head_for_clicks_goes_on_learning(tmp_path: Path) -> None:
    encoder = torch.nn.Sequential(torch.nn.Linear(5, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3))
    head = BanditHead(encoder, LocalGLB(3, theta_bound=2.0, feature_bound=5.0))
    generator = torch.Generator().manual_seed(0)
    rounds = [
        (torch.randn(4, 5, generator=generator), (torch.rand((), generator=generator) < 0.4).double())
        for _ in range(80)
    ]
    for inputs, reward in rounds[:20]:
        head.step(inputs, head.select(inputs), reward)
    to_torchscript(head, tmp_path / "head.pt", example=rounds[0][0])
    torch.save(rounds[20:], tmp_path / "rounds.pt")
    command = [sys.executable, "-I", "-W", "ignore", "-c", HEAD_PROGRAM, str(tmp_path)]
    run = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=300)
    assert run.returncode == 0, run.stderr
    choices, state = torch.load(tmp_path / "learnt.pt")
    for choice, (inputs, reward) in zip(choices, rounds[20:], strict=True):
        assert choice == head.select(inputs)
        head.step(inputs, choice, reward)
    assert int(state["policy.estimator.rounds"]) == 80
    for name, value in head.state_dict().items():
        close(state[name], value)


def test_goes_on_learning(tmp_path: Path) -> None:
    eager = AnytimeHeavyTailUCB(3, moment_order=1.5)
    play(eager, stream(30))
    scripted = torch.jit.script(AnytimeHeavyTailUCB(3, moment_order=1.5))
    play(scripted, stream(30))
    torch.jit.save(scripted, tmp_path / "policy.pt")
    rounds = stream(60, seed=1)
    torch.save([(round_.arms, round_.reward, round_.noise_scale) for round_ in rounds], tmp_path / "rounds.pt")
    # -I: neither this folder nor PYTHONPATH is on the path.
    command = [sys.executable, "-I", "-W", "ignore", "-c", PROGRAM, str(tmp_path)]
    run = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=300)
    assert run.returncode == 0, run.stderr
    choices, state = torch.load(tmp_path / "learnt.pt")
    assert choices == play(eager, rounds)
    assert int(state["estimator.rounds"]) == 90
    for name, value in snapshot(eager).items():
        close(state[name], value)
