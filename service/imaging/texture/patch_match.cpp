// A sweep of PatchMatch over a part of its targets, the vote of the matches for some rows, and the blend of the votes.
// patch_match.py calls them, several sweeps or votes at once, too. A sweep writes to its own targets alone, and sees
// the matches of the others as they were before, so the result is the same however many threads there are.
//
// Sources: Barnes et al., "PatchMatch", SIGGRAPH 2009 (propagation, random search); Wexler et al., "Space-Time
// Completion of Video", PAMI 2007 (the vote); Darabi et al., "Image Melding", SIGGRAPH 2012 (the vote of differences,
// and the blend). Vectors of GCC and Clang in place of intrinsics: the compiler splits them for the instruction set
// that it is given. Every sum has a fixed order, so that all of them compute the same bits.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

constexpr int R = 2, SIDE = 2 * R + 1, PLANES = 3;  // patches of 5 pixels; a row of one is 15 floats

typedef float Row __attribute__((vector_size(64)));     // one row of a patch and a float that has no weight
typedef float Quarter __attribute__((vector_size(16)));

struct View {  // as View in patch_match.py; planes are height*width*3 floats, and 16 more may be read or written
    int32_t height, width, target_count, source_count;
    float *now;                 // the picture as filled so far
    const float *source;        // the picture of which known patches are copied
    const float *trust;         // height*width: what a pixel weighs in a patch
    const float *guide;         // height*width*16: what the fill looks like at a distance
    const uint8_t *valid;       // height*width: 1 at centres of known patches
    const uint8_t *known;       // height*width: 1 outside the hole
    const uint8_t *redrawn;     // height*width: 1 where the vote counts
    float *across, *down;       // as now: voted differences to the next pixel to the right, and to the one below
    const int32_t *numbers;     // height*width: number of the target at that place, else -1
    const int32_t *targets, *sources;  // centres of patches to be matched, and of known ones, in order of rows
};

struct Step {  // as Step in patch_match.py
    float guide_weight, coherence, coherence_flat, crowding, crowding_flat;
    int32_t reach, fresh, first, backward;
    uint32_t seed;
};

struct Part {  // as Part in patch_match.py
    int32_t begin, end;
};

static inline Row load(const float *from) {
    Row row;
    memcpy(&row, from, sizeof row);
    return row;
}

static inline float total(const Row &row) {
    Quarter part[4];
    memcpy(part, &row, sizeof row);
    const Quarter sum = (part[0] + part[2]) + (part[1] + part[3]);
    return (sum[0] + sum[2]) + (sum[1] + sum[3]);
}

class Random {  // Marsaglia's xorshift
    uint32_t state;

  public:
    explicit Random(uint32_t seed) : state(seed * 2654435761u + 12345u) { state += !state; }
    int below(int count) {
        state ^= state << 13, state ^= state >> 17, state ^= state << 5;
        return int((uint64_t(state) * uint32_t(count)) >> 32);
    }
};

struct Patch {  // a target
    Row colour[SIDE], weight[SIDE], guide;
    float scale;
};

struct Penalty {  // on a distance: for incoherence, and for being matched more often than others
    float factor, flat;
};

class Crowd {  // how often the known patches are matched, in blocks of 4 by 4 of their centres
    static constexpr float MOST = 4;  // excess from which a block is as crowded as it can be
    const int32_t width, across;
    const float usual;  // a block's number of matches if every known patch is matched equally often, and at least once
    std::vector<int32_t> counts;

  public:
    Crowd(const View &view, const int32_t *matches)
        : width(view.width), across((view.width + 3) / 4),
          usual(16 * std::max(1.f, float(view.target_count) / std::max(1, view.source_count))),
          counts(size_t(across) * ((view.height + 3) / 4)) {
        for (int which = 0; which < view.target_count; which++)
            if (matches[which] >= 0) counts[block(matches[which])]++;
    }
    int block(int source) const { return source / width / 4 * across + source % width / 4; }
    float excess(int at, int own) const {  // own: that of the match to be replaced, which does not count
        return std::min(std::max((counts[at] - (at == own)) / usual - 1, 0.f), +MOST);
    }
    void move(int from, int to) {  // from: -1 if it was not matched
        if (from >= 0) counts[from]--;
        counts[to]++;
    }
};

