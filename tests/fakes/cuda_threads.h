// Enough of CUDA for a C++ compiler: kernels become functions that are called for every thread, one after another.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>

#define __global__
#define __device__ static inline

using std::max;
using std::min;

struct Position {
    int x, y;
};
static thread_local Position blockIdx, blockDim, threadIdx;

template <class... Types, std::size_t... Numbers>
static void every_thread(void (*kernel)(Types...), int across, int down, void** values,
                         std::index_sequence<Numbers...>)
{
    blockDim = {32, 8};
    for (blockIdx.y = 0; blockIdx.y < down; blockIdx.y++)
        for (blockIdx.x = 0; blockIdx.x < across; blockIdx.x++)
            for (threadIdx.y = 0; threadIdx.y < blockDim.y; threadIdx.y++)
                for (threadIdx.x = 0; threadIdx.x < blockDim.x; threadIdx.x++)
                    kernel(*(Types*)values[Numbers]...);
}

template <class... Types>
static void run(void (*kernel)(Types...), int across, int down, void** values)
{
    every_thread(kernel, across, down, values, std::index_sequence_for<Types...>{});
}

#define CALLABLE(name) \
    extern "C" void run_##name(int across, int down, void** values) { run(name, across, down, values); }
