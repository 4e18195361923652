"""The right function for ../wrong/nms_chain.py."""

import numpy as np

from cuassay.testing import OpSpec, Sample, conformance


def nms(xp, a, *, threshold=0.3):
    a = a[xp.argsort(-a[:, 4])]
    x, y, w, h = a[:, 0], a[:, 1], xp.abs(a[:, 2]) + 1, xp.abs(a[:, 3]) + 1
    across = xp.minimum((x + w)[:, None], x + w) - xp.maximum(x[:, None], x)
    down = xp.minimum((y + h)[:, None], y + h) - xp.maximum(y[:, None], y)
    shared = xp.maximum(across, 0) * xp.maximum(down, 0)
    over = xp.triu(shared > threshold * ((w * h)[:, None] + w * h - shared), 1)
    keep = xp.ones(a.shape[0], "bool")
    for i in range(a.shape[0]):
        keep = keep & ~(over[i] & keep[i])
    return keep


def iou(p, q):
    (x, y, w, h), (u, v, s, t) = p, q
    shared = max(0, min(x + w, u + s) - max(x, u)) * max(0, min(y + h, v + t) - max(y, v))
    return shared / (w * h + s * t - shared)


def reference(a, *, threshold=0.3):
    boxes = [(x, y, abs(w) + 1, abs(h) + 1) for x, y, w, h, _ in a[np.argsort(-a[:, 4])]]
    kept = []
    for i, box in enumerate(boxes):
        if all(iou(boxes[j], box) <= threshold for j in kept):
            kept.append(i)
    return np.isin(np.arange(len(boxes)), kept)


test_nms = conformance(OpSpec(
    fn=nms,
    reference=reference,
    dtypes=("float64",),
    samples=lambda make: [make((12, 5)), Sample((make((5, 5)),), {"threshold": 0.5})],
))
