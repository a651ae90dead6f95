// Kernels of the CUDA device; names and order follow reference.py and cpu/kernels, `device.py` launches them.
//
// Compiled at run time by NVRTC for the card at hand, and in tests by a C++ compiler
// (tests/shared/fake_gpu/cuda_shim.h). So that the latter stays small: warp operations take all 32 lanes, no thread
// leaves a kernel before a block's barrier, and blocks are multiples of a warp. No atomics on global memory: sums have
// a fixed order, and two runs give the same bits.
//
// Compile with -DBFLOAT16 for operands of matrix products in bfloat16; everything else is float32.

typedef unsigned long long u64;
typedef long long i64;
typedef unsigned int u32;

#ifdef BFLOAT16
typedef unsigned short operand;
#else
typedef float operand;
#endif

// losses.py
#define BCE 0
#define SOFTMAX 1
// kinds of operands: once.py
enum { ACTIVATIONS, WEIGHTS, NO_REFERENCE };
// optimizers.py
#define MOMENTUM_KIND 1
#define ADAGRAD_KIND 2
#define ROW_ADAGRAD_KIND 3
#define ADAM_KIND 4
enum { RATE, DECAY, CLIP, FIRST, SECOND, EPSILON, FIRST_SCALE, SECOND_SCALE };

#define FULL 0xffffffffu
#define WARP 32
#define TILE 128          // columns that a warp keeps in registers, four a lane
#define PER_LANE 4        // columns or rows of a lane
#define LOWEST -3.0e38f
#ifndef DYNAMIC_SHARED
#define DYNAMIC_SHARED(type, name)                              \
    extern __shared__ __align__(16) unsigned char dynamic_shared[]; \
    type *name = (type *)dynamic_shared
#endif
#define DROPPED 0x7fffffffffffffffLL  // key of an entry that dropout leaves out, or of none: sorted behind all others

__device__ __forceinline__ operand to_operand(float x) {
#ifdef BFLOAT16
    u32 bits = __float_as_uint(x);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return (operand)((bits >> 16) | 0x40u);  // NaN stays NaN
    return (operand)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);                  // to nearest, ties to even
#else
    return x;
#endif
}

__device__ __forceinline__ float from_operand(operand x) {
#ifdef BFLOAT16
    return __uint_as_float((u32)x << 16);
#else
    return x;
#endif
}

// Write four neighbouring operands at once; `out` starts on a multiple of four.
__device__ __forceinline__ void store_four(operand *out, const float *x) {
#ifdef BFLOAT16
    uint2 packed;
    packed.x = to_operand(x[0]) | ((u32)to_operand(x[1]) << 16);
    packed.y = to_operand(x[2]) | ((u32)to_operand(x[3]) << 16);
    *(uint2 *)out = packed;
#else
    float4 four;
    four.x = x[0], four.y = x[1], four.z = x[2], four.w = x[3];
    *(float4 *)out = four;
#endif
}

// Read, or write, the LOADED neighbouring operands of 16 bytes.
#ifdef BFLOAT16
#define LOADED 8
#else
#define LOADED 4
#endif

__device__ __forceinline__ void load_some(const operand *from, float *x) {
#ifdef BFLOAT16
    uint4 packed = *(const uint4 *)from;
    u32 pairs[4] = {packed.x, packed.y, packed.z, packed.w};
    for (int c = 0; c < 4; ++c) {
        x[2 * c] = __uint_as_float(pairs[c] << 16);
        x[2 * c + 1] = __uint_as_float(pairs[c] & 0xffff0000u);
    }
#else
    float4 four = *(const float4 *)from;
    x[0] = four.x, x[1] = four.y, x[2] = four.z, x[3] = four.w;
#endif
}

__device__ __forceinline__ void store_some(operand *out, const float *x) {
    for (int c = 0; c < LOADED; c += 4) store_four(out + c, x + c);
}

// max(x, 0); NaN stays NaN, for a run that diverges is recognised by its loss.
__device__ __forceinline__ float relu(float x) { return x > 0.0f || x != x ? x : 0.0f; }

