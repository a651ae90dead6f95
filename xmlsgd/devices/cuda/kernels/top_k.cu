// The best labels of a row.

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
