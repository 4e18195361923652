"""Train a small network on handwritten digits with autocast, GradScaler and fused Adam, eagerly and as a CUDA graph.

    python suites/examples/train_mlp.py --device sim --captured

The loss is written over `cuassay.ops` and differentiated by `cuassay.autograd`; the data are scikit-learn's digits, of
that package (E. Alpaydin, C. Kaynak, "Optical recognition of handwritten digits", UCI repository, 1998). The
activation is the squared ReLU (D. So et al., "Primer", arXiv 2109.08668).
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from cuassay import devices, ops
from cuassay.amp import GradScaler, autocast
from cuassay.autograd import grad, stop_gradient
from cuassay.optim import Adam

Array = Any

PIXELS, HIDDEN, DIGITS, BATCH = 64, 256, 10, 128
TEST = 360


@dataclass(frozen=True)
class Data:
    """Pixels in [0, 1], (N, 64) float32, and one-hot digits, (N, 10) float32: for training, and held out."""

    x: np.ndarray
    y: np.ndarray
    test_x: np.ndarray
    test_y: np.ndarray


def load(seed: int = 0) -> Data:
    """Shuffled by `seed`; the first 360 are held out."""
    try:
        from sklearn.datasets import load_digits
    except ModuleNotFoundError:
        raise SystemExit("the digits are scikit-learn's, which is not installed; pip install scikit-learn") from None

    digits = load_digits()
    order = np.random.default_rng(seed).permutation(len(digits.target))
    x = (digits.data[order] / 16).astype(np.float32)
    y = np.eye(DIGITS, dtype=np.float32)[digits.target[order]]
    return Data(x[TEST:], y[TEST:], x[:TEST], y[:TEST])


def forward(params: list[Array], x: Array) -> Array:
    """(N, 10) logits of (N, 64) pixels."""
    w1, b1, w2, b2 = params
    rectified = ops.relu(ops.linear(x, w1, b1))
    return ops.linear(rectified * rectified, w2, b2)


def cross_entropy(logits: Array, y: Array) -> Array:
    """Mean over the rows of ``log(sum(exp(logits))) - logits[digit]``, () float32; `y` is one-hot."""
    logits = ops.cast(logits, dtype="float32")
    centred = ops.sub(logits, ops.amax(stop_gradient(logits), axis=1, keepdims=True))
    total = ops.sum(ops.exp(centred), axis=1)
    return ops.mul(ops.sub(ops.sum(ops.log(total)), ops.sum(ops.mul(centred, y))), 1 / len(y))


@dataclass
class Trainer:
    """A network of one hidden layer, its optimizer and scaler, and the buffers that every step reads.

    Parameters
    ----------
    device : str
        Where it trains.
    dtype : str
        What products are computed in.
    captured : bool
        Record the step once and replay it.
    """

    device: str
    dtype: str = "float16"
    captured: bool = False
    seed: int = 0
    lr: float = 4e-3
    params: list[Array] = field(init=False)

    def __post_init__(self) -> None:
        kind, _, index = str(devices.find(self.device)).partition(":")
        self._kind, self._backend, self._index = kind, devices.backend(kind), int(index or 0)
        draw = np.random.default_rng(self.seed)
        shapes = (HIDDEN, PIXELS), (HIDDEN,), (DIGITS, HIDDEN), (DIGITS,)
        hosts = [draw.normal(0, shape[-1] ** -0.5, shape) * (len(shape) > 1) for shape in shapes]
        self.params = [self._to(host) for host in hosts]
        self.x, self.y = self._to(np.zeros((BATCH, PIXELS))), self._to(np.zeros((BATCH, DIGITS)))
        self.optimizer = Adam(self.params, lr=self.lr)
        self.scaler = GradScaler(kind, init_scale=2.0**12, growth_interval=100)
        self._stream = self._backend.new_stream(self._index)
        self._capture: Any = None
        self._steps = 0
        self._backend.synchronize(self._index)

    def _to(self, host: np.ndarray) -> Array:
        return devices.from_host(np.ascontiguousarray(host, np.float32), self.device)

    # -------------------------------------------------------------------------------------------- one step

    def _loss(self, params: list[Array], x: Array, y: Array) -> Array:
        """The mean cross-entropy of a batch, scaled."""
        with autocast(self._kind, self.dtype):
            return self.scaler.scale(cross_entropy(forward(params, x), y))

    def _step(self) -> None:
        """Forward, backward, and the parameters moved; everything stays on the device."""
        self.scaler.step(self.optimizer, grad(self._loss)(self.params, self.x, self.y))
        self.scaler.update()

    def step(self, x: Array, y: Array) -> None:
        """Learn from one batch, already on the device: eagerly, or by replaying the step recorded at the third call."""
        with self._backend.use_stream(self._stream):
            ops.copy(x, out=self.x)
            ops.copy(y, out=self.y)
            if self._capture is not None:
                self._capture.replay()
            elif self.captured and self._steps == 2:  # libraries and plans are made by then
                self._capture = self._recorded()
                self._capture.replay()
            else:
                self._step()
        self._steps += 1

    def _recorded(self) -> Any:
        self._backend.synchronize(self._index)
        capture = self._backend.new_capture(self._index)
        capture.begin()
        try:
            self._step()
        finally:
            capture.end()
        return capture

    # -------------------------------------------------------------------------------------------- a run

    def batches(self, data: Data, epoch: int) -> Iterator[tuple[Array, Array]]:
        """Whole batches in an order of the epoch's own."""
        order = np.random.default_rng((self.seed, epoch)).permutation(len(data.x))
        for first in range(0, len(order) - BATCH + 1, BATCH):
            chosen = order[first : first + BATCH]
            yield self._to(data.x[chosen]), self._to(data.y[chosen])

    def train(self, data: Data, epochs: int) -> list[float]:
        """The mean cross-entropy over all training data after each epoch, computed in float64."""
        losses = []
        for epoch in range(epochs):
            batches = list(self.batches(data, epoch))
            self._backend.synchronize(self._index)
            for x, y in batches:
                self.step(x, y)
            self._backend.synchronize(self._index)
            losses.append(self.loss(data.x, data.y))
        return losses

    def logits(self, x: np.ndarray) -> np.ndarray:
        """(N, 10) float64, in full precision."""
        return np.asarray(devices.to_host(forward(self.params, self._to(x))), np.float64)

    def loss(self, x: np.ndarray, y: np.ndarray) -> float:
        """Mean cross-entropy."""
        logits = self.logits(x)
        top = logits.max(axis=1, keepdims=True)
        return float(np.mean(np.log(np.exp(logits - top).sum(axis=1)) + top[:, 0] - (logits * y).sum(axis=1)))

    def accuracy(self, data: Data) -> float:
        """Share of the held-out digits that are named rightly."""
        return float(np.mean(self.logits(data.test_x).argmax(axis=1) == data.test_y.argmax(axis=1)))

    def overflow(self) -> tuple[float, float]:
        """One step on a batch that overflows float16; the scale before and after."""
        before = self.scaler.get_scale()
        bad = np.full((BATCH, PIXELS), 1e30, np.float32)
        batch = self._to(bad), self._to(np.eye(DIGITS, dtype=np.float32)[np.zeros(BATCH, int)])
        self._backend.synchronize(self._index)
        with np.errstate(over="ignore", invalid="ignore"):  # on the host, NumPy warns of what is meant to happen
            self.step(*batch)
        self._backend.synchronize(self._index)
        return before, self.scaler.get_scale()

    def close(self) -> None:
        """Forget the recorded step."""
        if self._capture is not None:
            self._capture.reset()
            self._capture = None


def main() -> None:
    """Train, and say how it went."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="float16", choices=("float16", "bfloat16"))
    parser.add_argument("--captured", action="store_true", help="record the step once and replay it")
    parser.add_argument("--epochs", type=int, default=20)
    options = parser.parse_args()
    data, trainer = load(), Trainer(options.device, options.dtype, options.captured)
    for epoch, loss in enumerate(trainer.train(data, options.epochs)):
        print(f"epoch {epoch}: loss {loss:.4f}")
    print(f"{trainer.accuracy(data):.1%} of the held-out digits right; scale {trainer.scaler.get_scale():g}")
    trainer.close()


if __name__ == "__main__":
    main()