__device__ __forceinline__ float warp_sum(float x) {
    for (int offset = 16; offset > 0; offset >>= 1) x += __shfl_xor_sync(FULL, x, offset);
    return x;
}

__device__ __forceinline__ float warp_max(float x) {
    for (int offset = 16; offset > 0; offset >>= 1) x = fmaxf(x, __shfl_xor_sync(FULL, x, offset));
    return x;
}

// The largest of the block, in all threads; `parts` is one value a warp in shared memory.
__device__ __forceinline__ float block_max(float x, float *parts) {
    x = warp_max(x);
    if ((threadIdx.x & 31) == 0) parts[threadIdx.x >> 5] = x;
    __syncthreads();
    for (int w = 0; w < (int)(blockDim.x >> 5); ++w) x = fmaxf(x, parts[w]);
    __syncthreads();
    return x;
}

// Sum over the block in a fixed order, valid in thread 0; `parts` is one value a warp in shared memory.
template <typename T>
__device__ __forceinline__ T block_sum(T x, T *parts) {
    for (int offset = 16; offset > 0; offset >>= 1) x += __shfl_xor_sync(FULL, x, offset);
    if ((threadIdx.x & 31) == 0) parts[threadIdx.x >> 5] = x;
    __syncthreads();
    if (threadIdx.x == 0)
        for (int w = 1; w < (int)(blockDim.x >> 5); ++w) x += parts[w];
    __syncthreads();
    return x;
}

// MurmurHash3's 32-bit finaliser (Appleby 2011, public domain) of seed and index.
__device__ __forceinline__ u32 hashed(u32 seed, i64 index) {
    u32 h = (u32)index * 0x9E3779B1u + seed;
    h = (h ^ (h >> 16)) * 0x85EBCA6Bu;
    h = (h ^ (h >> 13)) * 0xC2B2AE35u;
    return h ^ (h >> 16);
}

// Whether entry `index` survives dropout.
__device__ __forceinline__ bool kept(u32 seed, i64 index, u32 threshold) { return hashed(seed, index) >= threshold; }

// The operand of x: with a seed rounded at random, up with the chance that keeps the mean; to nearest with 0, and what
// would become infinite.
__device__ __forceinline__ operand to_operand_by(float x, u32 seed, i64 index) {
#ifdef BFLOAT16
    u32 bits = __float_as_uint(x);
    if (seed != 0 && (bits & 0x7fffffffu) < 0x7f7f0000u) return (operand)((bits + (hashed(seed, index) >> 16)) >> 16);
#endif
    return to_operand(x);
}

// Update one weight by its gradient; `row_state` is the accumulator of its row for row-wise Adagrad.
__device__ __forceinline__ void update(int kind, float *w, float g, float *s, float *t, float row_state,
                                       const float *hyper, float decay) {
    float rate = hyper[RATE], moved = *w * (1.0f - rate * decay);
    if (kind == ADAM_KIND) {
        float mean = hyper[FIRST] * *s + (1.0f - hyper[FIRST]) * g;
        float square = hyper[SECOND] * *t + (1.0f - hyper[SECOND]) * g * g;
        *s = mean;
        *t = square;
        moved -= rate * hyper[FIRST_SCALE] * mean / (sqrtf(square) * hyper[SECOND_SCALE] + hyper[EPSILON]);
    } else if (kind == ADAGRAD_KIND) {
        float sum = *s + g * g;
        *s = sum;
        moved -= rate * g / (sqrtf(sum) + hyper[EPSILON]);
    } else if (kind == ROW_ADAGRAD_KIND) {
        moved -= rate * g / (sqrtf(row_state) + hyper[EPSILON]);
    } else if (kind == MOMENTUM_KIND) {
        float velocity = hyper[FIRST] * *s + g;
        *s = velocity;
        moved -= rate * velocity;
    } else {
        moved -= rate * g;
    }
    *w = moved;
}

