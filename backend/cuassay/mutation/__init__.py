"""Storey 4, mutation: change the code under test in small ways and see whether its tests fail.

`mutant` says what a mutant is, and `python` and `cuda` make them. `project` copies the code under test. `baseline`
finds out which tests run which lines, `worker` runs the tests of one mutant, and `campaign` runs all of them.
`outcome` says what became of each. `equivalents` reads the list of mutants that change nothing.
"""
