"""The controllers that a cluster needs to behave like one; each is a client of the API like any other."""