class Search {
    const View &view;
    const Step &step;
    const Part part;
    const int32_t *before;  // the matches of all targets before this sweep
    int32_t *matches;
    float *distances;
    Random random;
    Patch patch;
    Crowd crowd;  // of this part's matches as they are, and the others' before this sweep
    int own;                            // the block of the target's match before this sweep, -1: none
    int wanted[4], wanted_count, best;  // sources that continue the matches of the neighbours
    float distance, score;              // of the best, without and with the penalties

    void read(int target) {
        float sum = 0;
        for (int y = 0; y < SIDE; y++) {
            const int place = target + (y - R) * view.width - R;
            float weights[16] = {0};
            for (int x = 0; x < SIDE; x++) {
                const float trust = view.trust[place + x];
                sum += trust;
                for (int plane = 0; plane < PLANES; plane++) weights[x * PLANES + plane] = trust;
            }
            patch.colour[y] = load(view.now + size_t(place) * PLANES);
            patch.weight[y] = load(weights);
        }
        patch.guide = load(view.guide + size_t(target) * 16);
        patch.scale = 1 / (sum + 1e-6f);
    }

    float measure(int source, float limit) const {
        const Row off = patch.guide - load(view.guide + size_t(source) * 16);
        const float guided = step.guide_weight * total(off * off);
        if (guided >= limit) return guided;
        Row sum = {0};
        for (int y = 0; y < SIDE; y++) {
            const size_t place = size_t(source + (y - R) * view.width - R) * PLANES;
            const Row differ = patch.colour[y] - load(view.source + place);
            sum += differ * differ * patch.weight[y];
        }
        return guided + total(sum) * patch.scale;
    }

    float disagreement(int source) const {
        int count = 0;
        for (int k = 0; k < wanted_count; k++) count += wanted[k] != source;
        return count * 0.25f;
    }

    Penalty penalty(int source) const {
        const float differing = disagreement(source), excess = crowd.excess(crowd.block(source), own);
        return {1 + step.coherence * differing + step.crowding * excess,
                step.coherence_flat * differing + step.crowding_flat * excess};
    }

    void attempt(int source) {
        if (source == best) return;
        const Penalty more = penalty(source);
        const float found = measure(source, (score - more.flat) / more.factor), sum = found * more.factor + more.flat;
        if (sum < score) best = source, distance = found, score = sum;
    }

    int match_at(int place) const {  // -1 if no target is there, or it has none
        const int which = view.numbers[place];
        if (which < 0) return -1;
        return which >= part.begin && which < part.end ? matches[which] : before[which];
    }

    void continue_neighbour(int at, int shift) {  // shift: from the neighbour to this target
        const int known = match_at(at);
        if (known < 0) return;
        const int source = known + shift;
        if (source >= 0 && source < view.height * view.width && view.valid[source]) attempt(source);
    }

    void look_around() {
        for (int reach = step.reach; reach >= 1; reach /= 2) {
            const int y = best / view.width + random.below(2 * reach + 1) - reach;
            const int x = best % view.width + random.below(2 * reach + 1) - reach;
            if (y < 0 || y >= view.height || x < 0 || x >= view.width) continue;
            if (view.valid[y * view.width + x]) attempt(y * view.width + x);
        }
        for (int k = 0; step.fresh && k < 2; k++) attempt(view.sources[random.below(view.source_count)]);
    }

    void ask_neighbours(int target) {
        const int shifts[4] = {-1, 1, -view.width, view.width};
        wanted_count = 0;
        for (int shift : shifts) {  // targets keep R pixels from the border: neighbours are in the picture
            const int known = match_at(target + shift);
            if (known >= 0) wanted[wanted_count++] = known - shift;
        }
    }

    void improve(int which, int direction) {
        const int target = view.targets[which];
        read(target);
        best = matches[which];
        own = best < 0 ? -1 : crowd.block(best);
        if (step.first && (step.fresh || best < 0)) best = view.sources[random.below(view.source_count)];
        distance = measure(best, 1e30f);
        ask_neighbours(target);
        const Penalty more = penalty(best);
        score = distance * more.factor + more.flat;
        continue_neighbour(target - direction, direction);
        continue_neighbour(target - direction * view.width, direction * view.width);
        look_around();
        crowd.move(own, crowd.block(best));
        matches[which] = best, distances[which] = distance;
    }

  public:
    Search(const View &v, const Step &s, Part p, const int32_t *b, int32_t *m, float *d)
        : view(v), step(s), part(p), before(b), matches(m), distances(d), random(s.seed + uint32_t(p.begin)),
          crowd(v, b) {}

