// out: none; keeps a stream busy until the multiprocessor's clock has advanced by `cycles`, without touching memory.
//
// Source: own. Reading the clock takes some tens of cycles, so the duration is accurate to about that many.
// Shapes: none.
// Launch: 1 block of 1 thread.
// Caller: devices/cuda/launch/occupation.py `spin`. OpSpecs: cuassay/testing/specs/ has none, as it is not an operation.

// A process that shares the GPU may be suspended and resume on another multiprocessor, whose clock may differ by
// minutes: by as long as either of them slept. So the loop adds up steps, and limits each step to what a time slice can
// take.
__global__ void spin(long long cycles) {
    const long long longest_step = 1LL << 30;
    long long spent = 0;
    for (long long last = clock64(); spent < cycles;) {
        const long long now = clock64();
        const long long step = now - last;
        spent += step > 0 && step < longest_step ? step : 0;
        last = now;
    }
}
