"""Train a small GPT-2 on characters with autograd and AdamW, eagerly or as a graph that is replayed.

    python suites/examples/train_gpt2.py --device sim --steps 20 --captured

The model is that of A. Radford et al., "Language models are unsupervised multitask learners", 2019: learned positions,
layers of attention and a perceptron with layer norms before them, GELU by tanh, one matrix for embedding and logits.
The text is what scikit-learn says about its own data sets, files of that package.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from cuassay import devices, ops, random
from cuassay.autograd import Function, checkpoint, stop_gradient, value_and_grad
from cuassay.ops import registry
from cuassay.optim import AdamW

Array = Any
Params = dict[str, Array]

DESCRIBED = ("iris", "digits", "wine", "breast_cancer", "diabetes", "linnerud")


@dataclass(frozen=True)
class Config:
    """Sizes of a model, and how it is trained.

    Parameters
    ----------
    vocabulary, context, width, heads, layers : int
        Characters, positions, channels, attention heads and blocks.
    batch : int
        Stretches of text in a step.
    dropout : float
        Probability of a zero after the embedding, the attention and the perceptron.
    checkpointed : bool
        Keep the inputs of blocks alone, and compute the rest again in the backward pass.
    """

    vocabulary: int = 85
    context: int = 64
    width: int = 64
    heads: int = 4
    layers: int = 2
    batch: int = 16
    dropout: float = 0.0
    checkpointed: bool = False


def load() -> tuple[np.ndarray, str]:
    """The text as places in the alphabet, (15,000,) int32, and the alphabet."""
    try:
        from sklearn import datasets
    except ModuleNotFoundError:
        raise SystemExit("the text is scikit-learn's, which is not installed; pip install scikit-learn") from None

    text = "\n".join(getattr(datasets, f"load_{name}")().DESCR for name in DESCRIBED)
    alphabet = "".join(sorted(set(text)))
    return np.array([alphabet.index(character) for character in text], np.int32), alphabet


def initial(config: Config, seed: int = 0) -> dict[str, np.ndarray]:
    """Parameters by name, float64 on the host: normal of deviation 0.02, what ends a residual branch of less."""
    draw = np.random.default_rng(seed)
    width, found = config.width, {}
    for name, shape in (("wte", (config.vocabulary, width)), ("wpe", (config.context, width))):
        found[name] = draw.normal(0, 0.02, shape)
    inside = {
        "attention": (3 * width, width),
        "merge": (width, width),
        "up": (4 * width, width),
        "down": (width, 4 * width),
    }
    for layer in range(config.layers):
        for norm in ("norm_1", "norm_2"):
            found |= {f"{layer}.{norm}.weight": np.ones(width), f"{layer}.{norm}.bias": np.zeros(width)}
        for name, shape in inside.items():
            deviation = 0.02 / math.sqrt(2 * config.layers) if name in ("merge", "down") else 0.02
            found[f"{layer}.{name}.weight"] = draw.normal(0, deviation, shape)
            found[f"{layer}.{name}.bias"] = np.zeros(shape[0])
    return found | {"norm.weight": np.ones(width), "norm.bias": np.zeros(width)}


def batches(text: np.ndarray, config: Config, seed: int = 0) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Stretches of text at random, (batch * context,) int32 each, and the characters that follow."""
    draw = np.random.default_rng(seed)
    while True:
        starts = draw.integers(0, len(text) - config.context, config.batch)
        places = (starts[:, None] + np.arange(config.context)).ravel()
        yield text[places], text[places + 1]


# ------------------------------------------------------------------------------------------------ the model


