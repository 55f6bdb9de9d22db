"""Floor 1: data sets as uint8 tensors, their augmentation pipelines, and their partition over clients."""
