// The pixels of a picture that is scaled, by the filters of OpenCV's `resize` for bytes: INTER_AREA and INTER_CUBIC.
//
// Positions and weights are computed as OpenCV's generic code computes them; a result may differ by one level where
// OpenCV sums in another order. Compared with OpenCV by tests/service/devices/pictures/test_kernels.py.

typedef unsigned char u8;

enum Filter { UNSCALED = 0, AREA = 1, CUBIC = 2 };

// A rectangle of a picture of three bytes a pixel, and the size that it is scaled to.
struct Scaled {
    const u8* pixels;  // of the rectangle's first pixel
    long pitch;        // bytes from a row to the next
    int height, width; // of the rectangle
    int to_height, to_width;
    int filter;
};

__device__ u8 byte_of(float value) { return (u8)fminf(fmaxf(rintf(value), 0.0f), 255.0f); }

// The share of the source pixel `at` in the target pixel that covers first..last of the source.
__device__ float covered(int at, double first, double last)
{
    return (float)(fmin(last, at + 1.0) - fmax(first, (double)at));
}

__device__ void mean_of_area(const struct Scaled* from, int y, int x, u8* result)
{
    double down = (double)from->height / from->to_height, across = (double)from->width / from->to_width;
    double top = y * down, bottom = fmin(top + down, (double)from->height);
    double left = x * across, right = fmin(left + across, (double)from->width);
    float sums[3] = {0.0f, 0.0f, 0.0f}, total = 0.0f;
    for (int row = (int)top; row < bottom; row++) {
        float of_row = covered(row, top, bottom);
        const u8* pixel = from->pixels + row * from->pitch + 3 * (int)left;
        for (int column = (int)left; column < right; column++, pixel += 3) {
            float weight = of_row * covered(column, left, right);
            total += weight;
            for (int channel = 0; channel < 3; channel++)
                sums[channel] += weight * pixel[channel];
        }
    }
    for (int channel = 0; channel < 3; channel++)
        result[channel] = byte_of(sums[channel] / total);
}

// OpenCV's cubic weights (a = -0.75) of the four pixels from `first` on, in 11 fractional bits.
__device__ int cubic_weights(int to, double scale, int* weights)
{
    float at = (float)((to + 0.5) * scale - 0.5), a = -0.75f;
    int first = (int)floorf(at);
    float x = at - first, y = 1.0f - x, w[4];
    w[0] = ((a * (x + 1.0f) - 5.0f * a) * (x + 1.0f) + 8.0f * a) * (x + 1.0f) - 4.0f * a;
    w[1] = ((a + 2.0f) * x - (a + 3.0f)) * x * x + 1.0f;
    w[2] = ((a + 2.0f) * y - (a + 3.0f)) * y * y + 1.0f;
    w[3] = 1.0f - w[0] - w[1] - w[2];
    for (int number = 0; number < 4; number++)
        weights[number] = (int)rintf(w[number] * 2048.0f);
    return first - 1;
}

__device__ void cubic(const struct Scaled* from, int y, int x, u8* result)
{
    int down[4], across[4];
    int top = cubic_weights(y, (double)from->height / from->to_height, down);
    int left = cubic_weights(x, (double)from->width / from->to_width, across);
    int sums[3] = {0, 0, 0};
    for (int row = 0; row < 4; row++) {
        const u8* pixels = from->pixels + min(max(top + row, 0), from->height - 1) * from->pitch;
        for (int channel = 0; channel < 3; channel++) {
            int sum = 0;
            for (int column = 0; column < 4; column++)
                sum += across[column] * pixels[3 * min(max(left + column, 0), from->width - 1) + channel];
            sums[channel] += down[row] * sum;
        }
    }
    for (int channel = 0; channel < 3; channel++)
        result[channel] = (u8)min(max((sums[channel] + (1 << 21)) >> 22, 0), 255);
}

__device__ void scaled_pixel(const struct Scaled* from, int y, int x, u8* result)
{
    if (from->filter == AREA) {
        mean_of_area(from, y, x, result);
    } else if (from->filter == CUBIC) {
        cubic(from, y, x, result);
    } else {
        const u8* pixel = from->pixels + y * from->pitch + 3 * x;
        for (int channel = 0; channel < 3; channel++)
            result[channel] = pixel[channel];
    }
}
