// The sparse input layer, and the sorted keys by which kernels visit the entries and labels of a batch.

// Add columns `column` and every WARP after, below `to`, of rows of M (., H) to `sum`, times their weights: of the row
// and the weight of each of the warp's first n lanes, in their order.
#define ROWS_AT_ONCE 4  // rows of which a warp awaits all loads together
__device__ __forceinline__ void add_rows(float *sum, int row, float weight, int n, const float *M, int H, int column,
                                         int to) {
    for (int e = 0; e < n; e += ROWS_AT_ONCE) {
        float m[ROWS_AT_ONCE][PER_LANE];
#pragma unroll
        for (int u = 0; u < ROWS_AT_ONCE; ++u) {
            const float *from_row = M + (i64)__shfl_sync(FULL, row, e + u) * H + column;
            for (int c = 0; c < PER_LANE; ++c)
                m[u][c] = e + u < n && column + c * WARP < to ? from_row[c * WARP] : 0.0f;
        }
#pragma unroll
        for (int u = 0; u < ROWS_AT_ONCE; ++u) {
            float x = __shfl_sync(FULL, weight, e + u);
            for (int c = 0; c < PER_LANE; ++c) sum[c] += x * m[u][c];
        }
    }
}

// A (B, H) = relu(X[rows] W + b). A warp has a row and TILE columns. spans (3, B): first and last entry of each row in
// `indices` and `data`, and its first entry's number in the batch.
extern "C" __global__ void input_forward(const i64 *spans, const int *indices, const float *data, const float *W,
                                         const float *b, int B, int H, float *A) {
    int lane = threadIdx.x & 31;
    int row = blockIdx.x * (blockDim.x >> 5) + (threadIdx.x >> 5);
    int column = blockIdx.y * TILE + lane;
    if (row >= B) return;
    i64 begin = spans[row], end = spans[B + row];
    float sum[PER_LANE];
    for (int c = 0; c < PER_LANE; ++c) sum[c] = column + c * WARP < H ? b[column + c * WARP] : 0.0f;
    for (i64 base = begin; base < end; base += WARP) {
        i64 q = base + lane;
        int f = 0;
        float x = 0.0f;
        if (q < end) {
            f = indices[q];
            x = data[q];
        }
        int n = end - base < WARP ? (int)(end - base) : WARP;
        add_rows(sum, f, x, n, W, H, column, H);
    }
    for (int c = 0; c < PER_LANE; ++c)
        if (column + c * WARP < H) A[(i64)row * H + column + c * WARP] = relu(sum[c]);
}

// The entries of a batch as keys feature * 2^32 + place in the batch, with their batch row and value. A warp has a row.
extern "C" __global__ void entry_keys(const i64 *spans, const int *indices, const float *data, int B, i64 *keys,
                                      int *entry_row, float *entry_value) {
    int row = blockIdx.x * (blockDim.x >> 5) + (threadIdx.x >> 5);
    if (row >= B) return;
    i64 begin = spans[row], end = spans[B + row], place = spans[2 * (i64)B + row];
    for (i64 q = begin + (threadIdx.x & 31); q < end; q += WARP) {
        i64 at = place + q - begin;
        keys[at] = ((i64)indices[q] << 32) + at;
        entry_row[at] = row;
        entry_value[at] = data[q];
    }
}

// The sum, valid over the lanes of a warp, of the weights of a segment's keys, and g (to - from,) that of these weights
// times columns [from, to) of rows of M: of the WARP keys from `first` on, and of every `step` after, in that order.
template <class Entry>
__device__ __forceinline__ float sum_stretches(const i64 *keys, i64 n, i64 segment, i64 first, i64 step, const float *M,
                                               int H, int from, int to, float *g, Entry entry) {
    int lane = threadIdx.x & 31, tile = from;
    float total;
    do {
        float sum[PER_LANE] = {0.0f, 0.0f, 0.0f, 0.0f};
        int found = WARP, column = tile + lane;
        total = 0.0f;
        for (i64 base = first; found == WARP; base += step) {
            i64 p = base + lane;
            int row = 0;
            float weight = 0.0f;
            bool mine = p < n && keys[p] >> 32 == segment;
            if (mine) weight = entry(keys[p] & 0xffffffffLL, p, &row);
            total += weight;
            found = __popc(__ballot_sync(FULL, mine));
            add_rows(sum, row, weight, found, M, H, column, to);
        }
        for (int c = 0; c < PER_LANE; ++c)
            if (column + c * WARP < to) g[column + c * WARP - from] = sum[c];
    } while ((tile += TILE) < to);
    return total;
}

