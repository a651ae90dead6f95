// The sparse input layer, and the sorted keys by which kernels visit the entries and labels of a batch.

// A (B, H) = relu(X[rows] W + b). A warp has a row and TILE columns. spans (4, B): first and last entry of each row in
// `indices` and `data`, its first entry's number in the data set (dropout), and in the batch.
extern "C" __global__ void input_forward(const i64 *spans, const int *indices, const float *data, const float *W,
                                         const float *b, int B, int H, u32 seed, u32 threshold, float scale,
                                         float *A) {
    int lane = threadIdx.x & 31;
    int row = blockIdx.x * (blockDim.x >> 5) + (threadIdx.x >> 5);
    int column = blockIdx.y * TILE + lane;
    if (row >= B) return;
    i64 begin = spans[row], end = spans[B + row], number = spans[2 * (i64)B + row] - begin;
    float sum[PER_LANE];
    for (int c = 0; c < PER_LANE; ++c) sum[c] = column + c * WARP < H ? b[column + c * WARP] : 0.0f;
    for (i64 base = begin; base < end; base += WARP) {
        i64 q = base + lane;
        int f = 0;
        float x = 0.0f;
        if (q < end && kept(seed, q + number, threshold)) {
            f = indices[q];
            x = data[q] * scale;
        }
        int n = end - base < WARP ? (int)(end - base) : WARP;
#pragma unroll 4
        for (int e = 0; e < n; ++e) {
            const float *w = W + (i64)__shfl_sync(FULL, f, e) * H;
            float value = __shfl_sync(FULL, x, e);
            if (value != 0.0f)
                for (int c = 0; c < PER_LANE; ++c)
                    if (column + c * WARP < H) sum[c] += value * w[column + c * WARP];
        }
    }
    for (int c = 0; c < PER_LANE; ++c)
        if (column + c * WARP < H) A[(i64)row * H + column + c * WARP] = relu(sum[c]);
}

// The entries of a batch as keys feature * 2^32 + place in the batch, with their batch row and value. A warp has a row.
extern "C" __global__ void entry_keys(const i64 *spans, const int *indices, const float *data, int B, u32 seed,
                                      u32 threshold, float scale, i64 *keys, int *entry_row, float *entry_value) {
    int row = blockIdx.x * (blockDim.x >> 5) + (threadIdx.x >> 5);
    if (row >= B) return;
    i64 begin = spans[row], end = spans[B + row], number = spans[2 * (i64)B + row], place = spans[3 * (i64)B + row];
    for (i64 q = begin + (threadIdx.x & 31); q < end; q += WARP) {
        i64 at = place + q - begin;
        keys[at] = kept(seed, number + q - begin, threshold) ? ((i64)indices[q] << 32) + at : DROPPED;
        entry_row[at] = row;
        entry_value[at] = data[q] * scale;
    }
}

// Sum the gradient of each feature of the batch, W[f] -= rule(sum of value * dZ[row]), and update its row of W (F, H).
// `keys` (n,) are sorted; the warp at the first key of a feature has that feature, so no two write one row, and the
// order of a sum is that of the rows. blockIdx.y is a tile of columns; one has all of them where a rule looks at norms.
// Dynamic shared memory: a gradient row of H floats a warp.
extern "C" __global__ void input_update(const i64 *keys, i64 n, const int *entry_row, const float *entry_value,
                                        const float *dZ, float *W, float *s, float *t, int H, int kind,
                                        const float *hyper) {
    DYNAMIC_SHARED(float, gradients);
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    float *g = gradients + (i64)warp * H;
    i64 first = (i64)blockIdx.x * (blockDim.x >> 5) + warp;
    if (first >= n || keys[first] == DROPPED) return;
    i64 feature = keys[first] >> 32;
    if (first > 0 && keys[first - 1] >> 32 == feature) return;
    int from = blockIdx.y * TILE, to = gridDim.y == 1 || from + TILE > H ? H : from + TILE;
    for (int tile = from; tile < to; tile += TILE) {
        float sum[PER_LANE] = {0.0f, 0.0f, 0.0f, 0.0f};
        int found = WARP;
        for (i64 base = first; found == WARP; base += WARP) {
            i64 q = base + lane;
            int row = 0;
            float x = 0.0f;
            bool mine = q < n && keys[q] >> 32 == feature;
            if (mine) {
                i64 place = keys[q] & 0xffffffffLL;
                row = entry_row[place];
                x = entry_value[place];
            }
            found = __popc(__ballot_sync(FULL, mine));
#pragma unroll 8
            for (int e = 0; e < found; ++e) {
                const float *d = dZ + (i64)__shfl_sync(FULL, row, e) * H + tile + lane;
                float value = __shfl_sync(FULL, x, e);
                for (int c = 0; c < PER_LANE; ++c)
                    if (tile + lane + c * WARP < H) sum[c] += value * d[c * WARP];
            }
        }
        for (int c = 0; c < PER_LANE; ++c)
            if (tile + lane + c * WARP < H) g[tile + lane + c * WARP] = sum[c];
    }
    update_row(kind, feature, g, W, s, t, H, from, to, hyper);
}

// The labels of a batch as keys label * 2^32 + batch row. A warp has a row.
extern "C" __global__ void label_keys(const i64 *spans, const int *indices, int B, i64 *keys) {
    int row = blockIdx.x * (blockDim.x >> 5) + (threadIdx.x >> 5);
    if (row >= B) return;
    i64 begin = spans[row], end = spans[B + row], place = spans[3 * (i64)B + row];
    for (i64 q = begin + (threadIdx.x & 31); q < end; q += WARP)
        keys[place + q - begin] = ((i64)indices[q] << 32) + row;
}
