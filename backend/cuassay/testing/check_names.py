"""The names of the generated checks and relations, in a module of their own so that specs load without them."""

from __future__ import annotations

__all__ = ["AROUND_FORMULA", "CHECK_NAMES", "OF_DEVICES", "OF_OTHER_KIND", "RELATION_NAMES"]

#: The checks in the order in which they run, and in which their failures are listed. If one cause fails several checks,
#: the check that names it comes first. Each is a function ``check_<name>`` in `cuassay.testing.generated`.
CHECK_NAMES = (
    "state",
    "inputs_unchanged",
    "written",
    "aliasing",
    "deterministic",
    "second_call",
    "wider_result",
    "lists",
    "values",
    "layouts",
    "stress",
    "full_range",
    "signed_zeros",
    "full_precision",
    "constants",
    "accumulation",
    "relations",
    "sizes",
    "combined",
    "bench",
    "broadcast_views",
    "zeros",
    "units",
    "infinities",
    "halves",
    "side_stream",
    "captured",
    "waits",
    "threads",
    "zero_size",
    "zero_dim",
    "broadcast",
    "promotion",
    "python_scalars",
    "mixed_lists",
    "extremal",
    "out",
    "out_refused",
    "inplace",
    "functional",
    "plan",
    "meta",
    "graph_replay",
    "gradients",
    "gradients_streams",
    "gradients_graph",
    "errors",
    "dtypes",
    "beyond_32_bits",
)

#: The words of `OpSpec.relations`. Each is a function in `cuassay.testing.generated.relations`.
RELATION_NAMES = (
    "even",
    "odd",
    "shift_invariant",
    "permutation_of_axis",
    "linear",
    "batch_invariant",
    "idempotent",
)

#: Checks of the code around a formula: streams, graphs, layouts, outputs, shapes, errors. For ops that share this code
#: they are generated only once; see `cuassay.testing.OpSpec.like`.
AROUND_FORMULA = frozenset(
    (
        "aliasing", "broadcast", "deterministic", "errors", "functional", "gradients_graph", "gradients_streams",
        "graph_replay", "inplace", "inputs_unchanged", "layouts", "meta", "out", "out_refused", "plan", "side_stream",
        "sizes", "zero_dim", "zero_size",
    )
)  # fmt: skip

#: Checks of an op on a kind that runs another kind's implementation, if that is tested on the other kind.
OF_OTHER_KIND = frozenset(("dtypes", "promotion", "values"))

#: Checks that cannot run on the host. They are generated for a kind that runs the host's implementations, unless the op
#: shares its code with another op on the host.
OF_DEVICES = frozenset(("gradients_graph", "graph_replay"))
