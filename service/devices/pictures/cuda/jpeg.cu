// The last steps of a JPEG decoder, with the same result as libjpeg-turbo's to the bit, and EXIF's orientation.
//
// Chroma is enlarged by libjpeg's triangle filter ("fancy upsampling": jdsample.c, h2v1 and h2v2), and converted by
// its integers of 16 fractional bits (jdcolor.c). Both are given by the Independent JPEG Group's library, version 6b.

__device__ int enlarged(const u8* plane, long pitch, int rows, int columns, int x, int y, int across, int down)
{
    int column = across == 2 ? x >> 1 : x, row = down == 2 ? y >> 1 : y;
    const u8* near_row = plane + row * pitch;
    if (across == 1)
        return near_row[column];
    int beside = min(max(column + ((x & 1) ? 1 : -1), 0), columns - 1);
    if (down == 1)
        return (3 * near_row[column] + near_row[beside] + ((x & 1) ? 2 : 1)) >> 2;
    const u8* far_row = plane + min(max(row + ((y & 1) ? 1 : -1), 0), rows - 1) * pitch;
    int here = 3 * near_row[column] + far_row[column], other = 3 * near_row[beside] + far_row[beside];
    return (3 * here + other + ((x & 1) ? 7 : 8)) >> 4;
}

__device__ u8 clipped(int value) { return (u8)min(max(value, 0), 255); }

// across, down: how many pixels one value of chroma covers. orientation: as in EXIF; the pixels become upright.
extern "C" __global__ void ycc_to_rgb(const u8* luma, const u8* blue, const u8* red, u8* pixels, long luma_pitch,
                                      long blue_pitch, long red_pitch, int height, int width, int across, int down,
                                      int orientation)
{
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= width || y >= height)
        return;
    int columns = (width + across - 1) / across, rows = (height + down - 1) / down;
    int bright = luma[y * luma_pitch + x];
    int cb = enlarged(blue, blue_pitch, rows, columns, x, y, across, down) - 128;
    int cr = enlarged(red, red_pitch, rows, columns, x, y, across, down) - 128;
    int turned = orientation >= 5; // rows and columns are exchanged
    long upright_width = turned ? height : width, upright_height = turned ? width : height;
    long to_x = turned ? y : x, to_y = turned ? x : y;
    if (orientation == 2 || orientation == 3 || orientation == 6 || orientation == 7)
        to_x = upright_width - 1 - to_x;
    if (orientation == 3 || orientation == 4 || orientation == 7 || orientation == 8)
        to_y = upright_height - 1 - to_y;
    u8* pixel = pixels + 3 * (to_y * upright_width + to_x);
    pixel[0] = clipped(bright + ((91881 * cr + 32768) >> 16));
    pixel[1] = clipped(bright + ((-22554 * cb - 46802 * cr + 32768) >> 16));
    pixel[2] = clipped(bright + ((116130 * cb + 32768) >> 16));
}
