"""GPU kernels in Triton: they know tensors only and import nothing of logitkit."""
