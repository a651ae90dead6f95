// Libraries beside the driver: cuBLAS, and the sort of Thrust that CuPy's wheels contain.
#pragma once
#include "state.h"

enum { NOT_INITIALIZED = 1, BAD_VALUE = 7, EXECUTION_FAILED = 13, NOT_SUPPORTED = 15 };
constexpr int FLOAT = 0, BFLOAT16 = 14, COMPUTE_FLOAT = 68, DEFAULT_ALGORITHM = -1;
enum PointerMode { FACTORS_ON_HOST, FACTORS_ON_GPU };
struct Handle { int device; void *stream = nullptr; bool on_gpu = false; };
std::set<Handle *> handles;

float widened(uint16_t x) {
    uint32_t bits = (uint32_t)x << 16;
    float value;
    memcpy(&value, &bits, 4);
    return value;
}
uint16_t narrowed(float x) {
    uint32_t bits;
    memcpy(&bits, &x, 4);
    return std::isnan(x) ? 0x7FFF : (bits + 0x7FFF + (bits >> 16 & 1)) >> 16;
}

struct Operand {  // op(X), rows by columns
    const void *data;
    int type, leading, rows, columns;
    bool turned;

    size_t bytes() const {
        int length = turned ? columns : rows, n = turned ? rows : columns;
        return (type == FLOAT ? 4 : 2) * ((size_t)leading * (n - 1) + length);
    }
    std::vector<float> read() const {
        std::vector<float> out((size_t)rows * columns);
        for (int j = 0; j < columns; ++j)
            for (int i = 0; i < rows; ++i) {
                size_t at = turned ? j + (size_t)i * leading : i + (size_t)j * leading;
                bool wide = type == FLOAT;
                out[i + (size_t)j * rows] = wide ? ((const float *)data)[at] : widened(((const uint16_t *)data)[at]);
            }
        return out;
    }
};

void multiply(float alpha, const Operand &A, const Operand &B, float beta, const Operand &C) {
    std::vector<float> left = A.read(), right = B.read(), sum(C.rows);
    for (int j = 0; j < C.columns; ++j) {
        std::fill(sum.begin(), sum.end(), 0.0f);
        for (int l = 0; l < A.columns; ++l)
            for (int i = 0; i < C.rows; ++i) sum[i] += left[i + (size_t)l * C.rows] * right[l + (size_t)j * A.columns];
        for (int i = 0; i < C.rows; ++i) {  // where beta is 0, C is not read
            size_t at = i + (size_t)j * C.leading;
            float *wide = (float *)C.data + at;
            uint16_t *narrow = (uint16_t *)C.data + at;
            float old = beta == 0 ? 0.0f : beta * (C.type == FLOAT ? *wide : widened(*narrow));
            if (C.type == FLOAT) *wide = alpha * sum[i] + old;
            else *narrow = narrowed(alpha * sum[i] + old);
        }
    }
}

