/* The inputs of a model: symbolic dimensions, and where the batch is. */
#include "import/scope.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_BOUND = 64 };

typedef struct input {
    esp_i_value_t *value; /* dims: -1 where the file gives none */
    esp_i_str_t symbol[ESP_MAX_RANK];
    int32_t batch_axis; /* ESP_NONE: carries no batch */
    bool settled;       /* batch_axis is the user's */
} input_t;

/* NAME=VALUE of an option. */
typedef struct binding {
    esp_i_str_t name;
    int64_t value; /* -1: "none" */
} binding_t;

typedef struct inputs {
    esp_i_import_t *im;
    ESP_VEC(input_t) list;
    binding_t bound[MAX_BOUND], places[MAX_BOUND];
    int32_t n_bound, n_places;
    esp_i_str_t symbol; /* of the batch; length 0: none */
} inputs_t;

/* ---- options --------------------------------------------------------------------------------- */

static esp_status_t bad_option(esp_i_import_t *im, const char *option, const char *entry)
{
    return esp_i_fail(im->diag, ESP_ERR_ARGUMENT, "%s: '%.60s' is not NAME=NUMBER", option, entry);
}

/* "A=1,B=2"; with `none` the word none stands for -1. */
static esp_status_t parse_bindings(esp_i_import_t *im, const char *option, const char *text,
                                   bool none, binding_t *list, int32_t *count_out)
{
    int32_t count = 0;
    for (const char *at = text; at != NULL && *at != '\0';) {
        size_t length = strcspn(at, ",");
        const char *equals = NULL;
        for (size_t k = 0; k < length; k++)
            equals = at[k] == '=' ? at + k : equals; /* the last: names may hold one */
        if (equals == NULL || equals == at)
            return bad_option(im, option, at);
        size_t rest = length - (size_t)(equals + 1 - at);
        int64_t value = -1;
        bool word = none && rest == 4 && memcmp(equals + 1, "none", 4) == 0;
        if (!word) {
            char *end;
            value = (equals[1] >= '0' && equals[1] <= '9') ? strtoll(equals + 1, &end, 10) : -1;
            if (value < 0 || value > ESP_MAX_ELEMENTS || end != at + length)
                return bad_option(im, option, at);
        }
        if (count == MAX_BOUND)
            return esp_i_fail(im->diag, ESP_ERR_ARGUMENT, "%s: more than %d entries", option,
                              MAX_BOUND);
        list[count++] = (binding_t){{at, equals - at}, value};
        at += length + (at[length] == ',');
    }
    *count_out = count;
    return ESP_OK;
}

static const binding_t *find_binding(const binding_t *list, int32_t n, esp_i_str_t name)
{
    for (int32_t k = 0; k < n; k++)
        if (esp_i_str_equal(list[k].name, name))
            return &list[k];
    return NULL;
}

/* ---- reading --------------------------------------------------------------------------------- */

static esp_status_t read_shape(inputs_t *inputs, esp_i_wire_t shape, input_t *input)
{
    esp_i_import_t *im = inputs->im;
    esp_i_value_t *v = input->value;
    esp_i_wire_t item;
    while (esp_i_pb_each(&shape, ESP_I_SHAPE_DIMS, &item, im->diag)) {
        esp_i_pb_dim_t dim;
        ESP_TRY(esp_i_pb_dim(item, &dim, im->diag));
        if (v->rank == ESP_MAX_RANK)
            return esp_i_fail(im->diag, ESP_ERR_LIMIT, "more than %d axes", ESP_MAX_RANK);
        if (dim.value < -1 || dim.value > ESP_MAX_ELEMENTS)
            return esp_i_fail(im->diag, ESP_ERR_INVALID, "axis %d has extent %lld", v->rank,
                              (long long)dim.value);
        input->symbol[v->rank] = dim.param;
        v->dims[v->rank++] = dim.param.length > 0 ? -1 : dim.value;
    }
    return shape.status;
}

