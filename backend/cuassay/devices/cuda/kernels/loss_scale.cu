// out: none; updates a loss scale in place after a step. If found_inf != 0: scale *= backoff, tracker = 0. Otherwise
// tracker += 1, and at `interval` scale *= growth (if that is finite) and tracker = 0. inv_scale = 1 / scale, rounded
// once; found_inf = 0.
//
// Source: P. Micikevicius et al., "Mixed precision training", arXiv 1710.03740, section 3.2; the growth follows torch's
//         GradScaler.
// Shapes: one number each.
// Launch: one thread. It runs between two passes over gigabytes, and saves the host a synchronization.
// Caller: devices/cuda/ops/loss_scale.py. OpSpecs: cuassay/testing/specs/loss_scale.py.

#include "element.cuh"

__global__ void update_scale(
    float32* scale, float32* inv_scale, int32* tracker, float32* found_inf, float64 growth, float64 backoff, int64 interval) {
    float32 now = *scale;
    int32 steps = 0;
    if (*found_inf != 0.0f) {
        now = float32(now * backoff);
    } else if (*tracker + 1 < interval) {
        steps = *tracker + 1;
    } else {
        const float32 grown = float32(now * growth);
        if (isfinite(grown)) now = grown;
    }
    *scale = now;
    *inv_scale = float32(1.0 / float64(now));
    *tracker = steps;
    *found_inf = 0.0f;
}
