"""Signals, graphs, statistics, attention, norms, text, angles, grid codes, sampling: faults with their twins."""

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
    make: Callable[[], tuple[Any, Any, Any]]


PAIRS: list[Pair] = []


def pair(name, kind, origin, shows):
    def register(make):
        PAIRS.append(Pair(name, kind, origin, shows, make))
        return make

    return register


@pair(
    "overlap_add",
    "the tail of a frame is lost where the hop does not divide its length",
    "overlap-add by subframes of one hop each, with frame_length // hop of them instead of the ceiling",
    "frames of 8 with hop 3: the last 2 places of each frame are never added",
)
def overlap_add():
    """Frames (..., n, length) added up at distances of `hop`; n - 1 hops and one length long, empty without frames."""

    def add_up(xp, frames, hop, blocks):
        count, length = frames.shape[-2:]
        lead = frames.shape[:-2]
        if not count:
            return xp.zeros((*lead, 0), dtype=frames.dtype)
        total = xp.zeros((*lead, (count + length) * hop + length), dtype="float64")
        padded = xp.zeros((*lead, count, (length // hop + 1) * hop), dtype="float64")
        padded[..., :length] = frames
        for b in range(blocks):
            part = padded[..., b * hop : (b + 1) * hop]
            total[..., b * hop : (b + count) * hop] += part.reshape((*lead, count * hop))
        return total[..., : (count - 1) * hop + length].astype(frames.dtype)

    def check(frames, hop):
        if hop < 1:
            raise ValueError(f"hop is {hop}; give 1 or more")
        if frames.ndim < 2:
            raise ValueError("frames have two axes at least")

    def wrong(xp, frames, hop=4):
        check(frames, hop)
        return add_up(xp, frames, hop, frames.shape[-1] // hop)

    def right(xp, frames, hop=4):
        check(frames, hop)
        return add_up(xp, frames, hop, -(-frames.shape[-1] // hop))

    def reference(frames, hop=4):
        check(frames, hop)
        count, length = frames.shape[-2:]
        out = np.zeros((*frames.shape[:-2], (count - 1) * hop + length if count else 0))
        for i in range(count):
            out[..., i * hop : i * hop + length] += frames[..., i, :]
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="overlap_add",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                make((6, 8)),
                make((5, 16)),
                Sample((make((2, 7, 12)),), {"hop": 6}),
                Sample((make((4, 9)),), {"hop": 3}),
            ],
            error_inputs=lambda make: [ErrorInput(Sample((make((3, 4)),), {"hop": 0}), ValueError, "hop is 0")],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "autocovariance_at",
    "a negative lag of a complex signal is not conjugated",
    "autocorrelations that use r[-k] = r[k], which holds for real signals only; plausible, in many notebooks",
    "a complex signal and lag -2: the result is the conjugate of the right one",
)
def autocovariance_at():
    """Sum of x[n + lag] * conj(x[n]) over the last axis, mean removed, divided by its length; 0 without such places."""

    def covariance(xp, a, lag):
        count = a.shape[-1]
        wide = a.astype("complex128" if a.dtype.kind == "c" else "float64")
        if count == 0 or lag >= count:
            return xp.zeros(a.shape[:-1], dtype=wide.dtype)
        centred = wide - wide.sum(axis=-1, keepdims=True) / count
        return (centred[..., lag:] * xp.conj(centred[..., : count - lag])).sum(axis=-1) / count

    def wrong(xp, a, lag=1):
        return covariance(xp, a, abs(lag)).astype(a.dtype)

    def right(xp, a, lag=1):
        found = covariance(xp, a, abs(lag))
        return (xp.conj(found) if lag < 0 else found).astype(a.dtype)

    def reference(a, lag=1):
        count = a.shape[-1]
        if count == 0:
            return np.zeros(a.shape[:-1], dtype=a.dtype)
        centred = a - a.sum(axis=-1, keepdims=True) / count
        out = np.zeros(a.shape[:-1], dtype=a.dtype)
        for n in range(max(0, -lag), min(count, count - lag)):
            out = out + centred[..., n + lag] * centred[..., n].conj()
        return out / count

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="autocovariance_at",
            dtypes=("float32", "complex64"),
            samples=lambda make: [
                make(40),
                make((3, 25)),
                Sample((make((2, 3, 16)),), {"lag": 0}),
                Sample((make((4, 30)),), {"lag": -2}),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "gcn_propagate",
    "the edge weights are kept by the numbers of nodes and edges alone",
    "cached=True of PyTorch Geometric's GCNConv: the norm of the first graph is used for another one",
    "two graphs of 9 nodes and 30 edges, one after the other: the second gets the weights of the first",
)
def gcn_propagate():
    """One step of a graph convolution: neighbours, itself included, over the roots of both degrees."""

    def check(features, source, target):
        nodes = features.shape[0]
        if source.shape != target.shape or source.ndim != 1 or features.ndim != 2:
            raise ValueError("give features (nodes, width), and a source and a target for each edge")
        for ends in (source, target):
            if ends.size and (int(ends.min()) < 0 or int(ends.max()) >= nodes):
                raise ValueError(f"an edge leads outside of the {nodes} nodes")

    def weights(xp, nodes, source, target, into):
        degree = 1.0 + into.sum(axis=1).astype("float64")
        return 1.0 / xp.sqrt(degree[source] * degree[target]), 1.0 / degree

    def add_up(xp, features, source, into, by_edge, by_node):
        wide = features.astype("float64")
        sent = wide[source] * by_edge[:, None]
        arrived = xp.where(into[:, :, None], sent[None, :, :], 0.0).sum(axis=1)
        return (arrived + wide * by_node[:, None]).astype(features.dtype)

    kept = {}

    def wrong(xp, features, source, target):
        check(features, source, target)
        nodes = features.shape[0]
        into = xp.arange(nodes)[:, None] == target[None, :]
        key = (str(type(features)), nodes, source.shape[0])
        if key not in kept:
            kept[key] = weights(xp, nodes, source, target, into)
        return add_up(xp, features, source, into, *kept[key])

    def right(xp, features, source, target):
        check(features, source, target)
        into = xp.arange(features.shape[0])[:, None] == target[None, :]
        return add_up(xp, features, source, into, *weights(xp, features.shape[0], source, target, into))

    def reference(features, source, target):
        check(features, source, target)
        degree = 1.0 + np.bincount(target, minlength=len(features))
        out = features / degree[:, None]
        for s, t in zip(source, target, strict=True):
            out[t] += features[s] / np.sqrt(degree[s] * degree[t])
        return out

    def declare(fn):
        def graph(make, nodes, edges, width):
            ends = [make(edges, dtype="int64", low=0, high=nodes - 1) for _ in range(2)]
            return (make((nodes, width)), *ends)

        return OpSpec(
            fn=fn,
            name="gcn_propagate",
            dtypes=("float32", "float64"),
            samples=lambda make: [graph(make, 9, 30, 4), graph(make, 20, 45, 3), graph(make, 5, 1, 6)],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "robust_scale",
    "the median is taken off the input itself where the dtype is float64",
    "astype(copy=False) followed by -=, as in scalers with a copy option, such as scikit-learn's copy=False",
    "a float64 array is centred in the caller's memory; float32 is converted, so copied",
)
def robust_scale():
    """(a - median) / (1.4826 * median absolute deviation) along an axis; a deviation of zero divides by one."""

    def middle(xp, a):
        ordered, n = xp.sort(a, axis=-1), a.shape[-1]
        low, high = ordered[..., (n - 1) // 2 : (n - 1) // 2 + 1], ordered[..., n // 2 : n // 2 + 1]
        found = xp.where(low == high, low, 0.5 * low + 0.5 * high)
        return xp.where(xp.isnan(a).any(axis=-1, keepdims=True), math.nan, found)

    def scaled(xp, centred):
        spread = 1.4826 * middle(xp, xp.abs(centred))
        return centred / xp.where(spread == 0, 1.0, spread)

    def wrong(xp, a, axis=0):
        work = xp.moveaxis(a.astype("float64", copy=False), axis, -1)
        if work.size:
            work -= middle(xp, work)
            work = scaled(xp, work)
        return xp.moveaxis(work, -1, axis).astype(a.dtype)

    def right(xp, a, axis=0):
        work = xp.moveaxis(a.astype("float64"), axis, -1)
        if work.size:
            work = scaled(xp, work - middle(xp, work))
        return xp.moveaxis(work, -1, axis).astype(a.dtype)

    def reference(a, axis=0):
        def median(row):
            row = np.sort(row)
            low, high = row[(len(row) - 1) // 2], row[len(row) // 2]
            if np.isnan(row[-1]):
                return np.nan
            return low if low == high else 0.5 * low + 0.5 * high

        def scale(row):
            off = row - median(row)
            spread = 1.4826 * median(np.abs(off))
            return off / (1.0 if spread == 0 else spread)

        rows = np.moveaxis(a, axis, -1)
        out = np.zeros(rows.shape)
        for i in np.ndindex(rows.shape[:-1] if rows.size else (0,)):
            out[i] = scale(rows[i])
        return np.moveaxis(out, -1, axis)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="robust_scale",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                make((31, 4)),
                make(24),
                Sample((make((3, 17)),), {"axis": 1}),
                Sample((make((2, 5, 8)),), {"axis": -1}),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "phi_coefficient",
    "the product of four sums overflows int64",
    "Matthews correlation from integer counts: scikit-learn and others multiplied the four sums as integers",
    "counts of 100,000: the product of the sums is 1.6e21, which wraps around",
)
def phi_coefficient():
    """Matthews' correlation coefficient from true and false positives and negatives; 0 where a sum is 0."""

    def finish(xp, top, product_root):
        return xp.where(product_root > 0, top / xp.where(product_root > 0, product_root, 1.0), 0.0)

    def wrong(xp, tp, fp, fn, tn):
        tp, fp, fn, tn = (part.astype("int64") for part in (tp, fp, fn, tn))
        product = (tp + fp) * (tp + fn) * (tn + fp) * (tn + fn)
        return finish(xp, (tp * tn - fp * fn).astype("float64"), xp.sqrt(xp.abs(product).astype("float64")))

    def right(xp, tp, fp, fn, tn):
        tp, fp, fn, tn = (part.astype("float64") for part in (tp, fp, fn, tn))
        root = xp.sqrt(tp + fp) * xp.sqrt(tp + fn) * xp.sqrt(tn + fp) * xp.sqrt(tn + fn)
        return finish(xp, tp * tn - fp * fn, root)

    def reference(tp, fp, fn, tn):
        parts = np.broadcast_arrays(tp, fp, fn, tn)
        out = np.zeros(parts[0].shape)
        for i in np.ndindex(out.shape):
            a, b, c, d = (int(part[i]) for part in parts)
            product = (a + b) * (a + c) * (d + b) * (d + c)
            out[i] = (a * d - b * c) / math.sqrt(product) if product else 0.0
        return out

    def declare(fn):
        def counts(make, shape, most):
            return tuple(make(shape, low=0, high=most) for _ in range(4))

        return OpSpec(
            fn=fn,
            name="phi_coefficient",
            dtypes=("int32", "int64"),
            result_dtype="float64",
            samples=lambda make: [counts(make, 30, 500), counts(make, (3, 8), 100_000), counts(make, 12, 3)],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "softcapped_attention",
    "the cap of the scores is applied after the mask",
    "logit soft-capping as in Gemma 2: kernels that capped after masking turned -inf into -cap",
    "cap=5 together with causal=True: each masked key gets exp(-5 - max) of weight instead of none",
)
def softcapped_attention():
    """Attention with an optional soft cap, cap * tanh(score / cap); causal: the last query sees all keys.

    A key of weight zero counts for nothing; a query that sees no key, or only scores of -inf, gives zeros.
    """

    def check(q, k, v):
        if q.shape[-1] != k.shape[-1] or k.shape[-2] != v.shape[-2]:
            raise ValueError("queries and keys are of one width, and each key has a value")

    def scores_of(xp, q, k):
        q, k = q.astype("float64"), k.astype("float64")
        return xp.matmul(q, xp.swapaxes(k, -1, -2)) / math.sqrt(max(q.shape[-1], 1))

    def capped(xp, scores, cap):
        return scores if cap is None else cap * xp.tanh(scores / cap)

    def masked(xp, scores, causal):
        if not causal:
            return scores
        rows, columns = scores.shape[-2:]
        seen = xp.arange(columns)[None, :] <= xp.arange(rows)[:, None] + (columns - rows)
        return xp.where(seen, scores, -math.inf)

    def finish(xp, scores, v):
        if not scores.shape[-1]:
            return xp.zeros((*scores.shape[:-1], v.shape[-1]), dtype=v.dtype)
        top = scores.max(axis=-1, keepdims=True)
        weights = xp.exp(scores - xp.where(top == -math.inf, 0.0, top))
        total = weights.sum(axis=-1, keepdims=True)
        weights = (weights / xp.where(total == 0, 1.0, total))[..., None]
        parts = xp.where(weights == 0, 0.0, weights * v.astype("float64")[..., None, :, :])
        return parts.sum(axis=-2).astype(v.dtype)

    def wrong(xp, q, k, v, cap=None, causal=False):
        check(q, k, v)
        return finish(xp, capped(xp, masked(xp, scores_of(xp, q, k), causal), cap), v)

    def right(xp, q, k, v, cap=None, causal=False):
        check(q, k, v)
        return finish(xp, masked(xp, capped(xp, scores_of(xp, q, k), cap), causal), v)

    def reference(q, k, v, cap=None, causal=False):
        check(q, k, v)
        scores = q @ np.swapaxes(k, -1, -2) / math.sqrt(max(q.shape[-1], 1))
        if cap is not None:
            scores = cap * np.tanh(scores / cap)
        rows, columns = scores.shape[-2:]
        out = np.zeros((*scores.shape[:-1], v.shape[-1]))
        v = np.broadcast_to(v, (*scores.shape[:-2], *v.shape[-2:]))
        for i in np.ndindex(scores.shape[:-1]):
            visible = max(0, i[-1] + columns - rows + 1) if causal else columns
            row = scores[i][:visible]
            if len(row) and row.max() != -np.inf:
                weights = np.exp(row - row.max())
                weights = weights / weights.sum()
                counted = np.flatnonzero(weights != 0)
                out[i] = (weights[counted, None] * v[i[:-1]][counted]).sum(axis=0)
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="softcapped_attention",
            dtypes=("float16", "float32"),
            samples=lambda make: [
                tuple(make((5, 8)) for _ in range(3)),
                (make((2, 3, 8)), make((2, 7, 8)), make((2, 7, 4))),
                Sample(tuple(make((2, 6, 4)) for _ in range(3)), {"causal": True}),
                Sample(tuple(make((9, 8)) for _ in range(3)), {"cap": 5.0}),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "channel_norm",
    "the place of the channels is guessed from the lengths",
    "scikit-image's guess_spatial_dimensions and its kin: a last axis of the fitting length was taken for the channels",
    "shape (2, 5, 5) with 5 gains: normalised over the channels, and the gains applied to the places",
)
def channel_norm():
    """Each channel of each item (axes 1 and 0) to mean 0 and variance 1 over all other axes, times its gain."""

    def check(a, gain):
        if a.ndim < 3 or gain.shape != (a.shape[1],):
            raise ValueError("give (items, channels, places...) and one gain for each channel")

    def normalise(xp, a, gain, eps, channel):
        if not a.size:
            return a.copy()
        wide = a.astype("float64")
        axes = tuple(axis for axis in range(1, a.ndim) if axis != channel)
        first = tuple(slice(0, 1) if axis in axes else slice(None) for axis in range(a.ndim))
        wide = wide - wide[first]
        wide = wide - wide.mean(axis=axes, keepdims=True)
        scale = xp.sqrt((wide * wide).mean(axis=axes, keepdims=True) + eps)
        shape = tuple(-1 if axis == channel else 1 for axis in range(a.ndim))
        return (wide / scale * gain.astype("float64").reshape(shape)).astype(a.dtype)

    def wrong(xp, a, gain, eps=1e-5):
        check(a, gain)
        return normalise(xp, a, gain, eps, a.ndim - 1 if a.shape[-1] == gain.shape[0] else 1)

    def right(xp, a, gain, eps=1e-5):
        check(a, gain)
        return normalise(xp, a, gain, eps, 1)

    def reference(a, gain, eps=1e-5):
        check(a, gain)
        out = np.zeros(a.shape)
        for n, c in np.ndindex(a.shape[:2]):
            places = a[n, c]
            if places.size:
                off = places - places.reshape(-1)[0]
                off = off - off.mean()
                out[n, c] = off / np.sqrt((off * off).mean() + eps) * gain[c]
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="channel_norm",
            dtypes=("float16", "float32"),
            samples=lambda make: [
                (make((2, 4, 10)), make(4)),
                (make((3, 5, 6, 7)), make(5)),
                Sample((make((2, 3, 16)), make(3)), {"eps": 0.1}),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "left_padded",
    "the padding is written only when the kept buffer is made",
    "input buffers of servers that outlive a batch, as for CUDA graphs: places behind a shorter batch kept old tokens",
    "two batches of one shape, the second with shorter texts: its padding holds tokens of the first",
)
def left_padded():
    """The first lengths[b] tokens of each row moved to its end, with padding before them.

    A length above the width counts as the width, one below 0 as 0.
    """

    def places(xp, tokens, lengths):
        if tokens.ndim != 2 or lengths.shape != (tokens.shape[0],):
            raise ValueError("give tokens (rows, width) and one length for each row")
        width = tokens.shape[1]
        count = xp.minimum(xp.maximum(lengths, 0), width)
        return xp.arange(width)[None, :] - (width - count)[:, None]

    def moved(xp, tokens, index):
        return xp.take_along_axis(tokens, xp.maximum(index, 0), axis=1)

    kept = {}

    def wrong(xp, tokens, lengths, pad=0):
        index = places(xp, tokens, lengths)
        key = (str(type(tokens)), tokens.shape, str(tokens.dtype), pad)
        if key not in kept:
            kept[key] = xp.full(tokens.shape, pad, dtype=tokens.dtype)
        kept[key][...] = xp.where(index >= 0, moved(xp, tokens, index), kept[key])
        return kept[key].copy()

    def right(xp, tokens, lengths, pad=0):
        index = places(xp, tokens, lengths)
        return xp.where(index >= 0, moved(xp, tokens, index), xp.full(tokens.shape, pad, dtype=tokens.dtype))

    def reference(tokens, lengths, pad=0):
        if tokens.ndim != 2 or lengths.shape != (tokens.shape[0],):
            raise ValueError("give tokens (rows, width) and one length for each row")
        out = np.full(tokens.shape, pad, dtype=tokens.dtype)
        width = tokens.shape[1]
        for row, text, length in zip(out, tokens, lengths, strict=True):
            count = min(max(int(length), 0), width)
            row[width - count :] = text[:count]
        return out

    def declare(fn):
        def batch(make, rows, width):
            return make((rows, width), low=0, high=50_000), make(rows, dtype="int64", low=0, high=width)

        return OpSpec(
            fn=fn,
            name="left_padded",
            dtypes=("int32", "int64"),
            samples=lambda make: [
                batch(make, 4, 12),
                batch(make, 7, 5),
                Sample(batch(make, 3, 9), {"pad": -1}),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "cut_utf8",
    "only one continuation byte is stepped over",
    "truncation of text to a number of bytes that steps back once, right for two-byte characters; shipped in many logs",
    "a character of three bytes with two of them before the limit: its first two bytes are kept",
)
def cut_utf8():
    """How many bytes of each row of UTF-8 fit into `limit` bytes without splitting a character."""

    def check(limit):
        if limit < 0:
            raise ValueError(f"limit is {limit}; give 0 or more")

    def wrong(xp, text, limit=10):
        check(limit)
        if text.shape[-1] <= limit:
            return xp.full(text.shape[:-1], text.shape[-1], dtype="int64")
        inside = (text[..., limit] & 0xC0) == 0x80
        return xp.where(inside, max(limit - 1, 0), limit).astype("int64")

    def right(xp, text, limit=10):
        check(limit)
        if text.shape[-1] <= limit:
            return xp.full(text.shape[:-1], text.shape[-1], dtype="int64")
        starts = (text[..., : limit + 1] & 0xC0) != 0x80
        return xp.where(starts, xp.arange(limit + 1), 0).max(axis=-1).astype("int64")

    def reference(text, limit=10):
        check(limit)
        out = np.zeros(text.shape[:-1], dtype="int64")
        for i in np.ndindex(out.shape):
            end = min(limit, text.shape[-1])
            while 0 < end < text.shape[-1] and 0x80 <= text[i][end] < 0xC0:
                end -= 1
            out[i] = end
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="cut_utf8",
            dtypes=("uint8",),
            result_dtype="int64",
            samples=lambda make: [
                make((6, 24), low=0, high=255),
                make((3, 8), low=0, high=255),
                Sample((make((2, 5, 12), low=0, high=255),), {"limit": 7}),
            ],
            error_inputs=lambda make: [
                ErrorInput(Sample((make((2, 5), low=0, high=255),), {"limit": -1}), ValueError, "limit is -1")
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "degrees_of_dms",
    "the sign of minus zero degrees is lost",
    "astropy's Angle from a tuple (-0, 30, 0), and many parsers: the sign was taken by comparing with 0",
    "-0.0 degrees and 30 minutes give 0.5 instead of -0.5",
)
def degrees_of_dms():
    """Degrees from degrees, minutes and seconds; the sign of the degrees, also of -0.0, is that of the angle."""

    def join(xp, sign, degrees, minutes, seconds):
        size = xp.abs(degrees.astype("float64"))
        size = size + minutes.astype("float64") / 60 + seconds.astype("float64") / 3600
        return (sign * size).astype(degrees.dtype)

    def wrong(xp, degrees, minutes, seconds):
        return join(xp, xp.where(degrees < 0, -1.0, 1.0), degrees, minutes, seconds)

    def right(xp, degrees, minutes, seconds):
        return join(xp, xp.where(xp.signbit(degrees), -1.0, 1.0), degrees, minutes, seconds)

    def reference(degrees, minutes, seconds):
        return np.copysign(1.0, degrees) * (np.abs(degrees) + minutes / 60 + seconds / 3600)

    def declare(fn):
        def angle(make, shape):
            return make(shape), make(shape, low=0, high=59), make(shape, low=0, high=60)

        return OpSpec(
            fn=fn,
            name="degrees_of_dms",
            dtypes=("float32", "float64"),
            samples=lambda make: [angle(make, 40), angle(make, (3, 7))],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "morton_code",
    "the check of the range takes the maximum of an empty array",
    "argument checks by x.max() in front of a kernel that handles empty input: a zero-size reduction raises",
    "no points: ValueError about a zero-size array instead of an empty result",
)
def morton_code():
    """The bits of x and y, from 0 to 65,535 each, interleaved: the place of a point on the Z curve."""

    def spread(xp, n):
        n = n.astype("int64")
        n = (n | (n << 8)) & 0x00FF00FF
        n = (n | (n << 4)) & 0x0F0F0F0F
        n = (n | (n << 2)) & 0x33333333
        return (n | (n << 1)) & 0x55555555

    def code(xp, x, y):
        return spread(xp, x) | (spread(xp, y) << 1)

    def check(least, most):
        if least < 0 or most > 65535:
            raise ValueError("coordinates are from 0 to 65535")

    def wrong(xp, x, y):
        for n in (x, y):
            check(int(n.min()), int(n.max()))
        return code(xp, x, y)

    def right(xp, x, y):
        for n in (x, y):
            if n.size:
                check(int(n.min()), int(n.max()))
        return code(xp, x, y)

    def reference(x, y):
        x, y = np.broadcast_arrays(x, y)
        out = np.zeros(x.shape, dtype="int64")
        for i in np.ndindex(x.shape):
            check(min(x[i], y[i]), max(x[i], y[i]))
            out[i] = sum(((int(x[i]) >> b & 1) | (int(y[i]) >> b & 1) << 1) << 2 * b for b in range(16))
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="morton_code",
            dtypes=("int32", "int64"),
            result_dtype="int64",
            samples=lambda make: [
                (make(30, low=0, high=65535), make(30, low=0, high=65535)),
                (make((4, 5), low=0, high=255), make((4, 5), low=0, high=255)),
            ],
            error_inputs=lambda make: [
                ErrorInput((make(4, low=70_000, high=80_000), make(4, low=0, high=9)), ValueError, "coordinates"),
                ErrorInput((make(4, low=0, high=9), make(4, low=-5, high=-1)), ValueError, "coordinates"),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "draw_without_replacement",
    "keys of small weights underflow to zero",
    "Efraimidis and Spirakis' keys u ** (1 / w) as published and copied; libraries went over to log(u) / w",
    "weights of 0.004 and 0.002: both keys are 0 in float32, so the order of the places decides",
)
def draw_without_replacement():
    """The first `count` places of a weighted draw without replacement, from one number of (0, 1] for each place.

    Places of weight zero come last, in their order.
    """

    def check(weights, numbers, count):
        if count < 0:
            raise ValueError(f"count is {count}; give 0 or more")
        if weights.ndim != 1 or weights.shape != numbers.shape:
            raise ValueError("give one number for each weight")

    def wrong(xp, weights, numbers, count=8):
        check(weights, numbers, count)
        keys = xp.where(weights > 0, numbers ** (1 / xp.where(weights > 0, weights, 1)), -1)
        return xp.argsort(-keys, kind="stable")[:count].astype("int64")

    def right(xp, weights, numbers, count=8):
        check(weights, numbers, count)
        weights, numbers = weights.astype("float64"), numbers.astype("float64")
        keys = xp.where(weights > 0, xp.log(numbers) / xp.where(weights > 0, weights, 1), -math.inf)
        return xp.argsort(-keys, kind="stable")[:count].astype("int64")

    def reference(weights, numbers, count=8):
        check(weights, numbers, count)
        times = [-np.log(u) / w if w > 0 else np.inf for w, u in zip(weights, numbers, strict=True)]
        return np.array(sorted(range(len(times)), key=times.__getitem__)[:count], dtype="int64")

    def declare(fn):
        def draw(make, n):
            return make(n, low=0, high=1), make(n, low=2.0**-24, high=1)

        return OpSpec(
            fn=fn,
            name="draw_without_replacement",
            dtypes=("float32", "float64"),
            result_dtype="int64",
            samples=lambda make: [
                draw(make, 40),
                Sample(draw(make, 200), {"count": 200}),
                Sample(draw(make, 30), {"count": 1}),
            ],
            reference=reference,
        )

    return wrong, right, declare
