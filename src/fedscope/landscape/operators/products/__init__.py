"""How products are computed: their graphs, what they rest on, and differences in place of derivatives."""
