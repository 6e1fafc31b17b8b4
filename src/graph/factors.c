/*
 * Factors: loop dimensions of ops and the views of operands under them.
 *
 * Dimension d of an op has extent E. An operand that carries it shows it as (o, E, i). A factor is
 * part (a, b, c) of d, a * b * c = E, running over b: the operand shows it as (o * a, b, c * i).
 */
#include "graph/build.h"

int64_t esp_i_shape_product(const esp_i_shape_t *shape, int32_t from, int32_t to)
{
    int64_t product = 1; /* cannot overflow: the builder bounds the elements of every tensor */
    for (int32_t axis = from; axis < to; axis++)
        product *= shape->dims[axis];
    return product;
}

int64_t esp_i_shape_elements(const esp_i_shape_t *shape)
{
    return esp_i_shape_product(shape, 0, shape->rank);
}

bool esp_i_view_fits(esp_view_t view, int64_t elements)
{
    int64_t product;
    return view.outer > 0 && view.extent > 0 && view.inner > 0 &&
           esp_i_mul_i64(view.outer, view.extent, &product) &&
           esp_i_mul_i64(product, view.inner, &product) && product == elements;
}

/* ---- the collector ------------------------------------------------------------------------ */

void esp_i_dims_init(esp_i_dims_t *dims, const esp_allocator_t *alloc)
{
    *dims = (esp_i_dims_t){.alloc = alloc};
}

void esp_i_dims_reset(esp_i_dims_t *dims, int32_t operands)
{
    dims->operands = operands;
    dims->extent.count = dims->granule.count = dims->binding.count = 0;
}

void esp_i_dims_fini(esp_i_dims_t *dims)
{
    esp_vec_free(dims->alloc, &dims->extent);
    esp_vec_free(dims->alloc, &dims->granule);
    esp_vec_free(dims->alloc, &dims->binding);
}

void esp_i_dims_open(esp_i_dims_t *dims, int64_t extent, int64_t granule)
{
    esp_assert(extent >= 0 && granule >= 1);
    if (dims->failed || !esp_vec_push(dims->alloc, &dims->extent, extent) ||
        !esp_vec_push(dims->alloc, &dims->granule, granule) ||
        !esp_vec_extend(dims->alloc, &dims->binding, dims->operands)) {
        dims->failed = true;
        return;
    }
    for (int32_t i = 0; i < dims->operands; i++)
        dims->binding.data[dims->binding.count - 1 - i] = (esp_binding_t){.bind = ESP_BIND_ABSENT};
}

void esp_i_dims_bind(esp_i_dims_t *dims, int32_t operand, esp_bind_t bind, int64_t outer,
                     int64_t inner)
{
    if (dims->failed)
        return;
    esp_assert(dims->extent.count > 0 && operand >= 0 && operand < dims->operands);
    bool carry = bind == ESP_BIND_CARRY;
    dims->binding.data[dims->binding.count - dims->operands + operand] = (esp_binding_t){
        .outer = carry ? outer : 0, .inner = carry ? inner : 0, .bind = (int32_t)bind};
}

void esp_i_dims_bind_axis(esp_i_dims_t *dims, const esp_i_op_t *op, int32_t operand, int32_t axis)
{
    const esp_i_shape_t *shape =
        operand < op->n_in ? &op->in[operand] : &op->out[operand - op->n_in];
    esp_i_dims_bind(dims, operand, ESP_BIND_CARRY, esp_i_shape_product(shape, 0, axis),
                    esp_i_shape_product(shape, axis + 1, shape->rank));
}

/* ---- factors of a frozen graph ------------------------------------------------------------ */

/*
 * The part of a dimension of extent `extent`, seen by an operand as (outer, extent, inner), that
 * the operand sees as `view`.
 */
static bool part_of(int64_t extent, const esp_binding_t *binding, esp_view_t view,
                    esp_factor_t *factor)
{
    if (binding->bind != ESP_BIND_CARRY || view.outer % binding->outer != 0 ||
        view.inner % binding->inner != 0)
        return false;
    int64_t a = view.outer / binding->outer, c = view.inner / binding->inner, product;
    if (!esp_i_mul_i64(a, view.extent, &product) || !esp_i_mul_i64(product, c, &product) ||
        product != extent)
        return false;
    factor->a = a;
    factor->b = view.extent;
    factor->c = c;
    return true;
}

int esp_graph_factor(const esp_graph_t *graph, esp_op_id_t op, int32_t operand, esp_view_t view,
                     esp_factor_t *factor_out)
{
    int32_t first = graph->dim_offset[op];
    if (view.outer <= 0 || view.extent <= 0 || view.inner <= 0)
        return 0;
    for (int32_t dim = first; dim < graph->dim_offset[op + 1]; dim++) {
        const esp_binding_t *binding = &graph->binding[graph->binding_offset[dim] + operand];
        if (part_of(graph->dim_extent[dim], binding, view, factor_out)) {
            factor_out->dim = dim - first;
            return 1;
        }
    }
    return 0;
}

esp_bind_t esp_graph_bind(const esp_graph_t *graph, esp_op_id_t op, esp_factor_t factor,
                          int32_t operand, esp_view_t *view_out)
{
    int32_t dim = graph->dim_offset[op] + factor.dim;
    const esp_binding_t *binding = &graph->binding[graph->binding_offset[dim] + operand];
    if (binding->bind == ESP_BIND_CARRY)
        *view_out = (esp_view_t){binding->outer * factor.a, factor.b, factor.c * binding->inner};
    return (esp_bind_t)binding->bind;
}

int32_t esp_view_local_dims(int32_t rank, const int64_t *dims, esp_view_t view, int64_t share,
                            int64_t *local_out)
{
    if (view.extent == 0 || rank == 0) {
        for (int32_t i = 0; i < rank; i++)
            local_out[i] = dims[i];
        return rank;
    }
    /* The axes [first, end) hold the view: the products before and after them divide its outer and
     * inner part; what is left of those stays with the share in one axis. */
    int32_t first = 0, end = rank;
    int64_t before = 1, after = 1;
    while (first + 1 < rank && view.outer % (before * dims[first]) == 0)
        before *= dims[first++];
    while (end - 1 > first && view.inner % (after * dims[end - 1]) == 0)
        after *= dims[--end];
    for (int32_t i = 0; i < first; i++)
        local_out[i] = dims[i];
    local_out[first] = view.outer / before * share * (view.inner / after);
    for (int32_t i = end; i < rank; i++)
        local_out[first + 1 + i - end] = dims[i];
    return rank - (end - first) + 1;
}
