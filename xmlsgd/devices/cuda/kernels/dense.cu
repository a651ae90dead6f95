// Dense layers and vectors: activations, sums, updates, copies, bfloat16 operands.

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

// The sum of element `at` over the parts (n_parts, n) of a product.
__device__ __forceinline__ float sum_of_parts(const float *parts, int n_parts, i64 n, i64 at) {
    float sum = 0.0f;
    for (int p = 0; p < n_parts; ++p) sum += parts[p * n + at];
    return sum;
}

// out (n,) = the sum of parts (n_parts, n).
extern "C" __global__ void sum_parts(const float *parts, int n_parts, i64 n, float *out) {
    i64 at = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    if (at < n) out[at] = sum_of_parts(parts, n_parts, n, at);
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
    if (kind == ROW_RMSPROP_KIND) kind = RMSPROP_KIND;
    bool first = kind != SGD_KIND;
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

// out (rows, width) = x (rows, H) as operands of products, zeros beyond H; width is a multiple of four. A warp has a
// row.
extern "C" __global__ void pack(const float *x, int rows, int H, int width, operand *out) {
    i64 row = (i64)blockIdx.x * (blockDim.x >> 5) + (threadIdx.x >> 5);
    if (row >= rows) return;
    bool whole = of_fours(x, H);
    for (int j = (threadIdx.x & 31) * 4; j < width; j += WARP * 4) {
        float four[4];
        load_four(x + row * H, j, H, whole, four);
        store_four(out + row * width + j, four);
    }
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
