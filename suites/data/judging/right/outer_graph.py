"""A graph for each pair of shapes and dtype, whose output is copied."""

# spec: outer
from cuassay import cuda

graphs = {}


def run(xp, a, b):
    key = a.shape, b.shape, str(a.dtype)
    if key not in graphs:
        graphs[key] = cuda.make_graphed_callables(lambda x, y: x[:, None] * y[None, :], (a.copy(), b.copy()))
    return graphs[key](a, b).copy()
