"""CUDA graphs: capture and replay, the memory of captured graphs, and the inputs of executable graphs."""