// Sum over each segment of `keys` (n,), sorted: those of one feature or label, their upper half, in [start, stop).
// `entry(place, p, &row)` returns the weight of key number p, whose lower half is `place`, and sets the row of M (., H)
// that it weighs. One warp calls `finish(segment, g, total)` with columns [from, to) of the sum of weighed rows in
// g (to - from,) and, in lane 0, the sum of the weights.
//
// A block has the segments that begin at its WARP keys. One of up to WARP keys is that of a warp. Of a longer one, and
// a block has one at most, each warp sums every so many stretches of WARP keys, and the sums are added in the order of
// the warps. Shared memory: `sums` (warps, to - from), `parts` (WARP,).
template <class Entry, class Finish>
__device__ __forceinline__ void sum_segments(const i64 *keys, i64 n, i64 start, i64 stop, const float *M, int H,
                                             int from, int to, float *sums, float *parts, Entry entry, Finish finish) {
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = blockDim.x >> 5, width = to - from;
    float *g = sums + warp * width;
    i64 first = (i64)blockIdx.x * WARP, q = first + lane;
    i64 mine = q < n ? keys[q] >> 32 : -1;
    bool head = q < n && mine >= start && mine < stop && (q == 0 || keys[q - 1] >> 32 != mine);
    u32 all_long = __ballot_sync(FULL, head && q + WARP < n && keys[q + WARP] >> 32 == mine);
    u32 all_short = __ballot_sync(FULL, head) & ~all_long;
    for (int k = warp; k < WARP || all_long != 0u; k += warps) {
        bool together = k >= WARP;
        if (!together && !(all_short >> k & 1u)) continue;
        int at = together ? __popc((all_long & (0u - all_long)) - 1u) : k;
        i64 segment = __shfl_sync(FULL, mine, at), begin = first + at + (together ? warp * WARP : 0);
        float total = sum_stretches(keys, n, segment, begin, together ? warps * WARP : WARP, M, H, from, to, g, entry);
        if (together) {
            total = block_sum(total, parts);
            for (int j = threadIdx.x; j < width; j += blockDim.x) {
                float sum = 0.0f;
                for (int w = 0; w < warps; ++w) sum += sums[w * width + j];
                sums[j] = sum;
            }
            __syncthreads();
        } else {
            total = warp_sum(total);
        }
        if (!together || warp == 0) finish(segment, g, total);
        if (together) return;
    }
}

#define ABOVE_FEATURES 0x7fffffffLL
// Sum the gradient of each feature of the batch, W[f] -= rule(sum of value * dZ[row]), and update its row of W (F, H).
// `keys` (n,) are sorted; a block has WARP of them. blockIdx.y is a tile of columns; one has all of them where a rule
// looks at norms. Dynamic shared memory: a warp's gradient of these columns.
extern "C" __global__ void FOUR_BLOCKS input_update(const i64 *keys, i64 n, const int *entry_row,
                                                    const float *entry_value, const float *dZ, float *W, float *s,
                                                    float *t, int H, int kind, const float *hyper) {
    DYNAMIC_SHARED(float, gradients);
    __shared__ float parts[WARP];
    int from = blockIdx.y * TILE, to = gridDim.y == 1 || from + TILE > H ? H : from + TILE;
    auto entry = [&](i64 place, i64, int *row) {
        *row = entry_row[place];
        return entry_value[place];
    };
    auto finish = [&](i64 feature, const float *g, float) {
        update_row(kind, feature, g - from, W, s, t, H, from, to, hyper);
    };
    sum_segments(keys, n, 0, ABOVE_FEATURES, dZ, H, from, to, gradients, parts, entry, finish);
}

// The labels of a batch as keys label * 2^32 + batch row. A warp has a row.
extern "C" __global__ void label_keys(const i64 *spans, const int *indices, int B, i64 *keys) {
    int row = blockIdx.x * (blockDim.x >> 5) + (threadIdx.x >> 5);
    if (row >= B) return;
    i64 begin = spans[row], end = spans[B + row], place = spans[2 * (i64)B + row];
    for (i64 q = begin + (threadIdx.x & 31); q < end; q += WARP)
        keys[place + q - begin] = ((i64)indices[q] << 32) + row;
}
