/* A kernel of the CPU backend against the reference kernel of its kind. */
#include "fast_harness.h"
#include "interp.h"
#include "support.h"

#include "espalier/cluster.h"
#include "espalier/cost.h"
#include "exec/values.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SEED = 7, STEP = 3, ALIGN = 64, CANARY = 0x5a, AMPLE = 2 << 20, OPERANDS = 16 };

typedef struct fixture {
    const kind_example_t *example;
    esp_i_cpu_prepare_fn *prepare;
    double tolerance;
    int64_t scratch_bytes;
    esp_builder_t *builder;
    esp_graph_t *graph;
    double *value[KIND_MAX_IN];
    char what[96];
} fixture_t;

/* ---- the op as a graph ------------------------------------------------------------------- */

/* Representable in float32, so that both kernels see the same numbers. */
static double draw(const kind_input_t *input, uint64_t stream, int64_t i)
{
    const bool is_float = esp_dtype_is_float(input->dtype) != 0, given = input->lo < input->hi;
    const double lo = given      ? input->lo
                      : is_float ? -1
                                 : 0,
                 hi = given      ? input->hi
                      : is_float ? 1
                                 : 2;
    const double unit = (esp_i_philox(SEED, 0, stream, (uint64_t)i) + 0.5) * 0x1p-32;
    const double value = input->values ? input->values[i] : lo + (hi - lo) * unit;
    return is_float ? (double)(float)value : floor(value);
}

static void fixture_init(fixture_t *fixture)
{
    static const char *const names[KIND_MAX_IN] = {"a", "b", "c", "d", "e", "f", "g", "h"};
    const kind_example_t *example = fixture->example;
    esp_diag_t diag = {0};
    esp_tensor_id_t in[KIND_MAX_IN], out[OPERANDS];
    test_assert_ok(esp_builder_create(example->name, NULL, &fixture->builder), &diag);
    for (int32_t i = 0; i < example->n_in; i++) {
        const kind_input_t *input = &example->in[i];
        int64_t n = 1;
        in[i] = ESP_NONE;
        if (input->rank < 0)
            continue;
        test_assert_ok(esp_builder_tensor(fixture->builder, names[i], ESP_ROLE_INPUT, input->dtype,
                                          input->rank, input->dims, NULL, &in[i], &diag),
                       &diag);
        for (int32_t a = 0; a < input->rank; a++)
            n *= input->dims[a];
        fixture->value[i] = calloc(n > 0 ? (size_t)n : 1, sizeof(double));
        assert_non_null(fixture->value[i]);
        for (int64_t j = 0; j < n; j++)
            fixture->value[i][j] = draw(input, (uint64_t)i, j);
    }
    test_assert_ok(esp_builder_op(fixture->builder, example->kind, &example->attr, example->n_in,
                                  in, example->name, out, &diag),
                   &diag);
    test_assert_ok(esp_builder_freeze(fixture->builder, &fixture->graph, &diag), &diag);
}

static void fixture_fini(fixture_t *fixture)
{
    for (int32_t i = 0; i < fixture->example->n_in; i++)
        free(fixture->value[i]);
    esp_graph_destroy(fixture->graph);
    esp_builder_destroy(fixture->builder);
}

static int64_t planned_scratch(const esp_graph_t *graph)
{
    esp_diag_t diag = {0};
    esp_cluster_t *cluster;
    esp_cost_t *cost;
    test_assert_ok(esp_cluster_load(ESP_SOURCE_DIR "/clusters/cpu4.yaml", NULL, &cluster, &diag),
                   &diag);
    test_assert_ok(esp_cost_create(graph, cluster, ESP_PRECISION_FP32, NULL, &cost, &diag), &diag);
    const int64_t bytes =
        (int64_t)ceil(cost->op_workspace_bytes[0] + cost->op_workspace_whole_bytes[0]);
    esp_cost_destroy(cost);
    esp_cluster_destroy(cluster);
    return bytes;
}

/* ---- one call ---------------------------------------------------------------------------- */

typedef struct device {
    esp_i_cpu_t cpu;
    esp_i_cpu_kernel_t kernel;
    esp_i_call_t call;
    esp_i_local_t operand[OPERANDS];
} device_t;

static int64_t place(int64_t *used, int64_t bytes)
{
    const int64_t at = (*used + 2 * ALIGN - 1) / ALIGN * ALIGN; /* some canaries in between */
    *used = at + bytes;
    return at;
}

