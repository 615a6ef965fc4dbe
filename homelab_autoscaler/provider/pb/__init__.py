"""Generated from proto/ by hack/generate_proto.py; never edited by hand."""