// Update columns [from, to) of row `row` of W (., H) by its gradient g (H,), which lies where all lanes of the warp can
// read what they wrote. All columns where the rule looks at the norm of the row.
__device__ void update_row(int kind, i64 row, const float *g, float *W, float *s, float *t, int H, int from, int to,
                           const float *hyper) {
    int lane = threadIdx.x & 31;
    float factor = 1.0f, row_state = 0.0f;
    if (hyper[CLIP] > 0.0f || kind == ROW_ADAGRAD_KIND) {
        float square = 0.0f;
        for (int j = lane; j < H; j += WARP) square += g[j] * g[j];
        square = warp_sum(square);
        float norm = sqrtf(square);
        if (hyper[CLIP] > 0.0f && norm > hyper[CLIP]) factor = hyper[CLIP] / norm;
        if (kind == ROW_ADAGRAD_KIND) {
            row_state = s[row] + square * factor * factor / (float)H;
            __syncwarp();  // all lanes have read the old state
            if (lane == 0) s[row] = row_state;
        }
    }
    bool first = kind == MOMENTUM_KIND || kind == ADAGRAD_KIND || kind == ADAM_KIND;
    for (int j = from + lane; j < to; j += WARP) {
        i64 at = row * H + j;
        update(kind, W + at, g[j] * factor, first ? s + at : s, kind == ADAM_KIND ? t + at : t, row_state, hyper,
               hyper[DECAY]);
    }
}

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

// Z (B, H) = relu(Z + b) in place.
extern "C" __global__ void bias_relu(float *Z, const float *b, i64 n, int H) {
    i64 at = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= n) return;
    Z[at] = relu(Z[at] + b[at % H]);
}

// dA (n,) = factor * dA where A > 0, else 0: the gradient before relu and dropout.
extern "C" __global__ void through_relu(float *dA, const float *A, i64 n, float factor) {
    i64 at = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    if (at < n) dA[at] = A[at] > 0.0f ? dA[at] * factor : 0.0f;
}

// Leave out a share of A (n,) in place and scale the rest up.
extern "C" __global__ void drop(float *A, i64 n, u32 seed, u32 threshold, float scale) {
    i64 at = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    if (at < n) A[at] = kept(seed, at, threshold) ? A[at] * scale : 0.0f;
}

// Sums over the rows of dZ (B, H), of `rows` rows a part: partial (parts, H). A thread has a column of a part.
extern "C" __global__ void column_sums(const float *dZ, int B, int H, int rows, float *partial) {
    int column = blockIdx.x * blockDim.x + threadIdx.x;
    if (column >= H) return;
    int first = blockIdx.y * rows, last = first + rows < B ? first + rows : B;
    float sum = 0.0f;
    for (int i = first; i < last; ++i) sum += dZ[(i64)i * H + column];
    partial[(i64)blockIdx.y * H + column] = sum;
}

// Update the biases b (n,) by the sums over `partial` (parts, stride): no decay, no clipping, one accumulator each.
extern "C" __global__ void biases_update(int kind, float *b, const float *partial, int parts, int stride, int n,
                                         float *s, float *t, const float *hyper) {
    int at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= n) return;
    float g = 0.0f;
    for (int p = 0; p < parts; ++p) g += partial[(i64)p * stride + at];
    if (kind == ROW_ADAGRAD_KIND) kind = ADAGRAD_KIND;
    bool first = kind == MOMENTUM_KIND || kind == ADAGRAD_KIND || kind == ADAM_KIND;
    update(kind, b + at, g, first ? s + at : s, kind == ADAM_KIND ? t + at : t, 0.0f, hyper, 0.0f);
}

// Update every row of W (rows, H) by its gradient dW (rows, H). A warp has a row.
extern "C" __global__ void rows_update(float *W, const float *dW, float *s, float *t, int rows, int H, int kind,
                                       const float *hyper) {
    int row = blockIdx.x * (blockDim.x >> 5) + (threadIdx.x >> 5);
    if (row < rows) update_row(kind, row, dW + (i64)row * H, W, s, t, H, 0, H, hyper);
}

