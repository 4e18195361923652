"""The declared product itself, on arrays of 32 MB."""


def run(xp, a):
    return a * 1.5
