"""How requests arrive: HTTP on loopback, and calls from inside the process."""