static esp_status_t read_input(inputs_t *inputs, esp_i_scope_t *scope, esp_i_wire_t body)
{
    esp_i_import_t *im = inputs->im;
    esp_i_pb_value_info_t info;
    int32_t id = -1;
    ESP_TRY(esp_i_pb_value_info(body, &info, im->diag));
    ESP_TRY(esp_i_im_scope_name(scope, info.name, &id));
    if (scope->values.data[id] != NULL && scope->values.data[id]->initializer)
        return ESP_OK; /* has an initializer */
    input_t input = {.value = esp_i_im_value_new(im, ""), .batch_axis = ESP_NONE};
    if (input.value == NULL)
        return esp_i_nomem(im->diag);
    ESP_TRY(esp_i_im_scope_define(scope, info.name, input.value));
    esp_i_diag_place(im->diag, "input '%s'", input.value->name);
    if (!info.is_tensor)
        return esp_i_fail(im->diag, ESP_ERR_UNSUPPORTED, "it is not a tensor");
    if (!esp_i_pb_dtype(info.elem_type, &input.value->dtype))
        return esp_i_fail(im->diag, ESP_ERR_UNSUPPORTED, "its elements are of type %s (%lld)",
                          esp_i_pb_type_name(info.elem_type), (long long)info.elem_type);
    if (!info.has_shape)
        return esp_i_fail(im->diag, ESP_ERR_INVALID, "it has no shape");
    ESP_TRY(read_shape(inputs, info.shape, &input));
    input.value->role = ESP_ROLE_INPUT;
    if (!esp_vec_push(&im->alloc, &inputs->list, input))
        return esp_i_nomem(im->diag);
    im->diag->place[0] = '\0';
    return ESP_OK;
}

/* ---- the batch ------------------------------------------------------------------------------- */

static int32_t axis_of_symbol(const input_t *input, esp_i_str_t symbol)
{
    for (int32_t d = 0; d < input->value->rank; d++)
        if (symbol.length > 0 && esp_i_str_equal(input->symbol[d], symbol))
            return d;
    return ESP_NONE;
}

static bool mentions_batch(esp_i_str_t symbol)
{
    for (int64_t k = 0; k + 5 <= symbol.length; k++)
        if (memcmp(symbol.data + k, "batch", 5) == 0)
            return true;
    return false;
}

/*
 * The symbol that most inputs share. Among equals one that no option binds comes first, then one
 * that is called a batch, then the first in the file.
 */
static esp_i_str_t shared_symbol(const inputs_t *inputs)
{
    esp_i_str_t best = {0};
    int64_t best_score = 0;
    for (int32_t k = 0; k < inputs->list.count; k++) {
        const input_t *input = &inputs->list.data[k];
        for (int32_t d = 0; d < input->value->rank; d++) {
            esp_i_str_t symbol = input->symbol[d];
            int64_t score = 0;
            for (int32_t other = 0; other < inputs->list.count && symbol.length > 0; other++)
                score += axis_of_symbol(&inputs->list.data[other], symbol) != ESP_NONE;
            bool bound = find_binding(inputs->bound, inputs->n_bound, symbol) != NULL;
            score = score > 0 ? 4 * score + 2 * !bound + mentions_batch(symbol) : 0;
            if (score > best_score) {
                best = symbol;
                best_score = score;
            }
        }
    }
    return best;
}

/* --batch-dim: what the user says of each input. */
static esp_status_t place_by_option(inputs_t *inputs)
{
    esp_i_import_t *im = inputs->im;
    for (int32_t p = 0; p < inputs->n_places; p++) {
        const binding_t *place = &inputs->places[p];
        input_t *input = NULL;
        for (int32_t k = 0; k < inputs->list.count; k++) {
            const char *name = inputs->list.data[k].value->name;
            if (esp_i_str_is(place->name, name))
                input = &inputs->list.data[k];
        }
        if (input == NULL || place->value >= input->value->rank)
            return esp_i_fail(im->diag, ESP_ERR_ARGUMENT, "batch dimension: no input '%.*s'%s",
                              (int)esp_i_min_i64(place->name.length, 80), place->name.data,
                              input == NULL ? "" : " with that many axes");
        input->settled = true;
        input->batch_axis = place->value < 0 ? ESP_NONE : (int32_t)place->value;
        if (place->value >= 0 && inputs->symbol.length == 0)
            inputs->symbol = input->symbol[place->value];
    }
    return ESP_OK;
}

