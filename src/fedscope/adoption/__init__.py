"""Floor 2: runs that another program trained, registered like fedscope's own."""
