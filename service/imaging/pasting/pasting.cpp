// The seam of a hole and the pasting of a fill; kernel.py calls them. They compute the same bytes as OpenCV and numpy in
// seam.py and blending.py, which are called where this was not compiled.
//
// Source: Borgefors, "Distance transformations in digital images", CVGIP 1986 (two passes with a mask of 5 by 5), with
// the lengths, the fixed point and the order of OpenCV's distanceTransformWithLabels. The seam is thin, so only pixels at
// most its width from a known one, along rows and columns, are looked at: no other pixel is on the shortest way to them.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <vector>

typedef uint64_t Bits;  // a pixel each
constexpr int WORD = 64, EDGE = 2;
constexpr uint32_t FAR = INT32_MAX >> 2, STRAIGHT = 65536, DIAGONAL = 91750, KNIGHT = 143976;  // 1, 1.4, 2.1969 pixels

struct Mask {
    const uint8_t *pixels;  // 1 in the hole, else 0
    ptrdiff_t stride;       // bytes from one row to the next
    int32_t height, width;

    const uint8_t *row(int y) const { return pixels + y * stride; }
};

static inline Bits pack(const uint8_t *from, int count) {
    Bits packed = 0, eight;
    int x = 0;
    for (; x + 8 <= count; x += 8) {
        memcpy(&eight, from + x, 8);
        packed |= (eight * 0x0102040810204080ull) >> 56 << x;
    }
    for (; x < count; x++) packed |= Bits(from[x]) << x;
    return packed;
}

class Seam {
    struct Cell {
        uint32_t distance;
        int32_t source;
    };

    const Mask &mask;
    const int reach, words, line, pitch;
    std::unique_ptr<uint32_t[]> distances;  // with EDGE far pixels on each side
    std::unique_ptr<int32_t[]> sources;     // of pixels of the band alone
    uint32_t *distance;
    int32_t *source;
    std::vector<int32_t> band;  // pixels of the hole that may be in the seam

    void find_band() {
        std::vector<Bits> known(size_t(mask.height) * line, 0), beside(known), near(line);  // a word 0 on each side
        const Bits last = ~Bits(0) >> (words * WORD - mask.width);
        for (int y = 0; y < mask.height; y++) {
            Bits *row = &known[size_t(y) * line + 1], *wide = &beside[size_t(y) * line + 1];
            for (int k = 0; k < words; k++)
                row[k] = ~pack(mask.row(y) + k * WORD, std::min(WORD, mask.width - k * WORD));
            row[words - 1] &= last;
            std::copy_n(row, words, wide);
            for (int s = 1; s <= reach; s++)
                for (int k = 0; k < words; k++)
                    wide[k] |= row[k] << s | row[k - 1] >> (WORD - s) | row[k] >> s | row[k + 1] << (WORD - s);
        }
        for (int y = 0; y < mask.height; y++) {
            std::fill(near.begin(), near.end(), 0);
            for (int other = std::max(y - reach, 0); other <= std::min(y + reach, mask.height - 1); other++)
                for (int k = 0; k < words; k++) near[k] |= beside[size_t(other) * line + 1 + k];
            near[words - 1] &= last;
            for (int k = 0; k < words; k++)
                for (Bits left = near[k] & ~known[size_t(y) * line + 1 + k]; left; left &= left - 1)
                    band.push_back(y * pitch + k * WORD + __builtin_ctzll(left));
        }
    }

    void attempt(int place, uint32_t step, Cell &best) const {
        const uint32_t found = distance[place] + step;
        if (best.distance > found) best = {found, distance[place] ? source[place] : place};
    }

    void look_back(int at, int direction) {  // at what an earlier pixel of the pass knows; 1: from the top
        const int down = direction * pitch, right = direction;
        Cell best = direction > 0 ? Cell{FAR, 0} : Cell{distance[at], source[at]};
        if (best.distance <= STRAIGHT) return;
        attempt(at - 2 * down - right, KNIGHT, best);
        attempt(at - 2 * down + right, KNIGHT, best);
        attempt(at - down - 2 * right, KNIGHT, best);
        attempt(at - down - right, DIAGONAL, best);
        attempt(at - down, STRAIGHT, best);
        attempt(at - down + right, DIAGONAL, best);
        attempt(at - down + 2 * right, KNIGHT, best);
        attempt(at - right, STRAIGHT, best);
        distance[at] = best.distance, source[at] = best.source;
    }

    int32_t in_mask(int32_t place) const { return place / pitch * mask.width + place % pitch; }

