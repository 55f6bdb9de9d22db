"""One round: what its clients' models, losses and updates have to do with each other and with the global."""
