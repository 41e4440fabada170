"""`python -m dasksvm` runs the command line."""

from dasksvm.cli.main import main

main()
