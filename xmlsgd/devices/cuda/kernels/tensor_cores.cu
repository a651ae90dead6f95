// Softmax on tensor cores: matrix products that take exponentials, or add biases, while results are in registers, which
// would otherwise be one more sweep over memory. Only with bfloat16 operands, on Ampere or newer.
//
// A block is four warps and has LABELS labels of a product. Operands go through shared memory, a few steps of the sum
// ahead of the warps (`cp.async`); a warp multiplies fragments of 16 x 16 by 16 x 8 (`mma`), of whose results lane l
// has those of row l / 4 and columns 2 (l % 4) and the next, and the two of eight rows below.

#define PER_WARP 32   // rows, or labels, of a block that a warp has
#define GROUP 8       // operands that are copied at once: 16 bytes
#define DEEP 32       // operands of a row that a stage of `product_exponentials` holds
#define STAGES 3
#define ROWS_DEEP 16  // rows of the batch that a stage of `product_weights` holds
#define WIDE 136      // most columns of `scaled` there: 134 hidden units and two for the bias
#define WEIGHT_STAGES 5
#define AT_ONCE 6     // pairs of W that a thread waits for together
#define NEAR_END 8    // steps before the last in which W is brought near

#ifdef __CUDA_ARCH__
// Registers for several blocks on a multiprocessor: some multiply while others take exponentials, or wait for memory.
#define SEVERAL_BLOCKS __launch_bounds__(128, __CUDA_ARCH__ >= 900 && __CUDA_ARCH__ < 1200 ? 3 : 2)

// Begin to copy 16 bytes to shared memory; zeros instead where they are not `valid`.
__device__ __forceinline__ void copy_later(void *to, const void *from, bool valid) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from),
                 "r"(valid ? 16 : 0)
                 : "memory");
}

// As `copy_later`, of what blocks beside this one read too: it stays in the cache of the multiprocessor.
__device__ __forceinline__ void copy_shared_later(void *to, const void *from, bool valid) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from),
                 "r"(valid ? 16 : 0)
                 : "memory");
}

// Bring the 128 bytes at an address to the level-2 cache.
__device__ __forceinline__ void bring_near(const void *at) { asm volatile("prefetch.global.L2 [%0];" ::"l"(at)); }

__device__ __forceinline__ void end_of_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Wait for this thread's copies but those of the last `groups`.
template <int groups>
__device__ __forceinline__ void wait_for_copies() { asm volatile("cp.async.wait_group %0;" ::"n"(groups) : "memory"); }

// Read four matrices of 8 x 8 operands, whose rows lanes 0-7, 8-15, 16-23 and 24-31 point to.
__device__ __forceinline__ void load_matrices(u32 *x, const operand *row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
                 : "r"(shared_address(row))
                 : "memory");
}

// As `load_matrices`, each matrix transposed.
__device__ __forceinline__ void load_transposed(u32 *x, const operand *row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
                 : "r"(shared_address(row))
                 : "memory");
}

// sum (16 x 8) += a (16 x 16) times b (16 x 8).
__device__ __forceinline__ void multiply(float *sum, const u32 *a, const u32 *b) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
                 "{%0, %1, %2, %3};"
                 : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
#else  // compiled for the CPU by tests, whose cuda_shim.h has the functions above that are not here
#define SEVERAL_BLOCKS
#endif

// Where group `group` of a row's operands lies in a stage of `product_exponentials`, whose rows are read eight at a
// time, neighbours (`turn` 1) or labels in the order of `label_of` (3): none of them shares a bank of shared memory.
__device__ __forceinline__ int place_in_stage(int row, int group, int turn) {
    return row * DEEP + (group ^ ((row >> turn) & (DEEP / GROUP - 1))) * GROUP;
}

// The label of column `column` of eight in product `n` of sixteen, such that four products give a lane eight
// neighbours.
__device__ __forceinline__ int label_of(int n, int column) {
    return (n >> 2) * 32 + (column >> 1) * 8 + (n & 3) * 2 + (column & 1);
}

// Write exp(logit - shift) of a lane's 32 logits of a row as pairs of operands; return their sum over the four lanes
// that have the row. `sum` are the fragments of sixteen products.
__device__ __forceinline__ float exponentials_of(const float (*sum)[4], int below, float shift, u32 *pairs) {
    float all = 0.0f, scaled = shift * LOG2E;
#pragma unroll
    for (int n = 0; n < 16; ++n) {
        const float *logits = sum[n] + 2 * below;
        pairs[n] = two_operands(power_of_two(logits[0] * LOG2E - scaled), power_of_two(logits[1] * LOG2E - scaled));
        all += __uint_as_float(pairs[n] << 16) + __uint_as_float(pairs[n] & 0xffff0000u);
    }
    for (int offset = 1; offset < 4; offset <<= 1) all += __shfl_xor_sync(FULL, all, offset);
    return all;
}

