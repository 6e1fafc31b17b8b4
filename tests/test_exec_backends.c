/*
 * Kernel backends as the engine uses them: every kind through prepare and run, errors, lack of
 * memory; sums and copies of every dtype; elements and random bits.
 */
#include "interp.h"
#include "kind_harness.h"
#include "support.h"

#include "exec/kernels.h"
#include "exec/values.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SEED = 11, STEP = 5, OPERANDS = 16 };

/* ---- one op as a call --------------------------------------------------------------------------
 */

/* Op 0 of a graph whole, its inputs drawn and representable in float32, its outputs in double. */
typedef struct rig {
    esp_builder_t *builder;
    esp_graph_t *graph;
    kernel_call_t reference;
    esp_i_local_t operand[OPERANDS];
    esp_i_call_t call;
    int64_t bytes; /* of the arena */
} rig_t;

static void rig_values(rig_t *rig, const kind_example_t *example)
{
    for (int32_t i = 0; i < rig->reference.n_operands; i++) {
        esp_i_buffer_t *buffer = &rig->reference.operand[i];
        if (buffer->rank < 0)
            continue;
        buffer->data = buffer_alloc(buffer);
        for (int64_t j = 0; i < example->n_in && j < esp_i_buffer_elements(buffer); j++) {
            const kind_input_t *input = &example->in[i];
            const bool is_float = esp_dtype_is_float(input->dtype) != 0;
            const double lo = input->lo < input->hi ? input->lo : is_float ? -1 : 0;
            const double hi = input->lo < input->hi ? input->hi : is_float ? 1 : 2;
            const double unit = esp_i_philox(SEED, 0, (uint64_t)i, (uint64_t)j) * 0x1p-32;
            const double value = input->values ? input->values[j] : lo + (hi - lo) * unit;
            buffer->data[j] = is_float ? (double)(float)value : floor(value);
        }
    }
    rig->reference.kernel.seed = SEED;
    rig->reference.kernel.step = STEP;
    kernel_call_run(rig->graph, 0, &rig->reference);
}

static void rig_init(rig_t *rig, const kind_example_t *example, bool wide)
{
    static const char *const names[KIND_MAX_IN] = {"a", "b", "c", "d", "e", "f", "g", "h"};
    esp_tensor_id_t in[KIND_MAX_IN], out[OPERANDS];
    esp_diag_t diag = {0};
    *rig = (rig_t){0};
    test_assert_ok(esp_builder_create("rig", NULL, &rig->builder), &diag);
    for (int32_t i = 0; i < example->n_in; i++) {
        const kind_input_t *input = &example->in[i];
        in[i] = ESP_NONE;
        if (input->rank >= 0)
            test_assert_ok(esp_builder_tensor(rig->builder, names[i], ESP_ROLE_INPUT, input->dtype,
                                              input->rank, input->dims, NULL, &in[i], &diag),
                           &diag);
    }
    test_assert_ok(esp_builder_op(rig->builder, example->kind, &example->attr, example->n_in, in,
                                  example->name, out, &diag),
                   &diag);
    test_assert_ok(esp_builder_freeze(rig->builder, &rig->graph, &diag), &diag);
    kernel_local(rig->graph, 0, (esp_factor_t){.dim = ESP_NONE}, 0, 0, &rig->reference);
    rig_values(rig, example);
    for (int32_t i = 0; i < rig->reference.n_operands; i++) {
        const esp_i_buffer_t *buffer = &rig->reference.operand[i];
        esp_i_local_t *local = &rig->operand[i];
        local->dtype = esp_i_stored_dtype(rig->reference.dtype[i], wide);
        local->rank = buffer->rank;
        local->global_rank = buffer->global_rank;
        local->place = -1;
        if (buffer->rank < 0)
            continue;
        memcpy(local->dims, buffer->dims, sizeof local->dims);
        memcpy(local->global, buffer->global, sizeof local->global);
        local->elements = esp_i_buffer_elements(buffer);
        local->place = rig->bytes;
        rig->bytes += (local->elements * esp_dtype_bytes(local->dtype) + 63) / 64 * 64;
    }
    rig->call = (esp_i_call_t){.name = example->name,
                               .kind = example->kind,
                               .attr = rig->reference.kernel.attr,
                               .n_in = rig->reference.kernel.n_in,
                               .n_out = rig->reference.kernel.n_out,
                               .operand = rig->operand};
}

