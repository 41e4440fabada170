"""`python -m dasksvm` is the command line."""

from dasksvm.cli import main

main()
