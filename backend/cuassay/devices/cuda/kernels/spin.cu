// out: none; keeps a stream busy until the multiprocessor's clock has advanced by `cycles`, without touching memory.
//
// Source: own. A reading of the clock costs some tens of cycles, so that `cycles` are met about that closely.
// Shapes: none.
// Launch: 1 block of 1 thread.
// Caller: devices/cuda/launch/occupation.py `spin`. OpSpecs: cuassay/testing/specs/ has none, as it is not an operation.

// A process that shares the GPU with others is stopped and goes on at another multiprocessor, whose clock differs by as
// long as either of them slept: by minutes. So steps are added up, and a step is at most what a time slice can take.
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
