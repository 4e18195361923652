extern "C" __global__ void iterated(const float* a, float* out, long long n) {
    long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float x = a[i];
    for (int round = 0; round < 400; ++round) x = x * 0.998f + 0.001f;
    out[i] = x;
}
