"""Lightning module that plays a bandit head over batches of rounds."""

import inspect
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import pytorch_lightning as pl
import torch
from torch import Tensor

from torchonline.core.all_or_nothing import all_or_nothing_with
from torchonline.core.backend import writable
from torchonline.core.checks import check_shape, one_of, positive, positive_integer, shape_text
from torchonline.core.citations import Citable
from torchonline.core.inputs import ArrayLike
from torchonline.core.ops import of_chosen
from torchonline.core.options import described
from torchonline.core.state_dict_checks import load_whole
from torchonline.distributed import Ranks
from torchonline.models.bandit_head import BanditHead
from torchonline.models.batches import LoggedRounds, as_real, inputs_of, numbered_batch, payoffs, typed_batch, unpacked
from torchonline.models.checkpoints import as_head, facts, load_module, packed, plain_name
from torchonline.models.draws import seeded_draws
from torchonline.models.lightning_strategy import LearnerStrategy
from torchonline.models.refit import fit_encoder, relearn
from torchonline.models.replay import Replay
from torchonline.models.shared_rounds import SharedRounds
from torchonline.models.weight_averages import refuse_weight_averages
from torchonline.policies.chosen import chosen_probability, predicted
from torchonline.policies.policy import drawn_with_probability

# Key of a checkpoint for the rounds of all ranks that wait for a sync.
WAITING = "torchonline_waiting_rounds"


