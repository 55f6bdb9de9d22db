"""What a run is made of before it starts."""
