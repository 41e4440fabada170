"""`python -m dasksvm` runs the command line."""

from dasksvm.cli import main

main()
