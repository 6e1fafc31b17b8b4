/* Checks that hold for every op kind. */
#include "kind_harness.h"
#include "interp.h"
#include "support.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SEED               7
#define STEP               3
#define TOLERANCE          1e-12
#define GRADIENT_TOLERANCE 1e-7
#define DIFFERENCE         1e-5

/* ---- one example as a graph with values -------------------------------------------------- */

typedef struct fixture {
    const kind_example_t *example;
    esp_builder_t *builder;
    esp_graph_t *graph; /* op 0 is the example */
    esp_tensor_id_t in[KIND_MAX_IN];
    double *value[KIND_MAX_IN]; /* of the inputs */
    int32_t n_out;
    double **whole; /* outputs of the whole op */
} fixture_t;

static double *draw_input(const kind_input_t *input, int64_t n, uint64_t stream)
{
    double *value = calloc(n > 0 ? (size_t)n : 1, sizeof *value);
    assert_non_null(value);
    const bool is_float = esp_dtype_is_float(input->dtype) != 0;
    const bool given = input->lo < input->hi;
    const double lo = given      ? input->lo
                      : is_float ? -1
                                 : 0,
                 hi = given      ? input->hi
                      : is_float ? 1
                                 : 2;
    for (int64_t i = 0; i < n; i++) {
        const double unit = (esp_i_philox(SEED, 0, stream, (uint64_t)i) + 0.5) * 0x1p-32;
        value[i] = lo + (hi - lo) * unit;
        if (!is_float)
            value[i] = floor(value[i]);
        if (input->values)
            value[i] = input->values[i];
    }
    return value;
}

static int64_t element_count(const kind_input_t *input)
{
    int64_t n = 1;
    for (int32_t i = 0; i < input->rank; i++)
        n *= input->dims[i];
    return n;
}

/* The inputs alone; the caller appends ops and freezes. */
static void fixture_inputs(fixture_t *fixture, const kind_example_t *example)
{
    static const char *const names[KIND_MAX_IN] = {"a", "b", "c", "d", "e", "f", "g", "h"};
    esp_diag_t diag = {0};
    *fixture = (fixture_t){.example = example};
    test_assert_ok(esp_builder_create(example->name, NULL, &fixture->builder), &diag);
    for (int32_t i = 0; i < example->n_in; i++) {
        const kind_input_t *input = &example->in[i];
        fixture->in[i] = ESP_NONE;
        if (input->rank < 0)
            continue;
        test_assert_ok(esp_builder_tensor(fixture->builder, names[i], ESP_ROLE_INPUT, input->dtype,
                                          input->rank, input->dims, NULL, &fixture->in[i], &diag),
                       &diag);
        fixture->value[i] = draw_input(input, element_count(input), (uint64_t)i);
    }
}

static esp_status_t append_example(fixture_t *fixture, esp_tensor_id_t *out, esp_diag_t *diag)
{
    const kind_example_t *example = fixture->example;
    return esp_builder_op(fixture->builder, example->kind, &example->attr, example->n_in,
                          fixture->in, example->name, out, diag);
}

/* Runs op 0 whole, with these inputs, into new buffers. */
static double **run_whole(const fixture_t *fixture, double *const *value, uint64_t seed,
                          uint64_t step)
{
    const esp_factor_t none = {.dim = ESP_NONE};
    kernel_call_t call;
    kernel_local(fixture->graph, 0, none, 0, 0, &call);
    call.kernel.seed = seed;
    call.kernel.step = step;
    double **out = calloc((size_t)call.kernel.n_out, sizeof *out);
    assert_non_null(out);
    for (int32_t i = 0; i < call.kernel.n_in; i++)
        call.operand[i].data = value[i];
    for (int32_t i = 0; i < call.kernel.n_out; i++) {
        esp_i_buffer_t *buffer = &call.operand[call.kernel.n_in + i];
        out[i] = buffer->data = buffer_alloc(buffer);
        for (int64_t j = 0; j < esp_i_buffer_elements(buffer); j++)
            out[i][j] = (double)NAN; /* kernels write everything */
    }
    kernel_call_run(fixture->graph, 0, &call);
    kernel_call_fini(&call);
    return out;
}

static void free_outputs(double **out, int32_t n)
{
    for (int32_t i = 0; i < n; i++)
        free(out[i]);
    free(out);
}