// Read four neighbouring numbers of a row from column j on, zeros beyond H; at once where `whole` rows are of fours.
__device__ __forceinline__ void load_four(const float *row, int j, int H, bool whole, float *x) {
    if (whole && j < H) {
        float4 four = *(const float4 *)(row + j);
        x[0] = four.x, x[1] = four.y, x[2] = four.z, x[3] = four.w;
        return;
    }
    for (int c = 0; c < 4; ++c) x[c] = j + c < H ? row[j + c] : 0.0f;
}

// Whether rows of H numbers from x on begin on multiples of 16 bytes.
__device__ __forceinline__ bool of_fours(const float *x, int H) { return H % 4 == 0 && (u64)x % 16 == 0; }

// Write four neighbouring operands rounded by the seed; `index` is that of the first.
__device__ __forceinline__ void store_four_by(operand *out, const float *x, u32 seed, i64 index) {
    if (seed == 0) {
        store_four(out, x);
        return;
    }
    for (int c = 0; c < 4; ++c) out[c] = to_operand_by(x[c], seed, index + c);
}

// out (rows, width) = x (rows, H) as operands of products, rounded by the seed, zeros beyond H; width is a multiple of
// four. A warp has a row.
extern "C" __global__ void pack(const float *x, int rows, int H, int width, u32 seed, operand *out) {
    i64 row = (i64)blockIdx.x * (blockDim.x >> 5) + (threadIdx.x >> 5);
    if (row >= rows) return;
    bool whole = of_fours(x, H);
    for (int j = (threadIdx.x & 31) * 4; j < width; j += WARP * 4) {
        float four[4];
        load_four(x + row * H, j, H, whole, four);
        store_four_by(out + row * width + j, four, seed, row * H + j);
    }
}

// The labels of a batch as keys label * 2^32 + batch row. A warp has a row.
extern "C" __global__ void label_keys(const i64 *spans, const int *indices, int B, i64 *keys) {
    int row = blockIdx.x * (blockDim.x >> 5) + (threadIdx.x >> 5);
    if (row >= B) return;
    i64 begin = spans[row], end = spans[B + row], place = spans[3 * (i64)B + row];
    for (i64 q = begin + (threadIdx.x & 31); q < end; q += WARP)
        keys[place + q - begin] = ((i64)indices[q] << 32) + row;
}

// Add exp(x) to sum exp(best), with `best` the largest x so far: one exponential, but for those that are the largest.
__device__ __forceinline__ void add_exponential(float x, float *best, float *sum) {
    if (x > *best) {
        *sum = *sum * expf(*best - x) + 1.0f;
        *best = x;
    } else {
        *sum += expf(x - *best);  // NaN, too
    }
}

// The softmax's first pass: each row's maximum and sum of exponentials over the logits Z + b of this and earlier
// chunks, Z (B, stride), C of them valid. A block has a row, which is read once.
extern "C" __global__ void softmax_sums(const float *Z, i64 stride, const float *b, int C, int first_chunk,
                                        float *largest, float *total) {
    __shared__ float parts[WARP];
    const float *z = Z + (i64)blockIdx.x * stride;
    float best = LOWEST, sum = 0.0f;
    for (int at = threadIdx.x * 4; at < C; at += blockDim.x * 4) {
        float4 four = *(const float4 *)(z + at);
        float x[4] = {four.x, four.y, four.z, four.w};
        for (int c = 0; c < 4; ++c)
            if (at + c < C) add_exponential(x[c] + b[at + c], &best, &sum);
    }
    float before = first_chunk ? LOWEST : largest[blockIdx.x];
    float top = fmaxf(block_max(best, parts), before);
    sum = block_sum(sum * expf(best - top), parts);
    if (threadIdx.x == 0) {
        total[blockIdx.x] = sum + (first_chunk ? 0.0f : total[blockIdx.x] * expf(before - top));
        largest[blockIdx.x] = top;
    }
}

// largest (B,) becomes the log of each row's sum of exponentials.
extern "C" __global__ void log_sums(float *largest, const float *total, int B) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < B) largest[i] += logf(total[i]);
}

