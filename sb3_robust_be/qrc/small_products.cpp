// Products of many small matrices, one pair per member of a population; small_products.py says when they are used.
//
// result[b] = left[b] right[b] + bias[b], with negative numbers replaced by 0 if `relu`.

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/library.h>

#include <algorithm>
#include <optional>
#include <vector>

namespace {

// Numbers in a vector register; rows of the result whose sums fit into all registers together, two in each row.
#if defined(__AVX512F__)
constexpr int64_t LANES = 16, ROWS = 8;
#elif defined(__AVX2__)
constexpr int64_t LANES = 8, ROWS = 4;
#else
constexpr int64_t LANES = 4, ROWS = 4;
#endif
constexpr int64_t COLUMNS = 16;  // The result's are a multiple of these.
constexpr int64_t LEAST_FOR_A_THREAD = 1 << 17;  // Multiplications, some three microseconds.

typedef float Vector __attribute__((vector_size(LANES * sizeof(float)), aligned(sizeof(float)), may_alias));
typedef float Four __attribute__((vector_size(4 * sizeof(float)), aligned(sizeof(float)), may_alias));

struct Matrix {
    float* data;
    int64_t row, column;  // Strides

    Matrix at(int64_t i, int64_t j) const { return {data + i * row + j * column, row, column}; }
};

// N_ROWS rows and VECTORS · LANES columns of the result, held in registers until their sums are whole.
template <int64_t N_ROWS, int64_t VECTORS>
void tile(Matrix left, Matrix right, Matrix result, const float* bias, int64_t inner, bool relu) {
    Vector sums[N_ROWS][VECTORS];
    for (int64_t i = 0; i < N_ROWS; i++)
        for (int64_t j = 0; j < VECTORS; j++) sums[i][j] = bias ? *(const Vector*)(bias + j * LANES) : Vector{};
    for (int64_t k = 0; k < inner; k++) {
        Vector row[VECTORS];
        for (int64_t j = 0; j < VECTORS; j++) row[j] = *(const Vector*)(right.data + k * right.row + j * LANES);
        for (int64_t i = 0; i < N_ROWS; i++)
            for (int64_t j = 0; j < VECTORS; j++) sums[i][j] += left.data[i * left.row + k * left.column] * row[j];
    }
    for (int64_t i = 0; i < N_ROWS; i++)
        for (int64_t j = 0; j < VECTORS; j++) {
            const Vector positive = sums[i][j] < 0 ? Vector{} : sums[i][j];  // NaN stays NaN.
            *(Vector*)(result.data + i * result.row + j * LANES) = relu ? positive : sums[i][j];
        }
}

template <int64_t VECTORS>
void panel(Matrix left, Matrix right, Matrix result, const float* bias, int64_t rows, int64_t inner, bool relu) {
    int64_t i = 0;
    for (; i + ROWS <= rows; i += ROWS)
        tile<ROWS, VECTORS>(left.at(i, 0), right, result.at(i, 0), bias, inner, relu);
    for (; i + 2 <= rows; i += 2) tile<2, VECTORS>(left.at(i, 0), right, result.at(i, 0), bias, inner, relu);
    for (; i < rows; i++) tile<1, VECTORS>(left.at(i, 0), right, result.at(i, 0), bias, inner, relu);
}

// Four columns that are each contiguous become four contiguous rows.
inline void transpose_four(const float* from, int64_t from_stride, float* to, int64_t to_stride) {
    Four x[4];
    for (int64_t i = 0; i < 4; i++) x[i] = *(const Four*)(from + i * from_stride);
    for (int64_t k = 0; k < 4; k++) *(Four*)(to + k * to_stride) = Four{x[0][k], x[1][k], x[2][k], x[3][k]};
}

// Tiles read rows of the right matrix in whole registers: where these are not contiguous, from a copy.
Matrix with_contiguous_rows(Matrix from, int64_t rows, int64_t columns, float* copy) {
    if (from.column == 1) return from;
    const int64_t whole = from.row == 1 ? rows / 4 * 4 : 0;
    for (int64_t j = 0; whole && j < columns; j += 4)
        for (int64_t k = 0; k < whole; k += 4)
            transpose_four(from.at(k, j).data, from.column, copy + k * columns + j, columns);
    for (int64_t k = whole; k < rows; k++)
        for (int64_t j = 0; j < columns; j++) copy[k * columns + j] = *from.at(k, j).data;
    return {copy, columns, 1};
}

Matrix member(const at::Tensor& x, int64_t b) { return {x.data_ptr<float>() + b * x.stride(0), x.stride(1), x.stride(2)}; }

at::Tensor product(const at::Tensor& left, const at::Tensor& right, const std::optional<at::Tensor>& bias, bool relu) {
    const int64_t members = left.size(0), rows = left.size(1), inner = left.size(2), columns = right.size(2);
    TORCH_CHECK(right.size(0) == members && right.size(1) == inner, "The matrices do not fit each other");
    TORCH_CHECK(columns % COLUMNS == 0, "The result must have a multiple of ", COLUMNS, " columns and has ", columns);
    TORCH_CHECK(!bias || bias->numel() == members * columns, "The bias must have a row for every member");
    const at::Tensor added = bias ? bias->contiguous() : at::Tensor();
    at::Tensor result = at::empty({members, rows, columns}, left.options());
    // Threads share out all members' panels of two registers' columns.
    const int64_t panels = (columns + 2 * LANES - 1) / (2 * LANES);
    const int64_t at_least = LEAST_FOR_A_THREAD / std::max<int64_t>(rows * inner * 2 * LANES, 1) + 1;
    at::parallel_for(0, members * panels, at_least, [&](int64_t from, int64_t to) {
        std::vector<float> copy(right.stride(2) == 1 ? 0 : 2 * LANES * inner);
        for (int64_t i = from; i < to; i++) {
            const int64_t b = i / panels, j = i % panels * 2 * LANES, width = std::min(2 * LANES, columns - j);
            const Matrix own = with_contiguous_rows(member(right, b).at(0, j), inner, width, copy.data());
            const auto run = width == LANES ? panel<1> : panel<2>;
            const float* start = bias ? added.data_ptr<float>() + b * columns + j : nullptr;
            run(member(left, b), own, member(result, b).at(0, j), start, rows, inner, relu);
        }
    });
    return result;
}

}  // namespace

TORCH_LIBRARY(sb3_robust_be, library) {
    library.def("small_products(Tensor left, Tensor right, Tensor? bias, bool relu) -> Tensor");
}

TORCH_LIBRARY_IMPL(sb3_robust_be, CPU, library) { library.impl("small_products", &product); }
