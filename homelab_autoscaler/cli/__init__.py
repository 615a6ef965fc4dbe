"""The command line: one file per command.

What a command needs is imported when it runs, so that `manager` stays small.
"""
