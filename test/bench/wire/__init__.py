"""A gRPC caller that costs next to nothing, so that what is measured is the server."""