class NeuralLinearBandit(Citable, pl.LightningModule):
    r"""Lightning module that plays a bandit head and trains its encoder.

    It plays against tables of rewards or learns from logs.

    A round of the :class:`~torchonline.models.BanditHead`, whose encoder computes the features :math:`x_k`::

        k = policy.select(arms)                # arms: x_1 ... x_K
        policy.step(arms, k, rewards[k])       # the policy sees only the chosen entry of the table

    The encoder learns. After every ``train_encoder_every`` rounds:

    1. Adam continues the joint training of the encoder and a linear readout :math:`w` on the last ``replay_size`` rounds:
       :math:`\min_{\phi, w} \sum_{s \in \text{replay}} h(r_s - \phi(z_s)^\top w)`. If each action has its own model, each has its
       own vector :math:`w_k`. The readout starts from the policy's first estimate and is kept in the buffer ``readout``.
    2. The statistics of the policy and its scaler are reset, and the policy learns the rounds of the replay again, by one
       :meth:`~torchonline.policies.policy.Policy.learn`, from their new features. The head's scaler does not change: the replay
       holds raw inputs, which it scales in both steps.

    ``train_encoder_every=None`` freezes the encoder. An encoder without trainable parameters is always frozen.

    The loss h is Huber's: squared up to twice the median absolute residual (1.35 standard deviations of Gaussian noise), linear
    beyond. With a squared loss, single heavy-tailed rewards could dominate the features. Training voids the policy's guarantee,
    because the new features depend on the noise of rewards that the policy learns again.

    ``head.policy.add_actions`` and ``remove_actions`` may change the arms between batches. The replay then drops the rounds of
    removed arms.

    An exception during training, Ctrl-C included, restores encoder and statistics to their state before the training.

    A *step* of the trainer is a batch, which is always played to its end; the buffer ``rounds`` counts rounds. (With a
    :class:`~torchonline.callbacks.RegretLogger`, ``step`` in logs and names of checkpoints counts rounds.) A run resumed
    from a checkpoint continues bit for bit, also in the middle of an epoch if the loader is resumable, like
    :class:`~torchonline.models.RoundLoader`. Random draws (Thompson sampling, minibatches, dropout) use a separate stream,
    seeded by the buffers ``seed`` and ``rounds``. Lightning treats an epoch cut short by ``max_steps`` as finished: resume a
    checkpoint saved after such a fit with a larger ``max_steps``.

    Validation, test and prediction decide from the present state and do not learn.

    A checkpoint holds the head, so ``load_from_checkpoint(path)`` needs no ``head``. Loading creates instances of already
    imported modules only, and runs no code from the file. The hyper-parameters, for loggers, name the encoder, the policy, the
    estimator and their options.

    Cost: one encoder pass over each batch, and the policy's cost for each round. Each training costs ``encoder_steps``
    minibatches, one encoder pass over the replay, and ``learn`` of it.

    Args:
        head: the encoder and the policy. Start with :func:`torchonline.bandit` as policy (docs/encoders_measured.md compares
            policies). ``*B`` is the policy's batch shape.
        feedback: when rewards arrive: after each ``"round"``, or after each ``"batch"``. In the second case all decisions of a
            batch are made from the same state.
        train_encoder_every: rounds between two trainings of the encoder. None freezes the encoder.
        replay_size: number of last rounds for training the encoder and relearning. The replay holds their inputs in memory.
        encoder_steps: number of minibatches in a training.
        encoder_batch_size: rounds in a minibatch.
        encoder_learning_rate: learning rate of Adam, whose moments are reset before each training.
        sync_every: batches of a rank between two syncs of several processes.

    Shape:
        - A batch is ``(inputs, rewards)`` or ``(inputs, rewards, means)`` for N rounds, or a dict with these names.
        - inputs: ``(N, *B, K, *feature)``, or ``(N, *B, *feature)`` for a head with actions. For a Hugging Face model they may
          also be mappings or raw, as its head takes them; texts may differ in length between batches.
        - rewards: reward of each arm, ``(N, *B, K)``; means: expected rewards, ``(N, *B, K)``. Both may have any real dtype or be
          boolean. Regret is computed from the means, or from the rewards if there are no means. Columns are in the order of
          ``head.policy.action_ids``; actions are these ids.
        - A batch may also be a log: :class:`~torchonline.models.LoggedRounds`, or a dict with ``inputs``, ``action`` and
          ``reward``. Its rounds are learnt in order, without decisions.
        - ``training_step`` returns ``regret`` (not for a log), ``reward`` and ``action``, each ``(N, *B)``, for callbacks. It
          logs ``reward``, the mean over the batch. If the attribute ``watched`` is True, it also returns the policy's prediction
          for the chosen arm before learning: ``prediction``, ``low`` and ``high`` (:meth:`Estimator.interval`), and the arm's
          ``probability`` (for a log, the logged one) if it is known exactly and not only estimated. This costs O(d^2) more for
          each round.
        - N may be 0, as in the last batch of some ranks of a :class:`~torchonline.models.RoundLoader`. An empty batch is not
          learnt, counted or logged.

    *Several processes*, with :class:`~torchonline.models.LearnerStrategy` and ``feedback="batch"``: each rank plays its batches
    from the state of the last sync. Every ``sync_every`` batches, the first rank learns the rounds of all ranks in the order of
    ranks, trains the encoder if due, and sends its state to the others (see :class:`~torchonline.distributed.SharedLearner`).
    Only the first rank has a replay. ``rounds`` counts the rounds of all ranks up to the last sync. The end of an epoch also
    syncs. All ranks need the same number of batches, possibly empty, as :class:`~torchonline.models.RoundLoader` provides. A
    checkpoint holds the rounds of all ranks that wait for a sync.

    Raises:
        RuntimeError: there are several processes with ``feedback="round"`` or under another strategy, where Lightning would
            overwrite their statistics with the first rank's; or a callback of the trainer averages weights.

    Example:
        >>> import torchonline
        >>> from torchonline.models import RoundLoader
        >>> encoder = torch.nn.Sequential(torch.nn.Linear(4, 16), torch.nn.ReLU())
        >>> policy = torchonline.bandit(16, actions=3)  # 16 learnt features, rewards in [0, 1]
        >>> bandit = NeuralLinearBandit(BanditHead(encoder, policy))
        >>> loader = RoundLoader(torch.rand(100, 4), torch.rand(100, 3), batch_size=10)  # 100 rounds, 3 arms
        >>> quiet = {"accelerator": "cpu", "logger": False, "enable_progress_bar": False}
        >>> quiet |= {"enable_model_summary": False, "enable_checkpointing": False}
        >>> trainer = pl.Trainer(max_epochs=1, **quiet)
        >>> trainer.fit(bandit, loader)
        >>> bandit.rounds, trainer.global_step
        (tensor(100), 10)

    Reference:
        Riquelme, Tucker and Snoek, Deep Bayesian bandits showdown, ICLR 2018. Their method keeps the statistics of the old
        features when the network is retrained.
    """

    if TYPE_CHECKING:

        def __call__(self, inputs: ArrayLike) -> Tensor: ...

    readout: Tensor | None
    rounds: Tensor
    seed: Tensor

    def __init__(
        self,
        head: BanditHead,
        *,
        feedback: str = "round",
        train_encoder_every: int | None = 50,
        replay_size: int = 2000,
        encoder_steps: int = 50,
        encoder_batch_size: int = 64,
        encoder_learning_rate: float = 3e-3,
        sync_every: int = 1,
    ) -> None:
        super().__init__()
        self.save_hyperparameters(ignore=["head"])
        head = as_head(head)
        self._describe(head)
        self.head = head
        self.feedback = one_of("feedback", feedback, ("round", "batch"))
        if train_encoder_every is not None:
            positive_integer("train_encoder_every", train_encoder_every)
        can_learn = any(parameter.requires_grad for parameter in head.encoder.parameters())
        self.train_encoder_every = train_encoder_every if can_learn else None
        self.replay_size = positive_integer("replay_size", replay_size)
        self.encoder_steps = positive_integer("encoder_steps", encoder_steps)
        self.encoder_batch_size = positive_integer("encoder_batch_size", encoder_batch_size)
        self.encoder_learning_rate = positive("encoder_learning_rate", encoder_learning_rate)
        self.sync_every = positive_integer("sync_every", sync_every)
        # Rounds shared by several processes, and rounds of a loaded checkpoint that are not learnt yet.
        self._shared: SharedRounds | None = None
        self._waiting: list[Any] = []
        # Whether callbacks want more than the payoffs, and the values for them from the present batch.
        self.watched = False
        self._seen: list[dict[str, Tensor]] = []
        self.replay = None if self.train_encoder_every is None else Replay(replay_size, head.pads)
        self._arm_ids = self._ids_of_arms()
        readout = None if self.replay is None else torch.zeros_like(head.policy.estimator.theta_hat)
        self.register_buffer("readout", writable(readout))
        self.register_buffer("rounds", writable(torch.zeros((), dtype=torch.int64)))
        self.register_buffer("seed", writable(torch.randint(2**62, ())))

    def _describe(self, head: BanditHead) -> None:
        """Add a description of the head to the hyper-parameters, for loggers."""
        # Drop the command line's recipe of the module: a checkpoint holds the head itself.
        for name in ("_instantiator", "_class_path"):
            self.hparams.pop(name, None)
        self._facts = {name: value for name, value in facts(head).items() if name not in self.hparams}
        self.save_hyperparameters(self._facts)

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the head's scores of the arms."""
        return self.head(inputs)

    def extra_repr(self) -> str:
        return described(self, vars(self))

    def setup(self, stage: str) -> None:
        self._shared = None
        if stage != "fit" or self.trainer.world_size == 1:
            return
        if not isinstance(self.trainer.strategy, LearnerStrategy):
            raise RuntimeError(
                "NeuralLinearBandit: expected one process, or strategy=torchonline.models.LearnerStrategy(), got "
                f"{self.trainer.world_size} under {type(self.trainer.strategy).__name__}: Lightning would overwrite all "
                "statistics with those of the first"
            )
        if self.feedback != "batch":
            raise RuntimeError(
                f'NeuralLinearBandit: expected feedback="batch" with several processes, got {self.feedback!r}: rewards are '
                "learnt when the processes sync"
            )
        self._shared = SharedRounds(Ranks(), self.head.pads)

    def on_fit_start(self) -> None:
        """Start from the first rank's state and the waiting rounds of a checkpoint."""
        waiting, self._waiting = self._waiting, []
        if self._shared is not None:
            self._shared.take(waiting, self.device)
            self._shared.broadcast(self._state_of_all_ranks())
        else:
            for _, queue in waiting:
                for rounds in queue:
                    self._learn_together(tuple(part.to(self.device) for part in rounds))

    @classmethod
    def load_from_checkpoint(  # type: ignore[override]
        cls, checkpoint_path: Any, map_location: Any = None, **options: Any
    ) -> "NeuralLinearBandit":
        """Build a module and load a checkpoint's state into it. No code in the file runs.

        Args:
            checkpoint_path: file of a trainer. A URL is refused.
            map_location: device of the state.
            **options: arguments of the constructor, which override those in the file; and options of Lightning's method.

        Raises:
            ValueError: the file is not a checkpoint, might run code, or names a class that is not imported.
        """
        found: NeuralLinearBandit = load_module(
            super().load_from_checkpoint, checkpoint_path, {"map_location": map_location, **options}
        )
        return found

    def configure_callbacks(self) -> list[pl.Callback]:
        """Return no callbacks. Refuse a trainer callback that averages weights."""
        refuse_weight_averages(self)
        return []

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Return an optimizer of a dummy tensor, so that Lightning counts batches."""
        self._clock = torch.zeros((), device=self.device, requires_grad=True)
        return torch.optim.SGD([self._clock], lr=1.0)

    def training_step(self, batch: Any, batch_idx: int) -> dict[str, Tensor]:
        """Play a table or learn logged rounds. See the class."""
        self._seen, batch = [], self._typed(batch)
        if self._shared is not None:
            return self._share(self._shared, batch)
        rounds = unpacked(batch)
        if self.replay is not None:
            self._follow_arms(self.replay)
            self.replay.check_inputs(rounds.inputs, self.head.feature_dims)
        with torch.no_grad(), self._own_random_draws():
            if isinstance(rounds, LoggedRounds):
                self._in_turns(self._learn_log, *rounds[:3])
                outputs = _outputs_of(rounds, self.watched)
            else:
                if len(rounds.inputs) == 0:
                    self._check_table(rounds.inputs, rounds.rewards)
                action = self._in_turns(self._play, *rounds[:2])
                outputs = payoffs(rounds, action, self._places(action))
        if len(rounds.inputs):
            self.log("reward", outputs["reward"].double().mean(), on_step=True, on_epoch=False)
        return {"loss": 0.0 * self._clock} | self._all_seen() | outputs

    def _typed(self, batch: Any) -> Any:
        """Return a batch with inputs in the encoder's dtype and ids of actions.

        A scaler gets the inputs unrounded. Names of actions become ids.
        """
        batch = typed_batch(batch, None if self.head.scaler is not None else self.head.encoder)
        return numbered_batch(batch, self.head)

    def on_train_epoch_end(self) -> None:
        """Sync, so that no round waits for the next epoch."""
        if self._shared is not None:
            self._sync(self._shared)

    def validation_step(self, batch: Any, batch_idx: int) -> dict[str, Tensor]:
        """Play without learning; log ``val_regret`` and ``val_reward``.

        All rounds are played from one state. The values are means over the rounds of all processes. For a log, or inputs alone,
        return predictions and log nothing.
        """
        return self._evaluate("val", batch, batch_idx)

    def test_step(self, batch: Any, batch_idx: int) -> dict[str, Tensor]:
        """Play without learning; log ``test_regret`` and ``test_reward``.

        Everything else is as in :meth:`validation_step`.
        """
        return self._evaluate("test", batch, batch_idx)

    def predict_step(self, batch: Any, batch_idx: int = 0) -> dict[str, Tensor]:
        """Decide without learning.

        Args:
            batch: inputs, ``(N, *B, ...)``, or any batch that begins with inputs.
            batch_idx: index of the batch.

        Returns:
            ``action``, ``(N, *B)``; its ``probability``, ``(N, *B)``; and the ``probabilities`` of all arms, ``(N, *B, K)``.
        """
        inputs, lead = inputs_of(self._typed(batch)), self._batch_dims()
        with torch.no_grad(), self._own_random_draws(1 + batch_idx):
            probabilities = self.head.probabilities(inputs.movedim(0, lead))
            place, probability = drawn_with_probability(probabilities)
            action = self.head._named(place)
        found = {"action": action, "probability": probability, "probabilities": probabilities}
        return {name: value.movedim(lead, 0) for name, value in found.items()}

    def __prepare_scriptable__(self) -> Any:
        """Refuse ``torch.jit.script`` and name the part that can be scripted."""
        raise TypeError("module: expected a module without a Trainer, got NeuralLinearBandit; give its .head")

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Put the head among the checkpoint's hyper-parameters."""
        arguments = inspect.signature(type(self).__init__).parameters
        saved = checkpoint.setdefault(self.CHECKPOINT_HYPER_PARAMS_KEY, {})
        if any(argument.kind is argument.VAR_KEYWORD for argument in arguments.values()):
            # Loading would pass all hyper-parameters to a constructor with **options.
            for name in self._facts:
                saved.pop(name, None)
        if "head" in arguments:
            saved["head"] = packed(self.head)
        if self._shared is not None:
            checkpoint[WAITING] = self._shared.of_all_ranks()

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        self._waiting = checkpoint.get(WAITING, [])

    def state_dict(self, *arguments: Any, **options: Any) -> Any:
        """Return the state, with the replay restricted to the policy's arms."""
        if self.replay is not None:
            self._follow_arms(self.replay)
        return super().state_dict(*arguments, **options)

    def load_state_dict(self, state_dict: Mapping[str, Any], *arguments: Any, **options: Any) -> Any:
        """Load a state, with or without the name prefixes of ``torch.compile``.

        A refused state changes nothing.
        """
        own = {plain_name(name): name for name in self.state_dict()}
        state = {own.get(plain_name(name), name): value for name, value in state_dict.items()}
        if self.readout is not None and "replay.rounds" in state:
            state.setdefault("readout", self.readout)  # 0.1.0 had none
        try:
            return load_whole(self, super().load_state_dict, state, *arguments, **options)
        finally:
            self._arm_ids = self._ids_of_arms()  # matches the loaded replay

    def _load_from_state_dict(self, *arguments: Any) -> None:
        """Load the module's own entries of a state, with a readout for the present arms."""
        if self.replay is not None:
            self._follow_arms(self.replay)
        super()._load_from_state_dict(*arguments)

    def _ids_of_arms(self) -> list[int]:
        return self.head.action_ids or []

    def _places(self, action: Tensor) -> Tensor:
        """Return the actions' column indices in a table."""
        return self.head._placed(action)

    def _follow_arms(self, replay: Replay) -> None:
        """Drop removed arms from the replay, and reset the readout, if the arms changed."""
        action_ids = self._ids_of_arms()
        if action_ids == self._arm_ids:
            return
        replay.keep_arms(action_ids)
        self.readout = torch.zeros_like(self.head.policy.estimator.theta_hat)
        self._arm_ids = action_ids

    def _batch_dims(self) -> int:
        return self.head._dims()

    def _evaluate(self, stage: str, batch: Any, batch_idx: int) -> dict[str, Tensor]:
        batch = self._typed(batch)
        if not isinstance(batch, Tensor) and not isinstance(rounds := unpacked(batch), LoggedRounds):
            with torch.no_grad(), self._own_random_draws(1 + batch_idx):
                action = self._decided(rounds.inputs, rounds.rewards)
            outputs = payoffs(rounds, action, self._places(action))
            # An empty batch logs 0 with weight 0: ranks must log the same names, or one would wait for another.
            values = {f"{stage}_{name}": outputs[name].double() for name in ("regret", "reward")}
            means = {name: value.mean() if len(action) else value.sum() for name, value in values.items()}
            # Lightning rounds the mean of integers over ranks down.
            weight: Any = torch.tensor(len(action), dtype=torch.float64)
            self.log_dict(means, on_step=False, on_epoch=True, sync_dist=True, batch_size=weight)
            return outputs
        return self.predict_step(batch, batch_idx)

    def _in_turns(self, act: Callable[..., Tensor], *values: Tensor) -> Tensor:
        """Call ``act`` on the rounds between trainings. Return all actions."""
        actions, start = [], 0
        while start < len(values[-1]):
            stop = min(len(values[-1]), start + self._rounds_from_one_encoder())
            before = int(self.rounds)
            actions.append(act(*(value[start:stop] for value in values)))
            self._train_if_due(before)
            start = stop
        return torch.cat(actions) if actions else self._no_actions(values[0])

    def _no_actions(self, inputs: Tensor) -> Tensor:
        """Return the actions of a batch without rounds, ``(0, *B)``."""
        return torch.zeros(inputs.shape[: 1 + self._batch_dims()], dtype=torch.int64, device=inputs.device)

    def _rounds_from_one_encoder(self) -> int:
        """Return the number of rounds until the encoder may change."""
        if self.train_encoder_every is None or self.feedback == "batch":
            return 2**62
        return self.train_encoder_every - int(self.rounds) % self.train_encoder_every

    def _play(self, inputs: Tensor, rewards: Tensor) -> Tensor:
        """Decide n rounds, learn from them and return the actions, ``(n, *B)``."""
        lead = self._batch_dims()
        x = inputs
        if self.head.scaler is None:  # encode once for all rounds: without a scaler the features do not change
            x = self.head.encode(inputs).to(self.head.policy.estimator.theta_hat.dtype)
        self._check_table(inputs, rewards)
        actions: list[Tensor] = []
        try:
            if self.feedback == "round":
                for round_ in zip(x, rewards, inputs, strict=True):
                    actions.append(self._decide_and_learn(*round_))
            else:
                batch = (value.movedim(0, lead) for value in (x, rewards, inputs))
                actions.extend(self._decide_and_learn(*batch).unbind(lead))
        finally:
            # The policy has learnt these rounds, even if the next one raised an error.
            if actions:
                action = torch.stack(actions)
                self._record(inputs[: len(action)], action, of_chosen(rewards[: len(action)], self._places(action)))
        return torch.stack(actions)

    def _check_table(self, inputs: Tensor, rewards: Tensor) -> None:
        """Raise unless there is a reward for each arm."""
        head = self.head
        arms = head._count(inputs)
        expected = (*inputs.shape[: inputs.dim() - head.item_dims], arms)
        if rewards.shape != expected and head.has_arm_inputs:
            raise ValueError(
                f"rewards: expected shape {shape_text(expected)}, got {shape_text(rewards.shape)}; a head without actions "
                f"takes an input for each arm, (N, *B, K, *feature), and got {shape_text(inputs.shape)}. For one context "
                "and K actions, give BanditHead actions=K"
            )
        check_shape("rewards", rewards, expected)

    def _learn_log(self, inputs: Tensor, action: Tensor, reward: Tensor) -> Tensor:
        """Learn from n logged rounds and return their actions."""
        lead = self._batch_dims()
        moved = tuple(values.movedim(0, lead) for values in (inputs, action, reward))
        if self.watched and self._shared is None:
            self._see(self.head.encode(moved[0]), self.head._named(self.head._checked_action(moved[1], moved[0])))
        self.head.learn(*moved)
        self._record(inputs, action, reward)
        return action

    def _share(self, shared: SharedRounds, batch: Any) -> dict[str, Tensor]:
        """Play a batch from the state of the last sync, and sync if due."""
        outputs: dict[str, Tensor] = {}
        try:
            rounds = unpacked(batch)
            # A different seed for each rank and batch.
            number = -1 - shared.ranks.rank - shared.ranks.size * shared.batches
            with torch.no_grad(), self._own_random_draws(number):
                if isinstance(rounds, LoggedRounds):
                    outputs = _outputs_of(rounds, self.watched)
                else:
                    action = self._decided(rounds.inputs, rounds.rewards)
                    outputs = payoffs(rounds, action, self._places(action))
                if self.watched and len(rounds.inputs):
                    lead = self._batch_dims()
                    x = self.head.encode(rounds.inputs.movedim(0, lead))
                    self._see(x, outputs["action"].movedim(0, lead))
            shared.add(rounds.inputs, outputs["action"], outputs["reward"])
        except Exception as error:
            shared.fail(error)  # the next sync raises it on all ranks; raising here would leave the others waiting
        if shared.batches >= self.sync_every:
            self._sync(shared)
        if outputs and len(outputs["reward"]):
            self.log("reward", outputs["reward"].double().mean(), on_step=True, on_epoch=False)
        return {"loss": 0.0 * self._clock} | self._all_seen() | outputs

    def _decided(self, inputs: Tensor, rewards: Tensor) -> Tensor:
        """Decide n rounds from one state. Return the actions, ``(n, *B)``."""
        self._check_table(inputs, rewards)
        if len(inputs) == 0:
            return self._no_actions(inputs)
        lead = self._batch_dims()
        return self.head.select(inputs.movedim(0, lead)).movedim(lead, 0)

    def _sync(self, shared: SharedRounds) -> None:
        with self.head.learner._lock:
            shared.sync(self._learn_together, self._state_of_all_ranks())

    def _learn_together(self, rounds: Any) -> None:
        """Learn the rounds of all ranks, and train the encoder if due."""
        if self.replay is not None:
            self._follow_arms(self.replay)
            self.replay.check_inputs(rounds[0], self.head.feature_dims)
        before = int(self.rounds)
        with torch.no_grad(), self._own_random_draws():
            self._learn_log(*rounds)
            self._train_if_due(before)

    def _state_of_all_ranks(self) -> list[Tensor]:
        """Return the tensors that all ranks share, which exclude the replay."""
        own = [self.rounds, self.seed, *([] if self.readout is None else [self.readout])]
        return [*own, *self.head.parameters(), *self.head.buffers()]

    def _record(self, inputs: Tensor, action: Tensor, reward: Tensor) -> None:
        """Count learnt rounds and add them to the replay."""
        self.rounds += len(action)
        if self.replay is not None:
            # Only the chosen arm is encoded again.
            inputs, action = self.head._alone(inputs, self._places(action))
            # The first round sets the dtypes. Integer rewards may be followed by real ones.
            self.replay.push(inputs, action, as_real(reward, self.head.policy.estimator.theta_hat.dtype))

    def _decide_and_learn(self, x: Tensor, rewards: Tensor, given: Tensor) -> Tensor:
        """Decide and learn. Return the actions.

        ``x`` holds features, or inputs if the head has a scaler; ``given`` holds inputs.
        """
        if self.head.scaler is not None:
            action = self.head.select(x)
            if self.watched:
                self._see(self.head.encode(x), action)
            self.head.step(x, action, of_chosen(rewards, self._places(action)))
            return action
        action = self.head.policy._choice_now(x, None, given)
        if self.watched:
            self._see(x, action)
        learn = self.head.policy.learn if action.dim() > self._batch_dims() else self.head.policy.step
        learn(x, action, of_chosen(rewards, self._places(action)))
        return action

    def _see(self, x: Tensor, action: Tensor) -> None:
        """Keep the policy's predictions for the chosen arms before it learns the rewards.

        ``x`` holds features, and ``action`` is ``(*B)`` or ``(*B, n)``.
        """
        lead = self._batch_dims()
        found = dict(zip(("prediction", "low", "high"), predicted(self.head.policy, x, action), strict=True))
        probability = chosen_probability(self.head.policy, x, action)
        if probability is not None:
            found["probability"] = probability
        is_one = action.dim() == lead
        self._seen.append({name: v.unsqueeze(0) if is_one else v.movedim(lead, 0) for name, v in found.items()})

    def _all_seen(self) -> dict[str, Tensor]:
        """Return and clear the present batch's predictions by name, each ``(N, *B)``."""
        seen, self._seen = self._seen, []
        return {name: torch.cat([one[name] for one in seen]) for name in (seen[0] if seen else ())}

    def _train_if_due(self, before: int) -> None:
        """Train the encoder and relearn if due.

        That is, if ``rounds`` has passed a multiple of ``train_encoder_every``.
        """
        every = self.train_encoder_every
        if self.replay is None or every is None or int(self.rounds) // every <= before // every:
            return
        theta_hat, rounds = self.head.policy.estimator.theta_hat, self.replay.in_order()
        if self.readout is None or not bool(self.readout.any()):
            self.readout = theta_hat.clone()  # it is 0 before the first training and after a change of the arms
        readout = self.readout
        options: Any = {"steps": self.encoder_steps, "learning_rate": self.encoder_learning_rate}

        def train() -> None:
            with self._own_random_draws():
                fit_encoder(self.head, readout, rounds, batch_size=self.encoder_batch_size, **options)
            relearn(self.head, rounds, max(256, self.encoder_batch_size))

        encoder, learner = self.head.encoder, self.head.learner
        state = [readout, *encoder.parameters(), *encoder.buffers(), *learner.state().values()]
        all_or_nothing_with(learner, self, state, train)

    def _own_random_draws(self, number: int = 0) -> AbstractContextManager[None]:
        """Seed random draws, then restore the generators."""
        return seeded_draws(int(self.seed + self.rounds) + 1_000_003 * number, self.device)


def _outputs_of(rounds: LoggedRounds, watched: bool) -> dict[str, Any]:
    """Return a callback's values for logged rounds, with probabilities if watched.

    Without logged probabilities the entry is None, because the policy's probabilities are not the logging policy's.
    """
    outputs: dict[str, Any] = {"reward": rounds.reward, "action": rounds.action}
    return outputs | ({"probability": rounds.probability} if watched else {})
