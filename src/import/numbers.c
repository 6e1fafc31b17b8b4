/* Weights of a single number, told from constants by who reads them. */
#include "import/scope.h"

static bool is_one_of(esp_i_str_t op, const char *const *list)
{
    for (int32_t k = 0; list[k] != NULL; k++)
        if (esp_i_str_is(op, list[k]))
            return true;
    return false;
}

/* The node that makes operand `id`; NULL: none. */
static const esp_i_stub_t *maker(const esp_i_scope_t *scope, int32_t id)
{
    return id >= 0 && scope->producer.data[id] >= 0 ? &scope->nodes.data[scope->producer.data[id]]
                                                    : NULL;
}

/* Operand `id` is a weight: so is the initializer of one float that it is, or a view of. */
static void weigh(const esp_i_scope_t *scope, int32_t id)
{
    static const char *const views[] = {"Identity", "Cast",    "Unsqueeze", "Squeeze",
                                        "Reshape",  "Flatten", "Transpose", NULL};
    enum { DEPTH = 4 }; /* of views */
    const esp_i_stub_t *view = maker(scope, id);
    for (int32_t k = 0; k < DEPTH && view != NULL; k++, view = maker(scope, id))
        id = is_one_of(view->op, views) && view->n_in > 0 ? scope->operands.data[view->first_in]
                                                          : -1;
    esp_i_value_t *v = id >= 0 ? scope->values.data[id] : NULL;
    if (v != NULL && v->initializer && esp_dtype_is_float(v->dtype) && v->rank > 0 &&
        esp_i_im_extent(v, 0, v->rank) == 1)
        v->role = ESP_ROLE_PARAMETER;
}

/* Whether input `index` of the node can be nothing but a weight, if it is an initializer. */
static bool reads_weight(const esp_i_scope_t *scope, const esp_i_stub_t *node, int32_t index)
{
    static const char *const readers[] = {"MatMul",
                                          "Gemm",
                                          "Conv",
                                          "ConvTranspose",
                                          "PRelu",
                                          "BatchNormalization",
                                          "LayerNormalization",
                                          "InstanceNormalization",
                                          "GroupNormalization",
                                          "RMSNormalization",
                                          "LSTM",
                                          "GRU",
                                          "RNN",
                                          NULL};
    if (node->n_in != 2 || !esp_i_str_is(node->op, "Add"))
        return is_one_of(node->op, readers);
    const esp_i_stub_t *other = maker(scope, scope->operands.data[node->first_in + 1 - index]);
    return other != NULL && esp_i_str_is(other->op, "MatMul");
}

void esp_i_im_scope_numbers(esp_i_scope_t *scope)
{
    for (int32_t k = 0; k < scope->nodes.count; k++) {
        const esp_i_stub_t *node = &scope->nodes.data[k];
        for (int32_t i = 0; i < node->n_in; i++)
            if (reads_weight(scope, node, i))
                weigh(scope, scope->operands.data[node->first_in + i]);
    }
}
