/*
 * ELTWISE: rows of the innermost loop, or tiles of several short rows, go through a loop over dense
 * elements; what broadcasts is repeated in a tile first.
 */
#include "exec/cpu/eltwise.h"
#include "exec/values.h"
#include "graph/kinds/eltwise.h"

#include <string.h>

enum { TILE = 512, SHORT_ROW = 128 };
_Static_assert(SHORT_ROW <= TILE, "a tile holds a short row");

/* One pass over y. Inputs of it, and y last, by number of operand of the call. */
typedef struct pass {
    esp_i_cpu_elt_fn *loop;
    int32_t n;
    int32_t operand[4];
    int64_t size[4];    /* of an element */
    bool dense[4];      /* has every loop of y */
    esp_i_walk_t rows;  /* outer loops */
    int64_t m, step[4]; /* the innermost loop: steps are 0 or 1 */
    esp_i_cpu_elt_tile_t tile;
} pass_t;

typedef struct plan {
    int32_t n_passes;
    pass_t *pass;
} plan_t;

/* ---- any code, any dtype ------------------------------------------------------------------- */

static void loop_any(int64_t n, const esp_i_cpu_elt_tile_t *tile)
{
    double value[3][TILE], result[TILE];
    esp_i_elt_args_t args = {
        .alpha = tile->alpha, .beta = tile->beta, .whole = !esp_dtype_is_float(tile->y_dtype)};
    for (int64_t at = 0; at < n; at += TILE) {
        const int64_t m = esp_i_min_i64(n - at, TILE);
        for (int32_t k = 0; k < tile->n_in; k++)
            esp_i_values_load(tile->dtype[k], m,
                              (const char *)tile->x[k] + at * esp_dtype_bytes(tile->dtype[k]),
                              value[k]);
        for (int64_t i = 0; i < m; i++) {
            for (int32_t k = 0; k < tile->n_in; k++)
                args.x[k] = value[k][i];
            result[i] = esp_i_elt_value(tile->code, &args);
        }
        esp_i_values_store(tile->y_dtype, m, result,
                           (char *)tile->y + at * esp_dtype_bytes(tile->y_dtype));
    }
}

/* ---- run ----------------------------------------------------------------------------------- */

/* `m` elements that are `step` (0 or 1) apart become dense. */
static void repeat(char *to, const char *from, int64_t m, int64_t step, int64_t size)
{
    esp_dcheck(to && from);
    if (step == 1) {
        memcpy(to, from, (size_t)(m * size));
    } else if (size == 4) {
        uint32_t element, *out = (uint32_t *)(void *)to;
        memcpy(&element, from, sizeof element);
        for (int64_t i = 0; i < m; i++)
            out[i] = element;
    } else {
        for (int64_t i = 0; i < m; i++)
            memcpy(to + i * size, from, (size_t)size);
    }
}

typedef struct room {
    double element[3][TILE]; /* room for any dtype */
} room_t;

static char *tile_of(room_t *room, int32_t input)
{
    return (char *)room->element[input];
}

/* Each row on its own, in pieces of a tile if something is repeated. */
static void run_rows(const pass_t *pass, char *const *data)
{
    room_t room;
    esp_i_cpu_elt_tile_t tile = pass->tile;
    esp_i_walk_t walk = pass->rows;
    const int32_t y = pass->n - 1;
    bool repeats = false;
    for (int32_t k = 0; k < y; k++)
        repeats = repeats || pass->step[k] == 0;
    const int64_t piece = repeats ? TILE : pass->m;
    for (bool more = esp_i_walk_begin(&walk); more; more = esp_i_walk_next(&walk)) {
        for (int32_t k = 0; k < y; k++)
            if (pass->step[k] == 0)
                repeat(tile_of(&room, k), data[k] + walk.offset[k] * pass->size[k],
                       esp_i_min_i64(pass->m, TILE), 0, pass->size[k]);
        for (int64_t at = 0; at < pass->m; at += piece) {
            for (int32_t k = 0; k < y; k++)
                tile.x[k] = pass->step[k] == 0 ? tile_of(&room, k)
                                               : data[k] + (walk.offset[k] + at) * pass->size[k];
            tile.y = data[y] + (walk.offset[y] + at) * pass->size[y];
            pass->loop(esp_i_min_i64(pass->m - at, piece), &tile);
        }
    }
}

/* Short rows together: y and what has all of its loops are dense, the others are gathered. */
static void run_tiles(const pass_t *pass, char *const *data)
{
    room_t room;
    esp_i_cpu_elt_tile_t tile = pass->tile;
    esp_i_walk_t walk = pass->rows;
    const int32_t y = pass->n - 1;
    int64_t done = 0;
    bool more = esp_i_walk_begin(&walk);
    while (more) {
        int64_t n = 0;
        for (; more && n + pass->m <= TILE; n += pass->m) {
            for (int32_t k = 0; k < y; k++)
                if (!pass->dense[k])
                    repeat(tile_of(&room, k) + n * pass->size[k],
                           data[k] + walk.offset[k] * pass->size[k], pass->m, pass->step[k],
                           pass->size[k]);
            more = esp_i_walk_next(&walk);
        }
        for (int32_t k = 0; k < y; k++)
            tile.x[k] = pass->dense[k] ? data[k] + done * pass->size[k] : tile_of(&room, k);
        tile.y = data[y] + done * pass->size[y];
        pass->loop(n, &tile);
        done += n;
    }
}

