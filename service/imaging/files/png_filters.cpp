// Undoes the filters of a PNG's rows (PNG 9.4); png_filters.py calls it. With Average and Paeth each pixel is needed for
// the next one. So four such rows are computed at once, each a pixel behind the one above it: their pixels are the lanes of
// a vector, and what a lane needs from above was in the lane before it a step ago.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>
#include <vector>

// A second version for AVX2, chosen at run time: what runs before, as ISA-L, may leave the upper halves of the registers in
// use, and instructions of SSE then take twice as long.
#if defined(__x86_64__) && defined(__gnu_linux__) && defined(__GNUC__) && !defined(__clang__)
#define WITH_AVX2 __attribute__((target_clones("avx2", "default"), flatten))
#else
#define WITH_AVX2
#endif

enum Filter { NONE, SUB, UP, AVERAGE, PAETH, FILTERS };
constexpr int TOGETHER = 4;  // rows

// What a byte is predicted to be from those to the left (a), above (b) and above to the left (c).
static inline uint8_t paeth(int a, int b, int c) {
    const int pa = std::abs(b - c), pb = std::abs(a - c), pc = std::abs(a + b - 2 * c);
    return uint8_t(pa <= pb && pa <= pc ? a : pb <= pc ? b : c);
}

// One row below the row `above`; `pixel` is in bytes.
static void restore_row(int filter, const uint8_t *line, const uint8_t *above, int64_t size, int64_t pixel, uint8_t *to) {
    const auto each = [&](auto predict) {
        for (int64_t k = 0; k < pixel; k++) {  // a byte of every pixel, so that the one to the left stays in a register
            uint8_t a = 0, c = 0;
            for (int64_t i = k; i < size; i += pixel) {
                const uint8_t b = above[i];
                to[i] = a = uint8_t(line[i] + predict(a, b, c));
                c = b;
            }
        }
    };
    if (filter == NONE) memcpy(to, line, size);
    if (filter == SUB) each([](uint8_t a, uint8_t, uint8_t) { return a; });
    if (filter == UP)
        for (int64_t i = 0; i < size; i++) to[i] = uint8_t(line[i] + above[i]);
    if (filter == AVERAGE) each([](uint8_t a, uint8_t b, uint8_t) { return (a + b) / 2; });
    if (filter == PAETH) each([](uint8_t a, uint8_t b, uint8_t c) { return paeth(a, b, c); });
}

// TOGETHER rows, and what each needs of every prediction: all ones for that of its filter, else zeros.
template <typename Lane>
struct Rows {
    typedef Lane Pixels __attribute__((vector_size(TOGETHER * sizeof(Lane))));
    typedef uint8_t Bytes __attribute__((vector_size(TOGETHER * sizeof(Lane))));
    const uint8_t *line[TOGETHER], *above;
    uint8_t *to[TOGETHER];
    Pixels chosen[FILTERS];
    Pixels left, above_left;

    static Bytes least(Bytes a, Bytes b) { return a < b ? a : b; }
    static Bytes most(Bytes a, Bytes b) { return a > b ? a : b; }
    static Bytes excess(Bytes a, Bytes b) { return most(a, b) - b; }  // or 0

    // Paeth's prediction minus c, in unsigned bytes. If c is between a and b, their sum minus c is as far from the smaller
    // one as c is from the larger one, and the reverse; otherwise whichever of a and b is farther from c is the nearest.
    static Bytes paeth_from(Bytes a, Bytes b, Bytes c) {
        const Bytes low = least(a, b), high = most(a, b), down = excess(c, low), up = excess(high, c);
        const Bytes far_down = Bytes(excess(down, up) >= up), far_up = Bytes(excess(up, down) >= down);
        return (up & far_up) - (down & far_down);
    }

    template <bool ONLY_PAETH>
    void step(Pixels differences, Lane from_above) {
        const Pixels above = {from_above, left[0], left[1], left[2]};
        const Bytes a = Bytes(left), b = Bytes(above), c = Bytes(above_left), x = Bytes(differences);
        if (ONLY_PAETH) {
            left = Pixels(x + c + paeth_from(a, b, c));
        } else {
            const Bytes of_paeth = (c + paeth_from(a, b, c)) & Bytes(chosen[PAETH]);
            const Bytes average = ((a & b) + ((a ^ b) >> 1)) & Bytes(chosen[AVERAGE]);
            left = Pixels(x + (of_paeth | average | (a & Bytes(chosen[SUB])) | (b & Bytes(chosen[UP]))));
        }
        above_left = above;
    }

