"""The loss between networks and along updates, sample by sample: barriers, averages, critical steps."""
