"""The terminal: results, tables, progress and notes, in the characters and the width that it has."""
