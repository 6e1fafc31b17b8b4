/* Loop nests, chains and the walk over buffers; checks that infer callbacks share. */
#include "graph/kinds/nest.h"

/* ---- walk -------------------------------------------------------------------------------------
 */

bool esp_i_walk_begin(esp_i_walk_t *walk)
{
    for (int32_t l = 0; l < walk->n; l++) {
        walk->index[l] = 0;
        if (walk->extent[l] <= 0)
            return false;
    }
    return true;
}

bool esp_i_walk_next(esp_i_walk_t *walk)
{
    for (int32_t l = walk->n - 1; l >= 0; l--) {
        bool more = ++walk->index[l] < walk->extent[l];
        int64_t steps = more ? 1 : 1 - walk->extent[l];
        for (int32_t o = 0; o < ESP_I_WALK_OPERANDS; o++)
            walk->offset[o] += steps * walk->stride[l][o];
        if (more)
            return true;
        walk->index[l] = 0;
    }
    return false;
}

/*
 * Which of n consecutive extents the split of a buffer falls on (-1: on none), where a part of the
 * extent is split: view.outer is what lies before it, times a.
 */
static int32_t split_level(int32_t n, const int64_t *extent, const esp_i_buffer_t *buffer)
{
    const esp_view_t *view = &buffer->view;
    if (view->extent <= 1) /* fits anywhere; a share of it is all or nothing */
        return view->extent == 1 && buffer->share == 0 && n > 0 ? 0 : -1;
    int64_t before = 1;
    for (int32_t l = 0; l < n; l++) {
        int64_t after = before * extent[l];
        if (extent[l] > 1 && view->outer >= before && view->outer * view->extent <= after)
            return l;
        before = after;
    }
    return -1;
}

/* ---- nests --------------------------------------------------------------------------------------
 */

int32_t esp_i_nest_loop(esp_i_nest_t *nest, int64_t extent)
{
    esp_assert(nest->n_loops < ESP_MAX_LABELS);
    nest->extent[nest->n_loops] = nest->local[nest->n_loops] = extent;
    return nest->n_loops++;
}

void esp_i_nest_axis(esp_i_nest_t *nest, int32_t operand, int32_t loop)
{
    esp_assert(nest->rank[operand] < ESP_MAX_RANK);
    nest->loop[operand][nest->rank[operand]++] = loop;
}

static int32_t position(const esp_i_nest_t *nest, int32_t operand, int32_t loop)
{
    for (int32_t a = 0; a < nest->rank[operand]; a++)
        if (nest->loop[operand][a] == loop)
            return a;
    return -1;
}

static void remove_loop(esp_i_nest_t *nest, int32_t loop)
{
    for (int32_t o = 0; o < nest->n_operands; o++) {
        int32_t at = position(nest, o, loop);
        if (at < 0)
            continue;
        for (int32_t a = at + 1; a < nest->rank[o]; a++)
            nest->loop[o][a - 1] = nest->loop[o][a];
        nest->rank[o]--;
    }
    nest->extent[loop] = nest->local[loop] = 1;
}

/* Whether every operand has both loops, `second` right inside `first`, or neither. */
static bool follows(const esp_i_nest_t *nest, int32_t first, int32_t second)
{
    for (int32_t o = 0; o < nest->n_operands; o++) {
        int32_t p = position(nest, o, first), q = position(nest, o, second);
        if ((p < 0) != (q < 0) || (p >= 0 && q != p + 1))
            return false;
    }
    return true;
}

void esp_i_nest_merge(esp_i_nest_t *nest)
{
    for (int32_t l = 0; l < nest->n_loops; l++)
        if (nest->extent[l] == 1)
            remove_loop(nest, l);
    for (int32_t first = 0; first < nest->n_loops; first++) {
        if (nest->extent[first] == 1)
            continue;
        for (int32_t second = 0; second < nest->n_loops; second++) {
            if (second == first || nest->extent[second] == 1 || !follows(nest, first, second))
                continue;
            nest->extent[first] *= nest->extent[second];
            nest->local[first] = nest->extent[first];
            remove_loop(nest, second);
            second = -1; /* another one may follow now */
        }
    }
}

/* Product of extents (global or local) of the loops over axes [from, to) of an operand. */
static int64_t nest_product(const esp_i_nest_t *nest, const int64_t *extent, int32_t operand,
                            int32_t from, int32_t to)
{
    int64_t product = 1;
    for (int32_t a = from; a < to; a++)
        product *= extent[nest->loop[operand][a]];
    return product;
}

