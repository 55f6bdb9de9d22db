"""Tables and sentences about records."""
