// Softmax output layer: one exponential a logit, all of them kept as operands of the products of the backward pass.

// The value of x as an operand.
__device__ __forceinline__ float as_operand(float x) { return from_operand(to_operand(x)); }

// reference (B,) = the largest of each row's first C logits Z + b, Z (B, C), and of those of its labels; label_sum
// (B, H) = the sum of its labels' rows of W, score (B,) that of their logits. As in E, logits are float32 products of
// operands: with a reference that is rounded otherwise, all of a row's E may underflow. A block has a row.
#define LABELS_AT_ONCE 4  // of a warp
extern "C" __global__ void references(const float *Z, int C, const i64 *spans, const int *indices, const float *A,
                                      const float *W, const float *b, int B, int H, float *reference, float *label_sum,
                                      float *score) {
    __shared__ float parts[WARP];
    int lane = threadIdx.x & 31, warps = blockDim.x >> 5;
    i64 row = blockIdx.x, begin = spans[row], end = spans[B + row];
    float best = LOWEST, all = 0.0f;
    for (int at = threadIdx.x; at < C; at += blockDim.x) best = fmaxf(best, Z[row * C + at] + b[at]);
    for (i64 first = begin + (threadIdx.x >> 5); first < end; first += warps * LABELS_AT_ONCE) {
        int label[LABELS_AT_ONCE];
        float sum[LABELS_AT_ONCE];
        for (int u = 0; u < LABELS_AT_ONCE; ++u) {
            i64 q = first + u * warps;
            label[u] = indices[q < end ? q : first];
            sum[u] = 0.0f;
        }
#pragma unroll 2
        for (int j = lane; j < H; j += WARP)
            for (int u = 0; u < LABELS_AT_ONCE; ++u)
                sum[u] += as_operand(A[row * H + j]) * as_operand(W[(i64)label[u] * H + j]);
        for (int u = 0; u < LABELS_AT_ONCE; ++u) {
            float logit = warp_sum(sum[u]) + b[label[u]];
            if (first + u * warps >= end) continue;
            best = fmaxf(best, logit);
            if (lane == 0) all += logit;
        }
    }
    for (int j = threadIdx.x; j < H; j += blockDim.x) {
        float sum = 0.0f;
#pragma unroll 4
        for (i64 q = begin; q < end; ++q) sum += W[(i64)indices[q] * H + j];
        label_sum[row * H + j] = sum;
    }
    best = block_max(best, parts);
    all = block_sum(all, parts);
    if (threadIdx.x == 0) {
        reference[row] = best;
        score[row] = all;
    }
}

// E (B, stride) = exp(E + b - reference - m) in place, in one sweep over the logits E; largest (B,) = m, total (B,) the
// sum of the exponentials. m is 0 unless one of a row's C logits is more than HEADROOM above its reference: then what
// is written is scaled again, up to that logit. A block has a row, a warp every eighth part of it, with an m of its own
// until the end.
#define HEADROOM 30.0f
extern "C" __global__ void exponentials(operand *E, i64 stride, i64 C, const float *b, const float *reference,
                                        float *largest, float *total) {
    __shared__ float parts[WARP];
    operand *e = E + (i64)blockIdx.x * stride;
    i64 step = (i64)blockDim.x * LOADED, first = (i64)threadIdx.x * LOADED;
    float top = 0.0f, sum = 0.0f, shift = reference[blockIdx.x];
    for (i64 base = 0; base < C; base += step) {
        i64 at = base + first;
        float x[LOADED], best = LOWEST;
        bool mine = at < C;
        if (mine) load_some(e + at, x);
        for (int c = 0; c < LOADED && mine; ++c) {
            x[c] += at + c < C ? b[at + c] - shift : 0.0f;
            if (at + c < C) best = fmaxf(best, x[c]);
        }
        bool higher = __ballot_sync(FULL, best > top + HEADROOM) != 0, end = base + step >= C;
        if (higher || end) {
            float now = higher ? fmaxf(top, warp_max(best)) : top;
            if (end) now = block_max(now, parts);
            float factor = expf(top - now);
            for (i64 q = first; q < at && factor != 1.0f; q += step) {
                float written[LOADED];
                load_some(e + q, written);
                for (int c = 0; c < LOADED; ++c) written[c] *= factor;
                store_some(e + q, written);
            }
            sum *= factor;
            top = now;
        }
        if (!mine) continue;
        for (int c = 0; c < LOADED; ++c) {
            operand rounded = to_operand(at + c < C ? expf(x[c] - top) : 0.0f);
            x[c] = from_operand(rounded);
            sum += from_operand(rounded);
        }
        store_some(e + at, x);
    }
    sum = block_sum(sum, parts);
    if (threadIdx.x == 0) {
        largest[blockIdx.x] = top;
        total[blockIdx.x] = sum;
    }
}

