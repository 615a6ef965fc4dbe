"""Controllers: thin reconcilers that read a scope, ask `phase`, and drive `lifecycle` and `claim`.

`assemble` is the single list of everything that runs; start reading there.
"""
