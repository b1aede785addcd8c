// The rows of a photograph as PNG stores them: filtered (PNG 9.4, Paeth), runs of zeros as repetitions, everything else as
// Huffman codes of single bytes, in blocks of deflate (RFC 1951). scanlines.py calls it. Deflate's search for repeated bytes,
// which takes most of its time, finds next to nothing in a filtered photograph.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <new>
#include <vector>

#if defined(__x86_64__) && defined(__gnu_linux__) && defined(__GNUC__) && !defined(__clang__)
#define WIDEST_VECTORS __attribute__((target_clones("avx2", "default")))
#define QUICKEST_SHIFTS __attribute__((target_clones("bmi2", "default")))
#else
#define WIDEST_VECTORS
#define QUICKEST_SHIFTS
#endif

constexpr int SYMBOLS = 286;        // bytes, the end of a block, and lengths of matches
constexpr int END_OF_BLOCK = 256;
constexpr int LONGEST_MATCH = 258;
constexpr int LONGEST = 12;         // bits of a code
constexpr int MOST_AT_ONCE = 56;    // bits that fit 64 behind the rest of a byte
constexpr int64_t BLOCK = 1 << 16;  // least bytes of a block: its table takes 150
constexpr int64_t TABLE = 17 + 19 * 3 + (SYMBOLS + 2) * 4;  // bits of a block's head
constexpr int64_t BEHIND_A_LENGTH = 3;  // bits, about: those of the length that follow its symbol, and the distance
constexpr int64_t SUMMED = 2048;    // bytes whose weighted sum fits 32 bits
constexpr uint32_t ADLER = 65521;
constexpr uint8_t PAETH = 4;

// A row minus what Paeth predicts from the pixels to the left, above and above to the left; `pixel` is in bytes.
WIDEST_VECTORS void filter(const uint8_t *row, const uint8_t *above, int64_t size, int64_t pixel, uint8_t *to) {
    for (int64_t i = 0; i < std::min(pixel, size); i++) to[i] = row[i] - above[i];
    for (int64_t i = pixel; i < size; i++) {  // in unsigned bytes (png_filters.cpp says how), of which a vector holds most
        const uint8_t a = row[i - pixel], b = above[i], c = above[i - pixel], low = std::min(a, b), high = std::max(a, b);
        const uint8_t down = std::max(c, low) - low, up = std::max(high, c) - c;
        const uint8_t far_down = std::max(down, up) - up, far_up = std::max(up, down) - down;
        to[i] = uint8_t(row[i] - c + (far_down >= up ? down : 0) - (far_up >= down ? up : 0));
    }
}

// A row as it is stored: the type of its filter, then its differences; above the first row there are zeros, `none`.
static void filter_line(const uint8_t *pixels, int64_t row, int64_t size, int64_t pixel, const uint8_t *none, uint8_t *to) {
    to[0] = PAETH;
    filter(pixels + row * size, row ? pixels + (row - 1) * size : none, size, pixel, to + 1);
}

// Sum of bytes, and the sum of each times its distance from the end, for Adler-32; at most SUMMED bytes.
WIDEST_VECTORS void weigh(const uint8_t *bytes, int32_t size, uint32_t *sum, uint32_t *weighted) {
    uint32_t s = 0, w = 0;
    for (int32_t i = 0; i < size; i++) {
        s += bytes[i];
        w += uint32_t(size - i) * bytes[i];
    }
    *sum = s;
    *weighted = w;
}

static void add_to_adler(const uint8_t *bytes, int64_t size, uint64_t *low, uint64_t *high) {
    for (int64_t at = 0; at < size; at += SUMMED) {
        const int32_t here = int32_t(std::min(SUMMED, size - at));
        uint32_t sum, weighted;
        weigh(bytes + at, here, &sum, &weighted);
        *high = (*high + *low * uint64_t(here) + weighted) % ADLER;
        *low = (*low + sum) % ADLER;
    }
}

