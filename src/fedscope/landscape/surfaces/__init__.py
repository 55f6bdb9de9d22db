"""The loss on lines and planes through weight space."""
