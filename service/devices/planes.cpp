// The pixels of a tile as planes of floats, and back; planes_kernel.py calls them. They compute the same bytes as OpenCV
// and numpy in planes.py, which are called where this was not compiled.
#include <algorithm>
#include <cstdint>
#include <cstring>

#if defined(__x86_64__) && defined(__gnu_linux__) && defined(__GNUC__) && !defined(__clang__)
#define WIDEST_VECTORS __attribute__((target_clones("avx2", "default")))  // interleaving needs more than SSE2 has
#else
#define WIDEST_VECTORS
#endif

constexpr int64_t BLOCK = 1024;             // pixels that are rounded before they are interleaved
constexpr float UNIT = float(1.0 / 255);
constexpr float NO_FRACTION = 8388608.0f;   // floats from 2^23 on are whole: adding it rounds half to even
constexpr uint32_t EXPONENT = 0x7f800000u;  // all its bits are set in infinities and NaN alone

template <int CHANNELS>
static inline __attribute__((always_inline)) void divide(const uint8_t *pixels, int64_t count, int channels, float *planes) {
    const int step = CHANNELS ? CHANNELS : channels;  // a constant is what makes vectors possible
    for (int64_t i = 0; i < count; i++)
        for (int k = 0; k < step; k++) planes[k * count + i] = pixels[step * i + k] * UNIT;
}

// Returns 0 if all values are finite.
static inline __attribute__((always_inline)) uint32_t round_levels(const float *values, int64_t count, uint8_t *levels) {
    uint32_t endless = 0;
    for (int64_t i = 0; i < count; i++) {
        uint32_t bits;
        memcpy(&bits, values + i, sizeof bits);
        endless |= (bits & EXPONENT) == EXPONENT;
        float level = values[i] * 255.0f;
        level = level > 0.0f ? level : 0.0f;
        level = level < 255.0f ? level : 255.0f;
        levels[i] = uint8_t(int32_t(level + NO_FRACTION - NO_FRACTION));
    }
    return endless;
}

extern "C" {

// H×W×C bytes to C×H×W floats in [0, 1]; `count` is H×W.
WIDEST_VECTORS void to_planes(const uint8_t *pixels, int64_t count, int32_t channels, float *planes) {
    if (channels == 3)
        divide<3>(pixels, count, channels, planes);
    else
        divide<0>(pixels, count, channels, planes);
}

// C×H×W floats to H×W×C bytes: clamped to [0, 1], times 255, rounded. Returns 0, and stops, if a float is not finite.
WIDEST_VECTORS int32_t to_pixels(const float *planes, int64_t count, int32_t channels, uint8_t *pixels) {
    uint8_t levels[3][BLOCK];
    uint32_t endless = 0;
    for (int64_t at = 0; at < count && !endless; at += BLOCK) {
        const int64_t here = std::min(BLOCK, count - at);
        uint8_t *to = pixels + channels * at;
        if (channels == 3) {
            for (int k = 0; k < 3; k++) endless |= round_levels(planes + k * count + at, here, levels[k]);
            for (int64_t i = 0; i < here; i++) {
                to[3 * i] = levels[0][i];
                to[3 * i + 1] = levels[1][i];
                to[3 * i + 2] = levels[2][i];
            }
            continue;
        }
        for (int32_t k = 0; k < channels; k++) {
            endless |= round_levels(planes + k * count + at, here, levels[0]);
            for (int64_t i = 0; i < here; i++) to[channels * i + k] = levels[0][i];
        }
    }
    return !endless;
}
}

extern "C" uint32_t built_from() { return 0xa907439c; }  // CRC-32 of the other lines; compiled.py asks for it
