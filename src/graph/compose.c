/* Composing ops: what gradient rules, import rules and the training graph are written in. */
#include "graph/build.h"

esp_status_t esp_i_make(esp_builder_t *b, esp_op_kind_t kind, const esp_attr_t *attr, int32_t n,
                        const esp_tensor_id_t *inputs, const char *name, esp_tensor_id_t *y,
                        esp_diag_t *diag)
{
    for (int32_t i = 0; i < n && i < esp_i_kind(kind)->min_in; i++)
        if (inputs[i] == ESP_NONE)
            return esp_i_fail(diag, ESP_ERR_INTERNAL, "op %s (%s) made without input %d", name,
                              esp_kind_name(kind), (int)i);
    return esp_builder_op(b, kind, attr, n, inputs, name, y, diag);
}

esp_status_t esp_i_make_elt(esp_builder_t *b, esp_eltwise_t code, double alpha, double beta,
                            int32_t n, const esp_tensor_id_t *inputs, const char *name,
                            esp_tensor_id_t *y, esp_diag_t *diag)
{
    esp_attr_t attr = {.eltwise = {.code = code, .alpha = alpha, .beta = beta}};
    return esp_i_make(b, ESP_KIND_ELTWISE, &attr, n, inputs, name, y, diag);
}

esp_status_t esp_i_make_unary(esp_builder_t *b, esp_eltwise_t code, esp_tensor_id_t x,
                              const char *name, esp_tensor_id_t *y, esp_diag_t *diag)
{
    return esp_i_make_elt(b, code, 0.0, 0.0, 1, &x, name, y, diag);
}

esp_status_t esp_i_make_binary(esp_builder_t *b, esp_eltwise_t code, esp_tensor_id_t x0,
                               esp_tensor_id_t x1, const char *name, esp_tensor_id_t *y,
                               esp_diag_t *diag)
{
    esp_tensor_id_t inputs[2] = {x0, x1};
    return esp_i_make_elt(b, code, 0.0, 0.0, 2, inputs, name, y, diag);
}

esp_status_t esp_i_make_affine(esp_builder_t *b, esp_tensor_id_t x, double alpha, double beta,
                               const char *name, esp_tensor_id_t *y, esp_diag_t *diag)
{
    return esp_i_make_elt(b, ESP_ELT_AFFINE, alpha, beta, 1, &x, name, y, diag);
}

esp_status_t esp_i_make_reshape(esp_builder_t *b, esp_tensor_id_t x, int32_t rank,
                                const int64_t *dims, const char *name, esp_tensor_id_t *y,
                                esp_diag_t *diag)
{
    esp_attr_t attr = {.shape = {.rank = rank}};
    for (int32_t i = 0; i < rank && i < ESP_MAX_RANK; i++)
        attr.shape.dims[i] = dims[i];
    return esp_i_make(b, ESP_KIND_RESHAPE, &attr, 1, &x, name, y, diag);
}

esp_status_t esp_i_make_reduce(esp_builder_t *b, esp_reduce_t code, esp_tensor_id_t x,
                               uint32_t axes, bool keep, const char *name, esp_tensor_id_t *y,
                               esp_diag_t *diag)
{
    esp_attr_t attr = {.reduce = {.code = code, .axes = axes, .keep = keep}};
    return esp_i_make(b, ESP_KIND_REDUCE, &attr, 1, &x, name, y, diag);
}

esp_status_t esp_i_make_sum_to(esp_builder_t *b, esp_tensor_id_t x, int32_t rank,
                               const int64_t *dims, const char *name, esp_tensor_id_t *y,
                               esp_diag_t *diag)
{
    esp_dtype_t dtype;
    int32_t x_rank;
    int64_t x_dims[ESP_MAX_RANK];
    uint32_t axes = 0;
    esp_builder_shape(b, x, &dtype, &x_rank, x_dims);
    esp_assert(x_rank >= rank);
    /* Axes are aligned at the end; one that is missing or 1 was broadcast. */
    for (int32_t i = 0; i < x_rank; i++) {
        int32_t axis = i - (x_rank - rank);
        if (axis < 0 || (dims[axis] == 1 && x_dims[i] != 1))
            axes |= 1U << i;
    }
    if (axes == 0) {
        *y = x;
        return ESP_OK;
    }
    bool keep = x_rank == rank;
    ESP_TRY(esp_i_make_reduce(b, ESP_REDUCE_SUM, x, axes, keep, name, &x, diag));
    esp_builder_shape(b, x, &dtype, &x_rank, x_dims);
    if (x_rank == rank) {
        *y = x;
        return ESP_OK;
    }
    return esp_i_make_reshape(b, x, rank, dims, name, y, diag);
}

/* ---- einsum ------------------------------------------------------------------------------- */

/* Reads one group of letters up to `end`. */
static bool read_labels(const char **at, char end, int8_t labels[ESP_MAX_RANK])
{
    for (int32_t rank = 0; **at != end; ++*at) {
        if (**at == '\0' || rank == ESP_MAX_RANK)
            return false;
        labels[rank++] = (int8_t) * *at;
    }
    return true;
}

esp_status_t esp_i_make_einsum(esp_builder_t *b, const char *labels, esp_tensor_id_t x0,
                               esp_tensor_id_t x1, const char *name, esp_tensor_id_t *y,
                               esp_diag_t *diag)
{
    esp_attr_t attr = {0};
    esp_tensor_id_t inputs[2] = {x0, x1};
    const char *at = labels;
    bool good = read_labels(&at, ',', attr.contract.a) && *at++ == ',' &&
                read_labels(&at, '-', attr.contract.b) && *at++ == '-' && *at++ == '>' &&
                read_labels(&at, '\0', attr.contract.y);
    if (!good)
        return esp_i_fail(diag, ESP_ERR_INTERNAL, "op %s: labels \"%s\" cannot be read", name,
                          labels);
    return esp_i_make(b, ESP_KIND_CONTRACT, &attr, 2, inputs, name, y, diag);
}
