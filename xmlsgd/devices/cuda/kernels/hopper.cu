// Softmax on Hopper: `product_exponentials` of tensor_cores.cu by `wgmma`, which reaches the peak of its tensor cores
// and reads labels from shared memory by itself. Only for compute capability 9.0: its instructions take sm_90a.
//
// A block keeps HOPPER_ROWS rows of the batch in the registers of two teams, four warps each, and goes through tiles
// of LABELS labels, every so many. A producer has the copy engine bring W in chunks of LABELS x CHUNK operands to a
// ring of stages in shared memory; a cluster of two blocks, of neighbouring rows, goes through the same tiles, and
// either brings half of each chunk to both. The teams take turns at the tensor cores: one begins a tile when the other
// has begun all of its own, so that one multiplies while the other takes exponentials. In NVIDIA's words: consumer
// warpgroups in ping-pong by named barriers, a producer warp, TMA with multicast, operands A in registers.
//
// Two `mbarrier` a stage: `full` when a chunk is there, `empty` when all warps of the cluster have read it; a wait
// names the parity of the phase that must be over. Stages are rows of 128 bytes, swizzled as the copy engine does it.

#define HOPPER_ROWS 128    // of a block, 64 a team
#define CHUNK 64           // operands of a row in a stage: 128 bytes
#define CHUNK_BYTES 16384  // LABELS rows
#define MOST_CHUNKS 8      // registers for 512 operands of a row, 128 a thread
#define CLUSTER 2          // blocks
#define PARTS 4            // of a chunk, 32 labels each: boxes of the copy engine
#define CONSUMERS 256      // threads of both teams; those of the producer are a team more, of which one warp works
#define HOPPER_THREADS 384
#define MOST_STAGES 14     // fewer where more biases have to fit beside them
#define FEW_REGISTERS 24   // of a producer's thread; at the start all have 168, as many as three warpgroups can
#define MANY_REGISTERS 240
#define ALIGNED 1024       // bytes: eight swizzled rows

#define CLUSTER_BLOCKS __cluster_dims__(CLUSTER, 1, 1) __launch_bounds__(HOPPER_THREADS, 1)

#ifdef __CUDA_ARCH__
__device__ __forceinline__ void barrier_init(u32 at, int count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(at), "r"(count) : "memory");
}

// Let the copy engine and the other block see barriers that have been made.
__device__ __forceinline__ void barriers_are_made() {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ __forceinline__ void barrier_wait(u32 at, int parity) {
    u32 done;
    do {
        asm volatile("{.reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p;}"
                     : "=r"(done)
                     : "r"(at), "r"(parity)
                     : "memory");
    } while (!done);
}

// Arrive at a barrier that lies at this address in a block of the cluster.
__device__ __forceinline__ void barrier_arrive(u32 at, int block) {
    asm volatile("{.reg .b32 there; mapa.shared::cluster.u32 there, %0, %1;\n"
                 "mbarrier.arrive.shared::cluster.b64 _, [there];}" ::"r"(at), "r"(block)
                 : "memory");
}

// Arrive at a barrier of this block, whose phase then ends when so many bytes have come, too.
__device__ __forceinline__ void barrier_expect(u32 at, int bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(at), "r"(bytes) : "memory");
}

// Let the copy engine see a map that another kernel, or a copy, has written.
__device__ __forceinline__ void see_map(const u64 *map) {
    asm volatile("fence.proxy.tensormap::generic.acquire.sys [%0], 128;" ::"l"(map) : "memory");
}

// Bring a box to the same address in all blocks of the cluster, and its bytes to their barriers.
__device__ __forceinline__ void fetch_box(u32 to, const u64 *map, int x, int y, int z, u32 barrier) {
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], "
                 "[%1, {%3, %4, %5}], [%2], %6;" ::"r"(to), "l"(map), "r"(barrier), "r"(x), "r"(y), "r"(z),
                 "h"((unsigned short)((1 << CLUSTER) - 1))
                 : "memory");
}

// Wait for all threads of the cluster.
__device__ __forceinline__ void cluster_barrier() {
    asm volatile("barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;" ::: "memory");
}

__device__ __forceinline__ int block_of_cluster() {
    u32 rank;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}

