"""`./dev mutants`: plants realistic bugs, one at a time, and reports which tests catch them.

The lists beside this file (CRATE.toml) name the bugs. All of them are compiled at once into a copy of the tree, each behind a switch that an
environment variable selects, so a run costs one build. docs/dev/mutants.md describes the lists and the report.
"""
