"""Tables, figures and their index as files."""
