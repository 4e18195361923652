"""A graph for each shape, whose output is copied."""

# spec: rms_norm
from cuassay import cuda

graphs = {}


def run(xp, a):
    if a.shape not in graphs:
        graphs[a.shape] = cuda.make_graphed_callables(
            lambda x: x / xp.sqrt((x * x).mean(axis=-1, keepdims=True) + 1e-6), (a.copy(),)
        )
    return graphs[a.shape](a).copy()