static void device_init(device_t *device, const fixture_t *fixture, const kernel_call_t *reference)
{
    *device = (device_t){0};
    int64_t used = 0;
    for (int32_t i = 0; i < reference->n_operands; i++) {
        const esp_i_buffer_t *buffer = &reference->operand[i];
        esp_i_local_t *local = &device->operand[i];
        *local = (esp_i_local_t){.dtype = reference->dtype[i],
                                 .rank = buffer->rank,
                                 .global_rank = buffer->global_rank,
                                 .view = buffer->view,
                                 .offset = buffer->offset,
                                 .share = buffer->share,
                                 .place = -1};
        if (buffer->rank < 0)
            continue;
        memcpy(local->dims, buffer->dims, sizeof local->dims);
        memcpy(local->global, buffer->global, sizeof local->global);
        local->elements = esp_i_buffer_elements(buffer);
        local->place = place(&used, local->elements * esp_dtype_bytes(local->dtype));
    }
    device->call = (esp_i_call_t){.name = fixture->example->name,
                                  .kind = fixture->example->kind,
                                  .attr = reference->kernel.attr,
                                  .n_in = reference->kernel.n_in,
                                  .n_out = reference->kernel.n_out,
                                  .operand = device->operand,
                                  .local_batchnorm = reference->kernel.local_batchnorm,
                                  .scratch_place = place(&used, fixture->scratch_bytes),
                                  .scratch_bytes = fixture->scratch_bytes};
    esp_i_kernels_t *base = &device->cpu.base;
    base->alloc = esp_i_allocator(NULL);
    base->bytes = place(&used, 0);
    base->memory = aligned_alloc(ALIGN, (size_t)base->bytes);
    assert_non_null(base->memory);
    memset(base->memory, CANARY, (size_t)base->bytes);
    esp_i_arena_init(&device->cpu.state, NULL);
    device->kernel.call = &device->call;
    device->kernel.memory = base->memory;
}

static void device_fini(device_t *device)
{
    if (device->kernel.fini)
        device->kernel.fini(&device->kernel);
    esp_i_arena_fini(&device->cpu.state);
    free(device->cpu.base.memory);
}

static void device_put(device_t *device, const kernel_call_t *reference)
{
    for (int32_t i = 0; i < device->call.n_in + device->call.n_out; i++) {
        const esp_i_local_t *local = &device->operand[i];
        char *to = device->cpu.base.memory + local->place;
        if (local->place >= 0 && i < device->call.n_in)
            esp_i_values_store(local->dtype, local->elements, reference->operand[i].data, to);
        else if (local->place >= 0) /* NaN, or an integer that nothing gives */
            memset(to, 0xff, (size_t)(local->elements * esp_dtype_bytes(local->dtype)));
    }
    memset(device->cpu.base.memory + device->call.scratch_place, 0xff,
           (size_t)device->call.scratch_bytes);
}

static int64_t bytes_of(const esp_i_local_t *local)
{
    return local->elements * esp_dtype_bytes(local->dtype);
}

/* Everything but outputs and scratch is as in `before`. */
static void check_untouched(const device_t *device, const char *before, const fixture_t *fixture)
{
    const char *memory = device->cpu.base.memory;
    for (int64_t byte = 0; byte < device->cpu.base.bytes; byte++) {
        bool may = false;
        if (byte == device->call.scratch_place)
            byte += device->call.scratch_bytes;
        if (memory[byte] == before[byte])
            continue;
        for (int32_t i = 0; i < device->call.n_out; i++) {
            const esp_i_local_t *out = &device->operand[device->call.n_in + i];
            may = may || (byte >= out->place && byte < out->place + bytes_of(out));
        }
        if (!may)
            fail_msg("%s %s: byte %lld is neither an output's nor scratch", fixture->example->name,
                     fixture->what, (long long)byte);
    }
}

static void check_output(const device_t *device, const kernel_call_t *reference, int32_t i,
                         const fixture_t *fixture)
{
    const esp_i_local_t *local = &device->operand[device->call.n_in + i];
    const double *exact = reference->kernel.out[i].data;
    const double tolerance = esp_dtype_is_float(local->dtype) ? fixture->tolerance : 0;
    double error = 0, norm = 0;
    for (int64_t j = 0; j < local->elements; j++) {
        const int64_t size = esp_dtype_bytes(local->dtype);
        double got, want, stored; /* what the dtype holds of the exact value */
        esp_i_values_load(local->dtype, 1, device->cpu.base.memory + local->place + size * j, &got);
        esp_i_values_store(local->dtype, 1, &exact[j], &stored);
        esp_i_values_load(local->dtype, 1, &stored, &want);
        if (isnan(got) != isnan(want) || (isinf(want) && got != want))
            fail_msg("%s %s: output %d, element %lld is %g, expected %g", fixture->example->name,
                     fixture->what, (int)i, (long long)j, got, want);
        if (!isfinite(want))
            continue;
        error += (got - want) * (got - want);
        norm += want * want;
    }
    if (!(sqrt(error) <= tolerance * sqrt(norm) + 1e-30))
        fail_msg("%s %s: output %d: relative error %g", fixture->example->name, fixture->what,
                 (int)i, sqrt(error / norm));
}