// E (B, stride), at labels [start, start + C), = exp(A W^T + b - reference - m), A (B, width) and W (C, width)
// operands, b (C,) and reference (B,). m is 0 unless the sum of a row's exponentials in this block is above MOST: then
// it is the largest logit among them. sums (B, tiles, 2): m and the sum of what is written, of each row and block. A
// block has LABELS rows and labels; `band` blocks that follow one another have the same rows, the next `band` the same
// labels and the rows behind. width and stride are multiples of GROUP, start one of LABELS. Dynamic shared memory:
// STAGES times 2 LABELS DEEP operands.
extern "C" __global__ void SEVERAL_BLOCKS product_exponentials(const operand *A, const operand *W, const float *b,
                                                               const float *reference, int width, int B, int C,
                                                               i64 start, i64 stride, int tiles, int band, operand *E,
                                                               float *sums) {
    DYNAMIC_SHARED(operand, stages);
    const int whole = 2 * LABELS * DEEP, apart = WARP * 4 / (DEEP / GROUP);  // rows between those that a thread copies
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    int n_labels = (C + LABELS - 1) / LABELS, n_rows = (B + LABELS - 1) / LABELS;
    int first = blockIdx.x / (band * n_rows) * band, place = blockIdx.x % (band * n_rows);
    int width_of_band = n_labels - first < band ? n_labels - first : band, tile = first + place % width_of_band;
    int first_row = place / width_of_band * LABELS, first_label = tile * LABELS;
    int steps = (width + DEEP - 1) / DEEP;
    float sum[2][16][4];  // begin with the biases; a label that is not there has the lowest logit
#pragma unroll
    for (int n = 0; n < 16; ++n)
        for (int c = 0; c < 2; ++c) {
            int label = first_label + label_of(n, lane % 4 * 2 + c);
            sum[0][n][c] = sum[0][n][c + 2] = sum[1][n][c] = sum[1][n][c + 2] = label < C ? b[label] : LOWEST;
        }
    int line = threadIdx.x / (DEEP / GROUP), fetched = threadIdx.x % (DEEP / GROUP) * GROUP, written = 0;
    const int to_row = place_in_stage(line, fetched / GROUP, 1);
    const int to_label = LABELS * DEEP + place_in_stage(line, fetched / GROUP, 3);
    const operand *from_A = A + (i64)(first_row + line) * width + fetched;
    const operand *from_W = W + (i64)(first_label + line) * width + fetched;
    auto fetch = [&](int step) {
        if (step < steps) {
            int rows = fetched < width ? B - first_row - line : 0;
            int labels = fetched < width ? C - first_label - line : 0;
#pragma unroll
            for (int i = 0; i < LABELS; i += apart) {
                copy_shared_later(stages + written + to_row + i * DEEP, from_A + (i64)i * width, i < rows);
                copy_later(stages + written + to_label + i * DEEP, from_W + (i64)i * width, i < labels);
            }
            from_A += DEEP, from_W += DEEP, fetched += DEEP;
            written = written == (STAGES - 1) * whole ? 0 : written + whole;
        }
        end_of_copies();
    };
    for (int step = 0; step < STAGES - 1; ++step) fetch(step);
    const operand *rows = stages;
    for (int step = 0; step < steps; ++step) {
        wait_for_copies<STAGES - 2>();
        __syncthreads();  // all have their copies, and have read the stage that is written next
        fetch(step + STAGES - 1);
#pragma unroll
        for (int half = 0; half < DEEP / 16; ++half) {
            if (step * DEEP + half * 16 >= width) break;
            u32 of_A[2][4], of_W[4];
            for (int i = 0; i < 2; ++i) {
                int row = warp * PER_WARP + i * 16 + (lane & 15);
                load_matrices(of_A[i], rows + place_in_stage(row, half * 2 + (lane >> 4), 1));
            }
#pragma unroll
            for (int n = 0; n < 16; n += 2) {
                int label = label_of(n + (lane >> 4), lane & 7);
                load_matrices(of_W, rows + LABELS * DEEP + place_in_stage(label, half * 2 + ((lane >> 3) & 1), 3));
                for (int i = 0; i < 2; ++i) {
                    multiply(sum[i][n], of_A[i], of_W);
                    multiply(sum[i][n + 1], of_A[i], of_W + 2);
                }
            }
        }
        rows = rows == stages + (STAGES - 1) * whole ? stages : rows + whole;
    }
    int left = C - first_label;  // labels that there are
#pragma unroll
    for (int i = 0; i < 2; ++i)
#pragma unroll
        for (int below = 0; below < 2; ++below) {
            int row = first_row + warp * PER_WARP + i * 16 + below * 8 + lane / 4;
            u32 pairs[16];
            float shift = row < B ? reference[row] : 0.0f, top = 0.0f;
            float all = exponentials_of(sum[i], below, shift, pairs);
            if (__ballot_sync(FULL, all > MOST)) {
                float best = LOWEST;
                for (int n = 0; n < 16; ++n) best = fmaxf(best, fmaxf(sum[i][n][2 * below], sum[i][n][2 * below + 1]));
                for (int offset = 1; offset < 4; offset <<= 1) best = fmaxf(best, __shfl_xor_sync(FULL, best, offset));
                if (all > MOST) top = best - shift;
                all = exponentials_of(sum[i], below, shift + top, pairs);
            }
            if (row >= B) continue;
            for (int n = 0; n < 16; n += 4) {
                int column = label_of(n, lane % 4 * 2);
                uint4 eight;
                eight.x = pairs[n], eight.y = pairs[n + 1], eight.z = pairs[n + 2], eight.w = pairs[n + 3];
                if (column < left) *(uint4 *)(E + row * stride + start + first_label + column) = eight;
            }
            float2 both;
            both.x = top, both.y = all;
            if (lane % 4 == 0) *(float2 *)(sums + 2 * (row * (i64)tiles + start / LABELS + tile)) = both;
        }
}