static void eltwise_run(const esp_i_cpu_kernel_t *kernel, const esp_i_moment_t *moment)
{
    const plan_t *plan = kernel->state;
    (void)moment;
    for (int32_t i = 0; i < plan->n_passes; i++) {
        const pass_t *pass = &plan->pass[i];
        char *data[4] = {NULL};
        for (int32_t k = 0; k < pass->n; k++)
            data[k] = esp_i_cpu_data(kernel, pass->operand[k]);
        if (pass->m == 0)
            continue;
        if (pass->m < SHORT_ROW && pass->rows.n > 0)
            run_tiles(pass, data);
        else
            run_rows(pass, data);
    }
}

/* ---- prepare ------------------------------------------------------------------------------- */

/* Whether x has axis `axis` of y, rather than stretching over it. */
static bool has_axis(const esp_i_local_t *x, const esp_i_local_t *y, int32_t axis)
{
    const int32_t own = axis - y->global_rank + x->global_rank;
    return own >= 0 && x->global[own] == y->global[axis] && x->global[own] != 1;
}

/* The loops of y, cut where y is split; those of extent 1 are left out. */
static void plan_loops(const esp_i_cpu_kernel_t *kernel, pass_t *pass)
{
    const esp_i_local_t *operand = kernel->call->operand;
    const int32_t y = pass->n - 1;
    const esp_i_local_t *out = &operand[pass->operand[y]];
    const esp_i_buffer_t split = esp_i_cpu_buffer(kernel, pass->operand[y]);
    esp_i_nest_t nest = {.n_operands = pass->n};
    for (int32_t axis = 0; axis < out->global_rank; axis++) {
        const int32_t loop = esp_i_nest_loop(&nest, out->global[axis]);
        for (int32_t k = 0; k < y; k++)
            if (has_axis(&operand[pass->operand[k]], out, axis))
                esp_i_nest_axis(&nest, k, loop);
        esp_i_nest_axis(&nest, y, loop);
    }
    esp_i_nest_merge(&nest);
    esp_i_nest_split(&nest, y, &split);
    esp_i_nest_walk(&nest, &pass->rows);
    pass->m = 1;
    for (int32_t k = 0; k < pass->n; k++) {
        pass->dense[k] = nest.rank[k] == nest.rank[y];
        pass->step[k] = 1;
    }
    if (pass->rows.n == 0)
        return;
    const int32_t last = --pass->rows.n;
    pass->m = pass->rows.extent[last];
    for (int32_t k = 0; k < pass->n; k++)
        pass->step[k] = pass->rows.stride[last][k];
}

/* Whether the dtypes are those that the float loops take. */
static bool takes(const esp_i_cpu_elt_tile_t *tile)
{
    const esp_eltwise_t code = tile->code;
    const bool logic =
        code == ESP_ELT_AND || code == ESP_ELT_OR || code == ESP_ELT_XOR || code == ESP_ELT_NOT;
    for (int32_t k = 0; k < tile->n_in; k++) {
        const bool boolean = logic || (code == ESP_ELT_WHERE && k == 0);
        if (tile->dtype[k] != (boolean ? ESP_DTYPE_BOOL : ESP_DTYPE_F32))
            return false;
    }
    return true;
}

/* A pass over n_in operands of the call. */
static void plan_pass(const esp_i_cpu_kernel_t *kernel, int32_t n_in, const int32_t *operand,
                      pass_t *pass)
{
    const esp_i_call_t *call = kernel->call;
    pass->n = n_in + 1;
    pass->tile = (esp_i_cpu_elt_tile_t){.alpha = call->attr->eltwise.alpha,
                                        .beta = call->attr->eltwise.beta,
                                        .code = call->attr->eltwise.code,
                                        .n_in = n_in};
    for (int32_t k = 0; k < pass->n; k++) {
        pass->operand[k] = k < n_in ? operand[k] : call->n_in;
        const esp_dtype_t dtype = call->operand[pass->operand[k]].dtype;
        *(k < n_in ? &pass->tile.dtype[k] : &pass->tile.y_dtype) = dtype;
        pass->size[k] = esp_dtype_bytes(dtype);
    }
    plan_loops(kernel, pass);
    pass->loop =
        takes(&pass->tile) ? esp_i_cpu_elt_float(pass->tile.code, n_in, pass->tile.alpha) : NULL;
    if (pass->loop == NULL)
        pass->loop = loop_any;
}

/* Sums of many inputs: three, then two more to what there is. */
esp_status_t esp_i_cpu_ELTWISE(esp_i_cpu_t *cpu, esp_i_cpu_kernel_t *kernel, esp_diag_t *diag)
{
    const esp_i_call_t *call = kernel->call;
    const bool is_float = call->operand[0].dtype == ESP_DTYPE_F32;
    const int32_t at_once = call->attr->eltwise.code == ESP_ELT_ADD && !is_float ? 2 : 3;
    ESP_TRY(esp_i_cpu_state(cpu, kernel, sizeof(plan_t), diag));
    plan_t *plan = kernel->state;
    plan->pass = esp_i_arena_alloc(&cpu->state, 1 + call->n_in / (at_once - 1), sizeof *plan->pass);
    if (plan->pass == NULL)
        return esp_i_nomem(diag);
    for (int32_t done = 0; done < call->n_in;) {
        int32_t operand[3], n = 0;
        if (done > 0)
            operand[n++] = call->n_in;
        while (n < at_once && done < call->n_in)
            operand[n++] = done++;
        plan_pass(kernel, n, operand, &plan->pass[plan->n_passes++]);
    }
    kernel->run = eltwise_run;
    return ESP_OK;
}