static void check_call(fixture_t *fixture, const kernel_call_t *reference)
{
    device_t device;
    esp_diag_t diag = {0};
    const esp_i_moment_t moment = {.seed = SEED, .step = STEP, .rate = 1};
    device_init(&device, fixture, reference);
    test_assert_ok(fixture->prepare(&device.cpu, &device.kernel, &diag), &diag);
    char *memory = device.cpu.base.memory, *before = malloc((size_t)device.cpu.base.bytes),
         *first = malloc((size_t)device.cpu.base.bytes);
    assert_true(before && first);
    device_put(&device, reference);
    memcpy(before, memory, (size_t)device.cpu.base.bytes);
    for (int32_t round = 0; round < 2; round++) {
        device_put(&device, reference);
        device.kernel.run(&device.kernel, &moment);
        check_untouched(&device, before, fixture);
        for (int32_t i = 0; i < device.call.n_out; i++) {
            const esp_i_local_t *out = &device.operand[device.call.n_in + i];
            check_output(&device, reference, i, fixture);
            if (round > 0 &&
                memcmp(memory + out->place, first + out->place, (size_t)bytes_of(out)) != 0)
                fail_msg("%s %s: two runs differ", fixture->example->name, fixture->what);
        }
        memcpy(first, memory, (size_t)device.call.scratch_place);
    }
    free(before);
    free(first);
    device_fini(&device);
}

static void check_with(fixture_t *fixture, esp_factor_t factor, int64_t offset, int64_t share,
                       bool local_batchnorm)
{
    kernel_call_t reference;
    kernel_local(fixture->graph, 0, factor, offset, share, &reference);
    reference.kernel.seed = SEED;
    reference.kernel.step = STEP;
    reference.kernel.local_batchnorm = local_batchnorm;
    for (int32_t i = 0; i < reference.n_operands; i++) {
        esp_i_buffer_t *buffer = &reference.operand[i];
        if (buffer->rank < 0)
            continue;
        buffer->data = buffer_alloc(buffer);
        if (i < reference.kernel.n_in)
            buffer_take(buffer, fixture->value[i]);
    }
    kernel_call_run(fixture->graph, 0, &reference);
    (void)snprintf(fixture->what, sizeof fixture->what,
                   "dimension %d, part (%lld, %lld, %lld), %lld at %lld", (int)factor.dim,
                   (long long)factor.a, (long long)factor.b, (long long)factor.c, (long long)share,
                   (long long)offset);
    check_call(fixture, &reference);
    for (int32_t i = 0; i < reference.n_operands; i++)
        free(reference.operand[i].data);
    kernel_call_fini(&reference);
}

/* `share` units of a factor from `offset`; dim ESP_NONE: all. */
static void check_share(fixture_t *fixture, esp_factor_t factor, int64_t offset, int64_t share)
{
    const esp_op_kind_t kind = fixture->example->kind;
    check_with(fixture, factor, offset, share, false);
    if (kind == ESP_KIND_BN_NORM || kind == ESP_KIND_BN_GRAD_STATS || kind == ESP_KIND_BN_GRAD)
        check_with(fixture, factor, offset, share, true);
}

static fixture_t begin(const kind_example_t *example, esp_i_cpu_prepare_fn *prepare,
                       fast_scratch_t scratch, double tolerance)
{
    fixture_t fixture = {.example = example, .prepare = prepare, .tolerance = tolerance};
    fixture_init(&fixture);
    if (scratch != FAST_SCRATCH_NONE)
        fixture.scratch_bytes =
            scratch == FAST_SCRATCH_AMPLE ? AMPLE : planned_scratch(fixture.graph);
    return fixture;
}

void fast_check(const kind_example_t *example, esp_i_cpu_prepare_fn *prepare,
                fast_scratch_t scratch, double tolerance)
{
    fixture_t fixture = begin(example, prepare, scratch, tolerance);
    check_share(&fixture, (esp_factor_t){.dim = ESP_NONE}, 0, 0);
    fixture_fini(&fixture);
}

void fast_check_split(const kind_example_t *example, esp_i_cpu_prepare_fn *prepare,
                      fast_scratch_t scratch, double tolerance)
{
    fixture_t fixture = begin(example, prepare, scratch, tolerance);
    for (int32_t d = 0; d < fixture.graph->dim_offset[1]; d++) {
        const int64_t extent = fixture.graph->dim_extent[d];
        for (int64_t a = 1; a <= extent; a++) {
            for (int64_t b = 2; extent % a == 0 && b <= extent / a; b++) {
                const esp_factor_t factor = {d, a, b, extent / a / b};
                if (extent / a % b != 0)
                    continue;
                check_share(&fixture, factor, 0, 1);
                check_share(&fixture, factor, 1, b - 1);
                check_share(&fixture, factor, 1, 0);
            }
        }
    }
    fixture_fini(&fixture);
}
