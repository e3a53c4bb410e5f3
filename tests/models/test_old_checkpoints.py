"""A checkpoint of version 0.1, with its head inside, loads: classes have moved and have other names since."""

import gzip
from pathlib import Path

import torch

from torchonline import DisjointArms, RadiusSelector, StandardScaler
from torchonline.models import NeuralLinearBandit

FILE = Path(__file__).parent.parent / "data" / "golden" / "0.1" / "NeuralLinearBandit.ckpt.gz"


def test_a_checkpoint_of_version_0_1_decides_as_it_did(tmp_path: Path) -> None:
    path = tmp_path / "fit.ckpt"
    path.write_bytes(gzip.decompress(FILE.read_bytes()))
    head = NeuralLinearBandit.load_from_checkpoint(path).head
    assert isinstance(head.policy, RadiusSelector)
    assert isinstance(head.policy, DisjointArms)
    assert isinstance(head.policy.scaler, StandardScaler)
    x = torch.linspace(-1, 1, 80).reshape(40, 2)
    assert head.select(x[::5]).tolist() == [0, 0, 0, 0, 0, 0, 0, 2]
    torch.testing.assert_close(head.predict(x[0]), torch.tensor([2 / 7, 0.0, -0.7805189139472156]).double())
    head.step(x[0], 1, 0.5)
    assert int(head.rounds) == 9  # 8 of the replay were learnt again, and this one
    head.learn(x, torch.arange(40) % 3, torch.ones(40))
    assert int(head.rounds) == 49
