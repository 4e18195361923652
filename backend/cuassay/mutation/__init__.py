"""Storey 4, mutation: change the code under test in small ways, and check whether its tests fail.

`mutant` defines mutants, and `python` and `cuda` make them. `project` copies the code under test. `baseline` finds
which tests run which lines, `worker` runs the tests of one mutant, and `campaign` runs all of them. `outcome` holds the
verdicts. `equivalents` reads the list of mutants that change nothing.
"""