// Wait for turn `which`, or give it; `threads` are both those that wait and those that give.
template <int threads>
__device__ __forceinline__ void turn_wait(int which) {
    asm volatile("bar.sync %0, %1;" ::"r"(which), "n"(threads) : "memory");
}
template <int threads>
__device__ __forceinline__ void turn_give(int which) {
    asm volatile("bar.arrive %0, %1;" ::"r"(which), "n"(threads) : "memory");
}

template <int n>
__device__ __forceinline__ void fewer_registers() { asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(n)); }
template <int n>
__device__ __forceinline__ void more_registers() { asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(n)); }

// Registers are ready for the products that follow; these are a group; wait for all but the last `groups`.
__device__ __forceinline__ void products_begin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void products_end() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int groups>
__device__ __forceinline__ void products_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(groups) : "memory");
}

#define TEN(d) "%" #d "0, %" #d "1, %" #d "2, %" #d "3, %" #d "4, %" #d "5, %" #d "6, %" #d "7, %" #d "8, %" #d "9, "
#define FOUR(i) "+f"(sum[i]), "+f"(sum[i + 1]), "+f"(sum[i + 2]), "+f"(sum[i + 3])
#define SIXTEEN(i) FOUR(i), FOUR(i + 4), FOUR(i + 8), FOUR(i + 12)

// Begin a product of a team: sum (64 x 128) = A (64 x 16) B (128 x 16)^T, plus sum where `keep_sum`.
__device__ __forceinline__ void multiply_later(float *sum, const u32 *a, u64 b, int keep_sum) {
    asm volatile("{.reg .pred p; setp.ne.b32 p, %69, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 "
                 "{" TEN() TEN(1) TEN(2) TEN(3) TEN(4) TEN(5) "%60, %61, %62, %63}, "
                 "{%64, %65, %66, %67}, %68, p, 1, 1, 0;}"
                 : SIXTEEN(0), SIXTEEN(16), SIXTEEN(32), SIXTEEN(48)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(keep_sum));
}

// Read what lies in shared memory, here and not sooner: registers are scarce.
__device__ __forceinline__ float4 load_four(u32 from) {
    float4 x;
    asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(x.x), "=f"(x.y), "=f"(x.z), "=f"(x.w)
                 : "r"(from)
                 : "memory");
    return x;
}

// Write four pairs where `at` is below `limit`: without a jump, which the compiler would take around each.
__device__ __forceinline__ void store_eight(operand *to, const u32 *pairs, int at, int limit) {
    asm volatile("{.reg .pred p; setp.lt.s32 p, %5, %6;\n@p st.global.v4.b32 [%0], {%1, %2, %3, %4};}" ::"l"(to),
                 "r"(pairs[0]), "r"(pairs[1]), "r"(pairs[2]), "r"(pairs[3]), "r"(at), "r"(limit)
                 : "memory");
}

// Have the compiler keep a pointer, and not compute it anew at each use.
__device__ __forceinline__ void keep(operand *&at) { asm volatile("" : "+l"(at)); }
#endif  // tests, which compile this for the CPU, have the functions above in cuda_shim.h

// The descriptor of a stage for `multiply_later`: its address, 1024 bytes between groups of eight rows, the swizzle.
__device__ __forceinline__ u64 described(u32 at) {
    return (u64)((at & 0x3ffff) >> 4) | 1ull << 16 | (u64)(ALIGNED >> 4) << 32 | 1ull << 62;
}

// Write exp(logit + bias - shift) of a lane's logits of two rows, eight below one another, of labels below `limits`;
// biases and `shifts` are times LOG2E. `all` = the sums of what is written of a row.
__device__ __forceinline__ void write_exponentials(const float *sum, u32 biases, const float *shifts,
                                                   operand *const *e, const int *limits, float *all) {
    all[0] = all[1] = 0.0f;
#pragma unroll
    for (int a = 0; a < 4; ++a) {
        float4 low = load_four(biases + a * 128), high = load_four(biases + a * 128 + 16);
        const float bias[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            u32 pairs[4];
#pragma unroll
            for (int c = 0; c < 4; ++c) {
                const float *logits = sum + (c * 4 + a) * 4 + i * 2;
                pairs[c] = two_operands(power_of_two(logits[0] * LOG2E + (bias[2 * c] - shifts[i])),
                                        power_of_two(logits[1] * LOG2E + (bias[2 * c + 1] - shifts[i])));
                all[i] += __uint_as_float(pairs[c] << 16) + __uint_as_float(pairs[c] & 0xffff0000u);
            }
            store_eight(e[i] + a * 32, pairs, a * 32, limits[i]);
        }
    }
#pragma unroll
    for (int i = 0; i < 2; ++i)
        for (int offset = 1; offset < 4; offset <<= 1) all[i] += __shfl_xor_sync(FULL, all[i], offset);
}