void esp_i_nest_dims(const esp_i_nest_t *nest, int32_t n_in, bool sums, esp_i_dims_t *dims)
{
    for (int32_t l = 0; l < nest->n_loops; l++) {
        if (nest->extent[l] <= 1)
            continue;
        bool offered = true;
        for (int32_t o = n_in; o < nest->n_operands; o++)
            offered = offered && (sums || position(nest, o, l) >= 0);
        if (!offered)
            continue;
        esp_i_dims_open(dims, nest->extent[l], 1);
        for (int32_t o = 0; o < nest->n_operands; o++) {
            int32_t at = position(nest, o, l);
            if (at >= 0)
                esp_i_dims_bind(dims, o, ESP_BIND_CARRY, nest_product(nest, nest->extent, o, 0, at),
                                nest_product(nest, nest->extent, o, at + 1, nest->rank[o]));
            else if (o >= n_in)
                esp_i_dims_bind(dims, o, ESP_BIND_SUM, 0, 0);
        }
    }
}

void esp_i_nest_split(esp_i_nest_t *nest, int32_t operand, const esp_i_buffer_t *buffer)
{
    int64_t extent[ESP_MAX_RANK] = {0};
    for (int32_t a = 0; a < nest->rank[operand]; a++)
        extent[a] = nest->extent[nest->loop[operand][a]];
    int32_t level = split_level(nest->rank[operand], extent, buffer);
    if (level < 0)
        return;
    int32_t loop = nest->loop[operand][level];
    nest->local[loop] = nest->extent[loop] / buffer->view.extent * buffer->share;
}

void esp_i_nest_walk(const esp_i_nest_t *nest, esp_i_walk_t *walk_out)
{
    *walk_out = (esp_i_walk_t){0};
    for (int32_t l = 0; l < nest->n_loops; l++) {
        if (nest->extent[l] == 1)
            continue;
        int32_t level = walk_out->n++;
        walk_out->extent[level] = nest->local[l];
        for (int32_t o = 0; o < nest->n_operands; o++) {
            int32_t at = position(nest, o, l);
            if (at >= 0)
                walk_out->stride[level][o] =
                    nest_product(nest, nest->local, o, at + 1, nest->rank[o]);
        }
    }
}

/* ---- chains -------------------------------------------------------------------------------------
 */

void esp_i_chain_carry(esp_i_chain_t *chain, int64_t extent)
{
    if (extent == 1)
        return;
    if (chain->n > 0 && chain->link[chain->n - 1].carried) {
        esp_i_link_t *last = &chain->link[chain->n - 1];
        last->small *= extent;
        last->large *= extent;
        return;
    }
    chain->link[chain->n++] =
        (esp_i_link_t){.small = extent, .large = extent, .step = 1, .carried = true};
}

static void chain_move(esp_i_chain_t *chain, int64_t small, int64_t large, int64_t start,
                       int64_t step)
{
    if (small == 1 && large == 1)
        return;
    chain->link[chain->n++] =
        (esp_i_link_t){.small = small, .large = large, .start = start, .step = step};
}

void esp_i_chain_units(esp_i_chain_t *chain, int64_t small, int64_t large, int64_t start,
                       int64_t unit)
{
    if (small == large) {
        esp_i_chain_carry(chain, small);
    } else if (unit == 0) { /* all of it is empty */
        chain_move(chain, small, large, start, 1);
    } else {
        chain_move(chain, small / unit, large / unit, start / unit, 1);
        esp_i_chain_carry(chain, unit);
    }
}

void esp_i_chain_axis(esp_i_chain_t *chain, int64_t small, int64_t large, int64_t start,
                      int64_t step)
{
    if (step == 1) {
        int64_t unit = esp_i_gcd(esp_i_gcd(small, large), start);
        esp_i_chain_units(chain, small, large, start, unit);
    } else if (step > 1 && start < step && small > 0 && large == small * step) {
        esp_i_chain_carry(chain, small); /* one of every `step` elements: seen as [small][step] */
        chain_move(chain, 1, step, start, 1);
    } else {
        chain_move(chain, small, large, start, step);
    }
}

int64_t esp_i_chain_product(const esp_i_chain_t *chain, bool large, int32_t from, int32_t to)
{
    int64_t product = 1;
    for (int32_t l = from; l < to; l++)
        product *= large ? chain->link[l].large : chain->link[l].small;
    return product;
}