static void fixture_init(fixture_t *fixture, const kind_example_t *example)
{
    esp_diag_t diag = {0};
    esp_tensor_id_t out[8];
    fixture_inputs(fixture, example);
    test_assert_ok(append_example(fixture, out, &diag), &diag);
    test_assert_ok(esp_builder_freeze(fixture->builder, &fixture->graph, &diag), &diag);
    fixture->n_out = fixture->graph->output_offset[1];
    fixture->whole = run_whole(fixture, fixture->value, SEED, STEP);
}

static void fixture_fini(fixture_t *fixture)
{
    if (fixture->whole)
        free_outputs(fixture->whole, fixture->n_out);
    for (int32_t i = 0; i < fixture->example->n_in; i++)
        free(fixture->value[i]);
    esp_graph_destroy(fixture->graph);
    esp_builder_destroy(fixture->builder);
}

static esp_tensor_id_t output_id(const fixture_t *fixture, int32_t i)
{
    return fixture->graph->output_tensor[fixture->graph->output_offset[0] + i];
}

static int64_t output_elements(const fixture_t *fixture, int32_t i)
{
    return fixture->graph->tensor_elements[output_id(fixture, i)];
}

/* Equal up to rounding relative to the largest element; NaN never is. */
static void check_close(const double *a, const double *b, int64_t n, double tolerance,
                        const char *name, const char *check, const char *what)
{
    double scale = 1;
    for (int64_t i = 0; i < n; i++)
        scale = fmax(scale, fabs(b[i]));
    for (int64_t i = 0; i < n; i++) {
        if (a[i] == b[i] || fabs(a[i] - b[i]) <= tolerance * scale)
            continue;
        fail_msg("%s: %s: %s: element %lld is %.17g, expected %.17g", name, check, what,
                 (long long)i, a[i], b[i]);
    }
}

void kind_compute(const kind_example_t *example, uint64_t seed, uint64_t step, double *values_out,
                  int64_t capacity)
{
    fixture_t fixture;
    fixture_init(&fixture, example);
    double **out = run_whole(&fixture, fixture.value, seed, step);
    int64_t used = 0;
    for (int32_t i = 0; i < fixture.n_out; i++) {
        for (int64_t j = 0; j < output_elements(&fixture, i) && used < capacity; j++)
            values_out[used++] = out[i][j];
    }
    free_outputs(out, fixture.n_out);
    fixture_fini(&fixture);
}

/* ---- splits ------------------------------------------------------------------------------ */

typedef struct split {
    const fixture_t *fixture;
    esp_factor_t factor;
    char what[96];
    double **joined;
} split_t;

/* One output of one share goes into the joined result. */
static void join(split_t *split, const kernel_call_t *call, int32_t i, int64_t share)
{
    const fixture_t *fixture = split->fixture;
    const esp_i_buffer_t *local = &call->kernel.out[i];
    esp_view_t view;
    switch (esp_graph_bind(fixture->graph, 0, split->factor, call->kernel.n_in + i, &view)) {
    case ESP_BIND_CARRY:
        buffer_put(local, split->joined[i]);
        return;
    case ESP_BIND_SUM:
        buffer_add(local, split->joined[i]);
        return;
    case ESP_BIND_ABSENT: /* every device that takes part has all of it */
        if (share > 0) {
            check_close(local->data, fixture->whole[i], output_elements(fixture, i), TOLERANCE,
                        fixture->example->name, "independent output", split->what);
            buffer_put(local, split->joined[i]);
        }
        return;
    case ESP_BIND_LOCAL:
        break;
    }
    fail_msg("%s: output %d is bound as an input", fixture->example->name, (int)i);
}

static void run_share(split_t *split, int64_t offset, int64_t share)
{
    const fixture_t *fixture = split->fixture;
    kernel_call_t call;
    kernel_local(fixture->graph, 0, split->factor, offset, share, &call);
    call.kernel.seed = SEED;
    call.kernel.step = STEP;
    for (int32_t i = 0; i < call.n_operands; i++) {
        esp_i_buffer_t *buffer = &call.operand[i];
        if (buffer->rank < 0)
            continue;
        buffer->data = buffer_alloc(buffer);
        if (i < call.kernel.n_in)
            buffer_take(buffer, fixture->value[i]);
        for (int64_t j = 0; i >= call.kernel.n_in && j < esp_i_buffer_elements(buffer); j++)
            buffer->data[j] = (double)NAN;
    }
    kernel_call_run(fixture->graph, 0, &call);
    for (int32_t i = 0; i < call.kernel.n_out; i++)
        join(split, &call, i, share);
    for (int32_t i = 0; i < call.n_operands; i++)
        free(call.operand[i].data);
    kernel_call_fini(&call);
}

