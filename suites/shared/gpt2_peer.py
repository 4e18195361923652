"""The model of ``suites/examples/train_gpt2.py`` in torch, with the same parameters by name: an oracle and a peer.

It imports nothing of cuassay, and torch is given to it.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

__all__ = ["TorchTrainer"]


class TorchTrainer:
    """The same loss, differentiated by torch, and its own AdamW.

    Parameters
    ----------
    torch : module
        It.
    config : object
        With the sizes: ``context``, ``width``, ``heads``, ``layers``.
    params : dict of numpy.ndarray
        Where it starts.
    device : str
        Where it trains.
    options
        Of ``torch.optim.AdamW``.
    """

    def __init__(
        self, torch: Any, config: Any, params: dict[str, np.ndarray], device: str = "cpu", **options: Any
    ) -> None:
        self.torch, self.config = torch, config
        self.params = {
            name: torch.tensor(host.tolist(), dtype=getattr(torch, str(host.dtype)), device=device, requires_grad=True)
            for name, host in params.items()
        }
        self.optimizer = torch.optim.AdamW(
            list(self.params.values()), lr=3e-3, betas=(0.9, 0.95), weight_decay=0.01, **options
        )
        self.seen = torch.ones(config.context, config.context, dtype=torch.bool, device=device).tril()

    def loss(self, tokens: Any, following: Any) -> Any:
        """Mean cross-entropy of the characters that follow; both are (N,) int64."""
        torch, p, config = self.torch, self.params, self.config
        functional = torch.nn.functional
        x = p["wte"][tokens].view(-1, config.context, config.width) + p["wpe"]
        for layer in range(config.layers):
            own = {name.partition(".")[2]: one for name, one in p.items() if name.startswith(f"{layer}.")}
            x = self._block(own, x)
        x = functional.layer_norm(x, (config.width,), p["norm.weight"], p["norm.bias"])
        return functional.cross_entropy(x.view(-1, config.width) @ p["wte"].T, following)

    def _block(self, p: dict[str, Any], x: Any) -> Any:
        functional, config = self.torch.nn.functional, self.config
        batch, context, width = x.shape
        heads = (batch, context, config.heads, width // config.heads)
        normed = functional.layer_norm(x, (width,), p["norm_1.weight"], p["norm_1.bias"])
        joint = functional.linear(normed, p["attention.weight"], p["attention.bias"])
        query, key, value = (
            one.reshape(heads).transpose(1, 2).reshape(-1, context, heads[-1]) for one in joint.split(width, -1)
        )
        scores = self.torch.bmm(query * (width / config.heads) ** -0.5, key.mT)
        weights = self.torch.softmax(scores.masked_fill(~self.seen, -math.inf), -1)
        mixed = self.torch.bmm(weights, value).view(batch, config.heads, context, -1).transpose(1, 2).reshape(x.shape)
        x = x + functional.linear(mixed, p["merge.weight"], p["merge.bias"])
        normed = functional.layer_norm(x, (width,), p["norm_2.weight"], p["norm_2.bias"])
        up = functional.gelu(functional.linear(normed, p["up.weight"], p["up.bias"]), approximate="tanh")
        return x + functional.linear(up, p["down.weight"], p["down.bias"])

    def backward(self, tokens: Any, following: Any) -> Any:
        """The loss, and gradients in the parameters."""
        self.optimizer.zero_grad(set_to_none=True)
        loss = self.loss(tokens, following)
        loss.backward()
        return loss.detach()

    def step(self, tokens: Any, following: Any) -> Any:
        """Learn from one batch; gives the loss before."""
        loss = self.backward(tokens, following)
        self.optimizer.step()
        return loss
