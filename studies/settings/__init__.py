"""Which settings a paper trained with, where its text has lost them."""
