"""Joint training of an encoder and a linear readout on a replay of rounds."""

import torch
from torch import Tensor
from torch.nn import functional

from torchonline.models.bandit_head import BanditHead
from torchonline.models.encoding import EMBEDDINGS

HALF = (torch.float16, torch.bfloat16)
Rounds = tuple[Tensor, Tensor, Tensor]


def fit_encoder(
    head: BanditHead, readout: Tensor, rounds: Rounds, *, steps: int, batch_size: int, learning_rate: float
) -> None:
    """Continue training encoder and readout, with Adam on minibatches of rounds.

    The loss is Huber's, squared up to twice the median absolute residual of the minibatch. Half-precision parameters are trained
    as float32 copies. Embeddings with ``sparse=True`` are trained by SparseAdam.

    Args:
        head: head whose encoder is trained, in its current mode.
        readout: weights of the policy's features, shaped like the estimator's ``theta_hat``; updated in place.
        rounds: inputs, actions and rewards, ``(n, *B, ...)``.
        steps: number of minibatches.
        batch_size: rounds in a minibatch.
        learning_rate: learning rate of Adam.
    """
    inputs, action, reward = rounds
    lead = head._dims()
    theta = readout.clone().requires_grad_()
    parameters = [parameter for parameter in head.encoder.parameters() if parameter.requires_grad]
    # In half precision Adam would divide by squares that round to 0, so it updates float32 copies.
    moved = [p.detach().float().requires_grad_() if p.dtype in HALF else p for p in parameters]
    pairs = list(zip(moved, parameters, strict=True))
    halves = [(copy, parameter) for copy, parameter in pairs if copy is not parameter]
    is_sparse = {id(part.weight) for part in head.encoder.modules() if isinstance(part, EMBEDDINGS) and part.sparse}
    rows = [copy for copy, parameter in pairs if id(parameter) in is_sparse]
    dense = [copy for copy, parameter in pairs if id(parameter) not in is_sparse]
    optimizers: list[torch.optim.Optimizer] = [torch.optim.Adam([*dense, theta], lr=learning_rate)]
    if rows:  # Adam refuses their gradients, and would take time for all rows
        optimizers.append(torch.optim.SparseAdam(rows, lr=learning_rate))
    for _ in range(steps):
        batch = torch.randint(len(reward), (batch_size,), device=reward.device)
        target = reward[batch].movedim(0, lead).to(theta.dtype)
        with torch.enable_grad():
            loss = robust_loss(predicted(head, theta, inputs[batch], action[batch]), target)
        theta.grad = None
        head.encoder.zero_grad()
        loss.backward()
        for copy, parameter in halves:
            copy.grad = None if parameter.grad is None else parameter.grad.float()
        for optimizer in optimizers:
            optimizer.step()
        with torch.no_grad():
            for copy, parameter in halves:
                parameter.copy_(copy)
    head.encoder.zero_grad()
    readout.copy_(theta.detach())


def robust_loss(mean: Tensor, target: Tensor) -> Tensor:
    """Return Huber's loss, with twice the median absolute residual as threshold."""
    threshold = 2.0 * (target - mean.detach()).abs().median().item()
    return functional.huber_loss(mean, target, delta=max(threshold, torch.finfo(target.dtype).tiny))


def predicted(head: BanditHead, theta: Tensor, inputs: Tensor, action: Tensor) -> Tensor:
    """Return the readout's predictions for the chosen arms, ``(*B, n)``.

    They are differentiable in the encoder's parameters and ``theta``.
    """
    lead, place = head._dims(), head._placed(action)
    x = head.policy._features(head._encoded_choice(inputs, place).movedim(0, lead))
    if theta.dim() == lead + 1:
        return (x * theta.unsqueeze(-2)).sum(-1)
    # The row of each chosen arm in theta with its batch dimensions flattened.
    first = theta.size(-2) * torch.arange(theta[..., 0, 0].numel(), device=theta.device)
    row = place.movedim(0, lead) + first.reshape(*theta.shape[:-2], 1)
    return (x * functional.embedding(row, theta.flatten(0, -2))).sum(-1)


def relearn(head: BanditHead, rounds: Rounds, batch_size: int) -> None:
    """Reset the policy and its scaler, and learn the rounds again as one log.

    The encoder gets ``batch_size`` rounds in each pass. The head's scaler has already seen the inputs. It scales them with its
    present statistics and does not change.
    """
    inputs, action, reward = (values.movedim(0, head._dims()) for values in rounds)
    head.policy.reset()
    head.policy.learn(*head._encoded_log(inputs, head._checked_action(action, inputs), batch_size), reward)
