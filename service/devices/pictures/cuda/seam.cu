// The seam of a mask: for each pixel inside, its distance to the nearest pixel outside, and which one that is.
//
// They equal OpenCV's distanceTransformWithLabels (DIST_L2, 5×5) to the bit, ties included, for distances up to the
// number of rounds. OpenCV passes over the picture twice: forward, where a pixel takes the best of its neighbours
// above and to the left, then backward with the others. Here every pixel takes the best of the same neighbours, in the
// same order, again and again: a round makes one more step of each path final, and no step is shorter than one pixel.
// A neighbour that is not final yet has at least its final distance, so it is never taken before the right one.

#define FAR_AWAY (0xFFFFFFFFu >> 2)
#define STRAIGHT 65536u    // 1.0 in 16 fractional bits
#define DIAGONAL 91750u    // 1.4
#define KNIGHT 143976u     // 2.1969

__device__ void take(const unsigned* distance, const int* nearest, int height, int width, int y, int x, unsigned step,
                     unsigned* best, int* label)
{
    if (y < 0 || y >= height || x < 0 || x >= width)
        return;
    unsigned through = distance[y * width + x] + step;
    if (*best > through) {
        *best = through;
        *label = nearest[y * width + x];
    }
}

// Distance 0 and the own index outside the mask; no distance yet inside.
extern "C" __global__ void seam_start(const u8* mask, long pitch, unsigned* distance, int* nearest, int height,
                                      int width)
{
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= width || y >= height)
        return;
    int inside = mask[y * pitch + x] != 0;
    distance[y * width + x] = inside ? FAR_AWAY : 0;
    nearest[y * width + x] = inside ? -1 : y * width + x;
}

extern "C" __global__ void seam_forward(const unsigned* distance, const int* nearest, unsigned* next_distance,
                                        int* next_nearest, int height, int width)
{
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= width || y >= height)
        return;
    unsigned best = distance[y * width + x] == 0 ? 0 : FAR_AWAY;
    int label = best == 0 ? y * width + x : -1;
    if (best != 0) {
        take(distance, nearest, height, width, y - 2, x - 1, KNIGHT, &best, &label);
        take(distance, nearest, height, width, y - 2, x + 1, KNIGHT, &best, &label);
        take(distance, nearest, height, width, y - 1, x - 2, KNIGHT, &best, &label);
        take(distance, nearest, height, width, y - 1, x - 1, DIAGONAL, &best, &label);
        take(distance, nearest, height, width, y - 1, x, STRAIGHT, &best, &label);
        take(distance, nearest, height, width, y - 1, x + 1, DIAGONAL, &best, &label);
        take(distance, nearest, height, width, y - 1, x + 2, KNIGHT, &best, &label);
        take(distance, nearest, height, width, y, x - 1, STRAIGHT, &best, &label);
    }
    next_distance[y * width + x] = best;
    next_nearest[y * width + x] = label;
}

// `forward_…`: the result of the forward rounds, which stays; `distance` and `nearest`: of the last backward round.
extern "C" __global__ void seam_backward(const unsigned* forward_distance, const int* forward_nearest,
                                         const unsigned* distance, const int* nearest, unsigned* next_distance,
                                         int* next_nearest, int height, int width)
{
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= width || y >= height)
        return;
    unsigned best = forward_distance[y * width + x];
    int label = forward_nearest[y * width + x];
    if (best > STRAIGHT) {
        take(distance, nearest, height, width, y + 2, x + 1, KNIGHT, &best, &label);
        take(distance, nearest, height, width, y + 2, x - 1, KNIGHT, &best, &label);
        take(distance, nearest, height, width, y + 1, x + 2, KNIGHT, &best, &label);
        take(distance, nearest, height, width, y + 1, x + 1, DIAGONAL, &best, &label);
        take(distance, nearest, height, width, y + 1, x, STRAIGHT, &best, &label);
        take(distance, nearest, height, width, y + 1, x - 1, DIAGONAL, &best, &label);
        take(distance, nearest, height, width, y + 1, x - 2, KNIGHT, &best, &label);
        take(distance, nearest, height, width, y, x + 1, STRAIGHT, &best, &label);
    }
    next_distance[y * width + x] = best;
    next_nearest[y * width + x] = label;
}
