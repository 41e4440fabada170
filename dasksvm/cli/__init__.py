"""The command line: the commands, one module each, their shared options, and what they print.

No training and no file format belongs here: a command calls the public functions of the package.
"""