  public:
    Seam(const Mask &m, int width)
        : mask(m), reach(width), words((m.width + WORD - 1) / WORD), line(words + 2), pitch(m.width + 2 * EDGE) {
        const size_t edge = size_t(EDGE) * pitch, size = size_t(m.height) * pitch + 2 * edge;
        distances.reset(new uint32_t[size]), sources.reset(new int32_t[size]);
        distance = distances.get() + edge + EDGE, source = sources.get() + edge + EDGE;
        std::fill_n(distances.get(), edge, FAR), std::fill_n(distances.get() + size - edge, edge, FAR);
        for (int y = 0; y < m.height; y++) {
            uint32_t *row = distance + ptrdiff_t(y) * pitch;
            row[-2] = row[-1] = row[m.width] = row[m.width + 1] = FAR;
            for (int x = 0; x < m.width; x++) row[x] = -uint32_t(m.row(y)[x]) & FAR;
        }
        find_band();
    }

    int32_t find(int32_t *places, int32_t *nearest, float *weights) {
        for (int at : band) look_back(at, 1);
        for (size_t k = band.size(); k-- > 0;) look_back(band[k], -1);
        int32_t count = 0;
        for (int at : band) {
            const float far = float(distance[at]) * (1.f / STRAIGHT);
            if (far > float(reach)) continue;
            places[count] = in_mask(at), nearest[count] = in_mask(source[at]);
            weights[count++] = far / float(reach + 1);
        }
        return count;
    }
};

// Sets the pixels of the seam (flat indices, by rows), for each the nearest known pixel and the weight of the fill, and
// returns their number; -1 without the memory. Arrays have room for every pixel of the hole. width: 1 to 63. The mask
// has at most 2^30 pixels.
extern "C" int32_t find_seam(const uint8_t *pixels, ptrdiff_t stride, int32_t height, int32_t mask_width, int32_t width,
                             int32_t *places, int32_t *nearest, float *weights) {
    try {
        const Mask mask{pixels, stride, height, mask_width};
        return Seam(mask, width).find(places, nearest, weights);
    } catch (const std::bad_alloc &) {  // which would end the process: ctypes lets nothing through
        return -1;
    }
}

struct Picture {  // of rows without gaps in them
    uint8_t *pixels;
    ptrdiff_t stride;  // bytes from one row to the next
    int32_t pixel;     // bytes

    uint8_t *at(int y, int x) const { return pixels + y * stride + ptrdiff_t(x) * pixel; }
};

static void copy_where(const Mask &hole, const Picture &fill, const Picture &picture) {
    for (int y = 0; y < hole.height; y++) {
        const uint8_t *row = hole.row(y), *end = row + hole.width, *first = row;
        while (first < end && (first = static_cast<const uint8_t *>(memchr(first, 1, end - first)))) {
            const void *found = memchr(first, 0, end - first);
            const uint8_t *after = found ? static_cast<const uint8_t *>(found) : end;
            const int x = int(first - row);
            memcpy(picture.at(y, x), fill.at(y, x), (after - first) * picture.pixel);
            first = after;
        }
    }
}

template <typename Sample>
static void blend(const Mask &hole, const Picture &fill, const Picture &picture, const int32_t *places,
                  const int32_t *nearest, const float *weights, int32_t count) {
    constexpr float whole = 12582912.f;  // 1.5 * 2^23: adding it rounds half to even, as numpy's rint
    for (int32_t k = 0; k < count; k++) {
        const int y = places[k] / hole.width, x = places[k] % hole.width;
        if (!hole.row(y)[x]) continue;  // of another crop's hole
        const uint8_t *own = fill.at(y, x), *known = picture.at(nearest[k] / hole.width, nearest[k] % hole.width);
        uint8_t *to = picture.at(y, x);
        const float weight = weights[k], rest = 1 - weight;
        for (int byte = 0; byte < picture.pixel; byte += sizeof(Sample)) {
            Sample painted, beside;
            memcpy(&painted, own + byte, sizeof painted), memcpy(&beside, known + byte, sizeof beside);
            const Sample blended = Sample((weight * float(painted) + rest * float(beside) + whole) - whole);
            memcpy(to + byte, &blended, sizeof blended);
        }
    }
}

// Copies a fill into a picture where the hole is, and blends it in the seam with the nearest known pixels, which are
// outside all holes. sample: bytes, 1 or 2; pixel: bytes.
extern "C" void paste(uint8_t *picture, ptrdiff_t picture_stride, uint8_t *fill, ptrdiff_t fill_stride,
                      const uint8_t *hole, ptrdiff_t hole_stride, int32_t height, int32_t width, int32_t pixel,
                      int32_t sample, const int32_t *places, const int32_t *nearest, const float *weights,
                      int32_t count) {
    const Mask mask{hole, hole_stride, height, width};
    const Picture from{fill, fill_stride, pixel}, to{picture, picture_stride, pixel};
    copy_where(mask, from, to);
    (sample == 1 ? blend<uint8_t> : blend<uint16_t>)(mask, from, to, places, nearest, weights, count);
}

extern "C" uint32_t built_from() { return 0x66dd6fe5; }  // CRC-32 of the other lines; compiled.py asks for it