// factor (B,) = scale / total, which makes E a gradient; scaled (B, width) = A (B, H) times it, from the next even
// column on the factor itself as the sum of two operands, zeros elsewhere; losses (B,). A warp has a row.
extern "C" __global__ void row_factors(const float *A, const float *scale, const float *target, const float *reference,
                                       const float *largest, const float *total, const float *score, int B, int H,
                                       int width, float *factor, operand *scaled, float *losses) {
    i64 row = (i64)blockIdx.x * (blockDim.x >> 5) + (threadIdx.x >> 5);
    if (row >= B) return;
    float f = scale[row] / total[row], high = from_operand(to_operand(f));
    int even = H + (H & 1);
    for (int j = threadIdx.x & 31; j < width; j += WARP) {
        float part = j == even ? high : j == even + 1 ? f - high : 0.0f;
        scaled[row * width + j] = to_operand(j < H ? A[row * H + j] * f : part);
    }
    if ((threadIdx.x & 31) > 0) return;
    factor[row] = f;
    losses[row] = scale[row] > 0.0f
        ? scale[row] * (logf(total[row]) + largest[row] + reference[row] - target[row] * score[row]) : 0.0f;
}

// partial (parts, C) = sums of factor times E (B, stride) over `rows` rows a part, for C labels from `start` on, a
// multiple of LOADED. A thread has LOADED labels.
extern "C" __global__ void exponential_sums(const operand *E, i64 stride, i64 start, const float *factor, int B, int C,
                                            int rows, float *partial) {
    i64 label = ((i64)blockIdx.x * blockDim.x + threadIdx.x) * LOADED;
    if (label >= C) return;
    int first = blockIdx.y * rows, last = first + rows < B ? first + rows : B;
    float sum[LOADED], x[LOADED];
    for (int c = 0; c < LOADED; ++c) sum[c] = 0.0f;
#pragma unroll 4
    for (int i = first; i < last; ++i) {
        load_some(E + i * stride + start + label, x);
        for (int c = 0; c < LOADED; ++c) sum[c] += factor[i] * x[c];
    }
    for (int c = 0; c < LOADED; ++c)
        if (label + c < C) partial[(i64)blockIdx.y * C + label + c] = sum[c];
}

// W (C, H), of the labels [start, start + C), += step (1,) times the sum of scale * target * A[row] over the rows that
// have a label, and its sum of `partial` -= that of scale * target. `keys` (n,) as in `positives`; a block has WARP of
// them, and the columns of tile blockIdx.y. Dynamic shared memory: TILE floats a warp.
extern "C" __global__ void positive_weights(const i64 *keys, i64 n, i64 start, int C, const float *A,
                                            const float *scale, const float *target, int H, const float *step,
                                            float *W, float *partial) {
    DYNAMIC_SHARED(float, sums);
    __shared__ float parts[WARP];
    int from = blockIdx.y * TILE, to = from + TILE > H ? H : from + TILE;
    auto entry = [&](i64 i, i64, int *row) {
        *row = (int)i;
        return scale[i] * target[i];
    };
    auto finish = [&](i64 label, const float *g, float total) {
        int lane = threadIdx.x & 31;
        float *w = W + (label - start) * H + from, old[PER_LANE], by = step[0];
        for (int c = 0; c < PER_LANE; ++c) old[c] = from + lane + c * WARP < to ? w[lane + c * WARP] : 0.0f;
        for (int c = 0; c < PER_LANE; ++c)
            if (from + lane + c * WARP < to) w[lane + c * WARP] = old[c] + by * g[lane + c * WARP];
        if (lane == 0 && from == 0) partial[label - start] -= total;
    };
    sum_segments(keys, n, start, start + C, A, H, from, to, sums, parts, entry, finish);
}

// dA (B, H) = factor times the sum of parts (n_parts, B, H) - scale * target * label_sum: from products with E to the
// gradient. n = B H.
extern "C" __global__ void finish_hidden(const float *parts, int n_parts, const float *label_sum, const float *factor,
                                         const float *scale, const float *target, i64 n, int H, float *dA) {
    i64 at = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= n) return;
    i64 row = at / H;
    dA[at] = factor[row] * sum_of_parts(parts, n_parts, n, at) - scale[row] * target[row] * label_sum[at];
}
