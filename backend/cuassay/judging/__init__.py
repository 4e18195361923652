"""The referee of untrusted kernels: a trusted declaration and an untrusted candidate give a verdict.

The judge's process never imports, unpickles or prints a candidate: it draws inputs, sends them to a process of the
candidate's own, and compares what comes back. The command is ``cuassay judge``.
"""