#define KNOWN(handle) if (!handles.count(handle)) return refuse(NOT_INITIALIZED, "%s: unknown handle", __func__)
API int cublasCreate_v2(Handle **made) {
    LOCKED;
    if (sticky) return NOT_INITIALIZED;
    handles.insert(*made = new Handle{current});
    return OK;
}
API int cublasDestroy_v2(Handle *handle) {
    LOCKED;
    KNOWN(handle);
    flush_all();
    handles.erase(handle);
    return OK;
}
API int cublasGetVersion_v2(Handle *, int *version) {
    *version = 130100;
    return OK;
}
API int cublasSetStream_v2(Handle *handle, Stream *stream) {
    LOCKED;
    KNOWN(handle);
    if (!streams.count(stream) || stream->device != handle->device)
        return refuse(BAD_VALUE, "%s: unknown, or of another GPU", __func__);
    handle->stream = stream;
    return OK;
}
API int cublasSetPointerMode_v2(Handle *handle, int mode) {
    LOCKED;
    KNOWN(handle);
    handle->on_gpu = mode == FACTORS_ON_GPU;
    return mode == FACTORS_ON_HOST || mode == FACTORS_ON_GPU ? OK : refuse(BAD_VALUE, __func__);
}
API int cublasGetMathMode(Handle *, int *mode) {
    *mode = 0;
    return OK;
}
API int cublasSetMathMode(Handle *, int) { return OK; }
API int cublasGemmEx(Handle *handle, int ta, int tb, int m, int n, int k, const void *alpha, const void *a, int a_type,
                     int lda, const void *b, int b_type, int ldb, const void *beta, void *c, int c_type, int ldc,
                     int compute, int algorithm) {
    LOCKED;
    KNOWN(handle);
    Stream *stream;
    if (find(handle->stream, stream, __func__)) return EXECUTION_FAILED;
    if (current != handle->device) return refuse(EXECUTION_FAILED, "%s: another GPU is current", __func__);
    if (m < 0 || n < 0 || k < 0 || ta < 0 || ta > 1 || tb < 0 || tb > 1 || lda < std::max(1, ta ? k : m) ||
        ldb < std::max(1, tb ? n : k) || ldc < std::max(1, m))
        return refuse(BAD_VALUE, "%s: %d %d, %d %d %d, leading %d %d %d", __func__, ta, tb, m, n, k, lda, ldb, ldc);
    // Half is a product that cuBLAS has, too; nobody asks for it here.
    bool types = a_type == b_type && (a_type == FLOAT || a_type == BFLOAT16) && (c_type == FLOAT || c_type == a_type);
    if (!types || compute != COMPUTE_FLOAT || algorithm != DEFAULT_ALGORITHM)
        return refuse(NOT_SUPPORTED, "product of %d, %d, %d by %d, %d", a_type, b_type, c_type, compute, algorithm);
    if (m == 0 || n == 0) return OK;
    bool apart = handle->on_gpu;
    if (on_gpu(alpha, 4) != apart || on_gpu(beta, 4) != apart)
        return refuse(BAD_VALUE, "%s: factors are not where the pointer mode says", __func__);
    Operand A{a, a_type, lda, m, k, ta == 1}, B{b, b_type, ldb, k, n, tb == 1}, C{c, c_type, ldc, m, n, false};
    for (const Operand *one : {&A, &B, &C})
        if (one->rows && one->columns && !on_gpu(one->data, one->bytes(), handle->device))
            return refuse(EXECUTION_FAILED, "%s: a matrix is not in the memory of its GPU", __func__);
    float factors[] = {apart ? 0 : *(const float *)alpha, apart ? 0 : *(const float *)beta};
    stream->give([=] {
        if (apart) multiply(*(const float *)alpha, A, B, *(const float *)beta, C);
        else multiply(factors[0], A, B, factors[1], C);
    });
    return OK;
}
// CuPy's einsum calls it with the type of the factors for that of the sums.
API int cublasGemmStridedBatchedEx(
    Handle *handle, int ta, int tb, int m, int n, int k, const void *alpha, const char *a, int a_type, int lda,
    long long a_stride, const char *b, int b_type, int ldb, long long b_stride, const void *beta, char *c, int c_type,
    int ldc, long long c_stride, int count, int, int algorithm) {
    auto bytes = [](int type) { return type == BFLOAT16 ? 2 : 4; };
    for (int i = 0; i < count; ++i)
        TRY(cublasGemmEx(handle, ta, tb, m, n, k, alpha, a + a_stride * i * bytes(a_type), a_type, lda,
                         b + b_stride * i * bytes(b_type), b_type, ldb, beta, c + c_stride * i * bytes(c_type), c_type,
                         ldc, COMPUTE_FLOAT, algorithm));
    return OK;
}

template <class T> void sort_rows(void *data, size_t rows, size_t width) {
    for (size_t i = 0; i < rows; ++i) std::sort((T *)data + i * width, (T *)data + (i + 1) * width);
}
// By the name that the function has in CuPy's library, which calls it for `ndarray.sort`.
__attribute__((visibility("default"))) void thrust_sort(
    int type, void *data, size_t *, const std::vector<ptrdiff_t> &shape, intptr_t on, void *) {
    static const std::map<int, void (*)(void *, size_t, size_t)> sorts = {
        {4, sort_rows<int32_t>}, {5, sort_rows<uint32_t>}, {6, sort_rows<int64_t>}, {7, sort_rows<uint64_t>}};
    LOCKED;
    size_t width = shape.back(), rows = 1;
    for (size_t i = 0; i + 1 < shape.size(); ++i) rows *= shape[i];
    Stream *stream;
    if (find((void *)on, stream, __func__)) throw std::bad_alloc();
    if (!sorts.count(type) || !on_gpu(data, rows * width * (type < 6 ? 4 : 8)))
        throw std::bad_alloc();
    stream->give([=, sort = sorts.at(type)] { sort(data, rows, width); });
}