static void rig_fini(rig_t *rig)
{
    for (int32_t i = 0; i < rig->reference.n_operands; i++)
        free(rig->reference.operand[i].data);
    kernel_call_fini(&rig->reference);
    esp_graph_destroy(rig->graph);
    esp_builder_destroy(rig->builder);
}

static void *stored_of(const esp_i_local_t *local, const double *values)
{
    void *stored = calloc((size_t)local->elements + 1, 8);
    assert_non_null(stored);
    if (values != NULL)
        esp_i_values_store(local->dtype, local->elements, values, stored);
    return stored;
}

/* Writes the inputs, runs, and compares the outputs. */
static void rig_run(rig_t *rig, esp_i_kernels_t *kernels, double tolerance)
{
    const esp_i_moment_t moment = {.seed = SEED, .step = STEP, .rate = 1};
    esp_diag_t diag = {0};
    void *kernel;
    test_assert_ok(kernels->type->prepare(kernels, &rig->call, &kernel, &diag), &diag);
    for (int32_t i = 0; i < rig->call.n_in; i++) {
        const esp_i_local_t *local = &rig->operand[i];
        void *stored = stored_of(local, rig->reference.operand[i].data);
        if (local->place >= 0)
            kernels->type->write(kernels, local->elements * esp_dtype_bytes(local->dtype),
                                 local->place, stored);
        free(stored);
    }
    test_assert_ok(kernels->type->run(kernels, kernel, &moment, &diag), &diag);
    for (int32_t i = rig->call.n_in; i < rig->call.n_in + rig->call.n_out; i++) {
        const esp_i_local_t *local = &rig->operand[i];
        void *stored = stored_of(local, NULL);
        double error = 0, norm = 0;
        kernels->type->read(kernels, local->elements * esp_dtype_bytes(local->dtype), stored,
                            local->place);
        for (int64_t j = 0; j < local->elements; j++) {
            double got, want, element; /* as the dtype holds it */
            esp_i_values_store(local->dtype, 1, &rig->reference.operand[i].data[j], &element);
            esp_i_values_load(local->dtype, 1, &element, &want);
            esp_i_values_load(local->dtype, 1, (char *)stored + j * esp_dtype_bytes(local->dtype),
                              &got);
            error += got == want ? 0 : (got - want) * (got - want);
            norm += isfinite(want) ? want * want : 0;
        }
        if (!(sqrt(error) <= tolerance * sqrt(norm) + 1e-30))
            fail_msg("%s on %s: output %d: relative error %g", rig->call.name, kernels->type->name,
                     (int)(i - rig->call.n_in), sqrt(error / norm));
        free(stored);
    }
}

static esp_i_kernels_t *create(const char *name, bool wide, int64_t bytes)
{
    const esp_i_kernels_type_t *type = esp_i_kernels_find(name);
    esp_diag_t diag = {0};
    esp_i_kernels_t *kernels;
    char *arena;
    assert_non_null(type);
    test_assert_ok(type->create(NULL, wide, &kernels, &diag), &diag);
    assert_int_equal(type->arena(kernels, bytes, &arena), ESP_OK);
    assert_ptr_equal(arena, kernels->memory);
    assert_int_equal((uintptr_t)arena % 64, 0);
    for (int64_t i = 0; i < bytes; i++)
        assert_int_equal(arena[i], 0);
    return kernels;
}

/* ---- every kind --------------------------------------------------------------------------------
 */

