// out: no array; the conditional node of `handle` runs its body if value[0] is true when the graph runs
//
// Source: CUDA programming guide, conditional graph nodes. No header that NVRTC accepts declares this call; the driver
// resolves it when the kernel is loaded.
// Shapes: value (1,) bool.
// Launch: one thread, before an if or while node, and at the end of a while node's body.
// Caller: devices/cuda/graphs/capture.py
// OpSpecs: cuassay/testing/specs/ has none, as this is not an op;
// suites/devices/graphs/test_graph_conditions.py tests it.

extern "C" __device__ __cudart_builtin__ void cudaGraphSetConditional(unsigned long long handle, unsigned int value);

__global__ void set_condition(unsigned long long handle, const bool *value) {
    cudaGraphSetConditional(handle, *value ? 1u : 0u);
}