// Gradient and loss of one logit x of a row that lacks the label.
__device__ __forceinline__ float negative_gradient(int loss, float x, float scale, float log_sum, float *value) {
    if (loss == BCE) {
        float e = expf(-fabsf(x));
        *value += scale * (relu(x) + log1pf(e));
        return scale * (x >= 0.0f ? 1.0f : e) / (1.0f + e);
    }
    if (loss == SOFTMAX) return scale * expf(x - log_sum);
    float wrong = relu(x + 1.0f);
    *value += scale * wrong * wrong;
    return 2.0f * scale * wrong;
}

// G = gradient of the logits Z + b as if no row had any label; Z, G (B, stride), C labels valid, the rest of G zeros.
// A thread has PER_LANE neighbouring labels of `rows` rows. partial (parts, stride) are sums of G over the rows of a
// part, losses (blocks,) of the loss.
extern "C" __global__ void negatives(int loss, const float *Z, i64 stride, const float *b, const float *scale,
                                     const float *log_sum, int B, int C, int rows, operand *G, float *partial,
                                     float *losses) {
    __shared__ float parts[WARP];
    i64 label = ((i64)blockIdx.x * blockDim.x + threadIdx.x) * PER_LANE;
    int first = blockIdx.y * rows, last = first + rows < B ? first + rows : B;
    float value = 0.0f, sum[PER_LANE] = {0.0f, 0.0f, 0.0f, 0.0f}, bias[PER_LANE];
    for (int c = 0; c < PER_LANE; ++c) bias[c] = label + c < C ? b[label + c] : 0.0f;
    if (label < stride) {
        for (int i = first; i < last; ++i) {
            i64 at = (i64)i * stride + label;
            float4 z = *(const float4 *)(Z + at);
            float x[PER_LANE] = {z.x, z.y, z.z, z.w}, g[PER_LANE], log_total = loss == SOFTMAX ? log_sum[i] : 0.0f;
            for (int c = 0; c < PER_LANE; ++c) {
                g[c] = 0.0f;
                if (label + c < C) g[c] = negative_gradient(loss, x[c] + bias[c], scale[i], log_total, &value);
                sum[c] += g[c];
            }
            store_four(G + at, g);
        }
        for (int c = 0; c < PER_LANE; ++c) partial[blockIdx.y * stride + label + c] = sum[c];
    }
    value = block_sum(value, parts);
    if (threadIdx.x == 0) losses[(i64)blockIdx.y * gridDim.x + blockIdx.x] = value;
}

// What a label that row i has changes in the gradient of its logit x, taken as a negative before.
__device__ __forceinline__ float positive_change(int loss, float x, float scale, float target) {
    if (loss == BCE) return -scale;
    if (loss == SOFTMAX) return -scale * target;
    float wrong = fmaxf(1.0f + x, 0.0f), lacking = fmaxf(1.0f - x, 0.0f);
    return -2.0f * scale * (lacking + wrong);
}

// Mend gradient, sums and loss at the labels [start, start + C) that the rows have. `keys` (n,) from `label_keys`,
// sorted: a thread has a key; the one at the first key of a label adds up that label's changes, in the order of the
// rows. positive_losses (n,) is written at the keys of this chunk.
extern "C" __global__ void positives(int loss, const i64 *keys, i64 n, i64 start, int C, const float *Z, i64 stride,
                                     const float *b, const float *scale, const float *target, const float *log_sum,
                                     operand *G, float *partial, float *positive_losses) {
    i64 q = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    if (q >= n) return;
    i64 label = keys[q] >> 32, column = label - start;
    if (keys[q] == DROPPED) positive_losses[q] = 0.0f;  // there is no such label
    if (column < 0 || column >= C) return;
    i64 i = keys[q] & 0xffffffffLL;
    float x = Z[i * stride + column] + b[column], none = 0.0f, value;
    float g = negative_gradient(loss, x, scale[i], loss == SOFTMAX ? log_sum[i] : 0.0f, &none);
    float change = positive_change(loss, x, scale[i], loss == SOFTMAX ? target[i] : 0.0f);
    if (loss == BCE) {
        float e = expf(-fabsf(x));  // sigmoid(x) - 1 without cancellation
        g = -scale[i] * (x >= 0.0f ? e : 1.0f) / (1.0f + e);
        value = -scale[i] * x;
    } else if (loss == SOFTMAX) {
        g += change;
        value = scale[i] * target[i] * (log_sum[i] - x);
    } else {
        float wrong = fmaxf(1.0f + x, 0.0f), lacking = fmaxf(1.0f - x, 0.0f);
        g = -2.0f * scale[i] * lacking;
        value = scale[i] * (lacking * lacking - wrong * wrong);
    }
    G[i * stride + column] = to_operand(g);
    positive_losses[q] = value;
    if (q > 0 && keys[q - 1] >> 32 == label) return;
    float sum = change;
    for (i64 p = q + 1; p < n && keys[p] >> 32 == label; ++p) {
        i64 r = keys[p] & 0xffffffffLL;
        float z = Z[r * stride + column] + b[column];
        sum += positive_change(loss, z, scale[r], loss == SOFTMAX ? target[r] : 0.0f);
    }
    partial[column] += sum;  // of the first part; nobody else has this label
}

