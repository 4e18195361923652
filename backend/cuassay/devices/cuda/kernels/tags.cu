// out: none; both ends of a block hold its tag: ends[k] = tag for k in {first 16 bytes, last 16 bytes}.
//
// write_tag writes the tag. check_tag compares the words and counts the differences in report[0]. In report[1..3] it
// leaves the address, the expected tag and the word found, for one of the first differences.
// Shapes: address: a block of nbytes, a multiple of 16 and at least 32, aligned to 16; report: (4,) 64-bit words.
// Launch: one block of 4 threads, two words at each end.
// Caller: devices/cuda/memory/tags.py.
// OpSpecs: cuassay/testing/specs/ has none, as this is not an op; suites/devices/memory/test_tags.py tests it.

typedef unsigned long long word;

__device__ __forceinline__ word* end_word(word address, word nbytes) {
    const word offset = threadIdx.x < 2 ? 8 * threadIdx.x : nbytes - 32 + 8 * threadIdx.x;
    return reinterpret_cast<word*>(address + offset);
}

__global__ void write_tag(word address, word nbytes, word tag) { *end_word(address, nbytes) = tag; }

__global__ void check_tag(word address, word nbytes, word tag, word* report) {
    const word* at = end_word(address, nbytes);
    const word found = *at;
    if (found != tag && atomicAdd(report, 1) == 0) {
        report[1] = reinterpret_cast<word>(at);
        report[2] = tag;
        report[3] = found;
    }
}