static void check_kinds(const char *backend, bool wide, double tolerance)
{
    const kind_examples_t lists[] = {kind_examples_a(), kind_examples_b(), kind_examples_c()};
    for (int32_t l = 0; l < 3; l++) {
        for (int32_t i = 0; i < lists[l].count; i++) {
            rig_t rig;
            if (lists[l].data[i].kind == ESP_KIND_RESHAPE)
                continue;
            rig_init(&rig, &lists[l].data[i], wide);
            esp_i_kernels_t *kernels = create(backend, wide, rig.bytes);
            rig_run(&rig, kernels, tolerance);
            rig_run(&rig, kernels, tolerance); /* a second kernel, on the same memory */
            kernels->type->destroy(kernels);
            rig_fini(&rig);
        }
    }
}

/* Stored as doubles it computes what the registry does, to the bit. */
static void test_reference_wide(void **state)
{
    (void)state;
    check_kinds("reference", true, 0);
}

/* Stored as float32 results are rounded once. */
static void test_reference(void **state)
{
    (void)state;
    check_kinds("reference", false, 0);
}

static void test_cpu(void **state)
{
    (void)state;
    check_kinds("cpu", false, 1e-5);
}

/* A state may be a sum with what it was before, in its own place. */
static void test_sum_in_place(void **state)
{
    static const struct {
        const char *name;
        bool wide;
    } backends[] = {{"reference", true}, {"reference", false}, {"cpu", false}};
    const kind_example_t sum = {.name = "sum",
                                .kind = ESP_KIND_ELTWISE,
                                .attr.eltwise.code = ESP_ELT_ADD,
                                .n_in = 2,
                                .in = {{.rank = 1, .dims = {5}}, {.rank = 1, .dims = {5}}}};
    (void)state;
    for (int32_t b = 0; b < 3; b++) {
        for (int32_t i = 0; i < 2; i++) {
            rig_t rig;
            rig_init(&rig, &sum, backends[b].wide);
            rig.operand[2].place = rig.operand[i].place;
            esp_i_kernels_t *kernels = create(backends[b].name, backends[b].wide, rig.bytes);
            rig_run(&rig, kernels, 1e-6);
            kernels->type->destroy(kernels);
            rig_fini(&rig);
        }
    }
}

/* ---- updates -----------------------------------------------------------------------------------
 */

/* The rate is a factor of that of the attributes, but of statistics it is none; w' and the moments
 * may be where w and they were. */
static void check_update(const char *backend, esp_optimizer_t optimizer)
{
    const bool adam = optimizer == ESP_OPTIMIZER_ADAM || optimizer == ESP_OPTIMIZER_ADAMW;
    const kind_input_t vector = {.rank = 1, .dims = {300}, .lo = 0.1, .hi = 1};
    static const double step = 3;
    kind_example_t example = {.name = "update",
                              .kind = ESP_KIND_UPDATE,
                              .attr.update = {.optimizer = optimizer,
                                              .rate = 0.2 * 0.5,
                                              .momentum = 0.9,
                                              .beta1 = 0.9,
                                              .beta2 = 0.99,
                                              .epsilon = 1e-8,
                                              .decay = 0.1},
                              .n_in = 5,
                              .in = {vector, vector, {.rank = -1}, {.rank = -1}, {.rank = -1}}};
    if (adam) {
        example.in[2] = (kind_input_t){.dtype = ESP_DTYPE_F32, .values = &step};
        example.in[4] = vector;
    }
    if (adam || optimizer == ESP_OPTIMIZER_MOMENTUM)
        example.in[3] = vector;
    rig_t rig;
    rig_init(&rig, &example, false);
    esp_attr_t attr = example.attr;
    attr.update.rate = 0.2;
    rig.call.attr = &attr;
    for (int32_t out = 0; out < rig.call.n_out; out++) /* over w, m, v */
        rig.operand[5 + out].place = rig.operand[out == 0 ? 0 : 2 + out].place;
    esp_i_kernels_t *kernels = create(backend, false, rig.bytes);
    const esp_i_moment_t moment = {.rate = 0.5};
    esp_diag_t diag = {0};
    void *kernel;
    test_assert_ok(kernels->type->prepare(kernels, &rig.call, &kernel, &diag), &diag);
    for (int32_t i = 0; i < 5; i++)
        if (rig.operand[i].place >= 0)
            esp_i_values_store(rig.operand[i].dtype, rig.operand[i].elements,
                               rig.reference.operand[i].data,
                               esp_i_at(kernels, rig.operand[i].place));
    test_assert_ok(kernels->type->run(kernels, kernel, &moment, &diag), &diag);
    for (int32_t i = 5; i < 5 + rig.call.n_out; i++)
        for (int64_t j = 0; j < 300; j++) {
            const double got =
                (double)((const float *)(void *)esp_i_at(kernels, rig.operand[i].place))[j];
            if (!(fabs(got - rig.reference.operand[i].data[j]) < 1e-6))
                fail_msg("%s, rule %d: output %d[%d] is %g, not %g", backend, (int)optimizer,
                         (int)i - 5, (int)j, got, rig.reference.operand[i].data[j]);
        }
    kernels->type->destroy(kernels);
    rig_fini(&rig);
}