// Softmax with one exponential a logit. Bias and a reference of each row are columns of the product, subtracted before
// its result is rounded, so that a bfloat16 logit is precise where probability is. out (rows, width): x (rows, H), then
// 1, 1 and the reference `b` of activations, or high part, rest of the bias `b` and -1 of weights; zeros. x is rounded
// by the seed. A warp has a row.
extern "C" __global__ void pack_columns(const float *x, const float *b, int rows, int H, int width, int kind, u32 seed,
                                        operand *out) {
    i64 row = (i64)blockIdx.x * (blockDim.x >> 5) + (threadIdx.x >> 5);
    if (row >= rows) return;
    float high = kind == NO_REFERENCE ? 0.0f : from_operand(to_operand(b[row]));
    float last[3] = {1.0f, 1.0f, high};
    if (kind == WEIGHTS) last[0] = high, last[1] = b[row] - high, last[2] = -1.0f;
    bool whole = of_fours(x, H);
    for (int j = (threadIdx.x & 31) * 4; j < width; j += WARP * 4) {
        float four[4];
        load_four(x + row * H, j, H, whole, four);
        store_four_by(out + row * width + j, four, seed, row * H + j);
        for (int c = 0; c < 4; ++c)
            if (j + c >= H && j + c < H + 3) out[row * width + j + c] = to_operand(last[j + c - H]);
    }
}

// reference (B,) = the largest of each row's first C logits Z (B, stride) and of those of its labels; pulled (B, H) =
// the sum of its labels' rows of W, score (B,) that of their logits. A warp has a row.
extern "C" __global__ void references(const operand *Z, i64 stride, int C, const i64 *spans, const int *indices,
                                      const float *A, const float *W, const float *b, int B, int H, float *reference,
                                      float *pulled, float *score) {
    int lane = threadIdx.x & 31;
    i64 row = (i64)blockIdx.x * (blockDim.x >> 5) + (threadIdx.x >> 5);
    if (row >= B) return;
    float best = LOWEST, all = 0.0f;
    for (int c = lane; c < C; c += WARP) best = fmaxf(best, from_operand(Z[row * stride + c]));
    best = warp_max(best);
    for (int j = lane; j < H; j += WARP) pulled[row * H + j] = 0.0f;
    for (i64 q = spans[row]; q < spans[B + row]; ++q) {
        i64 label = indices[q];
        float sum = 0.0f;
        for (int j = lane; j < H; j += WARP) {
            float w = W[label * H + j];
            sum += A[row * H + j] * w;
            pulled[row * H + j] += w;
        }
        sum = warp_sum(sum) + b[label];
        best = fmaxf(best, sum);
        all += sum;
    }
    if (lane == 0) {
        reference[row] = from_operand(to_operand(best));
        score[row] = all;
    }
}

