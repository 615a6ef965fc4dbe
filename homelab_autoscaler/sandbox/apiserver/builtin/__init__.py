"""The built-in kinds: their fields, defaults, rules and columns, as data wherever data can say it."""
