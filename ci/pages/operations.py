"""The page of the declared operations: one section each, from its schema and its registered kernels."""

from __future__ import annotations

from cuassay import ops
from cuassay.ops import Op
from pages.names import shadowed

__all__ = ["page"]

_MODULE = "cuassay.ops"

_HEAD = """# cuassay.ops

A declared operation takes arrays of one device and runs the kernel that is registered for that kind of device and the
arrays' dtype. Each that makes an array has an `out=` form, and those whose result can replace their first array have an
in-place form, such as `ops.add.inplace(a, b)`.

A name that ends in `_` writes its arguments and returns None. Its functional form, such as
`ops.foreach_mul_.functional(a, b)`, writes copies and returns them: a list where the argument is a list, and a named
tuple if several arguments are written. It takes `out=` in the same structure, has `meta` and plans, and is one call for
interposers and derivatives.

In a signature `!` marks an argument that is written and `?` one that may be missing.

"""


def page() -> str:
    """Return the whole page: the operations, then the classes and functions around them."""
    declared = {name: op for name in ops.__all__ if isinstance(op := getattr(ops, name), Op)}
    hidden = dict(shadowed(_MODULE))
    others = [name for name in ops.__all__ if name not in declared and name not in hidden]
    sections = "".join(_section(name, op) for name, op in declared.items())
    explained = "".join(f"\n## {name} {{ #{_MODULE}.{name} }}\n\n{_described(path)}" for name, path in hidden.items())
    return f"{_HEAD}{sections}{explained}\n{_described(_MODULE, others)}"


def _section(name: str, op: Op) -> str:
    schema = op.schema
    rows = {
        "class": schema.op_class,
        "dtypes": ", ".join(schema.dtypes),
        "deterministic": "yes" if schema.deterministic else "no",
        "in place": f"`{name}`" if schema.written else f"`{name}.inplace`" if schema.in_place else "no",
        "functional": f"`{name}.functional`" if schema.written else f"`{name}`",
    }
    table = "".join(f"| {key} | {value} |\n" for key, value in rows.items())
    return f"## {name} {{ #{_MODULE}.{name} }}\n\n```text\n{op!r}\n```\n\n{op.__doc__}\n\n| | |\n|---|---|\n{table}\n"


def _described(path: str, members: list[str] | None = None) -> str:
    chosen = "" if members is None else f"      members: [{', '.join(members)}]\n"
    return f"::: {path}\n    options:\n      show_root_heading: false\n{chosen}"