// largest (B,) and total (B,) of the `sums` (B, tiles, 2) from `product_exponentials`; a row with an m above 0 is
// brought to its largest: what is written of E (B, stride), C of them valid, is scaled anew. A block has a row.
extern "C" __global__ void common_reference(const float *sums, int tiles, i64 stride, i64 C, operand *E, float *largest,
                                            float *total) {
    __shared__ float parts[WARP];
    const float *mine = sums + 2 * (i64)blockIdx.x * tiles;
    operand *e = E + (i64)blockIdx.x * stride;
    float best = 0.0f, sum = 0.0f;
    for (int at = threadIdx.x; at < tiles; at += blockDim.x) best = fmaxf(best, mine[2 * at]);
    float top = block_max(best, parts);
    if (top == 0.0f) {
        for (int at = threadIdx.x; at < tiles; at += blockDim.x) sum += mine[2 * at + 1];
    } else {
        for (i64 at = (i64)threadIdx.x * LOADED; at < C; at += (i64)blockDim.x * LOADED) {
            float factor = expf(mine[2 * (at / LABELS)] - top), written[LOADED];
            load_some(e + at, written);
            for (int c = 0; c < LOADED; ++c) {
                written[c] = from_operand(to_operand(written[c] * factor));
                sum += written[c];
            }
            store_some(e + at, written);
        }
    }
    sum = block_sum(sum, parts);
    if (threadIdx.x == 0) {
        largest[blockIdx.x] = top;
        total[blockIdx.x] = sum;
    }
}

