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
    "T3": "a lazy result that computes when it is compared",
    "T4": "the timer or the statistics are patched",
    "T5": "the native timer is hooked",
    "T6": "a graph replayed by shape, or one graph for several calls",
    "T7": "warm-up is detected",
    "T8": "several calls in one launch, the others skipped",
    "T9": "a result cached by identity or address",
    "T10": "a result cached by content or fingerprint",
    "T11": "a persisting part of the cache survives the flush",
    "T12": "work between samples",
    "T13": "the baseline is slowed down",
    "T14": "a time below what is physically possible",
    "C1": "memory that was never written is returned",
    "C2": "the answer is copied from the judge",
    "C3": "the expectation is overwritten",
    "C4": "the comparison is patched",
    "C5": "the computation takes only a part of the input",
    "C6": "a lower precision than declared",
    "C7": "inputs are changed",
    "C8": "a constant output suffices",
    "C9": "answers for known seeds",
    "C10": "right only for the declared shapes",
    "C11": "wrong only where time is taken",
    "C12": "right for the first calls only",
    "C13": "the reference's file is read",
    "C14": "nothing is done, or an input is returned",
    "C15": "there is no reference",
    "C16": "uninitialised memory makes equal calls differ",
    "C17": "device code writes outside of its arrays",
    "C18": "NaN, infinity, tails or masks are skipped",
    "C19": "options of the declared samples are built in",
    "X1": "the reference's own tools are patched",
    "X2": "frames, globals or objects of the judge are changed",
    "X3": "results are forged on the way",
    "X4": "a key is stolen",
    "X5": "the process ends itself and calls it success",
    "X6": "files are overwritten",
    "X7": "environment, search paths or packages are changed",
    "X8": "the candidate hangs, or takes all processes or memory",
    "X9": "the network is used",
    "X10": "something survives for the next verdict",
    "X11": "code is hidden",
    "X12": "instructions to a reviewing model",
    "B1": "a library call in place of a kernel",
    "B2": "a fallback to other code in an except clause",
    "B3": "results kept between calls",
    "B4": "a weak baseline",
}
