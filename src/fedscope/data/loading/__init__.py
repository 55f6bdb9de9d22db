"""A data set as it is described and as it is read: records, tensors, and the cache between them."""
