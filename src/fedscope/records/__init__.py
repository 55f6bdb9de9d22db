"""Floor 2: what was measured, as records with a JSON schema each."""
