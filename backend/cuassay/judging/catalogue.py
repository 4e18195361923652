"""The catalogue of known cheats: for each number that verdicts name, a short description of the cheat.

A new cheat gets a number here and a planted candidate in the tests, and increases `CATALOGUE`.
"""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["CATALOGUE", "CHEATS"]

#: The version of this catalogue, which verdicts name.
CATALOGUE = 2

#: From number to description. T: timing; C: correctness; X: attacks on the harness; B: a matter of policy.
CHEATS: Mapping[str, str] = {
    "T1": "work on a side stream that the end of the call does not wait for",
    "T2": "a host thread finishes the work after the call has returned",
    "T3": "a lazy result, which is computed when it is compared",
    "T4": "the timer or the statistics are patched",
    "T5": "the native timer is hooked",
    "T6": "a graph is replayed for inputs of the same shape, or one graph serves several calls",
    "T7": "the candidate detects warm-up calls and behaves differently",
    "T8": "one launch does the work of several calls, which are then skipped",
    "T9": "a result is cached by the identity or address of the inputs",
    "T10": "a result is cached by the content or a fingerprint of the inputs",
    "T11": "data in the persisting part of the L2 cache survives the flush",
    "T12": "work is done between two timed samples",
    "T13": "the baseline is slowed down",
    "T14": "the time is shorter than is physically possible",
    "C1": "memory that was never written is returned",
    "C2": "the answer is copied from the judge's memory",
    "C3": "the expected result is overwritten",
    "C4": "the comparison is patched",
    "C5": "only a part of the input is computed",
    "C6": "the computation has a lower precision than declared",
    "C7": "the inputs are changed",
    "C8": "a constant output passes",
    "C9": "answers are stored for known seeds",
    "C10": "results are right only for the declared shapes",
    "C11": "results are wrong only in timed calls",
    "C12": "results are right only in the first calls",
    "C13": "the file of the reference is read",
    "C14": "nothing is done, or an input is returned",
    "C15": "the declaration has no reference",
    "C16": "uninitialised memory makes equal calls give different results",
    "C17": "device code writes outside of its arrays",
    "C18": "NaN, infinities, tails or masks are not handled",
    "C19": "the options of the declared samples are built in",
    "X1": "the reference's own tools are patched",
    "X2": "stack frames, globals or objects of the judge are changed",
    "X3": "results are forged on their way to the judge",
    "X4": "a secret key of the judge is stolen",
    "X5": "the process exits early and reports success",
    "X6": "files are overwritten",
    "X7": "environment variables, search paths or packages are changed",
    "X8": "the candidate hangs, or uses up processes or memory",
    "X9": "the network is used",
    "X10": "something survives for the next verdict",
    "X11": "code is hidden",
    "X12": "the code holds instructions to a reviewing language model",
    "B1": "a library call in place of a kernel",
    "B2": "an except clause falls back to other code",
    "B3": "results are kept between calls",
    "B4": "the baseline is weak",
}
