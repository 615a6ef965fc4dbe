"""What requests mean: decoding, defaults, validation, patches, ownership, deletion, admission, authorisation."""
