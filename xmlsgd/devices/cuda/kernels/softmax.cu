// Softmax output layer: one exponential a logit, all of them kept as operands of the products of the backward pass.

// reference (B,) = the largest of each row's first C logits Z + b, Z (B, stride), and of those of its labels; label_sum
// (B, H) = the sum of its labels' rows of W, score (B,) that of their logits. A warp has a row.
extern "C" __global__ void references(const operand *Z, i64 stride, int C, const i64 *spans, const int *indices,
                                      const float *A, const float *W, const float *b, int B, int H, float *reference,
                                      float *label_sum, float *score) {
    int lane = threadIdx.x & 31;
    i64 row = (i64)blockIdx.x * (blockDim.x >> 5) + (threadIdx.x >> 5);
    if (row >= B) return;
    float best = LOWEST, all = 0.0f;
    for (int c = lane; c < C; c += WARP) best = fmaxf(best, from_operand(Z[row * stride + c]) + b[c]);
    best = warp_max(best);
    for (int j = lane; j < H; j += WARP) label_sum[row * H + j] = 0.0f;
    for (i64 q = spans[row]; q < spans[B + row]; ++q) {
        i64 label = indices[q];
        float sum = 0.0f;
        for (int j = lane; j < H; j += WARP) {
            float w = W[label * H + j];
            sum += A[row * H + j] * w;
            label_sum[row * H + j] += w;
        }
        sum = warp_sum(sum) + b[label];
        best = fmaxf(best, sum);
        all += sum;
    }
    if (lane == 0) {
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
// have a label, and its sum of `partial` -= that of scale * target. `keys` (n,) as in `positives`; a warp has a key.
extern "C" __global__ void positive_weights(const i64 *keys, i64 n, i64 start, int C, const float *A,
                                            const float *scale, const float *target, int H, const float *step,
                                            float *W, float *partial) {
    i64 q = (i64)blockIdx.x * (blockDim.x >> 5) + (threadIdx.x >> 5);
    if (q >= n) return;
    i64 label = keys[q] >> 32, column = label - start;
    if (column < 0 || column >= C || (q > 0 && keys[q - 1] >> 32 == label)) return;
    for (int j = threadIdx.x & 31; j < H; j += WARP) {
        float sum = 0.0f;
        for (i64 p = q; p < n && keys[p] >> 32 == label; ++p) {
            i64 i = keys[p] & 0xffffffffLL;
            sum += scale[i] * target[i] * A[i * H + j];
        }
        W[column * H + j] += step[0] * sum;
    }
    if ((threadIdx.x & 31) > 0) return;
    float sum = 0.0f;
    for (i64 p = q; p < n && keys[p] >> 32 == label; ++p) {
        i64 i = keys[p] & 0xffffffffLL;
        sum += scale[i] * target[i];
    }
    partial[column] -= sum;
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
