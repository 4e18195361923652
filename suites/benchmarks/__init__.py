"""asv collects this folder; it asks for this file, which the other suites do without."""
