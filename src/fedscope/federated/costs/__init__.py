"""What a method costs a client and the wire."""
