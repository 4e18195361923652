// Tell a conditional node whether its body runs: the value is read when the graph runs, not when it is captured.
//
// Source: CUDA programming guide, conditional graph nodes; cudaGraphSetConditional is resolved by the driver at load.
// Shapes: value (1,) bool. Launch: one thread.
// Called by devices/cuda/capture.py, before an if or while node and at the end of a while node's body.

extern "C" __device__ __cudart_builtin__ void cudaGraphSetConditional(unsigned long long handle, unsigned int value);

__global__ void set_condition(unsigned long long handle, const bool *value) {
    cudaGraphSetConditional(handle, *value ? 1u : 0u);
}