// Calls `whole` for eight bytes at a time, `single` for each of the last seven, and `run` with the length of a run of eight or more zeros.
template <typename Whole, typename Single, typename Run>
static inline __attribute__((always_inline)) void walk(const uint8_t *bytes, int64_t size, Whole whole, Single single, Run run) {
    int64_t i = 0;
    while (i + 8 <= size) {
        uint64_t eight;
        memcpy(&eight, bytes + i, 8);
        if (eight) {
            whole(bytes + i);
            i += 8;
            continue;
        }
        const int64_t begin = i;
        while (i < size && !bytes[i]) i++;
        run(i - begin);
    }
    for (; i < size; i++) single(bytes[i]);
}

// The symbol of a match's length, 3 to 258 (RFC 1951, 3.2.5), and the bits that follow it.
static void length_symbol(int64_t length, int *symbol, int *extra, uint32_t *value) {
    if (length == 258) {
        *symbol = 285, *extra = 0, *value = 0;
        return;
    }
    const uint32_t over = uint32_t(length - 3);
    int bits = 0;
    while (over >> (bits + 3)) bits++;  // eight lengths without extra bits, then four for each number of them
    *symbol = bits ? 261 + 4 * bits + int(over >> bits & 3) : 257 + int(over);
    *extra = bits;
    *value = over & ((1u << bits) - 1);
}

// Calls `literal` for the zeros that are written out of a run, and `match` with the length of each repetition of the byte before.
template <typename Literal, typename Match>
static void divide_run(int64_t length, Literal literal, Match match) {
    literal();
    for (length--; length >= 3;) {
        const int64_t here = std::min<int64_t>(length, LONGEST_MATCH);
        match(here);
        length -= here;
    }
    for (; length > 0; length--) literal();
}

static void count(const uint8_t *bytes, int64_t size, uint32_t *counts) {
    uint32_t apart[4][256] = {};  // in one table, equal neighbours would wait for each other
    walk(
        bytes, size,
        [&](const uint8_t *eight) {
            for (int k = 0; k < 8; k++) apart[k & 3][eight[k]]++;
        },
        [&](uint8_t byte) { apart[0][byte]++; },
        [&](int64_t length) {
            divide_run(length, [&] { apart[0][0]++; }, [&](int64_t match) {
                int symbol, extra;
                uint32_t value;
                length_symbol(match, &symbol, &extra, &value);
                counts[symbol]++;
            });
        });
    for (int k = 0; k < 256; k++) counts[k] += apart[0][k] + apart[1][k] + apart[2][k] + apart[3][k];
}

// Lengths of Huffman's codes, at most LONGEST bits; 0 for a symbol that does not occur. At least two do.
static void choose_lengths(const uint32_t *counts, uint8_t *lengths) {
    uint64_t weights[2 * SYMBOLS];
    int order[SYMBOLS], used = 0;
    for (int i = 0; i < SYMBOLS; i++) {
        lengths[i] = 0;
        weights[i] = counts[i];
        if (counts[i]) order[used++] = i;
    }
    for (;;) {
        int parent[2 * SYMBOLS], leaf = 0, node = SYMBOLS, next = SYMBOLS, longest = 0;
        uint8_t depth[2 * SYMBOLS];
        std::stable_sort(order, order + used, [&](int a, int b) { return weights[a] < weights[b]; });
        for (; next < SYMBOLS + used - 1; next++) {  // the two lightest of leaves and nodes; nodes are made in order of weight
            weights[next] = 0;
            for (int k = 0; k < 2; k++) {
                const bool is_leaf = leaf < used && (node == next || weights[order[leaf]] <= weights[node]);
                const int child = is_leaf ? order[leaf++] : node++;
                parent[child] = next;
                weights[next] += weights[child];
            }
        }
        depth[next - 1] = 0;
        for (int i = next - 2; i >= SYMBOLS; i--) depth[i] = uint8_t(depth[parent[i]] + 1);
        for (int k = 0; k < used; k++) {
            lengths[order[k]] = uint8_t(depth[parent[order[k]]] + 1);
            longest = std::max<int>(longest, lengths[order[k]]);
        }
        if (longest <= LONGEST) return;
        for (int k = 0; k < used; k++) weights[order[k]] = weights[order[k]] / 2 + 1;
    }
}

