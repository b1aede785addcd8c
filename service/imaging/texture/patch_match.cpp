// The search of PatchMatch and the vote of its matches, on one core; patch_match.py calls them.
//
// Sources: Barnes et al., "PatchMatch", SIGGRAPH 2009 (propagation, random search); Wexler et al., "Space-Time Completion
// of Video", PAMI 2007 (the vote). Vectors of GCC and Clang in place of intrinsics: the compiler splits them for the
// instruction set that it is given. Every sum has a fixed order, so that all of them compute the same bits.
#include <cstdint>
#include <cstring>
#include <vector>

constexpr int R = 2, SIDE = 2 * R + 1, PLANES = 3;  // patches of 5 pixels; a row of one is 15 floats

typedef float Row __attribute__((vector_size(64)));     // one row of a patch and a float that has no weight
typedef float Quarter __attribute__((vector_size(16)));

struct View {  // as View in patch_match.py; planes are height*width*3 floats, and 16 more may be read or written
    int32_t height, width, target_count, source_count;
    const float *now, *source;  // the picture as filled so far; the same, of which known patches are copied
    const float *trust;         // height*width: what a pixel weighs in a patch
    const float *guide;         // height*width*16: what the fill looks like at a distance
    const uint8_t *valid;       // height*width: 1 at centres of known patches
    const int32_t *targets, *sources;  // centres of patches to be matched, and of known ones, in order of rows
};

struct Step {  // as Step in patch_match.py
    float guide_weight, coherence, coherence_flat;
    int32_t sweeps, reach, fresh;
    uint32_t seed;
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

class Search {
    const View &view;
    const Step &step;
    int32_t *matches;
    float *distances;
    std::vector<int32_t> index;  // of a target by its place, else -1
    Random random;
    Patch patch;
    int wanted[4], wanted_count, best;  // sources that continue the matches of the neighbours
    float distance, score;              // of the best, without and with the penalty for incoherence

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

    void attempt(int source) {
        if (source == best) return;
        const float part = disagreement(source);
        const float factor = 1 + step.coherence * part, flat = step.coherence_flat * part;
        const float found = measure(source, (score - flat) / factor);
        if (found * factor + flat < score) best = source, distance = found, score = found * factor + flat;
    }

    void continue_neighbour(int at, int shift) {  // shift: from the neighbour to this target
        const int known = index[at] < 0 ? -1 : matches[index[at]];
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
            const int neighbour = index[target + shift];
            if (neighbour >= 0 && matches[neighbour] >= 0) wanted[wanted_count++] = matches[neighbour] - shift;
        }
    }

    void improve(int which, int direction, bool first) {
        const int target = view.targets[which];
        read(target);
        best = matches[which];
        if (first && (step.fresh || best < 0)) best = view.sources[random.below(view.source_count)];
        distance = measure(best, 1e30f);
        ask_neighbours(target);
        const float part = disagreement(best);
        score = distance * (1 + step.coherence * part) + step.coherence_flat * part;
        continue_neighbour(target - direction, direction);
        continue_neighbour(target - direction * view.width, direction * view.width);
        look_around();
        matches[which] = best, distances[which] = distance;
    }

  public:
    Search(const View &v, const Step &s, int32_t *m, float *d)
        : view(v), step(s), matches(m), distances(d), index(size_t(v.height) * v.width, -1), random(s.seed) {
        for (int which = 0; which < v.target_count; which++) index[v.targets[which]] = which;
    }

    void run() {
        for (int sweep = 0; sweep < step.sweeps; sweep++)
            for (int k = 0; k < view.target_count; k++)
                improve(sweep % 2 ? view.target_count - 1 - k : k, sweep % 2 ? -1 : 1, sweep == 0);
    }
};

// Improves matches (the source of each target, -1: none yet) and sets distances, target_count of each.
extern "C" void search(const View *view, const Step *step, int32_t *matches, float *distances) {
    Search(*view, *step, matches, distances).run();
}

// Adds every match, weighted and under the window (25 floats), to sums (height*width*3) and totals (height*width).
extern "C" void vote(const View *view, const int32_t *matches, const float *weights, const float *window, float *sums,
                     float *totals) {
    for (int which = 0; which < view->target_count; which++)
        for (int y = 0; y < SIDE; y++) {
            const int shift = (y - R) * view->width - R, place = view->targets[which] + shift;
            float part[16] = {0};
            for (int x = 0; x < SIDE; x++) {
                const float weight = weights[which] * window[y * SIDE + x];
                totals[place + x] += weight;
                for (int plane = 0; plane < PLANES; plane++) part[x * PLANES + plane] = weight;
            }
            float *sum = sums + size_t(place) * PLANES;
            const Row row = load(sum) + load(part) * load(view->source + size_t(matches[which] + shift) * PLANES);
            memcpy(sum, &row, sizeof row);
        }
}

extern "C" uint32_t built_from() { return 0xb8e3bcc5; }  // CRC-32 of the other lines; compiled.py asks for it
