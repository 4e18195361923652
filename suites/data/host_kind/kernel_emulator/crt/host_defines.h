// What the toolkit's headers ask of a compiler, for one that compiles for the host alone.
// The wheel with these headers (nvidia-cuda-runtime) comes without the compiler's own ones.

#pragma once

#define __host__
#define __device__
#define __global__
#define __constant__ static const
#define __managed__
#define __location__(where)
#define __device_builtin__
#define __device_builtin_texture_type__
#define __device_builtin_surface_type__
#define __cudart_builtin__
#define __restrict__ __restrict
#define __align__(n) __attribute__((aligned(n)))
#define __builtin_align__(n) __align__(n)
#define __forceinline__ inline
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
#define __cluster_dims__(...)
#define __grid_constant__
#define __no_return__ __attribute__((noreturn))
#define __import__
#define __export__
#define CUDARTAPI
#define CUDARTAPI_CDECL