class Heads(Function):
    """Queries, keys and values (batch * heads, context, channels) of (batch, context, 3 * width), queries scaled.

    Each has memory of its own: the products keep them, and nothing keeps what they came from.
    """

    @staticmethod
    def forward(ctx: Any, joint: Array, heads: int) -> tuple[Array, ...]:
        batch, context, width = joint.shape
        ctx.parted = (batch, context, 3, heads, width // (3 * heads))
        ctx.shape, ctx.device = joint.shape, registry.device_of(joint, "the joint array")
        ctx.scale = ctx.parted[-1] ** -0.5
        query, key, value = joint.reshape(ctx.parted).transpose(2, 0, 3, 1, 4)
        apart = ops.mul(query, ctx.scale), ops.copy(key), ops.copy(value)
        return tuple(one.reshape(batch * heads, context, -1) for one in apart)

    @staticmethod
    def backward(ctx: Any, *grads: Array) -> tuple[Array, None]:
        batch, context, _, heads, _ = ctx.parted
        joint = devices.empty(ctx.parted, grads[0].dtype, ctx.device)
        for place, grad in enumerate(grads):
            apart = grad.reshape(batch, heads, context, -1).transpose(0, 2, 1, 3)
            if place == 0:
                ops.mul(apart, ctx.scale, out=joint[:, :, place])
            else:
                ops.copy(apart, out=joint[:, :, place])
        return joint.reshape(ctx.shape), None


@dataclass(frozen=True)
class Model:
    """A GPT-2, and what its calls read besides parameters and characters.

    Parameters
    ----------
    config : Config
        Its sizes.
    device, dtype : str
        Where it is, and what it computes in.
    """

    config: Config
    device: str = "cpu"
    dtype: str = "float32"
    alphabet: Array = field(init=False)
    one: Array = field(init=False)
    seen: Array = field(init=False)

    def __post_init__(self) -> None:
        context = self.config.context
        host = {
            "alphabet": np.arange(self.config.vocabulary, dtype=np.int32)[None],
            "one": np.ones((1, 1), self.dtype),
            "seen": np.tri(context, dtype=bool)[None],  # each position sees those before it, and itself
        }
        for name, value in host.items():
            object.__setattr__(self, name, devices.from_host(value, self.device))

    def loss(self, params: Params, tokens: Array, following: Array) -> Array:
        """Mean cross-entropy of the characters that follow; `tokens` and `following` are (N, 1) int32."""
        logits = self.logits(params, tokens)
        centred = ops.sub(logits, ops.amax(stop_gradient(logits), axis=-1, keepdims=True))
        total = ops.sum(ops.log(ops.sum(ops.exp(centred), axis=-1)))
        return ops.mul(ops.sub(total, ops.sum(ops.mul(centred, self._one_hot(following)))), 1 / len(tokens))

    def logits(self, params: Params, tokens: Array) -> Array:
        """(N, vocabulary) of (N, 1) characters, N whole contexts."""
        config = self.config
        x = ops.matmul(self._one_hot(tokens), params["wte"]).reshape(-1, config.context, config.width)
        x = self._drop(ops.add(x, params["wpe"]))
        for layer in range(config.layers):
            own = {name.partition(".")[2]: one for name, one in params.items() if name.startswith(f"{layer}.")}
            x = checkpoint(self.block, own, x) if config.checkpointed else self.block(own, x)
        x = ops.layer_norm(x, params["norm.weight"], params["norm.bias"])
        return ops.matmul(x.reshape(-1, config.width), params["wte"].T)

    def block(self, params: Params, x: Array) -> Array:
        """One layer, (batch, context, width) to the same."""
        normed = ops.layer_norm(x, params["norm_1.weight"], params["norm_1.bias"])
        x = ops.add(x, self._drop(self._attention(params, normed)))
        normed = ops.layer_norm(x, params["norm_2.weight"], params["norm_2.bias"])
        up = ops.gelu(ops.linear(normed, params["up.weight"], params["up.bias"]), approximate="tanh")
        return ops.add(x, self._drop(ops.linear(up, params["down.weight"], params["down.bias"])))

    def _attention(self, params: Params, x: Array) -> Array:
        heads = self.config.heads
        batch, context, _ = x.shape
        query, key, value = Heads.apply(ops.linear(x, params["attention.weight"], params["attention.bias"]), heads)
        scores = ops.bmm(query, key.mT)
        mixed = ops.bmm(ops.softmax(ops.where(self.seen, scores, -math.inf)), value)
        merged = ops.copy(mixed.reshape(batch, heads, context, -1).transpose(0, 2, 1, 3)).reshape(x.shape)
        return ops.linear(merged, params["merge.weight"], params["merge.bias"])

    def _one_hot(self, tokens: Array) -> Array:
        return ops.where(ops.equal(tokens, self.alphabet), self.one, 0.0)

    def _drop(self, x: Array) -> Array:
        return random.dropout(x, self.config.dropout) if self.config.dropout else x


# ------------------------------------------------------------------------------------------------ training


@dataclass
class Trainer:
    """A model, its parameters and optimizer, and the buffers that every step reads.

    Parameters
    ----------
    config : Config
        Of the model.
    device, dtype : str
        Where it trains, and what it computes in: float32 or float64.
    captured : bool
        Record the step once and replay it.
    """

    config: Config
    device: str = "cpu"
    dtype: str = "float32"
    captured: bool = False
    lr: float = 3e-3
    params: Params = field(init=False)

    def __post_init__(self) -> None:
        self.device = str(devices.find(self.device))
        kind, _, index = self.device.partition(":")
        self._backend, self._index = devices.backend(kind), int(index or 0)
        self.model = Model(self.config, self.device, self.dtype)
        self.params = {name: self._to(host.astype(self.dtype)) for name, host in initial(self.config).items()}
        self.optimizer = AdamW(list(self.params.values()), lr=self.lr, betas=(0.9, 0.95))
        shape = (self.config.batch * self.config.context, 1)
        self.tokens, self.following = (self._to(np.zeros(shape, np.int32)) for _ in range(2))
        self._loss = self._to(np.zeros((), self.dtype))
        self.stream = self._backend.new_stream(self._index)
        self._capture: Any = None
        self._steps = 0
        self._backend.synchronize(self._index)

    def _to(self, host: np.ndarray) -> Array:
        return devices.from_host(host, self.device)

    def gradients(self, tokens: Array, following: Array) -> tuple[Array, Params]:
        """The loss and its gradients, of characters on the device."""
        found: tuple[Array, Params] = value_and_grad(self.model.loss)(self.params, tokens, following)
        return found

    def _step(self) -> None:
        """Forward, backward, and the parameters moved; everything stays on the device."""
        loss, grads = self.gradients(self.tokens, self.following)
        self.optimizer.step(list(grads.values()))
        ops.copy(loss, out=self._loss)

    def step(self, tokens: np.ndarray, following: np.ndarray) -> float:
        """Learn from one batch: eagerly, or by replaying the step recorded at the third call; gives the loss before."""
        given = [self._to(one[:, None]) for one in (tokens, following)]
        self._backend.synchronize(self._index)
        with self._backend.use_stream(self.stream):
            ops.copy(given[0], out=self.tokens)
            ops.copy(given[1], out=self.following)
            if self.captured and self._steps == 2:  # libraries and plans are made by then
                self._capture = self._recorded()
            self.repeat()
            self.stream.synchronize()
            loss = float(devices.to_host(self._loss))
        self._steps += 1
        return loss

    def repeat(self) -> None:
        """A step on the batch that is there, on the current stream: by replaying it, if it is recorded."""
        if self._capture is not None:
            self._capture.replay()
        else:
            self._step()

    def _recorded(self) -> Any:
        self._backend.synchronize(self._index)
        capture = self._backend.new_capture(self._index)
        capture.begin()
        try:
            self._step()
        finally:
            capture.end()
        return capture

    def train(self, text: np.ndarray, steps: int) -> list[float]:
        """The loss of each step."""
        source = batches(text, self.config)
        return [self.step(*next(source)) for _ in range(steps)]

    def close(self) -> None:
        """Forget the recorded step."""
        if self._capture is not None:
            self._capture.reset()
            self._capture = None


def main() -> None:
    """Train, and say how it went."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--captured", action="store_true", help="record the step once and replay it")
    parser.add_argument("--checkpointed", action="store_true", help="compute blocks again in the backward pass")
    parser.add_argument("--dropout", type=float, default=0.0)
    parser.add_argument("--steps", type=int, default=200)
    options = parser.parse_args()
    text, alphabet = load()
    config = Config(len(alphabet), dropout=options.dropout, checkpointed=options.checkpointed)
    trainer = Trainer(config, options.device, captured=options.captured)
    for step, loss in enumerate(trainer.train(text, options.steps)):
        if step % 10 == 0 or step == options.steps - 1:
            print(f"step {step}: loss {loss:.4f}")
    trainer.close()


if __name__ == "__main__":
    main()
