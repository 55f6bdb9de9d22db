"""What an analysis is made on: a checkpoint's network, its run's samples and clients, or a user's own."""
