"""Diagnostics in words for a person (`text`) and in the formats that programs read (`machine`)."""