// As `product_exponentials`, width at most MOST_CHUNKS * CHUNK. `map`: that of W as (C / 8, 8, width), in boxes (16, 2,
// CHUNK): so product n = 4 c + a, column 2 q + d, is label 32 a + 8 q + 2 c + d, and the results of a lane, of columns
// 2 q and 2 q + 1, are eight neighbours four times. The grid is as many blocks as have all rows, a multiple of CLUSTER,
// times those that share the tiles. `stages` is at least the chunks of a row. Dynamic shared memory: `hopper.py`.
extern "C" __global__ void CLUSTER_BLOCKS hopper_exponentials(const operand *A, const u64 *map, const float *b,
                                                              const float *reference, int width, int B, int C,
                                                              i64 start, i64 stride, int tiles, int stages, operand *E,
                                                              float *sums) {
    DYNAMIC_SHARED(unsigned char, all_shared);
    const int tid = threadIdx.x, lane = tid & 31, warp = tid >> 5;
    const int chunks = (width + CHUNK - 1) / CHUNK, n_tiles = (C + LABELS - 1) / LABELS;
    const int first_row = blockIdx.x * HOPPER_ROWS;
    const int slots = stages / chunks + 2;  // of biases: as many tiles as may be between the producer and a team
    unsigned char *stage_at = all_shared + (-shared_address(all_shared) & (ALIGNED - 1));
    float4 *biases = (float4 *)(stage_at + stages * CHUNK_BYTES);
    const u32 ring = shared_address(stage_at), full = ring + stages * CHUNK_BYTES + slots * LABELS * 4;
    const u32 empty = full + 8 * stages;
    if (tid == 0) {
        for (int i = 0; i < stages; ++i) {
            barrier_init(full + 8 * i, 1);
            barrier_init(empty + 8 * i, CONSUMERS / WARP * CLUSTER);
        }
        barriers_are_made();
    }
    cluster_barrier();
    int stage = 0, phase = 0, slot = 0;
    auto next_stage = [&]() {
        if (++stage == stages) stage = 0, phase ^= 1;
    };
    auto next_slot = [&]() { slot = slot + 1 == slots ? 0 : slot + 1; };
    if (warp >= CONSUMERS / WARP) {
        fewer_registers<FEW_REGISTERS>();
        auto biases_of = [&](int tile) {
            float x[4];
            for (int i = 0; i < 4; ++i) {
                int label = tile * LABELS + lane * 4 + i;
                x[i] = label < C ? b[label] * LOG2E : LOWEST;
            }
            float4 four;
            four.x = x[0], four.y = x[1], four.z = x[2], four.w = x[3];
            return four;
        };
        const int part = block_of_cluster() * (PARTS / CLUSTER);
        float4 next = biases_of(blockIdx.y);
        if (lane == 0) see_map(map);
        for (int tile = warp == CONSUMERS / WARP ? blockIdx.y : n_tiles; tile < n_tiles; tile += gridDim.y)
            for (int chunk = 0; chunk < chunks; ++chunk) {
                barrier_wait(empty + 8 * stage, phase ^ 1);
                if (chunk == 0) {
                    biases[slot * WARP + lane] = next;
                    next_slot();
                    next = biases_of(tile + (int)gridDim.y);
                }
                __syncwarp();
                if (lane == 0) {
                    barrier_expect(full + 8 * stage, CHUNK_BYTES);
                    for (int c = part; c < part + PARTS / CLUSTER; ++c)
                        fetch_box(ring + stage * CHUNK_BYTES + c * (CHUNK_BYTES / PARTS), map, chunk * CHUNK, 2 * c,
                                  tile * (LABELS / 8), full + 8 * stage);
                }
                next_stage();
            }
    } else {
        more_registers<MANY_REGISTERS>();
        const int team = warp / 4, quad = lane & 3, row = first_row + warp * 16 + lane / 4;
        float scaled[2], sum[64];
        for (int i = 0; i < 2; ++i) scaled[i] = row + 8 * i < B ? reference[row + 8 * i] * LOG2E : 0.0f;
        u32 held[MOST_CHUNKS * 16];  // four a product: rows `row` and 8 below, columns of the quad and 8 more
#pragma unroll
        for (int i = 0; i < MOST_CHUNKS * 16; ++i) {
            int column = i / 4 * 16 + (i & 2) * 4 + quad * 2, at = row + (i & 1) * 8;
            held[i] = at < B && column < width ? *(const u32 *)(A + (i64)at * width + column) : 0;
        }
        operand *e = E + row * stride + start + quad * 8;
        auto let_go = [&](int which) {  // of a stage, in both blocks
            __syncwarp();
            if (lane < CLUSTER) barrier_arrive(empty + 8 * which, lane);
        };
        if (team == 1 && (int)blockIdx.y < n_tiles) turn_give<CONSUMERS>(1);
        for (int tile = blockIdx.y; tile < n_tiles; tile += gridDim.y) {
            turn_wait<CONSUMERS>(1 + team);
            int last = stage;
#pragma unroll
            for (int chunk = 0; chunk < MOST_CHUNKS; ++chunk) {
                if (chunk == chunks) break;
                barrier_wait(full + 8 * stage, phase);
                products_begin();
#pragma unroll
                for (int k = 0; k < 4; ++k) {
                    u64 w = described(ring + stage * CHUNK_BYTES) + 2 * k;  // 16 operands farther in each row
                    multiply_later(sum, held + (chunk * 4 + k) * 4, w, chunk | k);
                }
                products_end();
                bool awaited = team == 0 || tile + (int)gridDim.y < n_tiles;
                if (chunk + 1 == chunks && awaited) turn_give<CONSUMERS>(2 - team);
                if (chunk > 0) {
                    products_wait<1>();
                    let_go(last);
                }
                last = stage;
                next_stage();
            }
            products_wait<0>();
            let_go(last);
            const int left = C - tile * LABELS - quad * 8;
            if (left < LABELS) {  // what is behind the last label may be anything, NaN too
#pragma unroll
                for (int i = 0; i < 64; ++i)
                    if (i / 4 % 4 * 32 + i / 16 * 2 + (i & 1) >= left) sum[i] = 0.0f;
            }
            const u32 mine = ring + stages * CHUNK_BYTES + slot * LABELS * 4 + quad * 32;
            const int limits[2] = {row < B ? left : 0, row + 8 < B ? left : 0};
            float shifts[2] = {scaled[0], scaled[1]}, all[2];
            operand *to[2] = {e + tile * LABELS, e + tile * LABELS + 8 * stride};
            keep(to[0]), keep(to[1]);
#pragma unroll 1
            for (int again = 0;; again = 1) {
                write_exponentials(sum, mine, shifts, to, limits, all);
                if (again || !__ballot_sync(FULL, all[0] > MOST || all[1] > MOST)) break;
                float best[2] = {LOWEST, LOWEST};
#pragma unroll
                for (int a = 0; a < 4; ++a) {
                    float4 low = load_four(mine + a * 128), high = load_four(mine + a * 128 + 16);
                    const float bias[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
#pragma unroll
                    for (int i = 0; i < 16; ++i)
                        best[i / 2 % 2] = fmaxf(best[i / 2 % 2], sum[(i / 4 * 4 + a) * 4 + i % 4] * LOG2E +
                                                                     bias[i / 4 * 2 + (i & 1)]);
                }
#pragma unroll
                for (int i = 0; i < 2; ++i) {
                    for (int offset = 1; offset < 4; offset <<= 1)
                        best[i] = fmaxf(best[i], __shfl_xor_sync(FULL, best[i], offset));
                    if (all[i] > MOST) shifts[i] = best[i];
                }
            }
#pragma unroll
            for (int i = 0; i < 2; ++i) {
                float2 both;
                both.x = (shifts[i] - scaled[i]) * (1.0f / LOG2E), both.y = all[i];
                i64 at = (row + 8 * i) * (i64)tiles + start / LABELS + tile;
                if (quad == 0 && limits[i]) *(float2 *)(sums + 2 * at) = both;
            }
            next_slot();
        }
    }
    __syncwarp();
    cluster_barrier();  // no block leaves before the other has sent it all
}
