"""Lightning module that plays a bandit head over batches of rounds."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytorch_lightning as pl
import torch
from torch import Tensor
from torch.nn import functional

from torchonline.core.checks import check_shape, one_of, positive, positive_integer
from torchonline.core.options import described
from torchonline.models.bandit_head import BanditHead
from torchonline.models.encoding import of_chosen
from torchonline.models.replay import Replay


class NeuralLinearBandit(pl.LightningModule):
    r"""Lightning module that plays a bandit head against tables of rewards.

    A round of the :class:`~torchonline.models.BanditHead`, where the encoder computes the features :math:`x_k`::

        k = policy.select(arms)             # arms: x_1 ... x_K
        policy.step(arms[k], rewards[k])    # the policy sees only the chosen entry of the table

    The encoder is frozen unless ``train_encoder_every`` is set. Then, after every ``train_encoder_every`` rounds:

    1. The encoder is fitted to the last ``replay_size`` rounds, with the current estimate :math:`\hat\theta` as readout:
       :math:`\min_\phi \sum_{s \in \text{replay}} h(r_s - \phi(z_s)^\top\hat\theta)`.
    2. The policy's statistics are reset, and the policy learns the rounds of the replay again, in order, from their new
       features.

    The loss h is Huber's, because with a squared loss single heavy-tailed rewards could dominate the features: squared up to
    twice the median absolute residual (1.35 standard deviations of Gaussian noise), linear beyond. Refitting voids the policy's
    guarantee, because the new features depend on the noise of the rewards that are learnt again.

    A *step* of the trainer is a batch, which is always played to its end; the buffer ``rounds`` counts rounds. A run resumed
    from a checkpoint continues bit for bit, in the middle of an epoch if the loader can be resumed, like
    :class:`~torchonline.models.RoundLoader`. Random draws (Thompson sampling, minibatches, dropout) come from the module's own
    stream, seeded by the buffers ``seed`` and ``rounds``. Lightning takes an epoch cut short by ``max_steps`` as finished:
    resume a checkpoint saved after such a fit with a larger ``max_steps``.

    Cost: one pass of the encoder over each batch, then the policy's cost for each round.

    Args:
        head: the encoder and the policy; ``*B`` is the policy's batch shape.
        feedback: when rewards arrive: after each ``"round"`` or after each ``"batch"``, whose decisions are then made from the
            same state.
        train_encoder_every: rounds between two fits of the encoder. None freezes the encoder.
        replay_size: number of last rounds for fitting the encoder and relearning.
        encoder_steps: minibatches in a fit.
        encoder_batch_size: rounds in a minibatch.
        encoder_learning_rate: learning rate of Adam, which is restarted for each fit.

    Shape:
        - A batch is ``(inputs, rewards)`` or ``(inputs, rewards, means)`` for N rounds.
        - inputs: ``(N, *B, K, *feature)``, or ``(N, *B, *feature)`` for a head with actions.
        - rewards: reward of each arm, ``(N, *B, K)``; means: expected rewards, ``(N, *B, K)``. Regret is measured by the means,
          or by the rewards if there are no means.
        - ``training_step`` returns ``regret``, ``reward`` and ``action``, each ``(N, *B)``, for callbacks.

    Raises:
        RuntimeError: there is more than one process, whose statistics Lightning would overwrite with those of the first.

    Example:
        >>> from torchonline import OFUL
        >>> from torchonline.models import RoundLoader
        >>> bandit = NeuralLinearBandit(BanditHead(torch.nn.Linear(4, 2), OFUL(2)))
        >>> loader = RoundLoader(torch.rand(20, 5, 4), torch.rand(20, 5), batch_size=10)  # 20 rounds, 5 arms
        >>> quiet = {"accelerator": "cpu", "logger": False, "enable_progress_bar": False}
        >>> quiet |= {"enable_model_summary": False, "enable_checkpointing": False}
        >>> trainer = pl.Trainer(max_epochs=1, **quiet)
        >>> trainer.fit(bandit, loader)
        >>> bandit.rounds, trainer.global_step
        (tensor(20), 2)

    Reference:
        Riquelme, Tucker and Snoek, Deep Bayesian bandits showdown, ICLR 2018. Their method keeps the statistics of old features
        when the network is retrained.
    """

    rounds: Tensor
    seed: Tensor

    def __init__(
        self,
        head: BanditHead,
        *,
        feedback: str = "round",
        train_encoder_every: int | None = None,
        replay_size: int = 2000,
        encoder_steps: int = 200,
        encoder_batch_size: int = 64,
        encoder_learning_rate: float = 1e-3,
    ) -> None:
        super().__init__()
        if not isinstance(head, BanditHead):
            raise TypeError(f"head: expected a BanditHead, got {type(head).__name__}")
        self.save_hyperparameters(ignore=["head"])
        self.head = head
        self.feedback = one_of("feedback", feedback, ("round", "batch"))
        self.replay: Replay | None = None
        if train_encoder_every is not None:
            self.train_encoder_every = positive_integer("train_encoder_every", train_encoder_every)
            if not any(parameter.requires_grad for parameter in head.encoder.parameters()):
                raise ValueError("train_encoder_every: expected None for an encoder without trainable parameters")
            self.replay = Replay(replay_size)
        self.encoder_steps = positive_integer("encoder_steps", encoder_steps)
        self.encoder_batch_size = positive_integer("encoder_batch_size", encoder_batch_size)
        self.encoder_learning_rate = positive("encoder_learning_rate", encoder_learning_rate)
        self.register_buffer("rounds", torch.zeros((), dtype=torch.int64))
        self.register_buffer("seed", torch.randint(2**62, ()))

    def forward(self, inputs: Tensor) -> Tensor:
        return self.head(inputs)

    def extra_repr(self) -> str:
        return described(self, vars(self))

    def setup(self, stage: str) -> None:
        if self.trainer.world_size > 1:
            raise RuntimeError(
                "NeuralLinearBandit: expected one process, got "
                f"{self.trainer.world_size}: Lightning would overwrite the statistics of all with those of the first"
            )

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Return an optimizer of a constant, by which Lightning counts batches."""
        self._clock = torch.zeros((), device=self.device, requires_grad=True)
        return torch.optim.SGD([self._clock], lr=1.0)

    def training_step(self, batch: Any, batch_idx: int) -> dict[str, Tensor]:
        inputs, rewards, means = _unpacked(batch)
        actions = []
        with torch.no_grad(), self._own_random_draws():
            start = 0
            while start < len(rewards):
                stop = min(len(rewards), start + self._rounds_from_one_encoder())
                actions.append(self._play(inputs[start:stop], rewards[start:stop]))
                start = stop
        action = torch.cat(actions)
        regret = means.amax(-1) - of_chosen(means, action)
        loss = 0.0 * self._clock
        return {"loss": loss, "regret": regret, "reward": of_chosen(rewards, action), "action": action}

    def _rounds_from_one_encoder(self) -> int:
        """Return the number of rounds to play before the encoder may change."""
        if self.replay is None or self.feedback == "batch":
            return 2**62
        return self.train_encoder_every - int(self.rounds) % self.train_encoder_every

    def _play(self, inputs: Tensor, rewards: Tensor) -> Tensor:
        """Decide n rounds, learn from them and return the actions, ``(n, *B)``."""
        lead = self.head.policy.estimator.batch_dims
        # Convert once for all rounds.
        arms = self.head.encode(inputs).to(self.head.policy.estimator.theta_hat.dtype)
        check_shape("rewards", rewards, arms.shape[:-1])
        before = int(self.rounds)
        actions: list[Tensor] = []
        try:
            if self.feedback == "round":
                for round_ in zip(arms, rewards, strict=True):
                    actions.append(self._decide_and_learn(*round_))
            else:
                actions.extend(self._decide_and_learn(arms.movedim(0, lead), rewards.movedim(0, lead)).unbind(lead))
        finally:
            # The policy has learnt from these rounds, even if the next one raised an error.
            if actions:
                self._record(inputs, rewards, torch.stack(actions))
        if (
            self.replay is not None
            and int(self.rounds) // self.train_encoder_every > before // self.train_encoder_every
        ):
            with self._own_random_draws():
                self._train_encoder(self.replay)
        return torch.stack(actions)

    def _record(self, inputs: Tensor, rewards: Tensor, action: Tensor) -> None:
        """Count the rounds learnt from and keep them for the encoder."""
        count = len(action)
        inputs, rewards = inputs[:count], rewards[:count]
        self.rounds += count
        if self.replay is not None:
            kept = inputs, action
            if self.head.actions is None:
                # Only the chosen arm is ever encoded again: keep a decision with that single arm.
                kept = of_chosen(inputs, action).unsqueeze(action.dim()), torch.zeros_like(action)
            self.replay.push(*kept, of_chosen(rewards, action))

    def _decide_and_learn(self, arms: Tensor, rewards: Tensor) -> Tensor:
        policy = self.head.policy
        action = policy.select(arms)
        policy.step(of_chosen(arms, action), of_chosen(rewards, action))
        return action

    def _train_encoder(self, replay: Replay) -> None:
        """Fit the encoder to the replay, then relearn the replay from the new features."""
        estimator = self.head.policy.estimator
        theta_hat = estimator.theta_hat.clone()
        inputs, action, reward = replay.in_order()
        parameters = [parameter for parameter in self.head.encoder.parameters() if parameter.requires_grad]
        optimizer = torch.optim.Adam(parameters, lr=self.encoder_learning_rate)
        for _ in range(self.encoder_steps):
            batch = torch.randint(len(reward), (self.encoder_batch_size,), device=reward.device)
            target = reward[batch].to(theta_hat.dtype)
            with torch.enable_grad():
                x = self.head.chosen_features(inputs[batch], action[batch])
                mean = (x * theta_hat).sum(-1)
                threshold = 2.0 * (target - mean.detach()).abs().median().item()
                loss = functional.huber_loss(mean, target, delta=max(threshold, torch.finfo(target.dtype).tiny))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        optimizer.zero_grad()
        estimator.reset()
        lead = estimator.batch_dims
        for rounds in zip(*(values.split(self.encoder_batch_size) for values in (inputs, action, reward)), strict=True):
            self.head.step(*(values.movedim(0, lead) for values in rounds))

    @contextmanager
    def _own_random_draws(self) -> Iterator[None]:
        """Seed random draws by ``seed`` and ``rounds``, then restore the generators."""
        seed, devices = int(self.seed + self.rounds), [] if self.device.type == "cpu" else [self.device]
        with torch.random.fork_rng(devices, device_type=self.device.type):
            # torch.manual_seed visits all accelerator types, which takes longer than a round.
            torch.default_generator.manual_seed(seed)
            for device in devices:
                torch.get_device_module(device).manual_seed(seed)
            yield


def _unpacked(batch: Any) -> tuple[Tensor, Tensor, Tensor]:
    if not isinstance(batch, (tuple, list)) or len(batch) not in (2, 3):
        got = f"{len(batch)} items" if isinstance(batch, (tuple, list)) else type(batch).__name__
        raise ValueError(f"batch: expected (inputs, rewards) or (inputs, rewards, means), got {got}")
    inputs, rewards = batch[:2]
    means = batch[2] if len(batch) == 3 else rewards
    check_shape("means", means, rewards.shape)
    return inputs, rewards, means
