"""The commands of the command line, a module each; they import nothing that is slow to load before they run."""
