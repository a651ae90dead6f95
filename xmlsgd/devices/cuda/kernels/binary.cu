// Output layer with a binary loss a label, as binary cross-entropy: gradient and value of a logit.

// Gradient and value of one logit x of a row that lacks the label.
__device__ __forceinline__ float negative_gradient(int loss, float x, float scale, float *value) {
    if (loss != BCE) __trap();  // no such loss
    float e = power_of_two(-LOG2E * fabsf(x));
    // 1 + e would round a small e away.
    float log1p = e < 0.01f ? e * (1.0f - e * (0.5f - 0.33333333f * e)) : __logf(1.0f + e);
    *value += scale * (relu(x) + log1p);
    return __fdividef(scale * (x >= 0.0f ? 1.0f : e), 1.0f + e);
}

// G = gradient of the logits Z + b as if no row had any label; Z, G (B, stride), C labels valid, the rest of G zeros.
// A thread has PER_LANE neighbouring labels of `rows` rows. partial (parts, stride) are sums of G over the rows of a
// part, losses (blocks,) of the loss.
extern "C" __global__ void negatives(int loss, const float *Z, i64 stride, const float *b, const float *scale, int B,
                                     int C, int rows, operand *G, float *partial, float *losses) {
    __shared__ float parts[WARP];
    i64 label = ((i64)blockIdx.x * blockDim.x + threadIdx.x) * PER_LANE;
    int first = blockIdx.y * rows, last = first + rows < B ? first + rows : B;
    float value = 0.0f, sum[PER_LANE] = {0.0f, 0.0f, 0.0f, 0.0f}, bias[PER_LANE];
    for (int c = 0; c < PER_LANE; ++c) bias[c] = label + c < C ? b[label + c] : 0.0f;
    if (label < stride) {
        for (int i = first; i < last; ++i) {
            i64 at = (i64)i * stride + label;
            float4 z = *(const float4 *)(Z + at);
            float x[PER_LANE] = {z.x, z.y, z.z, z.w}, g[PER_LANE];
            for (int c = 0; c < PER_LANE; ++c) {
                g[c] = 0.0f;
                if (label + c < C) g[c] = negative_gradient(loss, x[c] + bias[c], scale[i], &value);
                sum[c] += g[c];
            }
            store_four(G + at, g);
        }
        for (int c = 0; c < PER_LANE; ++c) partial[blockIdx.y * stride + label + c] = sum[c];
    }
    value = block_sum(value, parts);
    if (threadIdx.x == 0) losses[(i64)blockIdx.y * gridDim.x + blockIdx.x] = value;
}

// Correct gradient, sums and loss at the labels [start, start + C) that the rows have. `keys` (n,) from `label_keys`,
// sorted; a block has WARP of them. positive_losses (n,) is written at the keys of this chunk.
extern "C" __global__ void positives(int loss, const i64 *keys, i64 n, i64 start, int C, const float *Z, i64 stride,
                                     const float *b, const float *scale, operand *G, float *partial,
                                     float *positive_losses) {
    __shared__ float parts[WARP];
    auto entry = [&](i64 i, i64 q, int *) {
        i64 column = (keys[q] >> 32) - start;
        float x = Z[i * stride + column] + b[column];
        if (loss != BCE) __trap();
        float e = expf(-fabsf(x));  // sigmoid(x) - 1 without cancellation
        G[i * stride + column] = to_operand(-scale[i] * (x >= 0.0f ? e : 1.0f) / (1.0f + e));
        positive_losses[q] = -scale[i] * x;
        return -scale[i];  // what changes in the gradient, taken as a negative before
    };
    auto finish = [&](i64 label, const float *, float sum) {
        if ((threadIdx.x & 31) == 0) partial[label - start] += sum;  // of the first part; no other warp has this label
    };
    sum_segments(keys, n, start, start + C, nullptr, 0, 0, 0, parts, parts, entry, finish);
}