// E (B, stride) = exp(E - m) in place, in one sweep; largest (B,) = m, total (B,) the sum of what is written. m is 0,
// the reference, unless one of a row's C logits is more than HEADROOM above: then what is written is scaled anew, up to
// that logit. A block has a row, a warp every eighth part of it, with an m of its own until the end.
#define HEADROOM 30.0f
extern "C" __global__ void exponentials(operand *E, i64 stride, i64 C, float *largest, float *total) {
    __shared__ float parts[WARP];
    operand *e = E + (i64)blockIdx.x * stride;
    i64 step = (i64)blockDim.x * LOADED, first = (i64)threadIdx.x * LOADED;
    float top = 0.0f, sum = 0.0f;
    for (i64 base = 0; base < C; base += step) {
        i64 at = base + first;
        float x[LOADED], best = LOWEST;
        bool mine = at < C;
        if (mine) load_some(e + at, x);
        for (int c = 0; c < LOADED && mine; ++c)
            if (at + c < C) best = fmaxf(best, x[c]);
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

// dA (B, H) = factor * dA - scale * target * pulled: from products with E to the gradient.
extern "C" __global__ void finish_hidden(float *dA, const float *pulled, const float *factor, const float *scale,
                                         const float *target, i64 n, int H) {
    i64 at = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= n) return;
    i64 row = at / H;
    dA[at] = factor[row] * dA[at] - scale[row] * target[row] * pulled[at];
}

// out[0] = the sum of values (n,) in float64 and a fixed order. One block.
extern "C" __global__ void total(const float *values, i64 n, double *out) {
    __shared__ double parts[WARP];
    double sum = 0.0;
    for (i64 at = threadIdx.x; at < n; at += blockDim.x) sum += values[at];
    sum = block_sum(sum, parts);
    if (threadIdx.x == 0) out[0] = sum;
}

// Copy the rows `rows` (n,) of W (., H) to `out` (n, H). A warp has a row.
extern "C" __global__ void gather_rows(const float *W, const int *rows, int n, int H, float *out) {
    i64 row = (i64)blockIdx.x * (blockDim.x >> 5) + (threadIdx.x >> 5);
    if (row >= n) return;
    for (int j = threadIdx.x & 31; j < H; j += WARP) out[row * H + j] = W[(i64)rows[row] * H + j];
}

// Copy `part` (n, H) to the rows `rows` (n,), each named once, of W (., H). A warp has a row.
extern "C" __global__ void scatter_rows(const float *part, const int *rows, int n, int H, float *W) {
    i64 row = (i64)blockIdx.x * (blockDim.x >> 5) + (threadIdx.x >> 5);
    if (row >= n) return;
    for (int j = threadIdx.x & 31; j < H; j += WARP) W[(i64)rows[row] * H + j] = part[row * H + j];
}

// out (n,) = the sum of weights[r] times replica r, in their order. addresses (R,) are those of the replicas.
extern "C" __global__ void merge_replicas(const u64 *addresses, const float *weights, int R, i64 n, float *out) {
    i64 at = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= n) return;
    float sum = 0.0f;
    for (int r = 0; r < R; ++r) sum += weights[r] * ((const float *)addresses[r])[at];
    out[at] = sum;
}

// A key that orders (score, label): larger scores first, among equal ones smaller labels. NaN ranks below all numbers.
__device__ __forceinline__ u64 rank_key(float score, u32 label) {
    if (score != score) return (u64)(~label);
    u32 bits = __float_as_uint(score);
    bits = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
    return ((u64)bits << 32) | (u64)(~label);
}

// Sort `keys` (size,), a power of two, descending (Batcher 1968).
__device__ void sort_descending(u64 *keys, int size) {
    for (int run = 2; run <= size; run <<= 1)
        for (int step = run >> 1; step > 0; step >>= 1) {
            __syncthreads();
            for (int at = threadIdx.x; at < size; at += blockDim.x) {
                int other = at ^ step;
                if (other > at && (keys[at] < keys[other]) == ((at & run) == 0)) {
                    u64 kept_key = keys[at];
                    keys[at] = keys[other];
                    keys[other] = kept_key;
                }
            }
        }
    __syncthreads();
}