void esp_i_chain_dims(const esp_i_chain_t *chain, int32_t small_operand, int32_t large_operand,
                      esp_i_dims_t *dims)
{
    for (int32_t l = 0; l < chain->n; l++) {
        if (!chain->link[l].carried || chain->link[l].small <= 1)
            continue;
        esp_i_dims_open(dims, chain->link[l].small, 1);
        esp_i_dims_bind(dims, small_operand, ESP_BIND_CARRY,
                        esp_i_chain_product(chain, false, 0, l),
                        esp_i_chain_product(chain, false, l + 1, chain->n));
        esp_i_dims_bind(dims, large_operand, ESP_BIND_CARRY, esp_i_chain_product(chain, true, 0, l),
                        esp_i_chain_product(chain, true, l + 1, chain->n));
    }
}

void esp_i_chain_split(esp_i_chain_t *chain, bool large, const esp_i_buffer_t *buffer)
{
    int64_t extent[3 * ESP_MAX_RANK] = {0};
    for (int32_t l = 0; l < chain->n; l++)
        extent[l] = large ? chain->link[l].large : chain->link[l].small;
    int32_t level = split_level(chain->n, extent, buffer);
    if (level < 0)
        return;
    esp_i_link_t *link = &chain->link[level];
    link->small = link->large = link->small / buffer->view.extent * buffer->share;
}

void esp_i_chain_walk(const esp_i_chain_t *chain, esp_i_walk_t *walk_out)
{
    *walk_out = (esp_i_walk_t){.n = chain->n};
    for (int32_t l = 0; l < chain->n; l++) {
        const esp_i_link_t *link = &chain->link[l];
        int64_t stride = esp_i_chain_product(chain, true, l + 1, chain->n);
        walk_out->extent[l] = link->small;
        walk_out->stride[l][0] = esp_i_chain_product(chain, false, l + 1, chain->n);
        walk_out->stride[l][1] = link->step * stride;
        walk_out->offset[1] += link->start * stride;
    }
}

/* ---- checks -------------------------------------------------------------------------------------
 */

esp_status_t esp_i_check_shape(const esp_i_shape_t *shape, esp_diag_t *diag)
{
    int64_t elements = 1;
    for (int32_t a = 0; a < shape->rank; a++) {
        int64_t extent = esp_i_max_i64(shape->dims[a], 1);
        if (!esp_i_mul_i64(elements, extent, &elements) || elements > ESP_MAX_ELEMENTS) {
            char text[96];
            esp_i_operand_text(shape, text);
            return esp_i_fail(diag, ESP_ERR_LIMIT, "a tensor of shape %s has too many elements",
                              text);
        }
    }
    return ESP_OK;
}

esp_status_t esp_i_check_dtypes(const esp_i_op_t *op, int32_t from, int32_t to, esp_diag_t *diag)
{
    for (int32_t i = from + 1; i < to; i++)
        if (esp_i_op_has(op, i) && op->in[i].dtype != op->in[from].dtype)
            return esp_i_fail(diag, ESP_ERR_INVALID, "input %d is %s and input %d is %s", (int)from,
                              esp_dtype_name(op->in[from].dtype), (int)i,
                              esp_dtype_name(op->in[i].dtype));
    return ESP_OK;
}

esp_status_t esp_i_check_number(const esp_i_op_t *op, int32_t input, esp_diag_t *diag)
{
    if (op->in[input].dtype == ESP_DTYPE_BOOL)
        return esp_i_fail(diag, ESP_ERR_INVALID, "input %d is bool where a number is expected",
                          (int)input);
    return ESP_OK;
}

esp_status_t esp_i_check_equal(const esp_i_shape_t *shape, const char *what,
                               const esp_i_shape_t *other_shape, const char *other,
                               esp_diag_t *diag)
{
    bool equal = shape->rank == other_shape->rank;
    for (int32_t a = 0; equal && a < shape->rank; a++)
        equal = shape->dims[a] == other_shape->dims[a];
    if (equal)
        return ESP_OK;
    char text[96], other_text[96];
    esp_i_operand_text(shape, text);
    esp_i_operand_text(other_shape, other_text);
    return esp_i_fail(diag, ESP_ERR_INVALID, "%s is %s and %s is %s", what, text, other,
                      other_text);
}

bool esp_i_op_empty(const esp_i_op_t *op)
{
    for (int32_t i = 0; i < op->n_in; i++)
        if (esp_i_op_has(op, i) && esp_i_shape_elements(&op->in[i]) == 0)
            return true;
    return esp_i_shape_elements(&op->out[0]) == 0;
}

int64_t esp_i_gcd(int64_t a, int64_t b)
{
    while (b != 0) {
        int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

void esp_i_zero(const esp_i_buffer_t *buffer)
{
    int64_t n = esp_i_buffer_elements(buffer);
    for (int64_t i = 0; i < n; i++)
        buffer->data[i] = 0;
}