    void run() {
        if (step.backward)
            for (int which = part.end - 1; which >= part.begin; which--) improve(which, -1);
        else
            for (int which = part.begin; which < part.end; which++) improve(which, 1);
    }
};

// Improves the matches of a part of the targets (the source of each, -1: none yet) and sets their distances; the arrays
// are those of all targets.
extern "C" void sweep(const View *view, const Step *step, const Part *part, const int32_t *before, int32_t *matches,
                      float *distances) {
    Search(*view, *step, *part, before, matches, distances).run();
}

struct Mean {  // weighted means of the pixels of some rows
    std::vector<float> sums, totals;

    explicit Mean(size_t pixels) : sums(pixels * PLANES + 16), totals(pixels) {}
    void add(size_t place, const Row &values, const float *weights, int count) {  // a row of a patch, `count` pixels
        float part[16] = {0};
        for (int x = 0; x < count; x++) {
            totals[place + x] += weights[x];
            for (int plane = 0; plane < PLANES; plane++) part[x * PLANES + plane] = weights[x];
        }
        float *sum = sums.data() + place * PLANES;
        const Row more = load(sum) + load(part) * values;
        memcpy(sum, &more, sizeof more);
    }
    void write(size_t pixel, float *to) const {
        for (int plane = 0; plane < PLANES; plane++) to[plane] = sums[pixel * PLANES + plane] / totals[pixel];
    }
};

// Sets the redrawn pixels of some rows to the mean of the matched patches over them, weighted and under the window (25
// floats), and the differences of neighbours to the mean of those in the patches. Every pixel adds its patches in the
// order of targets.
extern "C" void vote(const View *view, const Part *rows, const int32_t *matches, const float *weights,
                     const float *window) {
    const int width = view->width, end_row = std::min(rows->end + R, view->height);
    const size_t pixels = size_t(rows->end - rows->begin) * width, start = size_t(rows->begin) * width;
    Mean colours(pixels), across(pixels), down(pixels);
    float pairs[SIDE * SIDE], columns[SIDE * SIDE];  // windows of a pixel with its neighbour to the right, and below
    for (int k = 0; k < SIDE * SIDE; k++) {
        pairs[k] = k % SIDE < SIDE - 1 ? std::sqrt(window[k] * window[k + 1]) : 0;
        columns[k] = k / SIDE < SIDE - 1 ? std::sqrt(window[k] * window[k + SIDE]) : 0;
    }
    const int32_t *const targets = view->targets, *const after = targets + view->target_count;
    const int first = std::lower_bound(targets, after, std::max(rows->begin - R, 0) * width) - targets;
    const int last = std::lower_bound(targets, after, end_row * width) - targets;
    for (int which = first; which < last; which++)
        for (int y = 0; y < SIDE; y++) {
            const int shift = (y - R) * width - R, place = view->targets[which] + shift, row = place / width;
            if (row < rows->begin || row >= rows->end) continue;
            float weighted[3][SIDE];
            for (int x = 0; x < SIDE; x++) {
                const int k = y * SIDE + x;
                weighted[0][x] = weights[which] * window[k];
                weighted[1][x] = weights[which] * pairs[k];
                weighted[2][x] = weights[which] * columns[k];
            }
            const float *from = view->source + size_t(matches[which] + shift) * PLANES;
            const Row values = load(from);
            colours.add(place - start, values, weighted[0], SIDE);
            across.add(place - start, load(from + PLANES) - values, weighted[1], SIDE - 1);
            if (y < SIDE - 1) down.add(place - start, load(from + width * PLANES) - values, weighted[2], SIDE);
        }
    for (size_t pixel = 0; pixel < pixels; pixel++) {
        const size_t place = (start + pixel) * PLANES;
        if (view->redrawn[start + pixel] && colours.totals[pixel] > 0) colours.write(pixel, view->now + place);
        if (across.totals[pixel] > 0) across.write(pixel, view->across + place);
        if (down.totals[pixel] > 0) down.write(pixel, view->down + place);
    }
}

static inline Quarter pixel_at(const float *plane, int place) {
    Quarter found;
    memcpy(&found, plane + size_t(place) * PLANES, sizeof found);
    return found;
}

class Blend {
    static constexpr int SWEEPS = 10;  // of successive over-relaxation
    static constexpr float OVER = 1.45f;  // the best for ten sweeps at a pull of 0.1: a hundredth of the change is left