// Codes of those lengths (RFC 1951, 3.2.2), first bit lowest; the length is in the bits from 16 on.
static void choose_codes(const uint8_t *lengths, uint32_t *codes) {
    uint32_t next[LONGEST + 2] = {}, of_length[LONGEST + 1] = {};
    for (int i = 0; i < SYMBOLS; i++) of_length[lengths[i]]++;
    of_length[0] = 0;
    for (int bits = 1; bits <= LONGEST; bits++) next[bits + 1] = (next[bits] + of_length[bits]) << 1;
    for (int i = 0; i < SYMBOLS; i++) {
        uint32_t code = next[lengths[i]]++, turned = 0;
        for (int bit = 0; bit < lengths[i]; bit++) turned |= (code >> bit & 1) << (lengths[i] - 1 - bit);
        codes[i] = turned | uint32_t(lengths[i]) << 16;
    }
}

struct Bits {
    uint8_t *to;
    uint64_t held = 0;
    int count = 0;

    void put(uint64_t bits, int size) {  // at most MOST_AT_ONCE
        held |= bits << count;
        count += size;
        memcpy(to, &held, 8);  // little-endian, as x86-64 and 64-bit ARM are
        to += count >> 3;
        held >>= count & ~7;
        count &= 7;
    }
};

static void put_table(Bits *bits, const uint8_t *lengths) {
    bits->put(0b100, 3);             // not the last block; its codes follow
    bits->put(SYMBOLS - 257, 5);
    bits->put(1, 5);                 // two distances, of which the first, of a byte, is used: decoders refuse an incomplete set
    bits->put(19 - 4, 4);
    const int order[19] = {16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15};
    for (int symbol : order) bits->put(symbol < 16 ? 4 : 0, 3);  // lengths are written as numbers of four bits
    for (int i = 0; i < SYMBOLS + 2; i++) {
        const int length = i < SYMBOLS ? lengths[i] : 1;
        bits->put((length & 1) << 3 | (length & 2) << 1 | (length & 4) >> 1 | (length & 8) >> 3, 4);
    }
}

QUICKEST_SHIFTS void put_bytes(Bits *all, const uint8_t *bytes, int64_t size, const uint32_t *codes) {
    Bits bits = *all;
    uint16_t code_of[256];  // two tables, as a load is cheaper here than splitting a number
    uint8_t size_of[256];
    std::transform(codes, codes + 256, code_of, [](uint32_t code) { return uint16_t(code); });
    std::transform(codes, codes + 256, size_of, [](uint32_t code) { return uint8_t(code >> 16); });
    const auto one = [&](int symbol) { bits.put(codes[symbol] & 0xffff, int(codes[symbol] >> 16)); };
    walk(
        bytes, size,
        [&](const uint8_t *eight) {
            uint64_t code[2];
            int size[2];
            for (int k = 0; k < 2; k++) {  // in pairs, so that fewer steps wait for the last one
                const uint8_t *four = eight + 4 * k;
                const int a = four[0], b = four[1], c = four[2], d = four[3];
                const uint64_t ab = code_of[a] | uint64_t(code_of[b]) << size_of[a], cd = code_of[c] | uint64_t(code_of[d]) << size_of[c];
                const int of_ab = size_of[a] + size_of[b];
                code[k] = ab | cd << of_ab;
                size[k] = of_ab + size_of[c] + size_of[d];
            }
            if (size[0] + size[1] <= MOST_AT_ONCE) {
                bits.put(code[0] | code[1] << size[0], size[0] + size[1]);
            } else {
                bits.put(code[0], size[0]);
                bits.put(code[1], size[1]);
            }
        },
        [&](uint8_t byte) { one(byte); },
        [&](int64_t length) {
            divide_run(length, [&] { one(0); }, [&](int64_t match) {
                int symbol, extra;
                uint32_t value;
                length_symbol(match, &symbol, &extra, &value);
                one(symbol);
                bits.put(value, extra);
                bits.put(0, 1);  // one byte back
            });
        });
    *all = bits;
}