/* Shares in multiples of `unit`; an element no share wrote stays NaN and fails the comparison. */
static void check_shares(split_t *split, const int64_t *shares, int32_t n, int64_t unit)
{
    const fixture_t *fixture = split->fixture;
    split->joined = calloc((size_t)fixture->n_out, sizeof *split->joined);
    assert_non_null(split->joined);
    for (int32_t i = 0; i < fixture->n_out; i++) {
        const int64_t elements = output_elements(fixture, i);
        esp_view_t view;
        const esp_bind_t bind = esp_graph_bind(fixture->graph, 0, split->factor,
                                               fixture->graph->input_offset[1] + i, &view);
        split->joined[i] = calloc(elements > 0 ? (size_t)elements : 1, sizeof(double));
        assert_non_null(split->joined[i]);
        for (int64_t j = 0; j < elements && bind != ESP_BIND_SUM; j++)
            split->joined[i][j] = (double)NAN;
    }
    int64_t offset = 0;
    for (int32_t k = 0; k < n; k++) {
        run_share(split, offset * unit, shares[k] * unit);
        offset += shares[k];
    }
    for (int32_t i = 0; i < fixture->n_out; i++)
        check_close(split->joined[i], fixture->whole[i], output_elements(fixture, i), TOLERANCE,
                    fixture->example->name, "split", split->what);
    free_outputs(split->joined, fixture->n_out);
}

