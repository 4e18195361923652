"""The parts of the `cuassay` command: each adds its options to the parser and runs one command."""
