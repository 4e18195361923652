"""Repeated calls, served without dispatch: a call that matches an earlier one repeats its launch."""
