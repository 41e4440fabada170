"""`python -m dasksvm` is the command line."""

from dasksvm.cli.main import main

main()