extern "C" {

// Bytes that `together` rows from each of `firsts` on would take, with one code for all of them; -1: no memory.
int64_t estimate_rows(const uint8_t *pixels, const int64_t *firsts, int64_t samples, int64_t together, int64_t row_bytes, int32_t pixel_bytes) try {
    const int64_t line = row_bytes + 1;
    std::vector<uint8_t> lines(line * together * samples), none(row_bytes);
    uint8_t *to = lines.data(), lengths[SYMBOLS];
    for (int64_t k = 0; k < samples; k++)
        for (int64_t row = firsts[k]; row < firsts[k] + together; row++, to += line) filter_line(pixels, row, row_bytes, pixel_bytes, none.data(), to);
    uint32_t counts[SYMBOLS] = {};
    counts[END_OF_BLOCK] = 1;
    count(lines.data(), to - lines.data(), counts);
    choose_lengths(counts, lengths);
    int64_t bits = TABLE;
    for (int i = 0; i < SYMBOLS; i++) bits += int64_t(counts[i]) * (lengths[i] + (i > END_OF_BLOCK ? BEHIND_A_LENGTH : 0));
    return bits / 8;
} catch (const std::bad_alloc &) {
    return -1;
}

// Writes rows `first` to `last` (excluded) as whole bytes of deflate blocks, of which only the last strip's last one ends the
// data. `to` has room for 1.5 bytes a byte and 1,024 for each 64 KiB. Returns the bytes written, and their Adler-32; -1: no memory.
int64_t pack_rows(const uint8_t *pixels, int64_t first, int64_t last, int64_t row_bytes, int32_t pixel_bytes, int32_t ends,
                  uint8_t *to, uint32_t *adler) try {
    const int64_t line = row_bytes + 1, together = std::max<int64_t>(1, (BLOCK + line - 1) / line);
    std::vector<uint8_t> lines(line * std::min(together, last - first)), none(row_bytes);
    uint64_t low = 1, high = 0;
    Bits bits{to};
    for (int64_t begin = first; begin < last; begin += together) {
        const int64_t end = std::min(begin + together, last), size = (end - begin) * line;
        for (int64_t row = begin; row < end; row++)
            filter_line(pixels, row, row_bytes, pixel_bytes, none.data(), lines.data() + (row - begin) * line);
        add_to_adler(lines.data(), size, &low, &high);
        uint32_t counts[SYMBOLS] = {}, codes[SYMBOLS];
        counts[END_OF_BLOCK] = 1;
        uint8_t lengths[SYMBOLS];
        count(lines.data(), size, counts);
        choose_lengths(counts, lengths);
        choose_codes(lengths, codes);
        put_table(&bits, lengths);
        put_bytes(&bits, lines.data(), size, codes);
        bits.put(codes[END_OF_BLOCK] & 0xffff, int(codes[END_OF_BLOCK] >> 16));
    }
    bits.put(ends ? 1 : 0, 3);  // an empty stored block, which begins at a whole byte
    if (bits.count) bits.put(0, 8 - bits.count);
    bits.put(0xffff0000, 32);
    *adler = uint32_t(high << 16 | low);
    return bits.to - to;
} catch (const std::bad_alloc &) {
    return -1;
}

}  // extern "C"
extern "C" uint32_t built_from() { return 0x43617b88; }  // CRC-32 of the other lines; compiled.py asks for it
