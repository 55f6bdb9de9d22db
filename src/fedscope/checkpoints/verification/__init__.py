"""Whether the files of a run are whole and agree with each other."""
