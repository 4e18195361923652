// Clusters: blocks that read each other's shared memory, from compute capability 9.0 on.
//
// A kernel for clusters of n is declared CLUSTER_OF(n); before 9.0 it compiles to one that must not be launched.

#pragma once

#if __CUDA_ARCH__ >= 900
#define CLUSTER_OF(n) __cluster_dims__(n, 1, 1)

__device__ __forceinline__ unsigned cluster_rank() {
    unsigned rank;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}

// What a block wrote before it arrived, others read once they have waited; and a block may end once all have arrived.
__device__ __forceinline__ void cluster_arrive() { asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory"); }
__device__ __forceinline__ void cluster_wait() { asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory"); }

// The address at which block `rank` of the cluster has its copy of the shared variable at `local`.
template <typename T> __device__ __forceinline__ const T* in_block(unsigned rank, const T* local) {
    unsigned long long address = reinterpret_cast<unsigned long long>(local);
    asm volatile("mapa.u64 %0, %0, %1;" : "+l"(address) : "r"(rank) : "memory");
    return reinterpret_cast<const T*>(address);
}
#else
#define CLUSTER_OF(n)
#endif
