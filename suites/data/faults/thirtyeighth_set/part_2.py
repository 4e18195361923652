"""Images, decoding, retrieval, options, k-mers, decay, tiles, echoes, timecode, quaternions, experiments, automata."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from cuassay.testing import ErrorInput, OpSpec, Sample


class Pair(NamedTuple):
    name: str
    kind: str
    origin: str
    shows: str
    checks: tuple[str, ...]
    make: Callable[[], tuple[Any, Any, Any]]


PAIRS: list[Pair] = []


def pair(name, kind, origin, shows, *checks):
    def register(make):
        PAIRS.append(Pair(name, kind, origin, shows, checks, make))
        return make

    return register


@pair(
    "ideal_low_pass",
    "fftshift where its inverse is needed",
    "frequency masks that are undone with fftshift instead of ifftshift, which is the same for even sizes only",
    "an image with an odd number of rows or columns, such as 7 x 12",
)
def ideal_low_pass():
    """Images without the frequencies whose radius, in cycles per image, exceeds the cutoff."""

    def filtered(xp, image, cutoff, undo):
        if cutoff < 0:
            raise ValueError(f"cutoff is {cutoff}; give 0 or more")
        if image.size == 0:
            return image.copy()
        rows, columns = image.shape[-2:]
        centred = xp.fft.fftshift(xp.fft.fft2(image.astype("float64")), axes=(-2, -1))
        y = xp.arange(rows) - rows // 2
        x = xp.arange(columns) - columns // 2
        kept = y[:, None] * y[:, None] + x[None, :] * x[None, :] <= cutoff * cutoff
        spectrum = undo(xp.where(kept, centred, 0.0), axes=(-2, -1))
        return xp.fft.ifft2(spectrum).real.astype(image.dtype)

    def wrong(xp, image, cutoff=3):
        return filtered(xp, image, cutoff, xp.fft.fftshift)

    def right(xp, image, cutoff=3):
        return filtered(xp, image, cutoff, xp.fft.ifftshift)

    def reference(image, cutoff=3):
        if cutoff < 0:
            raise ValueError("cutoff")
        if image.size == 0:
            return image
        rows, columns = image.shape[-2:]
        y = [k if k < (rows + 1) // 2 else k - rows for k in range(rows)]
        x = [k if k < (columns + 1) // 2 else k - columns for k in range(columns)]
        spectrum = np.fft.fft2(image)
        for i in range(rows):
            for j in range(columns):
                if y[i] ** 2 + x[j] ** 2 > cutoff**2:
                    spectrum[..., i, j] = 0
        return np.fft.ifft2(spectrum).real

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="ideal_low_pass",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                make((8, 12), low=0, high=1),
                Sample((make((2, 16, 10), low=0, high=1),), {"cutoff": 4}),
            ],
            reference=reference,
            error_inputs=lambda make: [
                ErrorInput(Sample((make((4, 4), low=0, high=1),), {"cutoff": -1}), ValueError, "cutoff")
            ],
        )

    return wrong, right, declare


@pair(
    "block_repeated_ngrams",
    "the latest n-gram is not searched",
    "no-repeat n-gram processors of text generators: a range that ends one window early",
    "tokens that end in [5, 5] with size 2: the token 5 stays allowed, though 5 5 5 repeats 5 5",
)
def block_repeated_ngrams():
    """Logits with -inf at each token that would complete an n-gram that the row of tokens already contains."""

    def check(logits, tokens, size):
        if size < 1:
            raise ValueError(f"size is {size}; give 1 or more")
        if logits.shape[0] != tokens.shape[0]:
            raise ValueError(f"{logits.shape[0]} rows of logits, but {tokens.shape[0]} of tokens")

    def blocked(xp, logits, tokens, size, windows):
        if windows <= 0:
            return logits.copy()
        length = tokens.shape[1]
        last = tokens[:, size - 1 : size - 1 + windows]
        repeats = xp.ones(last.shape, dtype="bool")
        for j in range(size - 1):
            at = length - size + 1 + j
            repeats = repeats & (tokens[:, j : j + windows] == tokens[:, at : at + 1])
        hits = (last[:, :, None] == xp.arange(logits.shape[1])) & repeats[:, :, None]
        return xp.where(hits.any(axis=1), -math.inf, logits).astype(logits.dtype)

    def wrong(xp, logits, tokens, size=2):
        check(logits, tokens, size)
        return blocked(xp, logits, tokens, size, tokens.shape[1] - size)

    def right(xp, logits, tokens, size=2):
        check(logits, tokens, size)
        return blocked(xp, logits, tokens, size, tokens.shape[1] - size + 1)

    def reference(logits, tokens, size=2):
        check(logits, tokens, size)
        out = np.array(logits)
        for row, said in enumerate(np.asarray(tokens).tolist()):
            seen = {tuple(said[i : i + size]) for i in range(len(said) - size + 1)}
            if len(said) < size:
                continue
            prefix = tuple(said[len(said) - size + 1 :])
            for token in range(out.shape[1]):
                if (*prefix, token) in seen:
                    out[row, token] = -math.inf
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="block_repeated_ngrams",
            dtypes=("float16", "float32"),
            samples=lambda make: [
                (make((3, 10)), make((3, 24), dtype="int64", low=0, high=9)),
                Sample((make((2, 5)), make((2, 40), dtype="int64", low=0, high=4)), {"size": 3}),
            ],
            reference=reference,
            error_inputs=lambda make: [
                ErrorInput(
                    Sample((make((2, 5)), make((2, 6), dtype="int64", low=0, high=4)), {"size": 0}),
                    ValueError,
                    "size is 0",
                ),
                ErrorInput((make((2, 5)), make((3, 6), dtype="int64", low=0, high=4)), ValueError, "rows of logits"),
            ],
        )

    return wrong, right, declare


@pair(
    "marginal_relevance",
    "a running maximum starts at zero",
    "maximal marginal relevance and other best-so-far loops over tiles whose accumulator is made by zeros()",
    "candidates whose inner products with all chosen vectors are negative: they get no bonus for it",
)
def marginal_relevance():
    """balance * score - (1 - balance) * the largest inner product with a vector chosen before, 0 if there is none."""

    def check(scores, candidates, chosen):
        if candidates.shape[0] != scores.shape[0] or candidates.shape[1] != chosen.shape[1]:
            raise ValueError(f"shapes {scores.shape}, {candidates.shape} and {chosen.shape} do not fit")

    def finish(scores, penalty, balance):
        return (balance * scores.astype("float64") - (1 - balance) * penalty).astype(scores.dtype)

    def largest(xp, candidates, chosen, start):
        candidates, chosen = candidates.astype("float64"), chosen.astype("float64")
        penalty = xp.full(candidates.shape[0], start, dtype="float64")
        for first in range(0, chosen.shape[0], 32):
            penalty = xp.maximum(penalty, (candidates @ chosen[first : first + 32].T).max(axis=1))
        return penalty

    def wrong(xp, scores, candidates, chosen, balance=0.7):
        check(scores, candidates, chosen)
        return finish(scores, largest(xp, candidates, chosen, 0.0), balance)

    def right(xp, scores, candidates, chosen, balance=0.7):
        check(scores, candidates, chosen)
        start = -math.inf if chosen.shape[0] else 0.0
        return finish(scores, largest(xp, candidates, chosen, start), balance)

    def reference(scores, candidates, chosen, balance=0.7):
        check(scores, candidates, chosen)
        out = np.empty(len(scores))
        for i, score in enumerate(scores):
            penalty = max(((candidates[i] * other).sum() for other in chosen), default=0.0)
            out[i] = balance * score - (1 - balance) * penalty
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="marginal_relevance",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                (make(20, low=0, high=1), make((20, 16), low=-1, high=1), make((9, 16), low=-1, high=1)),
                Sample(
                    (make(6, low=0, high=1), make((6, 4), low=-1, high=1), make((40, 4), low=-1, high=1)),
                    {"balance": 0.5},
                ),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "american_put",
    "no exercise at time zero",
    "lattice pricers whose backward pass compares with the exercise value at every level but the root",
    "spot 55 and strike 105: worth 50 at once, the lattice says less",
)
def american_put():
    """American puts by a binomial lattice of Cox, Ross and Rubinstein."""

    def check(years, volatility):
        if years <= 0 or volatility <= 0:
            raise ValueError(f"years is {years} and volatility {volatility}; give more than 0")

    def lattice(rate, volatility, years, steps):
        dt = years / steps
        up = math.exp(volatility * math.sqrt(dt))
        share = (math.exp(rate * dt) - 1 / up) / (up - 1 / up)
        return up, share, math.exp(-rate * dt)

    def price(xp, spot, strike, rate, volatility, years, steps, lowest):
        check(years, volatility)
        up, share, discount = lattice(rate, volatility, years, steps)
        s, k = spot.astype("float64")[..., None], strike.astype("float64")[..., None]

        def exercise(level):
            powers = [up ** (2 * j - level) for j in range(level + 1)]
            return xp.maximum(k - s * xp.asarray(powers, dtype="float64"), 0.0)

        values = exercise(steps)
        for level in range(steps - 1, -1, -1):
            values = discount * (share * values[..., 1:] + (1 - share) * values[..., :-1])
            if level >= lowest:
                values = xp.maximum(values, exercise(level))
        return values[..., 0].astype(np.result_type(spot.dtype, strike.dtype))

    def wrong(xp, spot, strike, rate=0.05, volatility=0.3, years=1.0, steps=24):
        return price(xp, spot, strike, rate, volatility, years, steps, 1)

    def right(xp, spot, strike, rate=0.05, volatility=0.3, years=1.0, steps=24):
        return price(xp, spot, strike, rate, volatility, years, steps, 0)

    def reference(spot, strike, rate=0.05, volatility=0.3, years=1.0, steps=24):
        check(years, volatility)
        up, share, discount = lattice(rate, volatility, years, steps)
        spot, strike = np.broadcast_arrays(spot, strike)
        out = np.empty(spot.shape)
        for i in np.ndindex(out.shape):
            s, k = float(spot[i]), float(strike[i])
            values = [max(k - s * up ** (2 * j - steps), 0.0) for j in range(steps + 1)]
            for level in range(steps - 1, -1, -1):
                held = [discount * (share * values[j + 1] + (1 - share) * values[j]) for j in range(level + 1)]
                values = [max(held[j], k - s * up ** (2 * j - level)) for j in range(level + 1)]
            out[i] = values[0]
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="american_put",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                (make(12, low=50, high=150), make(12, low=90, high=110)),
                Sample(
                    (make((2, 5), low=50, high=150), make((2, 5), low=90, high=110)),
                    {"rate": 0.02, "volatility": 0.2, "years": 0.5},
                ),
            ],
            reference=reference,
            error_inputs=lambda make: [
                ErrorInput(
                    Sample((make(3, low=50, high=150), make(3, low=90, high=110)), {"years": 0.0}),
                    ValueError,
                    "years is 0",
                )
            ],
        )

    return wrong, right, declare


@pair(
    "canonical_kmers",
    "k-mers that are their own reverse complement count twice",
    "k-mer counters that add the counts of both strands: an even k has palindromes, which both strands hold",
    "bases A C G T with k 4: ACGT occurs once and is counted twice",
)
def canonical_kmers():
    """How often each k-mer occurs; one and its reverse complement count as the smaller of the two."""

    def check(bases, k):
        if k < 1:
            raise ValueError(f"k is {k}; give 1 or more")
        if bases.size and (int(bases.min()) < 0 or int(bases.max()) > 3):
            raise ValueError("a base is not one of 0 to 3")

    def codes(xp, bases, k):
        bases = bases.astype("int64")
        windows = bases.shape[0] - k + 1
        forward, backward = xp.zeros(windows, dtype="int64"), xp.zeros(windows, dtype="int64")
        for j in range(k):
            part = bases[j : j + windows]
            forward = forward + part * 4 ** (k - 1 - j)
            backward = backward + (3 - part) * 4**j
        return forward, backward

    def wrong(xp, bases, k=3):
        check(bases, k)
        if bases.shape[0] < k:
            return xp.zeros(4**k, dtype="int64")
        forward, backward = codes(xp, bases, k)
        both = xp.bincount(forward, minlength=4**k) + xp.bincount(backward, minlength=4**k)
        number = xp.arange(4**k)
        mirrored = xp.zeros(4**k, dtype="int64")
        for j in range(k):
            mirrored = mirrored + (3 - number // 4**j % 4) * 4 ** (k - 1 - j)
        return xp.where(number <= mirrored, both, 0).astype("int64")

    def right(xp, bases, k=3):
        check(bases, k)
        if bases.shape[0] < k:
            return xp.zeros(4**k, dtype="int64")
        forward, backward = codes(xp, bases, k)
        return xp.bincount(xp.minimum(forward, backward), minlength=4**k).astype("int64")

    def reference(bases, k=3):
        check(bases, k)
        out = np.zeros(4**k, dtype="int64")
        bases = np.asarray(bases).tolist()
        for i in range(len(bases) - k + 1):
            kmer = bases[i : i + k]
            smaller = min(kmer, [3 - base for base in reversed(kmer)])
            out[sum(base * 4 ** (k - 1 - j) for j, base in enumerate(smaller))] += 1
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="canonical_kmers",
            dtypes=("uint8", "int32"),
            result_dtype="int64",
            samples=lambda make: [
                make(60, low=0, high=3),
                Sample((make(30, low=0, high=3),), {"k": 4}),
                Sample((make(100, low=0, high=3),), {"k": 5}),
            ],
            reference=reference,
            error_inputs=lambda make: [
                ErrorInput(make(9, low=4, high=9), ValueError, "a base is not"),
                ErrorInput(Sample((make(9, low=0, high=3),), {"k": 0}), ValueError, "k is 0"),
            ],
        )

    return wrong, right, declare


@pair(
    "daughter_amount",
    "division by a difference of rates that may be zero",
    "Bateman's equation in decay chains, and one-compartment drug models where absorption equals elimination",
    "both rates 0.5: nan instead of parent * rate * time * exp(-rate * time)",
)
def daughter_amount():
    """What there is of a daughter nuclide, none at first, by the rates of decay of its parent and of itself."""

    def wide(*arrays):
        return [array.astype("float64") for array in arrays]

    def wrong(xp, parent, rate, daughter_rate, time):
        amount, a, b, t = wide(parent, rate, daughter_rate, time)
        return (amount * a / (b - a) * (xp.exp(-a * t) - xp.exp(-b * t))).astype(parent.dtype)

    def right(xp, parent, rate, daughter_rate, time):
        amount, a, b, t = wide(parent, rate, daughter_rate, time)
        x = (b - a) * t
        nonzero = xp.where(x == 0, 1.0, x)
        share = xp.where(x == 0, 1.0, -xp.expm1(-nonzero) / nonzero)
        return (amount * a * t * xp.exp(-a * t) * share).astype(parent.dtype)

    def reference(parent, rate, daughter_rate, time):
        x = (daughter_rate - rate) * time
        share = np.ones(x.shape)
        np.divide(-np.expm1(-x), x, out=share, where=x != 0)
        return parent * rate * time * np.exp(-rate * time) * share

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="daughter_amount",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                (
                    make(30, low=0, high=100),
                    make(30, low=0.1, high=2),
                    make(30, low=0.1, high=2),
                    make(30, low=0, high=5),
                ),
                (
                    make((3, 7), low=0, high=100),
                    make((3, 7), low=0.1, high=2),
                    make((3, 7), low=0.1, high=2),
                    make((3, 7), low=0, high=5),
                ),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "tile_number",
    "the eastern edge of the map falls into a column that does not exist",
    "slippy-map tilers: longitude 180 gives column 2**zoom unless it is clamped as the rows are",
    "longitude 180 at zoom 3: column 8 of 0 to 7, which is the first tile of the next row",
)
def tile_number():
    """row * 2**zoom + column of the Web Mercator tile of each place; the edges belong to the outermost tiles."""

    def check(zoom):
        if not 0 <= zoom <= 24:
            raise ValueError(f"zoom is {zoom}; give 0 to 24")

    def place(xp, longitude, latitude, count):
        phi = latitude.astype("float64") * (math.pi / 180)
        column = xp.floor((longitude.astype("float64") + 180) / 360 * count)
        row = xp.floor((1 - xp.arcsinh(xp.tan(phi)) / math.pi) / 2 * count)
        return column, xp.clip(row, 0, count - 1)

    def wrong(xp, longitude, latitude, zoom=3):
        check(zoom)
        column, row = place(xp, longitude, latitude, 2**zoom)
        return (row * 2**zoom + column).astype("int64")

    def right(xp, longitude, latitude, zoom=3):
        check(zoom)
        column, row = place(xp, longitude, latitude, 2**zoom)
        return (row * 2**zoom + xp.clip(column, 0, 2**zoom - 1)).astype("int64")

    def reference(longitude, latitude, zoom=3):
        check(zoom)
        count = 2**zoom
        column = np.floor((longitude + 180) / 360 * count)
        row = np.floor((1 - np.arcsinh(np.tan(latitude * (math.pi / 180))) / math.pi) / 2 * count)
        column, row = np.minimum(column, count - 1), np.minimum(np.maximum(row, 0), count - 1)
        return (row * count + column).astype("int64")

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="tile_number",
            dtypes=("float32", "float64"),
            result_dtype="int64",
            samples=lambda make: [
                (make(40, low=-180, high=180), make(40, low=-85, high=85)),
                Sample((make((3, 8), low=-180, high=180), make((3, 8), low=-85, high=85)), {"zoom": 10}),
            ],
            reference=reference,
            error_inputs=lambda make: [
                ErrorInput(
                    Sample((make(4, low=-180, high=180), make(4, low=-85, high=85)), {"zoom": -1}),
                    ValueError,
                    "zoom is -1",
                )
            ],
        )

    return wrong, right, declare


@pair(
    "feedback_echo",
    "a recursion written as one addition to a shifted view",
    "comb filters as out[d:] += g * out[:-d]: an array library evaluates the right side first, so one echo sounds",
    "a signal of more than twice the delay: the echo of the echo is missing",
)
def feedback_echo():
    """out[n] = a[n] + feedback * out[n - delay] along the last axis."""

    def check(delay, feedback):
        if delay < 1:
            raise ValueError(f"delay is {delay}; give 1 or more")
        if not -1 < feedback < 1:
            raise ValueError(f"feedback is {feedback}; give a number between -1 and 1")

    def wrong(xp, a, delay=30, feedback=0.5):
        check(delay, feedback)
        out = a.astype("float64")
        if delay < a.shape[-1]:
            out[..., delay:] += feedback * out[..., :-delay]
        return out.astype(a.dtype)

    def right(xp, a, delay=30, feedback=0.5):
        check(delay, feedback)
        out = a.astype("float64")
        length = a.shape[-1]
        for start in range(delay, length, delay):
            stop = min(start + delay, length)
            out[..., start:stop] += feedback * out[..., start - delay : stop - delay]
        return out.astype(a.dtype)

    def reference(a, delay=30, feedback=0.5):
        check(delay, feedback)
        out = np.array(a)
        for n in range(delay, a.shape[-1]):
            out[..., n] = a[..., n] + feedback * out[..., n - delay]
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="feedback_echo",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                make((2, 48), low=-1, high=1),
                Sample((make(100, low=-1, high=1),), {"delay": 64, "feedback": -0.4}),
            ],
            reference=reference,
            error_inputs=lambda make: [
                ErrorInput(Sample((make(8, low=-1, high=1),), {"delay": 0}), ValueError, "delay is 0"),
                ErrorInput(Sample((make(8, low=-1, high=1),), {"feedback": 1.5}), ValueError, "feedback is 1.5"),
            ],
        )

    return wrong, right, declare


@pair(
    "drop_frame_count",
    "an integer division that was written for truncation rounds down",
    "drop-frame timecode ported from C, where (0 - 2) / 1798 is 0; with // it is -1",
    "frame 0, and any multiple of 17982 with the frame after it: two too low",
)
def drop_frame_count():
    """The number that drop-frame timecode shows for each frame of 29.97 Hz video, as a count of frames of 30 Hz."""

    def check(frames):
        if frames.size and int(frames.min()) < 0:
            raise ValueError("a frame is negative")

    def wrong(xp, frames):
        check(frames)
        tens, rest = frames // 17982, frames % 17982
        return (frames + 18 * tens + 2 * ((rest - 2) // 1798)).astype(frames.dtype)

    def right(xp, frames):
        check(frames)
        tens, rest = frames // 17982, frames % 17982
        return (frames + 18 * tens + 2 * (xp.maximum(rest - 2, 0) // 1798)).astype(frames.dtype)

    def reference(frames):
        check(frames)
        out = np.empty(frames.shape, dtype="int64")
        for i in np.ndindex(frames.shape):
            tens, rest = divmod(int(frames[i]), 17982)
            if rest < 1800:
                minute, frame = 0, rest
            else:
                minute, frame = 1 + (rest - 1800) // 1798, 2 + (rest - 1800) % 1798
            out[i] = (10 * tens + minute) * 1800 + frame
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="drop_frame_count",
            dtypes=("int32", "int64"),
            samples=lambda make: [
                make(50, low=0, high=200_000),
                make((4, 9), low=0, high=3600),
            ],
            reference=reference,
            error_inputs=lambda make: [ErrorInput(make(5, low=-9, high=-1), ValueError, "negative")],
        )

    return wrong, right, declare


@pair(
    "continuous_quaternions",
    "each sign is chosen against the neighbour as it was given, not as it was turned",
    "orientation tracks made continuous by one vectorised comparison of neighbours: a flip must carry on to the end",
    "quaternions q, -q, -q: the third keeps its sign and jumps",
)
def continuous_quaternions():
    """A track of quaternions, turned so that the signs change where the inner product of two neighbours is negative."""

    def check(track):
        if track.ndim < 2 or track.shape[-1] != 4:
            raise ValueError(f"the shape is {track.shape}; the last axis needs 4")

    def flips(xp, track):
        q = track.astype("float64")
        now, before = q[..., 1:, :], q[..., :-1, :]
        dot = now[..., 0] * before[..., 0]
        for part in range(1, 4):
            dot = dot + now[..., part] * before[..., part]
        return (dot < 0).astype("int64")

    def turned(xp, track, odd):
        signs = (1 - 2 * odd).astype(track.dtype)
        return xp.concatenate([track[..., :1, :], track[..., 1:, :] * signs[..., None]], axis=-2)

    def wrong(xp, track):
        check(track)
        return turned(xp, track, flips(xp, track))

    def right(xp, track):
        check(track)
        return turned(xp, track, xp.cumsum(flips(xp, track), axis=-1) % 2)

    def reference(track):
        check(track)
        out = np.array(track)
        for i in np.ndindex(track.shape[:-2]):
            sign = 1
            for n in range(1, track.shape[-2]):
                now, before = track[i][n], track[i][n - 1]
                if now[0] * before[0] + now[1] * before[1] + now[2] * before[2] + now[3] * before[3] < 0:
                    sign = -sign
                out[i][n] = sign * now
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="continuous_quaternions",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                make((9, 4), low=-1, high=1),
                make((2, 3, 4), low=-1, high=1),
            ],
            reference=reference,
            error_inputs=lambda make: [ErrorInput(make((5, 3), low=-1, high=1), ValueError, "the last axis needs 4")],
        )

    return wrong, right, declare


@pair(
    "cuped_adjusted",
    "a covariate that does not vary divides zero by zero",
    "variance reduction with data from before an experiment, which is 0 for each new user: all results become nan",
    "a covariate of equal numbers, or a single user",
)
def cuped_adjusted():
    """The metric without the part that a covariate explains, per row; a covariate that is constant explains none."""

    def check(metric, covariate):
        if metric.shape != covariate.shape:
            raise ValueError(f"the metric has shape {metric.shape}, but the covariate {covariate.shape}")

    def moments(metric, covariate):
        y, x = metric.astype("float64"), covariate.astype("float64")
        dx = x - x.mean(axis=-1, keepdims=True)
        dy = y - y.mean(axis=-1, keepdims=True)
        return y, dx, (dx * dy).sum(axis=-1, keepdims=True), (dx * dx).sum(axis=-1, keepdims=True)

    def wrong(xp, metric, covariate):
        check(metric, covariate)
        if metric.size == 0:
            return metric.copy()
        y, dx, together, spread = moments(metric, covariate)
        return (y - together / spread * dx).astype(metric.dtype)

    def right(xp, metric, covariate):
        check(metric, covariate)
        if metric.size == 0:
            return metric.copy()
        y, dx, together, spread = moments(metric, covariate)
        theta = xp.where(spread > 0, together / xp.where(spread > 0, spread, 1.0), 0.0)
        return (y - theta * dx).astype(metric.dtype)

    def reference(metric, covariate):
        check(metric, covariate)
        out = np.array(metric)
        for i in np.ndindex(metric.shape[:-1]):
            if metric.shape[-1] == 0 or (covariate[i] == covariate[i][0]).all():
                continue
            dx = covariate[i] - covariate[i].mean()
            dy = metric[i] - metric[i].mean()
            out[i] = metric[i] - (dx * dy).sum() / (dx * dx).sum() * dx
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="cuped_adjusted",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                (make(40, low=0, high=50), make(40, low=0, high=50)),
                (make((3, 15), low=0, high=50), make((3, 15), low=0, high=50)),
            ],
            reference=reference,
            error_inputs=lambda make: [
                ErrorInput((make(5, low=0, high=50), make(4, low=0, high=50)), ValueError, "the covariate")
            ],
        )

    return wrong, right, declare


@pair(
    "energy_life_step",
    "a bitwise and of a number with a truth value",
    "cellular automata whose mask is an integer array: 2 & True is 0, so even numbers read as dead",
    "a cell of energy 2 with two living neighbours: it dies instead of growing to 3",
)
def energy_life_step():
    """One step of Life on a torus. Cells of positive energy live; survivors gain 1, the newborn have 1, the dead 0."""

    def neighbours(xp, lives):
        count = xp.zeros(lives.shape, dtype="int32")
        for down in (-1, 0, 1):
            for across in (-1, 0, 1):
                if down or across:
                    count = count + xp.roll(lives, (down, across), axis=(-2, -1))
        return count

    def grown(xp, energy, lives, stays):
        return xp.where(stays, xp.where(lives, energy + 1, 1), 0).astype(energy.dtype)

    def wrong(xp, energy):
        living = xp.maximum(energy, 0)
        count = neighbours(xp, (living > 0).astype("int32"))
        stays = (count == 3) | ((living & (count == 2)) != 0)
        return grown(xp, energy, living > 0, stays)

    def right(xp, energy):
        lives = energy > 0
        count = neighbours(xp, lives.astype("int32"))
        stays = (count == 3) | (lives & (count == 2))
        return grown(xp, energy, lives, stays)

    def reference(energy):
        rows, columns = energy.shape[-2:]
        out = np.zeros(energy.shape, dtype="int64")
        around = [(down, across) for down in (-1, 0, 1) for across in (-1, 0, 1) if down or across]
        for i in np.ndindex(energy.shape):
            *grid, y, x = i
            count = sum(energy[(*grid, (y + down) % rows, (x + across) % columns)] > 0 for down, across in around)
            if energy[i] > 0 and count in (2, 3):
                out[i] = int(energy[i]) + 1
            elif energy[i] <= 0 and count == 3:
                out[i] = 1
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="energy_life_step",
            dtypes=("int8", "int32"),
            samples=lambda make: [
                make((9, 12), low=-4, high=4),
                make((2, 6, 7), low=-4, high=4),
            ],
            reference=reference,
        )

    return wrong, right, declare
