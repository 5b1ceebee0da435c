"""Methods that are one class in one file each; entry points of the group ``seu_bench.methods`` name them."""
