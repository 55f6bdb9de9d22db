"""Floor 2: the trainer. One local loop; a method is a record that says what it adds to it."""