static void test_updates(void **state)
{
    (void)state;
    for (int32_t rule = ESP_OPTIMIZER_SGD; rule <= ESP_OPTIMIZER_STATISTIC; rule++) {
        check_update("cpu", (esp_optimizer_t)rule);
        check_update("reference", (esp_optimizer_t)rule);
    }
}

/* ---- sums and copies ---------------------------------------------------------------------------
 */

static void check_add(const char *backend, esp_dtype_t dtype, int64_t n, int32_t n_src,
                      int32_t over)
{
    const int64_t size = esp_dtype_bytes(dtype), bytes = (n * size + 63) / 64 * 64 + 64;
    esp_i_kernels_t *kernels = create(backend, false, (n_src + 1) * bytes);
    double *sum = calloc((size_t)n + 1, sizeof *sum), *value = calloc((size_t)n + 1, sizeof *value);
    int64_t *place = calloc((size_t)n_src, sizeof *place);
    assert_true(sum && value && place);
    for (int32_t s = 0; s < n_src; s++) {
        place[s] = s * bytes;
        for (int64_t i = 0; i < n; i++) {
            value[i] = (double)((i * 7 + s * 3) % 5);
            value[i] = dtype == ESP_DTYPE_BOOL ? value[i] > 3 : value[i];
            sum[i] += value[i];
        }
        esp_i_values_store(dtype, n, value, esp_i_at(kernels, place[s]));
    }
    const int64_t dst = over < 0 ? n_src * bytes : place[over];
    kernels->type->add(kernels, dtype, n, dst, n_src, place);
    esp_i_values_load(dtype, n, esp_i_at(kernels, dst), value);
    for (int64_t i = 0; i < n; i++)
        if (value[i] != (dtype == ESP_DTYPE_BOOL ? sum[i] != 0 : sum[i]))
            fail_msg("%s of %d: element %d is %g, not %g", esp_dtype_name(dtype), (int)n_src,
                     (int)i, value[i], sum[i]);
    for (int64_t i = n * size; i < bytes; i++)
        assert_int_equal(esp_i_at(kernels, dst)[i], 0);
    free(sum);
    free(value);
    free(place);
    kernels->type->destroy(kernels);
}

static void test_add(void **state)
{
    (void)state;
    for (int32_t dtype = 0; dtype < ESP_DTYPE_COUNT; dtype++) {
        check_add("cpu", (esp_dtype_t)dtype, 2500, 3, -1);
        check_add("cpu", (esp_dtype_t)dtype, 1, 1, -1);
        check_add("cpu", (esp_dtype_t)dtype, 0, 2, -1);
        check_add("reference", (esp_dtype_t)dtype, 1025, 20, 19);
        check_add("cpu", (esp_dtype_t)dtype, 1025, 20, 0);
    }
}

