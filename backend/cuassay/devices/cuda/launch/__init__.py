"""From CUDA C++ text to a kernel that runs: compilation, argument blocks, launches."""