/* Neither option nor symbol: axis 0, in all inputs that agree with the first about its extent. */
static void place_on_axis_0(inputs_t *inputs)
{
    const esp_i_value_t *first = NULL;
    for (int32_t k = 0; k < inputs->list.count; k++) {
        input_t *input = &inputs->list.data[k];
        if (input->settled || input->value->rank == 0)
            continue;
        if (first == NULL)
            first = input->value;
        if (input->value->dims[0] == first->dims[0])
            input->batch_axis = 0;
    }
}

static esp_status_t place_batch(inputs_t *inputs)
{
    ESP_TRY(place_by_option(inputs));
    if (inputs->n_places == 0)
        inputs->symbol = shared_symbol(inputs);
    for (int32_t k = 0; k < inputs->list.count; k++) {
        input_t *input = &inputs->list.data[k];
        if (!input->settled)
            input->batch_axis = axis_of_symbol(input, inputs->symbol);
    }
    if (inputs->n_places == 0 && inputs->symbol.length == 0)
        place_on_axis_0(inputs);
    return ESP_OK;
}

/* The batch that the file fixes; 0: it leaves it open, or there is none. */
static esp_status_t fixed_batch(const inputs_t *inputs, int64_t *batch_out, bool *any_out)
{
    esp_i_import_t *im = inputs->im;
    *batch_out = 0;
    *any_out = false;
    for (int32_t k = 0; k < inputs->list.count; k++) {
        const input_t *input = &inputs->list.data[k];
        if (input->batch_axis == ESP_NONE)
            continue;
        *any_out = true;
        int64_t extent = input->value->dims[input->batch_axis];
        if (extent < 0)
            continue;
        if (extent == 0) {
            esp_i_diag_place(im->diag, "input '%s'", input->value->name);
            return esp_i_fail(im->diag, ESP_ERR_INVALID, "its batch, axis %d, has extent 0",
                              input->batch_axis);
        }
        if (*batch_out > 0 && extent != *batch_out) {
            esp_i_diag_place(im->diag, "input '%s'", input->value->name);
            return esp_i_fail(im->diag, ESP_ERR_INVALID,
                              "its batch is %lld on axis %d, that of the inputs before %lld",
                              (long long)extent, input->batch_axis, (long long)*batch_out);
        }
        *batch_out = extent;
    }
    return ESP_OK;
}

static esp_status_t choose_batch(inputs_t *inputs)
{
    esp_i_import_t *im = inputs->im;
    int64_t fixed;
    bool any;
    ESP_TRY(fixed_batch(inputs, &fixed, &any));
    if (!any) {
        if (im->opts->batch > 0)
            return esp_i_fail(im->diag, ESP_ERR_ARGUMENT,
                              "a batch is asked for, but no input has a batch dimension");
        return ESP_OK;
    }
    const binding_t *bound = find_binding(inputs->bound, inputs->n_bound, inputs->symbol);
    int64_t open = bound != NULL ? bound->value : ESP_ONNX_DEFAULT_BATCH;
    im->batch = im->opts->batch > 0 ? im->opts->batch : fixed > 0 ? fixed : open;
    im->file_batch = fixed > 0 && fixed != im->batch ? fixed : 0;
    im->other_batch = im->file_batch > 0 ? im->file_batch : im->batch + 1;
    if (im->batch <= 0)
        return esp_i_fail(im->diag, ESP_ERR_ARGUMENT, "a batch of 0 samples is asked for");
    if (bound != NULL && bound->value != im->batch)
        return esp_i_fail(im->diag, ESP_ERR_ARGUMENT,
                          "the batch is %lld by one option and %lld by another",
                          (long long)im->batch, (long long)(bound != NULL ? bound->value : 0));
    return ESP_OK;
}

/* ---- into the builder ------------------------------------------------------------------------ */