    template <bool ONLY_PAETH>
    void restore(int64_t columns, int64_t pixel) {
        const auto careful = [&](int64_t k) {  // some rows are at no pixel, or their lanes reach beyond the last one
            Pixels x = {};
            Lane from_above = 0, one;
            for (int row = 0; row < TOGETHER; row++)
                if (k - row >= 0 && k - row < columns) {
                    memcpy(&(one = 0), line[row] + (k - row) * pixel, pixel);
                    x[row] = one;
                }
            if (k < columns) memcpy(&from_above, above + k * pixel, pixel);
            step<ONLY_PAETH>(x, from_above);
            for (int row = 0; row < TOGETHER; row++)
                if (k - row >= 0 && k - row < columns) memcpy(to[row] + (k - row) * pixel, &(one = left[row]), pixel);
        };
        left = above_left = Pixels{};
        int64_t k = 0;
        for (; k < TOGETHER - 1; k++) careful(k);
        for (; k * pixel + int64_t(sizeof(Lane)) <= columns * pixel; k++) {
            Lane one[TOGETHER], from_above;
            for (int row = 0; row < TOGETHER; row++) memcpy(one + row, line[row] + (k - row) * pixel, sizeof(Lane));
            memcpy(&from_above, above + k * pixel, sizeof(Lane));
            step<ONLY_PAETH>(Pixels{one[0], one[1], one[2], one[3]}, from_above);
            for (int row = 0; row < TOGETHER; row++) {
                const Lane restored = left[row];  // beyond its pixel it is overwritten by the next one
                memcpy(to[row] + (k - row) * pixel, &restored, sizeof(Lane));
            }
        }
        for (; k < columns + TOGETHER - 1; k++) careful(k);
    }
};

template <typename Lane>
static bool restore(int64_t pixel, const uint8_t *lines, int64_t height, int64_t size, const uint8_t *none, uint8_t *to) {
    const auto line = [&](int64_t row) { return lines + row * (size + 1); };
    const auto above = [&](int64_t row) { return row ? to + (row - 1) * size : none; };
    for (int64_t row = 0; row < height; row++)
        if (*line(row) >= FILTERS) return false;
    for (int64_t row = 0; row < height;) {
        bool needed = false, only_paeth = true;
        for (int k = 0; k < TOGETHER && row + TOGETHER <= height; k++) {
            needed |= *line(row + k) >= AVERAGE;
            only_paeth &= *line(row + k) == PAETH;
        }
        if (!needed) {
            restore_row(*line(row), line(row) + 1, above(row), size, pixel, to + row * size);
            row++;
            continue;
        }
        Rows<Lane> rows = {};
        for (int k = 0; k < TOGETHER; k++) {
            rows.line[k] = line(row + k) + 1;
            rows.to[k] = to + (row + k) * size;
            rows.chosen[*line(row + k)][k] = Lane(-1);
        }
        rows.above = above(row);
        if (only_paeth) {
            rows.template restore<true>(size / pixel, pixel);
        } else {
            rows.template restore<false>(size / pixel, pixel);
        }
        row += TOGETHER;
    }
    return true;
}

WITH_AVX2 bool restore_any(
    int64_t pixel, const uint8_t *lines, int64_t height, int64_t size, const uint8_t *none, uint8_t *to) {
    return pixel <= 4 ? restore<uint32_t>(pixel, lines, height, size, none, to)
                      : restore<uint64_t>(pixel, lines, height, size, none, to);
}

extern "C" {

// Writes the samples of `height` lines, each the type of its filter and `size` bytes, to `to`, without gaps and in this
// machine's order. `channels` is 1 to 4, a sample is of 1 or 2 bytes. Returns 0; 1: a filter is unknown, -1: no memory.
int32_t restore_rows(const uint8_t *lines, int64_t height, int64_t size, int32_t channels, int32_t sample, uint8_t *to) try {
    const std::vector<uint8_t> none(size);
    if (!restore_any(channels * sample, lines, height, size, none.data(), to)) return 1;
    for (int64_t i = 0; sample == 2 && i < height * size; i += 2) {
        const uint16_t value = uint16_t(to[i] << 8 | to[i + 1]);
        memcpy(to + i, &value, 2);
    }
    return 0;
} catch (const std::bad_alloc &) {
    return -1;
}

}  // extern "C"
extern "C" uint32_t built_from() { return 0x48291c47; }  // CRC-32 of the other lines; compiled.py asks for it
