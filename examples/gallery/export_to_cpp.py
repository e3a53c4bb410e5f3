"""
A file that goes on learning, without torchonline
=================================================

An exported learner is one file that chooses and learns wherever PyTorch runs, in Python or in C++, without torchonline. Here a
file takes over in the middle of a run, in a process that cannot import torchonline. Its choices equal the module's.
"""

import subprocess
import sys
from tempfile import TemporaryDirectory

import matplotlib.pyplot as plt
import torch

from torchonline import OFUL
from torchonline.export import to_torchscript

BLUE, VERMILION = "#0072B2", "#D55E00"
ROUNDS, EXPORTED = 120, 40
torch.manual_seed(0)
arms = torch.nn.functional.normalize(torch.randn(6, 3).double(), dim=-1)
rewards = arms @ torch.tensor([0.6, -0.7, 0.4]).double() + 0.5 * torch.randn(ROUNDS, 6).double()
rewards[9::10] = torch.nan  # each tenth reward is missing

# %%
# The module plays 40 rounds, is exported, and plays on. A missing reward would raise an error, so the loop skips it.

folder = TemporaryDirectory()
policy, choices, states = OFUL(3), [], []
for t in range(ROUNDS):
    if t == EXPORTED:
        to_torchscript(policy, f"{folder.name}/policy.pt")
    k = policy.select(arms)
    if rewards[t, k].isfinite():
        policy.step(arms, k, rewards[t, k])
    choices.append(k)
    states.append(policy.estimator.theta_hat.clone())

# %%
# Another process loads the file and plays the other 80 rounds. The file has the methods of the module. For a missing reward,
# its ``step`` returns False and leaves the state unchanged.

PROCESS = """
import sys
sys.modules["torchonline"] = None  # makes `import torchonline` fail
import torch

folder = sys.argv[1]
arms, rewards = torch.load(f"{folder}/world.pt", weights_only=True)
policy = torch.jit.load(f"{folder}/policy.pt")
choices, learnt, states = [], [], []
for reward in rewards:
    k = policy.select(arms)
    learnt.append(policy.step(arms, k, reward[k]))
    choices.append(k)
    states.append(policy.estimator.theta_hat.clone())
torch.save([torch.stack(each) for each in (choices, learnt, states)], f"{folder}/found.pt")
"""
torch.save((arms, rewards[EXPORTED:]), f"{folder.name}/world.pt")
subprocess.run([sys.executable, "-c", PROCESS, folder.name], check=True)
file_choices, learnt, file_states = torch.load(f"{folder.name}/found.pt", weights_only=True)
folder.cleanup()

choices, states = torch.stack(choices), torch.stack(states)
print("rounds that the file has learnt:", int(learnt.sum()), "of", len(learnt))
print("choices that differ:", int((file_choices != choices[EXPORTED:]).sum()))
print(f"largest difference of the estimates: {(file_states - states[EXPORTED:]).abs().max():.0e}")

# %%
# The upper panel shows the arm chosen in each round, the lower panel the three coefficients of the estimate.

figure, (above, below) = plt.subplots(2, 1, figsize=(7, 5), sharex=True, layout="constrained")
rounds, later = range(ROUNDS), range(EXPORTED, ROUNDS)
above.plot(rounds, choices, ".", color=BLUE)
above.plot(later, file_choices, "o", color=VERMILION, fillstyle="none")
below.plot(rounds, states, color=BLUE, linewidth=2)
below.plot(later[::4], file_states[::4], "o", color=VERMILION, fillstyle="none")
for axes in (above, below):
    axes.axvline(EXPORTED - 0.5, color="black", linestyle=":")
below.text(EXPORTED - 1, -0.45, "exported here", ha="right")
below.text(0, -0.3, "the module", color=BLUE)
below.text(EXPORTED + 5, 0.05, "the file, in another process", color=VERMILION)
above.set(ylabel="arm", yticks=range(len(arms)))
below.set(ylabel="estimate", xlabel="round")
plt.show()

# %%
# This is one run. The last digits differ because the file adds in another order. Not shown: files of ``torch.export``
# (``to_program``), machine code (``compile_program``) and ONNX.
#
# In C++
# ------
# This program runs such a file with libtorch alone. A test of torchonline compiles and runs it.
#
# .. literalinclude:: ../../examples/files/script.cpp
#    :language: cpp