static esp_status_t bind_dim(inputs_t *inputs, input_t *input, int32_t axis)
{
    esp_i_import_t *im = inputs->im;
    char text[256];
    esp_i_str_t symbol = input->symbol[axis];
    if (axis == input->batch_axis ||
        (inputs->symbol.length > 0 && im->batch > 0 && esp_i_str_equal(symbol, inputs->symbol))) {
        input->value->dims[axis] = im->batch;
        return ESP_OK;
    }
    if (input->value->dims[axis] >= 0)
        return ESP_OK;
    if (symbol.length == 0) {
        int length = snprintf(text, sizeof text, "%.200s.%d", input->value->name, axis);
        symbol = (esp_i_str_t){text, length};
    }
    const binding_t *bound = find_binding(inputs->bound, inputs->n_bound, symbol);
    if (bound == NULL)
        return esp_i_fail(im->diag, ESP_ERR_INVALID,
                          "axis %d has the open extent '%.*s'; give it one (--dim %.*s=NUMBER)",
                          axis, (int)esp_i_min_i64(symbol.length, 80), symbol.data,
                          (int)esp_i_min_i64(symbol.length, 80), symbol.data);
    input->value->dims[axis] = bound->value;
    return ESP_OK;
}

static esp_status_t put_input(inputs_t *inputs, input_t *input)
{
    esp_i_import_t *im = inputs->im;
    esp_i_value_t *v = input->value;
    esp_i_diag_place(im->diag, "input '%s'", v->name);
    int64_t elements = 1;
    for (int32_t d = 0; d < v->rank; d++) {
        ESP_TRY(bind_dim(inputs, input, d));
        if (!esp_i_mul_i64(elements, v->dims[d], &elements) || elements > ESP_MAX_ELEMENTS)
            return esp_i_fail(im->diag, ESP_ERR_LIMIT, "it has too many elements");
        if (input->batch_axis != ESP_NONE && v->dims[d] == 0)
            return esp_i_fail(im->diag, ESP_ERR_INVALID, "axis %d has extent 0: it has no samples",
                              d);
    }
    ESP_TRY(esp_builder_tensor(im->builder, v->name, ESP_ROLE_INPUT, v->dtype, v->rank, v->dims,
                               NULL, &v->tensor, im->diag));
    if (input->batch_axis != ESP_NONE) {
        int32_t axis = input->batch_axis;
        esp_view_t view = {esp_i_im_extent(v, 0, axis), im->batch,
                           esp_i_im_extent(v, axis + 1, v->rank)};
        ESP_TRY(esp_builder_batch(im->builder, v->tensor, view, im->diag));
        ESP_TRY(esp_i_im_track_set(im, v->tensor, (esp_i_track_t){axis, 1, 1}));
    }
    im->diag->place[0] = '\0';
    return ESP_OK;
}

static esp_status_t import_all(inputs_t *inputs, esp_i_scope_t *scope, esp_i_wire_t graph)
{
    esp_i_import_t *im = inputs->im;
    esp_i_wire_t item;
    ESP_TRY(parse_bindings(im, "batch dimension", im->opts->batch_dim, true, inputs->places,
                           &inputs->n_places));
    ESP_TRY(
        parse_bindings(im, "dimensions", im->opts->dims, false, inputs->bound, &inputs->n_bound));
    while (esp_i_pb_each(&graph, ESP_I_GRAPH_INPUTS, &item, im->diag))
        ESP_TRY(read_input(inputs, scope, item));
    if (graph.status != ESP_OK)
        return graph.status;
    ESP_TRY(place_batch(inputs));
    ESP_TRY(choose_batch(inputs));
    for (int32_t k = 0; k < inputs->list.count; k++)
        ESP_TRY(put_input(inputs, &inputs->list.data[k]));
    return ESP_OK;
}

esp_status_t esp_i_im_import_inputs(esp_i_import_t *im, esp_i_scope_t *scope, esp_i_wire_t graph)
{
    inputs_t inputs = {.im = im};
    esp_status_t status = import_all(&inputs, scope, graph);
    esp_vec_free(&im->alloc, &inputs.list);
    return status;
}
