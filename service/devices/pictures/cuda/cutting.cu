// The tile of a crop: a rectangle of the picture (or of its mask), scaled, and padded by reflection at its edges.

// The index that padding at `at` repeats; symmetric: the pixel at the edge is repeated, too.
__device__ int reflected(int at, int length, int symmetric)
{
    if (length == 1)
        return 0;
    while (at < 0 || at >= length)
        at = at < 0 ? -at - symmetric : 2 * length - 2 + symmetric - at;
    return at;
}

extern "C" __global__ void cut_picture(const u8* pixels, long pitch, int height, int width, int to_height,
                                       int to_width, int filter, u8* tile, int tile_height, int tile_width, int below,
                                       int right_of, int symmetric)
{
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= tile_width || y >= tile_height)
        return;
    struct Scaled from = {pixels, pitch, height, width, to_height, to_width, filter};
    scaled_pixel(&from, reflected(y - below, to_height, symmetric), reflected(x - right_of, to_width, symmetric),
                 tile + 3 * ((long)y * tile_width + x));
}

// A pixel of the scaled mask is set where any pixel of the mask that it overlaps is set.
extern "C" __global__ void cut_mask(const u8* mask, long pitch, int height, int width, int to_height, int to_width,
                                    u8* tile, int tile_height, int tile_width, int below, int right_of, int symmetric)
{
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= tile_width || y >= tile_height)
        return;
    long row = reflected(y - below, to_height, symmetric), column = reflected(x - right_of, to_width, symmetric);
    int top = (int)(row * height / to_height), bottom = (int)(((row + 1) * height + to_height - 1) / to_height);
    int left = (int)(column * width / to_width), right = (int)(((column + 1) * width + to_width - 1) / to_width);
    u8 any = 0;
    for (int from = top; from < bottom; from++)
        for (int at = left; at < right; at++)
            any |= mask[from * pitch + at];
    tile[(long)y * tile_width + x] = any != 0;
}
