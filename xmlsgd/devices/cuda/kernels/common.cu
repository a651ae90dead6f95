// What all kernels share: types, operands of matrix products, sums over a warp or a block, updates of one row.
//
// The files of this folder are compiled as one source (`kernels/__init__.py`): at run time by NVRTC for the GPU, in
// tests by a C++ compiler (tests/shared/fake_gpu/cuda_shim.h). Names and order follow devices/reference.py.
//
// Rules, which keep the stand-in of the tests small and results reproducible:
// - Warp operations take all 32 lanes; no thread leaves a kernel before a barrier of its block; blocks are whole warps.
// - No atomics on global memory. Sums have a fixed order, so that two runs give the same bits.
// - With -DBFLOAT16 operands of matrix products are bfloat16; everything else is float32.

typedef unsigned long long u64;
typedef long long i64;
typedef unsigned int u32;

#ifdef BFLOAT16
typedef unsigned short operand;
#else
typedef float operand;
#endif

// Losses and optimizers by the numbers that xmlsgd/nn gives them; a number that is not here stops the kernel.
#define BCE 0
#define SGD_KIND 0
#define MOMENTUM_KIND 1
#define ADAGRAD_KIND 2
#define ROW_RMSPROP_KIND 3
#define ADAM_KIND 4
#define RMSPROP_KIND 5
enum { RATE, DECAY, CLIP, FIRST, SECOND, EPSILON, FIRST_SCALE, SECOND_SCALE };

#define FULL 0xffffffffu
#define WARP 32
#define TILE 128          // columns that a warp keeps in registers, four a lane
#define PER_LANE 4        // columns or rows of a lane
#define LOWEST -3.0e38f
#define FOUR_BLOCKS __launch_bounds__(256, 4)  // at most 64 registers a thread: loads that wait together take them
#ifndef DYNAMIC_SHARED
#define DYNAMIC_SHARED(type, name)                              \
    extern __shared__ __align__(16) unsigned char dynamic_shared[]; \
    type *name = (type *)dynamic_shared
#endif

// Shared by tensor_cores.cu and hopper.cu.
#define LABELS 128  // of a block
#define MOST 1e13f  // about exp(HEADROOM): exponentials of a row and a block whose sum is above it are scaled down
#ifdef __CUDA_ARCH__
__device__ __forceinline__ u32 shared_address(const void *at) { return (u32)__cvta_generic_to_shared(at); }
#endif

__device__ __forceinline__ operand to_operand(float x) {
#ifdef BFLOAT16
    u32 bits = __float_as_uint(x);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return (operand)((bits >> 16) | 0x40u);  // NaN stays NaN
    return (operand)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);                  // to nearest, ties to even
#else
    return x;
#endif
}

#ifdef BFLOAT16
// Two operands to nearest, the first in the low half.
__device__ __forceinline__ u32 two_operands(float low, float high) {
#ifdef __CUDA_ARCH__  // 800 or more: `Runtime` refuses bfloat16 on older GPUs
    u32 both;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
    return both;
#else
    return to_operand(low) | ((u32)to_operand(high) << 16);
#endif
}
#endif

// 2^x to two units in the last place; what would be denormal is 0.
#define LOG2E 1.44269504f
__device__ __forceinline__ float power_of_two(float x) {
#ifdef __CUDA_ARCH__
    float power;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x));
    return power;
#else
    return exp2f(x);
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
    packed.x = two_operands(x[0], x[1]), packed.y = two_operands(x[2], x[3]);
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

// Update one weight by its gradient; `row_state` is the second moment of its row for row-wise RMSprop.
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
    } else if (kind == RMSPROP_KIND || kind == ROW_RMSPROP_KIND) {
        float square = row_state;
        if (kind == RMSPROP_KIND) *s = square = hyper[SECOND] * *s + (1.0f - hyper[SECOND]) * g * g;
        moved -= rate * g / (sqrtf(square) * hyper[SECOND_SCALE] + hyper[EPSILON]);
    } else if (kind == MOMENTUM_KIND) {
        float velocity = hyper[FIRST] * *s + g;
        *s = velocity;
        moved -= rate * velocity;
    } else if (kind == SGD_KIND) {
        moved -= rate * g;
    } else {
        __trap();  // no such optimizer
    }
    *w = moved;
}

// Update columns [from, to) of row `row` of W (., H) by its gradient g (H,), which lies where all lanes of the warp can
// read what they wrote. All columns where the rule looks at the norm of the row.
__device__ void update_row(int kind, i64 row, const float *g, float *W, float *s, float *t, int H, int from, int to,
                           const float *hyper) {
    int lane = threadIdx.x & 31;
    float factor = 1.0f, row_state = 0.0f;
    if (hyper[CLIP] > 0.0f || kind == ROW_RMSPROP_KIND) {
        float square = 0.0f;
        for (int j = lane; j < H; j += WARP) square += g[j] * g[j];
        square = warp_sum(square);
        float norm = sqrtf(square);
        if (hyper[CLIP] > 0.0f && norm > hyper[CLIP]) factor = hyper[CLIP] / norm;
        if (kind == ROW_RMSPROP_KIND) {
            row_state = hyper[SECOND] * s[row] + (1.0f - hyper[SECOND]) * square * factor * factor / (float)H;
            __syncwarp();  // all lanes have read the old state
            if (lane == 0) s[row] = row_state;
        }
    }
    bool first = kind != SGD_KIND && kind != ROW_RMSPROP_KIND, second = kind == ADAM_KIND;
    for (int j = from + lane; j < to; j += TILE) {
        i64 at = row * H + j;
        float w[PER_LANE], x[PER_LANE], a[PER_LANE], b[PER_LANE];
        for (int c = 0; c < PER_LANE; ++c) {  // all loads before the first store, which would have them wait in turn
            bool mine = j + c * WARP < to;
            w[c] = mine ? W[at + c * WARP] : 0.0f;
            x[c] = mine ? g[j + c * WARP] * factor : 0.0f;
            a[c] = mine && first ? s[at + c * WARP] : 0.0f;
            b[c] = mine && second ? t[at + c * WARP] : 0.0f;
        }
        for (int c = 0; c < PER_LANE; ++c)
            if (j + c * WARP < to) update(kind, w + c, x[c], a + c, b + c, row_state, hyper, hyper[DECAY]);
        for (int c = 0; c < PER_LANE; ++c) {
            if (j + c * WARP >= to) continue;
            W[at + c * WARP] = w[c];
            if (first) s[at + c * WARP] = a[c];
            if (second) t[at + c * WARP] = b[c];
        }
    }
}
