// out: none; keeps a stream busy until the multiprocessor's clock has advanced by `cycles`, without touching memory.
//
// Source: own. A reading of the clock costs some tens of cycles, so that `cycles` are met about that closely.
// Shapes: none.
// Launch: 1 block of 1 thread.
// Caller: devices/cuda/backend.py `CudaBackend.spin`. OpSpecs: cuassay/testing/specs/ has none, as it is not an operation.

__global__ void spin(long long cycles) {
    const long long begun = clock64();
    while (clock64() - begun < cycles) {
    }
}