// W (C, H) = factors[1] W + factors[0] E^T scaled, for labels [start, start + C) of E (B, stride); scaled (B, width)
// has H columns, one of zeros where H is odd, and the rows' factor in two parts, at most WIDE columns in all; partial
// (C,) = E^T times the sum of these two. width, stride and start are multiples of GROUP. A block has LABELS labels.
// Dynamic shared memory: WEIGHT_STAGES times ROWS_DEEP rows of LABELS + GROUP and of WIDE operands.
extern "C" __global__ void SEVERAL_BLOCKS product_weights(const operand *E, i64 stride, i64 start,
                                                          const operand *scaled, int width, int B, int C, int H,
                                                          const float *factors, float *W, float *partial) {
    DYNAMIC_SHARED(operand, stages);
    const int row_of_E = LABELS + GROUP, columns_at = ROWS_DEEP * row_of_E, whole = columns_at + ROWS_DEEP * WIDE;
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, of_bias = H + (H & 1);
    int first_label = blockIdx.x * LABELS, steps = (B + ROWS_DEEP - 1) / ROWS_DEEP;
    float alpha = factors[0], beta = factors[1];
    float sum[2][WIDE / 8][4];
    for (int i = 0; i < 2; ++i)
        for (int n = 0; n < WIDE / 8; ++n)
            for (int c = 0; c < 4; ++c) sum[i][n][c] = 0.0f;
    // A thread copies a group of two rows of E and of `scaled`, sixteen threads the last group of a row of `scaled`.
    int line = threadIdx.x / 16, group = threadIdx.x % 16 * GROUP, fetched = line, written = 0;
    bool in_E = first_label + group < C, in_scaled = group < width;
    bool last = threadIdx.x < ROWS_DEEP && LABELS < width;
    const operand *from_E = E + line * stride + start + first_label + group;
    const operand *from_scaled = scaled + (i64)line * width + group;
    const operand *from_last = scaled + (i64)threadIdx.x * width + LABELS;
    const int to_E = line * row_of_E + group, to_scaled = columns_at + line * WIDE + group;
    const int to_last = columns_at + threadIdx.x * WIDE + LABELS;
    auto fetch = [&](int step) {
        if (step < steps) {
            bool one = fetched < B, two = fetched + 8 < B;
            operand *stage = stages + written;
            copy_later(stage + to_E, from_E, one && in_E);
            copy_later(stage + to_E + 8 * row_of_E, from_E + 8 * stride, two && in_E);
            copy_shared_later(stage + to_scaled, from_scaled, one && in_scaled);
            copy_shared_later(stage + to_scaled + 8 * WIDE, from_scaled + 8 * (i64)width, two && in_scaled);
            if (threadIdx.x < ROWS_DEEP)
                copy_shared_later(stage + to_last, from_last, last && fetched - line + (int)threadIdx.x < B);
            from_E += ROWS_DEEP * stride, fetched += ROWS_DEEP;
            from_scaled += ROWS_DEEP * (i64)width, from_last += ROWS_DEEP * (i64)width;
            written = written == (WEIGHT_STAGES - 1) * whole ? 0 : written + whole;
        }
        __syncwarp();
        end_of_copies();
    };
    for (int step = 0; step < WEIGHT_STAGES - 1; ++step) fetch(step);
    const operand *rows = stages;
    for (int step = 0; step < steps; ++step) {
        wait_for_copies<WEIGHT_STAGES - 2>();
        __syncthreads();  // all have their copies, and have read the stage that is written next
        fetch(step + WEIGHT_STAGES - 1);
        if (beta != 0.0f && step == (steps > NEAR_END ? steps - NEAR_END : 0) && first_label + (int)threadIdx.x < C) {
            const float *w = W + (i64)(first_label + threadIdx.x) * H;  // a thread a label: what the block will change
            for (int j = 0; j < H; j += 32) bring_near(w + j);
        }
        u32 of_E[2][4], of_scaled[4];
        for (int i = 0; i < 2; ++i) {
            int deep = (lane & 7) + ((lane >> 4) << 3), label = warp * PER_WARP + i * 16 + ((lane >> 3) & 1) * 8;
            load_transposed(of_E[i], rows + deep * row_of_E + label);
        }
#pragma unroll
        for (int n = 0; n < WIDE / 8; n += 2) {
            bool two = n + 1 < WIDE / 8;
            load_transposed(of_scaled, rows + columns_at + (lane & 15) * WIDE + (n + (two ? lane >> 4 : 0)) * 8);
            for (int i = 0; i < 2; ++i) {
                multiply(sum[i][n], of_E[i], of_scaled);
                if (two) multiply(sum[i][n + 1], of_E[i], of_scaled + 2);
            }
        }
        rows = rows == stages + (WEIGHT_STAGES - 1) * whole ? stages : rows + whole;
    }
    bool in_pairs = H % 2 == 0 && (u64)W % 8 == 0;
#pragma unroll
    for (int i = 0; i < 2; ++i)
#pragma unroll
        for (int below = 0; below < 2; ++below) {
            i64 label = first_label + warp * PER_WARP + i * 16 + below * 8 + lane / 4;
            int first = lane % 4 * 2;
            float *w = W + label * H + first;
            if (label >= C) continue;
#pragma unroll
            for (int from = 0; from < WIDE / 8; from += AT_ONCE) {
                float old[AT_ONCE][2];  // are all read before the first is written: they wait for memory together
#pragma unroll
                for (int n = 0; n < AT_ONCE; ++n) {
                    float *at = w + (from + n) * 8;
                    old[n][0] = old[n][1] = 0.0f;
                    if (beta == 0.0f || from + n >= WIDE / 8 || first + (from + n) * 8 >= H) continue;
                    if (in_pairs) {
                        float2 both = *(const float2 *)at;
                        old[n][0] = both.x, old[n][1] = both.y;
                    } else {
                        old[n][0] = at[0];
                        if (first + (from + n) * 8 + 1 < H) old[n][1] = at[1];
                    }
                }
#pragma unroll
                for (int n = 0; n < AT_ONCE; ++n) {
                    if (from + n >= WIDE / 8) continue;
                    const float *got = sum[i][from + n] + 2 * below;
                    int column = first + (from + n) * 8;
                    float *at = w + (from + n) * 8;
                    float2 both;
                    both.x = beta * old[n][0] + alpha * got[0], both.y = beta * old[n][1] + alpha * got[1];
                    if (column == of_bias) partial[label] = got[0] + got[1];
                    if (column >= H) continue;
                    if (in_pairs) {
                        *(float2 *)at = both;
                    } else {
                        at[0] = both.x;
                        if (column + 1 < H) at[1] = both.y;
                    }
                }
            }
        }
}
