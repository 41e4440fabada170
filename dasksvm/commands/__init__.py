"""The commands of the command line, grouped into modules; modules that are slow to load are imported when a command runs."""