// Merge the logits Z + b of a chunk, labels from `start` on, into each row's `best` (B, k), keys in descending order.
// A block has a row. Dynamic shared memory: `size` keys, a power of two, of at least k and a block more. What beats the
// k-th best is collected behind the list in any order; sorting makes the result depend on the set alone.
extern "C" __global__ void top_k(const float *Z, i64 stride, const float *b, int C, i64 start, int k, int size,
                                 int first_chunk, u64 *best) {
    DYNAMIC_SHARED(u64, keys);
    __shared__ int found;
    u64 *mine = best + (i64)blockIdx.x * k;
    const float *z = Z + (i64)blockIdx.x * stride;
    for (int at = threadIdx.x; at < size; at += blockDim.x) keys[at] = at < k && !first_chunk ? mine[at] : 0;
    if (threadIdx.x == 0) found = k;
    __syncthreads();
    for (int base = 0; base < C; base += blockDim.x) {
        int c = base + threadIdx.x;
        if (c < C) {
            u64 key = rank_key(z[c] + b[c], (u32)(start + c));
            if (key > keys[k - 1]) keys[atomicAdd(&found, 1)] = key;
        }
        __syncthreads();
        int now = found;
        __syncthreads();  // all have read `found` before it changes
        if (now + (int)blockDim.x > size || base + (int)blockDim.x >= C) {
            sort_descending(keys, size);
            for (int at = k + threadIdx.x; at < size; at += blockDim.x) keys[at] = 0;
            if (threadIdx.x == 0) found = k;
            __syncthreads();
        }
    }
    for (int at = threadIdx.x; at < k; at += blockDim.x) mine[at] = keys[at];
}

// The keys (B, L) of the logits Z + b. A thread has a label, blockIdx.y is the row.
extern "C" __global__ void rank_keys(const float *Z, const float *b, int L, u64 *keys) {
    int label = blockIdx.x * blockDim.x + threadIdx.x;
    i64 at = (i64)blockIdx.y * L + label;
    if (label < L) keys[at] = rank_key(Z[at] + b[label], (u32)label);
}

// Scores and labels of keys (n,); an empty key is label -1 and score -infinity.
extern "C" __global__ void unpack_keys(const u64 *keys, i64 n, int *labels, float *scores) {
    i64 at = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= n) return;
    u32 bits = (u32)(keys[at] >> 32);
    labels[at] = keys[at] ? (int)~(u32)keys[at] : -1;
    if (keys[at] == 0) bits = 0x007fffffu;                     // of -infinity
    else if (bits == 0) bits = 0x003fffffu;                    // of NaN
    scores[at] = __uint_as_float(bits & 0x80000000u ? bits & 0x7fffffffu : ~bits);
}

// Replace each candidate's key by that of its float32 logit A[row] . W[label] + b[label]. keys (B, width). A warp has a
// key.
extern "C" __global__ void rescore(const float *A, const float *W, const float *b, i64 n, int width, int H, u64 *keys) {
    i64 at = (i64)blockIdx.x * (blockDim.x >> 5) + (threadIdx.x >> 5);
    if (at >= n || keys[at] == 0) return;
    u32 label = ~(u32)keys[at];
    const float *a = A + at / width * H, *w = W + (i64)label * H;
    float sum = 0.0f;
    for (int j = threadIdx.x & 31; j < H; j += WARP) sum += a[j] * w[j];
    sum = warp_sum(sum) + b[label];
    if ((threadIdx.x & 31) == 0) keys[at] = rank_key(sum, label);
}

// Sort each row of keys (B, width) descending. A block has a row; dynamic shared memory: `size` keys, a power of two.
extern "C" __global__ void sort_rows(u64 *keys, int width, int size) {
    DYNAMIC_SHARED(u64, row);
    u64 *mine = keys + (i64)blockIdx.x * width;
    for (int at = threadIdx.x; at < size; at += blockDim.x) row[at] = at < width ? mine[at] : 0;
    sort_descending(row, size);
    for (int at = threadIdx.x; at < width; at += blockDim.x) mine[at] = row[at];
}