    // A redrawn pixel. Its colour is to be `rest` plus those of its neighbours, divided by the pull plus their number.
    struct Unknown {
        Quarter rest;
        int32_t place, count, neighbours[4];  // as numbers of unknowns; 0: a known neighbour, which is in `rest`
    };

    const View &view;
    const float pull, outline;  // the outline to the power of four
    std::vector<Unknown> unknowns{1};
    std::vector<Quarter> colours{1};  // of the unknowns; the first one stays 0

    // The difference to aim at between two neighbours: the voted one where patches of different light meet, and that of
    // the voted colours where the two are further apart than `outline`. There patches of sky meet patches of ground,
    // which have no such difference themselves, and the blend would make a haze of it.
    Quarter slope(const float *voted, int place, int next) const {
        const Quarter found = pixel_at(voted, place), drawn = pixel_at(view.now, next) - pixel_at(view.now, place);
        const Quarter squares = (drawn - found) * (drawn - found);
        const float square = squares[0] + squares[1] + squares[2], fourth = square * square;
        return found + (drawn - found) * (fourth / (fourth + outline));
    }
    void lean(Unknown &one, int other, Quarter slope) {  // slope: from the other pixel to this one
        if (!view.known[other]) return;
        one.rest += pixel_at(view.now, other) + slope;
        one.count++;
    }
    void join(int one, int other, Quarter slope) {
        Unknown &mine = unknowns[one], &theirs = unknowns[other];
        mine.rest += slope, theirs.rest -= slope;
        mine.neighbours[mine.count++] = other, theirs.neighbours[theirs.count++] = one;
    }

  public:
    Blend(const View &v, float p, float o) : view(v), pull(p), outline(o * o * o * o) {
        const int width = view.width, height = view.height;
        const size_t most = 1 + std::count(view.redrawn, view.redrawn + size_t(width) * height, uint8_t(1));
        unknowns.reserve(most), colours.reserve(most);
        std::vector<int32_t> above(width);  // the unknown in each column of the row above, and to the left of this row
        for (int y = 0, place = 0; y < height; y++)
            for (int x = 0; x < width; x++, place++) {
                const int upper = above[x], left = x > 0 ? above[x - 1] : 0, own = int(unknowns.size());
                const bool unknown = view.redrawn[place] && !view.known[place];
                above[x] = unknown ? own : 0;
                if (!unknown) continue;
                colours.push_back(pixel_at(view.now, place));
                unknowns.push_back({colours[own] * pull, place, 0, {0}});
                Unknown &one = unknowns[own];
                if (left) join(own, left, slope(view.across, place - 1, place));
                else if (x > 0) lean(one, place - 1, slope(view.across, place - 1, place));
                if (upper) join(own, upper, slope(view.down, place - width, place));
                else if (y > 0) lean(one, place - width, slope(view.down, place - width, place));
                if (x < width - 1) lean(one, place + 1, -slope(view.across, place, place + 1));
                if (y < height - 1) lean(one, place + width, -slope(view.down, place, place + width));
            }
    }

    void run() {
        float factors[5];
        for (int count = 0; count < 5; count++) factors[count] = OVER / (pull + count);
        for (int sweep = 0; sweep < SWEEPS; sweep++)
            for (size_t k = 1; k < unknowns.size(); k++) {
                const Unknown &one = unknowns[k];
                Quarter sum = one.rest;  // the pixel to the left comes last, because its colour has just been computed
                for (int which = 3; which >= 0; which--) sum += colours[one.neighbours[which]];
                colours[k] = colours[k] * (1 - OVER) + sum * factors[one.count];
            }
        for (size_t k = 1; k < unknowns.size(); k++)
            memcpy(view.now + size_t(unknowns[k].place) * PLANES, &colours[k], PLANES * sizeof(float));
    }
};

// Changes the voted colours of all redrawn pixels so that neighbours differ as voted, by least squares: a colour that
// is not as voted costs `pull`, a difference 1. Neighbours are in one patch of a target, so their difference is voted.
// Colours whose difference is `outline` from the voted one keep half of it, and larger ones more.
extern "C" void blend(const View *view, float pull, float outline) { Blend(*view, pull, outline).run(); }

extern "C" uint32_t built_from() { return 0x75144d6f; }  // CRC-32 of the other lines; compiled.py asks for it