static int64_t common_divisor(int64_t a, int64_t b)
{
    while (b != 0) {
        const int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* An operand that shows the factor as a view is asked for that view and names the factor. */
static void check_lookup(const split_t *split)
{
    const esp_graph_t *graph = split->fixture->graph;
    const int32_t operands = graph->input_offset[1] + graph->output_offset[1];
    for (int32_t i = 0; i < operands; i++) {
        esp_view_t view;
        if (esp_graph_bind(graph, 0, split->factor, i, &view) != ESP_BIND_CARRY)
            continue;
        esp_factor_t found;
        if (!esp_graph_factor(graph, 0, i, view, &found) || found.dim != split->factor.dim ||
            found.a != split->factor.a || found.b != split->factor.b || found.c != split->factor.c)
            fail_msg("%s: %s is not the factor of its view of operand %d",
                     split->fixture->example->name, split->what, (int)i);
    }
}

/* Two and three unequal shares, and one of nothing between two others. */
static void check_factor(const fixture_t *fixture, esp_factor_t factor, int64_t granule)
{
    const int64_t unit = granule / common_divisor(granule, factor.c);
    const int64_t n = factor.b / unit;
    if (factor.b % unit != 0 || n < 2)
        return;
    split_t split = {.fixture = fixture, .factor = factor};
    (void)snprintf(split.what, sizeof split.what, "dimension %d, part (%lld, %lld, %lld)",
                   (int)factor.dim, (long long)factor.a, (long long)factor.b, (long long)factor.c);
    check_lookup(&split);
    check_shares(&split, (const int64_t[]){1, n - 1}, 2, unit);
    check_shares(&split, (const int64_t[]){n - 1, 0, 1}, 3, unit);
    if (n >= 4)
        check_shares(&split, (const int64_t[]){n - 3, 1, 2}, 3, unit);
}

static void check_extents(const fixture_t *fixture)
{
    const kind_example_t *example = fixture->example;
    int32_t wanted = 0, found = 0;
    while (wanted < 6 && example->extents[wanted] != 0)
        wanted++;
    if (wanted == 0)
        return;
    uint32_t used = 0;
    for (int32_t d = 0; d < fixture->graph->dim_offset[1]; d++) {
        const int64_t extent = fixture->graph->dim_extent[d];
        if (extent <= 1)
            continue;
        int32_t at = 0;
        while (at < wanted && (used >> at & 1 || example->extents[at] != extent))
            at++;
        if (at == wanted)
            fail_msg("%s: dimension %d of extent %lld is not expected", example->name, (int)d,
                     (long long)extent);
        used |= 1u << at;
        found++;
    }
    if (found != wanted)
        fail_msg("%s: %d loop dimensions, expected %d", example->name, (int)found, (int)wanted);
}

void kind_check_split(const kind_example_t *example)
{
    fixture_t fixture;
    fixture_init(&fixture, example);
    check_extents(&fixture);
    for (int32_t d = 0; d < fixture.graph->dim_offset[1]; d++) {
        const int64_t extent = fixture.graph->dim_extent[d];
        for (int64_t a = 1; a <= extent; a++) {
            for (int64_t b = 2; extent % a == 0 && b <= extent / a; b++) {
                if (extent / a % b == 0)
                    check_factor(&fixture, (esp_factor_t){d, a, b, extent / a / b},
                                 fixture.graph->dim_granule[d]);
            }
        }
    }
    fixture_fini(&fixture);
}

/* ---- linear sets ------------------------------------------------------------------------- */

static bool in_mask(uint64_t mask, int32_t input)
{
    return input < 64 ? mask >> input & 1 : mask == UINT64_MAX;
}

static void check_mask(const fixture_t *fixture, uint64_t mask)
{
    const double p = 0.7, q = -1.3;
    const kind_example_t *example = fixture->example;
    double *other[KIND_MAX_IN], *mixed[KIND_MAX_IN];
    for (int32_t i = 0; i < example->n_in; i++) {
        other[i] = mixed[i] = fixture->value[i];
        if (!in_mask(mask, i) || !fixture->value[i])
            continue;
        if (!esp_dtype_is_float(example->in[i].dtype))
            fail_msg("%s: linear in input %d, which is no float", example->name, (int)i);
        kind_input_t plain = example->in[i];
        const int64_t n = element_count(&plain);
        plain.values = NULL;
        other[i] = draw_input(&plain, n, (uint64_t)i + 100);
        mixed[i] = draw_input(&plain, n, 0);
        for (int64_t j = 0; j < n; j++)
            mixed[i][j] = p * fixture->value[i][j] + q * other[i][j];
    }
    double **of_other = run_whole(fixture, other, SEED, STEP);
    double **of_mixed = run_whole(fixture, mixed, SEED, STEP);
    for (int32_t i = 0; i < fixture->n_out; i++) {
        for (int64_t j = 0; j < output_elements(fixture, i); j++)
            of_other[i][j] = p * fixture->whole[i][j] + q * of_other[i][j];
        check_close(of_mixed[i], of_other[i], output_elements(fixture, i), TOLERANCE, example->name,
                    "not linear in a declared set", "output");
    }
    free_outputs(of_other, fixture->n_out);
    free_outputs(of_mixed, fixture->n_out);
    for (int32_t i = 0; i < example->n_in; i++) {
        if (other[i] != fixture->value[i])
            free(other[i]);
        if (mixed[i] != fixture->value[i])
            free(mixed[i]);
    }
}

void kind_check_linear(const kind_example_t *example)
{
    fixture_t fixture;
    fixture_init(&fixture, example);
    for (int32_t i = 0; i < fixture.graph->linear_offset[1]; i++)
        check_mask(&fixture, fixture.graph->linear_mask[i]);
    fixture_fini(&fixture);
}

/* ---- gradients --------------------------------------------------------------------------- */

/* What of op `op` a gradient rule sees. */
typedef struct rule {
    esp_i_shape_t shape[2 * KIND_MAX_IN];
    esp_tensor_id_t dy[KIND_MAX_IN], dx[KIND_MAX_IN];
    bool need[KIND_MAX_IN];
} rule_t;

static void accumulate(esp_builder_t *builder, esp_tensor_id_t *sum, esp_tensor_id_t term)
{
    esp_diag_t diag = {0};
    if (*sum == ESP_NONE)
        *sum = term;
    else
        test_assert_ok(esp_i_make_binary(builder, ESP_ELT_ADD, *sum, term, "sum", sum, &diag),
                       &diag);
}

/* Appends the gradient of one op; d is per tensor of the forward graph. */
static void append_gradient(esp_builder_t *builder, const esp_graph_t *graph, esp_op_id_t op,
                            esp_tensor_id_t *d)
{
    const esp_tensor_id_t *in = graph->input_tensor + graph->input_offset[op];
    const esp_tensor_id_t *out = graph->output_tensor + graph->output_offset[op];
    const esp_i_kind_t *kind = esp_i_kind((esp_op_kind_t)graph->op_kind[op]);
    rule_t rule = {0};
    esp_i_op_t view = {.kind = (esp_op_kind_t)graph->op_kind[op],
                       .attr = &graph->op_attr[op],
                       .n_in = graph->input_offset[op + 1] - graph->input_offset[op],
                       .n_out = graph->output_offset[op + 1] - graph->output_offset[op],
                       .in = rule.shape,
                       .out = rule.shape + KIND_MAX_IN};
    assert_in_range(view.n_in, 0, KIND_MAX_IN);
    bool flows = false;
    for (int32_t i = 0; i < view.n_out; i++) {
        view.out[i].dtype = (esp_dtype_t)graph->tensor_dtype[out[i]];
        view.out[i].rank = graph->tensor_rank[out[i]];
        memcpy(view.out[i].dims, graph->tensor_dims[out[i]], sizeof view.out[i].dims);
        rule.dy[i] = d[out[i]];
        flows = flows || rule.dy[i] != ESP_NONE;
    }
    for (int32_t i = 0; i < view.n_in; i++) {
        rule.dx[i] = ESP_NONE;
        rule.shape[i].rank = -1;
        if (in[i] == ESP_NONE)
            continue;
        rule.shape[i].dtype = (esp_dtype_t)graph->tensor_dtype[in[i]];
        rule.shape[i].rank = graph->tensor_rank[in[i]];
        memcpy(rule.shape[i].dims, graph->tensor_dims[in[i]], sizeof rule.shape[i].dims);
        rule.need[i] = esp_dtype_is_float(rule.shape[i].dtype) != 0;
    }
    if (!flows)
        return;
    if (!kind->gradient)
        fail_msg("op %s (%s) has no gradient", graph->op_name[op], kind->name);
    esp_diag_t diag = {0};
    const esp_i_grad_t grad = {.builder = builder,
                               .op = &view,
                               .in = in,
                               .out = out,
                               .dy = rule.dy,
                               .need = rule.need,
                               .dx = rule.dx,
                               .name = "gradient",
                               .diag = &diag};
    test_assert_ok(kind->gradient(&grad), &diag);
    for (int32_t i = 0; i < view.n_in; i++) {
        if (rule.dx[i] != ESP_NONE && rule.need[i])
            accumulate(builder, &d[in[i]], rule.dx[i]);
    }
}

/* The gradient check: loss = sum of weight * y over all float outputs. */
typedef struct differences {
    fixture_t fixture;
    esp_graph_t *backward; /* forward and gradient ops; ids of the forward graph hold in it */
    esp_tensor_id_t y[8], weight[8], d[KIND_MAX_IN];
    int32_t n_y;
    interp_t *forward_interp;
} differences_t;

static double loss_of(const differences_t *diff, const interp_t *interp)
{
    double loss = 0;
    for (int32_t j = 0; j < diff->n_y; j++) {
        const double *y = interp_get(interp, diff->y[j]);
        const double *weight = interp_get(interp, diff->weight[j]);
        for (int64_t i = 0; i < diff->fixture.graph->tensor_elements[diff->y[j]]; i++)
            loss += weight[i] * y[i];
    }
    return loss;
}

static void build_forward(differences_t *diff, const kind_example_t *example)
{
    static const char *const names[8] = {"dy0", "dy1", "dy2", "dy3", "dy4", "dy5", "dy6", "dy7"};
    fixture_t *fixture = &diff->fixture;
    esp_diag_t diag = {0};
    esp_tensor_id_t out[8];
    fixture_inputs(fixture, example);
    int32_t n_out = 1;
    if (example->build) {
        test_assert_ok(example->build(fixture->builder, &example->attr, fixture->in, out, &diag),
                       &diag);
    } else {
        test_assert_ok(append_example(fixture, out, &diag), &diag);
        n_out = esp_i_kind_outputs(esp_i_kind(example->kind), &example->attr);
    }
    for (int32_t j = 0; j < n_out; j++) {
        esp_dtype_t dtype;
        int32_t rank;
        int64_t dims[ESP_MAX_RANK];
        esp_builder_shape(fixture->builder, out[j], &dtype, &rank, dims);
        if (!esp_dtype_is_float(dtype) || example->constant_out >> j & 1)
            continue;
        diff->y[diff->n_y] = out[j];
        test_assert_ok(esp_builder_tensor(fixture->builder, names[j], ESP_ROLE_INPUT, dtype, rank,
                                          dims, NULL, &diff->weight[diff->n_y++], &diag),
                       &diag);
    }
    test_assert_ok(esp_builder_freeze(fixture->builder, &fixture->graph, &diag), &diag);
}

static void build_backward(differences_t *diff)
{
    fixture_t *fixture = &diff->fixture;
    const esp_graph_t *graph = fixture->graph;
    esp_diag_t diag = {0};
    esp_tensor_id_t *d = calloc((size_t)graph->n_tensors, sizeof *d);
    assert_non_null(d);
    for (esp_tensor_id_t t = 0; t < graph->n_tensors; t++)
        d[t] = ESP_NONE;
    for (int32_t j = 0; j < diff->n_y; j++)
        d[diff->y[j]] = diff->weight[j];
    for (esp_op_id_t op = graph->n_ops - 1; op >= 0; op--)
        append_gradient(fixture->builder, graph, op, d);
    for (int32_t i = 0; i < fixture->example->n_in; i++)
        diff->d[i] = fixture->in[i] == ESP_NONE ? ESP_NONE : d[fixture->in[i]];
    free(d);
    test_assert_ok(esp_builder_freeze(fixture->builder, &diff->backward, &diag), &diag);
}

static interp_t *start(const differences_t *diff, const esp_graph_t *graph)
{
    interp_t *interp = interp_new(graph, SEED);
    for (int32_t i = 0; i < diff->fixture.example->n_in; i++) {
        if (diff->fixture.in[i] != ESP_NONE)
            interp_set(interp, diff->fixture.in[i], diff->fixture.value[i]);
    }
    interp_run(interp);
    return interp;
}

/* Central differences of the loss to one input, against its gradient (NULL: 0). */
static void check_input(differences_t *diff, int32_t i, const double *gradient)
{
    const kind_example_t *example = diff->fixture.example;
    double *value = diff->fixture.value[i];
    const int64_t n = element_count(&example->in[i]);
    double *expected = calloc(n > 0 ? (size_t)n : 1, sizeof *expected);
    double *actual = calloc(n > 0 ? (size_t)n : 1, sizeof *actual);
    assert_true(expected && actual);
    interp_t *interp = diff->forward_interp;
    for (int64_t j = 0; j < n; j++) {
        const double middle = value[j];
        double loss[2];
        for (int32_t side = 0; side < 2; side++) {
            value[j] = middle + (side ? DIFFERENCE : -DIFFERENCE);
            interp_set(interp, diff->fixture.in[i], value);
            interp_run(interp);
            loss[side] = loss_of(diff, interp);
        }
        value[j] = middle;
        expected[j] = (loss[1] - loss[0]) / (2 * DIFFERENCE);
        actual[j] = gradient ? gradient[j] : 0;
    }
    interp_set(interp, diff->fixture.in[i], value);
    char what[32];
    (void)snprintf(what, sizeof what, "input %d", (int)i);
    check_close(actual, expected, n, GRADIENT_TOLERANCE, example->name, "gradient", what);
    free(expected);
    free(actual);
}

void kind_check_gradient(const kind_example_t *example)
{
    if (!esp_i_kind(example->kind)->gradient && !example->build)
        return;
    differences_t diff = {0};
    build_forward(&diff, example);
    build_backward(&diff);
    diff.forward_interp = start(&diff, diff.fixture.graph);
    interp_t *backward = start(&diff, diff.backward);
    for (int32_t i = 0; i < example->n_in; i++) {
        if (diff.fixture.in[i] == ESP_NONE || !esp_dtype_is_float(example->in[i].dtype) ||
            example->constant_in >> i & 1)
            continue;
        if (diff.d[i] != ESP_NONE)
            assert_int_equal(diff.backward->tensor_elements[diff.d[i]],
                             element_count(&example->in[i]));
        check_input(&diff, i, diff.d[i] == ESP_NONE ? NULL : interp_get(backward, diff.d[i]));
    }
    interp_free(backward);
    interp_free(diff.forward_interp);
    esp_graph_destroy(diff.backward);
    fixture_fini(&diff.fixture);
}

/* ---- inference --------------------------------------------------------------------------- */

/* Infer on these inputs: a valid result, or an error that says why. */
static esp_status_t try_infer(const kind_example_t *example, const kind_input_t *inputs,
                              esp_diag_t *diag)
{
    esp_i_shape_t in[KIND_MAX_IN], out[8];
    for (int32_t i = 0; i < example->n_in; i++) {
        in[i] = (esp_i_shape_t){.dtype = inputs[i].dtype, .rank = inputs[i].rank};
        memcpy(in[i].dims, inputs[i].dims, sizeof in[i].dims);
    }
    for (int32_t i = 0; i < 8; i++)
        out[i] = (esp_i_shape_t){.rank = -1};
    const esp_i_kind_t *kind = esp_i_kind(example->kind);
    const esp_i_op_t op = {.kind = example->kind,
                           .attr = &example->attr,
                           .n_in = example->n_in,
                           .n_out = esp_i_kind_outputs(kind, &example->attr),
                           .in = in,
                           .out = out};
    *diag = (esp_diag_t){0};
    const esp_status_t status = kind->infer(&op, diag);
    if (status != ESP_OK && (diag->status != status || diag->text[0] == '\0'))
        fail_msg("%s: infer fails with status %d and says nothing", example->name, (int)status);
    for (int32_t i = 0; status == ESP_OK && i < op.n_out; i++) {
        bool good = out[i].rank >= 0 && out[i].rank <= ESP_MAX_RANK;
        for (int32_t j = 0; good && j < out[i].rank; j++)
            good = out[i].dims[j] >= 0;
        if (!good)
            fail_msg("%s: infer gives output %d no valid shape", example->name, (int)i);
    }
    return status;
}

void kind_check_infer(const kind_example_t *example)
{
    esp_diag_t diag;
    kind_input_t inputs[KIND_MAX_IN];
    memcpy(inputs, example->in, sizeof inputs);
    assert_int_equal(try_infer(example, inputs, &diag), ESP_OK);
    for (int32_t i = 0; i < example->n_in; i++) {
        kind_input_t *input = &inputs[i];
        if (input->rank < 0)
            continue;
        for (int32_t dtype = 0; dtype < ESP_DTYPE_COUNT; dtype++) {
            input->dtype = (esp_dtype_t)dtype;
            (void)!try_infer(example, inputs, &diag);
        }
        *input = example->in[i];
        for (int32_t rank = 0; rank <= ESP_MAX_RANK; rank++) {
            input->rank = rank;
            for (int32_t j = example->in[i].rank; j < rank; j++)
                input->dims[j] = 2;
            (void)!try_infer(example, inputs, &diag);
            *input = example->in[i];
        }
        for (int32_t j = 0; j < input->rank; j++) {
            for (int64_t extent = 0; extent < 4; extent++) {
                input->dims[j] = extent;
                (void)!try_infer(example, inputs, &diag);
            }
            *input = example->in[i];
        }
    }
}

void kind_check_refused(const kind_example_t *example, esp_status_t status, const char *part)
{
    esp_diag_t diag;
    const esp_status_t actual = try_infer(example, example->in, &diag);
    if (actual != status)
        fail_msg("%s: infer returns %d, expected %d", example->name, (int)actual, (int)status);
    if (!strstr(diag.text, part))
        fail_msg("%s: \"%s\" does not contain \"%s\"", example->name, diag.text, part);
}

void kind_check(const kind_example_t *example)
{
    kind_check_infer(example);
    kind_check_split(example);
    kind_check_linear(example);
    kind_check_gradient(example);
}

/* ---- the registry ------------------------------------------------------------------------ */

void kind_check_registry(const kind_examples_t *lists, int32_t n)
{
    for (int32_t k = 0; k < ESP_KIND_COUNT; k++) {
        const esp_op_kind_t id = (esp_op_kind_t)k;
        const esp_i_kind_t *kind = esp_i_kind(id);
        const char *name = esp_kind_name(id);
        if (!kind->name)
            fail_msg("kind %s is not there", name);
        assert_string_equal(kind->name, name);
        if (!*esp_kind_help(id) || !kind->infer || !kind->dims || !kind->kernel)
            fail_msg("kind %s has no help, shapes, dimensions or kernel", name);
        if (kind->min_in < 0 || kind->max_in < kind->min_in || kind->n_out < 1)
            fail_msg("kind %s has no valid number of operands", name);
        bool shown = false;
        for (int32_t i = 0; i < n; i++) {
            for (int32_t j = 0; j < lists[i].count; j++)
                shown = shown || lists[i].data[j].kind == id;
        }
        if (!shown)
            fail_msg("kind %s has no example", name);
    }
}
