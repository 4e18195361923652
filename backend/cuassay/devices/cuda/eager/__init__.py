"""Repeated calls, served without dispatch: a call that matches an earlier one launches what that one launched."""
