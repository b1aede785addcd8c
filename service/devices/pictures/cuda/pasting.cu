// A crop's fill in the picture: scaled back, and blended over the seam with the nearest colour outside the mask.
//
// It is written in place. What it reads of the picture lies outside the mask, where nothing is ever written.

// picture: first pixel of the part that is filled. hole: the same part, set where this crop fills.
// from_top, from_left: where the part begins in the crop's box, which the tile's region is scaled to.
// distance, nearest: the seam of the part, dense; `seam` is its width, 0 where all of the part is masked.
extern "C" __global__ void paste(u8* picture, long pitch, const u8* hole, long hole_pitch, int height, int width,
                                 const u8* region, long region_pitch, int region_height, int region_width,
                                 int box_height, int box_width, int filter, int from_top, int from_left,
                                 const unsigned* distance, const int* nearest, int seam)
{
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= width || y >= height || !hole[y * hole_pitch + x])
        return;
    u8 fill[3];
    struct Scaled from = {region, region_pitch, region_height, region_width, box_height, box_width, filter};
    scaled_pixel(&from, from_top + y, from_left + x, fill);
    u8* pixel = picture + y * pitch + 3 * x;
    float away = (float)distance[y * width + x] * (1.0f / 65536.0f);
    int label = nearest[y * width + x];
    if (label >= 0 && away >= 0.5f && away <= (float)seam) {
        float weight = away / (float)(seam + 1), rest = 1.0f - weight;
        const u8* beside = picture + label / width * pitch + 3 * (label % width);
        for (int channel = 0; channel < 3; channel++) {
            float own = weight * fill[channel], others = rest * beside[channel];
            fill[channel] = (u8)rintf(own + others);
        }
    }
    for (int channel = 0; channel < 3; channel++)
        pixel[channel] = fill[channel];
}
