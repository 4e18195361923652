// Clusters: blocks that read each other's shared memory, from compute capability 9.0 on.
//
// A kernel for clusters of n is declared with CLUSTER_OF(n). Before 9.0 it compiles to a kernel that must not be
// launched.

#pragma once

#if __CUDA_ARCH__ >= 900
#define CLUSTER_OF(n) __cluster_dims__(n, 1, 1)

__device__ __forceinline__ unsigned cluster_rank() {
    unsigned rank;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}

// After a wait, a block sees what the others wrote before they arrived. A block may exit once all blocks have arrived.
__device__ __forceinline__ void cluster_arrive() { asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory"); }
__device__ __forceinline__ void cluster_wait() { asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory"); }

// The address of the copy of the shared variable `local` in block `rank` of the cluster.
template <typename T> __device__ __forceinline__ const T* in_block(unsigned rank, const T* local) {
    unsigned long long address = reinterpret_cast<unsigned long long>(local);
    asm volatile("mapa.u64 %0, %0, %1;" : "+l"(address) : "r"(rank) : "memory");
    return reinterpret_cast<const T*>(address);
}
#else
#define CLUSTER_OF(n)
#endif
