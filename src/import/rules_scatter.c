/* Replacing parts of a tensor. */
#include "import/rules.h"

#include <string.h>

/* Offset in x of a row of indices [m]; false: outside. */
static bool nd_offset(const esp_i_konst_t *x, const int64_t *row, int64_t m, int64_t *out)
{
    int64_t offset = 0;
    for (int32_t d = 0; d < x->rank; d++) {
        int64_t at = d < m ? row[d] : 0;
        at += at < 0 ? x->dims[d] : 0;
        if (at < 0 || at >= x->dims[d])
            return false;
        offset = offset * x->dims[d] + at;
    }
    *out = offset;
    return true;
}

/* A copy of x with rows replaced. */
static esp_status_t scatter_known(esp_i_node_t *node, const esp_i_konst_t *x,
                                  const esp_i_konst_t *indices, const esp_i_konst_t *updates)
{
    esp_i_konst_t *y;
    int64_t m = indices->rank > 0 ? indices->dims[indices->rank - 1] : 0, rest = 1;
    if (m < 1 || m > x->rank || indices->i == NULL || updates->dtype != x->dtype)
        return esp_i_fail(node->diag, ESP_ERR_INVALID, "indices of %d axes for data of %d",
                          indices->rank, x->rank);
    for (int32_t d = (int32_t)m; d < x->rank; d++)
        rest *= x->dims[d];
    if (updates->count != indices->count / m * rest)
        return esp_i_fail(node->diag, ESP_ERR_INVALID, "%lld updates for %lld rows",
                          (long long)updates->count, (long long)(indices->count / m));
    ESP_TRY(esp_i_im_konst_new(node->im, x->dtype, x->rank, x->dims, &y));
    if (y == NULL)
        return esp_i_fail(node->diag, ESP_ERR_LIMIT, "too many elements");
    for (int64_t e = 0; e < x->count; e++)
        esp_i_im_konst_copy(y, e, x, e);
    for (int64_t row = 0; row < indices->count / m; row++) {
        int64_t to;
        if (x->count == 0 || !nd_offset(x, indices->i + row * m, m, &to))
            return esp_i_fail(node->diag, ESP_ERR_INVALID, "an index is outside");
        for (int64_t e = 0; e < rest; e++)
            esp_i_im_konst_copy(y, to + e, updates, row * rest + e);
    }
    return esp_i_im_value_known(node, y, &node->out[0]);
}

/* x with [start, start + count) along `axis` replaced: what is before, the part, what is after. */
static esp_status_t replace_along(esp_i_node_t *node, esp_i_value_t *x, int32_t axis, int64_t start,
                                  int64_t count, esp_i_value_t *part, esp_i_value_t **out)
{
    esp_i_value_t *pieces[3];
    int32_t n = 0;
    int64_t after = x->dims[axis] - start - count;
    if (start > 0)
        ESP_TRY(esp_i_im_slice(node, x, axis, 0, 1, start, &pieces[n++]));
    pieces[n++] = part;
    if (after > 0)
        ESP_TRY(esp_i_im_slice(node, x, axis, start + count, 1, after, &pieces[n++]));
    return esp_i_im_concat(node, n, pieces, axis, out);
}

/* An assignment to a box, x[a:b, c:d, ..] = updates: cut down to the box axis by axis, and back. */
static esp_status_t replace_box(esp_i_node_t *node, esp_i_value_t *x, int32_t m,
                                const int64_t *start, const int64_t *count, esp_i_value_t *updates,
                                esp_i_value_t **out)
{
    esp_i_value_t *nested[ESP_MAX_RANK + 1], *part;
    int64_t box[ESP_MAX_RANK];
    int32_t last = ESP_NONE; /* the last axis that the box does not cover */
    memcpy(box, x->dims, sizeof box);
    for (int32_t d = 0; d < m; d++) {
        if (start[d] < 0 || start[d] + count[d] > x->dims[d])
            return esp_i_fail(node->diag, ESP_ERR_INVALID, "axis %d: rows %lld to %lld of %lld", d,
                              (long long)start[d], (long long)(start[d] + count[d]),
                              (long long)x->dims[d]);
        if (node->im->file_batch > 0 && count[d] != x->dims[d] &&
            esp_i_im_track_of(node->im, x).axis == d)
            return esp_i_fail(node->diag, ESP_ERR_UNSUPPORTED,
                              "an assignment to rows of the batch cannot take another batch");
        last = count[d] != x->dims[d] ? d : last;
        box[d] = count[d];
    }
    nested[0] = x;
    for (int32_t d = 0; d < last; d++)
        ESP_TRY(esp_i_im_slice(node, nested[d], d, count[d] > 0 ? start[d] : 0, 1, count[d],
                               &nested[d + 1]));
    ESP_TRY(esp_i_im_reshape(node, updates, x->rank, box, &part));
    for (int32_t d = last; d >= 0; d--)
        if (count[d] != x->dims[d])
            ESP_TRY(replace_along(node, nested[d], d, start[d], count[d], part, &part));
    *out = part;
    return ESP_OK;
}

static esp_status_t scatter_box(esp_i_node_t *node)
{
    int64_t start[ESP_MAX_RANK], count[ESP_MAX_RANK], rows = 1;
    const esp_i_grid_t *grid;
    esp_i_value_t *x = node->in[0], *indices = node->in[1], *updates = node->in[2];
    ESP_TRY(esp_i_im_grid_rows(node->im, indices, &grid));
    bool fits = grid != NULL && indices->rank > 0 && grid->n <= x->rank &&
                indices->dims[indices->rank - 1] == grid->n && updates->dtype == x->dtype &&
                esp_i_im_grid_box(indices, grid, start, count);
    if (!fits)
        return esp_i_fail(node->diag, ESP_ERR_UNSUPPORTED,
                          "only constants and assignments to ranges of rows are supported");
    for (int32_t d = 0; d < x->rank; d++)
        rows *= d < grid->n ? count[d] : x->dims[d];
    if (rows != esp_i_im_extent(updates, 0, updates->rank))
        return esp_i_fail(node->diag, ESP_ERR_INVALID, "%lld elements for a box of %lld",
                          (long long)esp_i_im_extent(updates, 0, updates->rank), (long long)rows);
    return replace_box(node, x, grid->n, start, count, updates, &node->out[0]);
}

esp_status_t esp_i_rule_scatter_nd(esp_i_node_t *node)
{
    const esp_i_konst_t *known[3] = {NULL, NULL, NULL};
    esp_i_str_t reduction;
    ESP_TRY(esp_i_im_need_inputs(node, 3, 3));
    ESP_TRY(esp_i_im_attr_text(node, "reduction", "none", &reduction));
    if (!esp_i_str_is(reduction, "none"))
        return esp_i_fail(node->diag, ESP_ERR_UNSUPPORTED, "reduction '%.*s'",
                          (int)esp_i_min_i64(reduction.length, 40), reduction.data);
    bool all = true;
    for (int32_t k = 0; k < 3 && all; k++) {
        if (node->in[k]->role == ESP_ROLE_CONSTANT && node->in[k]->grid == NULL)
            ESP_TRY(esp_i_im_known(node->im, node->in[k], &known[k]));
        all = known[k] != NULL;
        node->batch_ints = node->batch_ints || node->in[k]->baked != node->in[k]->known;
    }
    return all ? scatter_known(node, known[0], known[1], known[2]) : scatter_box(node);
}