/* In the order of the sources: the sum of large and small floats shows it. */
static void test_add_order(void **state)
{
    (void)state;
    esp_i_kernels_t *kernels = create("cpu", false, 256);
    float *x = (float *)(void *)kernels->memory;
    x[0] = 1e8f;
    x[16] = 1;
    x[32] = -1e8f;
    kernels->type->add(kernels, ESP_DTYPE_F32, 1, 192, 3, (int64_t[]){0, 64, 128});
    assert_true(x[48] == 0);
    kernels->type->add(kernels, ESP_DTYPE_F32, 1, 192, 3, (int64_t[]){0, 128, 64});
    assert_true(x[48] == 1);
    kernels->type->copy(kernels, 4, 60, 192);
    assert_true(x[15] == 1);
    kernels->type->destroy(kernels);
}

/* ---- errors ------------------------------------------------------------------------------------
 */

static void test_errors(void **state)
{
    (void)state;
    esp_diag_t diag = {0};
    esp_i_kernels_t *kernels;
    rig_t rig;
    assert_null(esp_i_kernels_find("abacus"));
    assert_ptr_equal(esp_i_kernels_find("cpu"), esp_i_kernels_types[0]);
    assert_int_equal(esp_i_kernels_cpu.create(NULL, true, &kernels, &diag), ESP_ERR_UNSUPPORTED);
    assert_non_null(strstr(diag.text, "reference"));
    esp_i_kernels_cpu.destroy(NULL);
    esp_i_kernels_reference.destroy(NULL);

    const kind_example_t example = {
        .name = "layer7",
        .kind = ESP_KIND_SOFTMAX,
        .n_in = 1,
        .in = {{.dtype = ESP_DTYPE_F64, .rank = 1, .dims = {3}}},
    };
    void *kernel;
    rig_init(&rig, &example, false);
    kernels = create("cpu", false, rig.bytes);
    diag = (esp_diag_t){0};
    assert_int_equal(kernels->type->prepare(kernels, &rig.call, &kernel, &diag),
                     ESP_ERR_UNSUPPORTED);
    assert_non_null(strstr(diag.text, "layer7"));
    assert_non_null(strstr(diag.text, "float64"));
    kernels->type->destroy(kernels);
    rig_fini(&rig);
}

typedef struct sweep {
    const esp_i_kernels_type_t *type;
    const rig_t *rig;
} sweep_t;

static esp_status_t attempt(const esp_allocator_t *alloc, void *context)
{
    const sweep_t *sweep = context;
    esp_i_kernels_t *kernels;
    esp_diag_t diag = {0};
    void *kernel;
    char *arena;
    esp_status_t status = sweep->type->create(alloc, false, &kernels, &diag);
    if (status != ESP_OK)
        return status;
    status = sweep->type->arena(kernels, sweep->rig->bytes, &arena);
    if (status == ESP_OK)
        status = sweep->type->prepare(kernels, &sweep->rig->call, &kernel, &diag);
    sweep->type->destroy(kernels);
    return status;
}

static void test_no_memory(void **state)
{
    (void)state;
    const kind_examples_t lists[] = {kind_examples_a(), kind_examples_b(), kind_examples_c()};
    for (int32_t l = 0; l < 3; l++) {
        for (int32_t i = 0; i < lists[l].count; i++) {
            if (lists[l].data[i].kind == ESP_KIND_RESHAPE)
                continue;
            rig_t rig;
            rig_init(&rig, &lists[l].data[i], false);
            for (int32_t b = 0; esp_i_kernels_types[b] != NULL; b++) {
                sweep_t sweep = {esp_i_kernels_types[b], &rig};
                test_sweep_allocations(attempt, &sweep, 1);
            }
            rig_fini(&rig);
        }
    }
}

/* ---- elements and bits -------------------------------------------------------------------------
 */

