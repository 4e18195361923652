"""Implementations of declared operations on CuPy arrays, one file for each family of operations."""