/* Every two-byte float comes back from its double; others go to the nearest, ties to even. */
static void test_two_byte_floats(void **state)
{
    (void)state;
    for (int32_t b = 0; b < 2; b++) {
        const esp_dtype_t dtype = b ? ESP_DTYPE_BF16 : ESP_DTYPE_F16;
        for (uint32_t bits = 0; bits < 0x10000; bits++) {
            const uint16_t in = (uint16_t)bits;
            uint16_t out;
            double value;
            esp_i_values_load(dtype, 1, &in, &value);
            esp_i_values_store(dtype, 1, &value, &out);
            if (isnan(value))
                assert_true((out & (b ? 0x7f80 : 0x7c00)) == (b ? 0x7f80 : 0x7c00) &&
                            (out & (b ? 0x7f : 0x3ff)) != 0);
            else
                assert_int_equal(in, out);
            const uint16_t next = (uint16_t)(bits + 1);
            double above, middle;
            esp_i_values_load(dtype, 1, &next, &above);
            if (!isfinite(value) || !isfinite(above) || bits >= 0x8000)
                continue;
            middle = (value + above) / 2;
            esp_i_values_store(dtype, 1, &middle, &out);
            assert_int_equal(out, in % 2 == 0 ? in : next);
        }
    }
}

static void test_integers(void **state)
{
    (void)state;
    const struct {
        esp_dtype_t dtype;
        double in, out;
    } cases[] = {{ESP_DTYPE_I8, 127.9, 127},
                 {ESP_DTYPE_I8, 128, -128},
                 {ESP_DTYPE_I8, -129, 127},
                 {ESP_DTYPE_U8, -1, 255},
                 {ESP_DTYPE_I16, 65536 + 5, 5},
                 {ESP_DTYPE_I32, 0x1p31, -0x1p31},
                 {ESP_DTYPE_I64, 1e300, 0x1p63},
                 {ESP_DTYPE_I64, -1e300, -0x1p63},
                 {ESP_DTYPE_I32, -2.9, -2},
                 {ESP_DTYPE_BOOL, -0.5, 1},
                 {ESP_DTYPE_BOOL, (double)NAN, 1},
                 {ESP_DTYPE_I64, (double)NAN, 0},
                 {ESP_DTYPE_F32, 1e300, (double)INFINITY}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint64_t stored = 0;
        double value;
        esp_i_values_store(cases[i].dtype, 1, &cases[i].in, &stored);
        esp_i_values_load(cases[i].dtype, 1, &stored, &value);
        if (value != cases[i].out)
            fail_msg("%g as %s is %g, not %g", cases[i].in, esp_dtype_name(cases[i].dtype), value,
                     cases[i].out);
    }
}

static void test_draw(void **state)
{
    (void)state;
    esp_i_rng_t rng;
    uint32_t bits[1100];
    esp_i_rng_seed(&rng, 3);
    for (int32_t round = 0; round < 300; round++) {
        const uint64_t seed = esp_i_rng_u64(&rng), step = esp_i_rng_u64(&rng) >> (round % 40);
        const uint64_t stream = esp_i_rng_u64(&rng) >> (round % 50);
        const int64_t first = (int64_t)(esp_i_rng_u64(&rng) >> (2 + round % 60));
        const int64_t n = esp_i_rng_below(&rng, round % 3 == 0 ? 1100 : 80);
        esp_i_draw(seed, step, stream, first, n, bits);
        for (int64_t i = 0; i < n; i++)
            assert_int_equal(bits[i], esp_i_philox(seed, step, stream, (uint64_t)(first + i)));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reference_wide),
        cmocka_unit_test(test_reference),
        cmocka_unit_test(test_cpu),
        cmocka_unit_test(test_sum_in_place),
        cmocka_unit_test(test_updates),
        cmocka_unit_test(test_add),
        cmocka_unit_test(test_add_order),
        cmocka_unit_test(test_errors),
        cmocka_unit_test(test_no_memory),
        cmocka_unit_test(test_two_byte_floats),
        cmocka_unit_test(test_integers),
        cmocka_unit_test(test_draw),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
