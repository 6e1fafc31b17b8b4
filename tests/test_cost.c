/* Op times against the formula worked out by hand, on a device of round numbers. */
#include "deploy_builder.h"
#include "graph_build.h"

#include "espalier/cluster.h"

#include <math.h>
#include <stdlib.h>

/* The device of lab_cluster: 10 TFLOP/s, 40 in fp16, 1 TB/s, launch 5 us; a GPU ramps up in 2.5. */
#define CONSTANT_NS 7500.0

typedef struct bed {
    esp_cluster_t *cluster;
    esp_graph_t *graph;
    esp_cost_t *cost;
} bed_t;

static bed_t bed_make(gb_t *gb, esp_precision_t precision)
{
    const lab_link_t link = {1e9, 0};
    esp_diag_t diag = {0};
    bed_t bed = {.cluster = lab_cluster(1, 1, NULL, link, link)};
    bed.graph = gb_freeze(gb);
    test_assert_ok(esp_cost_create(bed.graph, bed.cluster, precision, NULL, &bed.cost, &diag),
                   &diag);
    return bed;
}

static void bed_free(bed_t *bed)
{
    esp_cost_destroy(bed->cost);
    esp_graph_destroy(bed->graph);
    esp_cluster_destroy(bed->cluster);
}

static int64_t time_of(const bed_t *bed, esp_tensor_id_t result, double part, int whole_split)
{
    return esp_cost_op_ns(bed->cost, bed->graph->tensor_producer[result], 0, part, whole_split);
}

/* Equal but for the rounding of the last bit. */
static void assert_ns(int64_t actual, double ns)
{
    double expected = CONSTANT_NS + ns;
    if (fabs((double)actual - expected) > 1 + 1e-9 * expected)
        fail_msg("%lld ns, expected %.1f", (long long)actual, expected);
}

/* ---- the roofline -------------------------------------------------------------------------------
 */

static void contraction_is_bound_by_arithmetic(void **state)
{
    (void)state;
    gb_t gb;
    gb_init(&gb);
    esp_tensor_id_t x = gb_input(&gb, "x", "4096 4096", 0), w = gb_parameter(&gb, "w", "4096 1024");
    esp_tensor_id_t y = gb_einsum(&gb, "bi,ij->bj", x, w);
    gb_output(&gb, y);
    bed_t bed = bed_make(&gb, ESP_PRECISION_FP32);
    esp_op_id_t op = bed.graph->tensor_producer[y];
    double flops = 2.0 * 4096 * 4096 * 1024;
    assert_true(bed.cost->op_flops[op] == flops);
    assert_true(bed.cost->op_split_bytes[op] == 4.0 * (4096.0 * 4096 + 4096 * 1024));
    assert_true(bed.cost->op_whole_bytes[op] == 4.0 * 4096 * 1024); /* the weight */
    assert_ns(time_of(&bed, y, 1, 0), flops / (1e13 * 0.85) * 1e9);
    assert_ns(time_of(&bed, y, 0.25, 0), 0.25 * flops / (1e13 * 0.85) * 1e9);
    bed_free(&bed);
}

static void memory_ops_are_bound_by_bandwidth(void **state)
{
    (void)state;
    gb_t gb;
    gb_init(&gb);
    esp_tensor_id_t x = gb_input(&gb, "x", "1024 1048576", 0);
    esp_tensor_id_t bias = gb_parameter(&gb, "bias", "1048576");
    esp_tensor_id_t y = gb_binary(&gb, ESP_ELT_ADD, x, bias);  /* a broadcast is read once */
    esp_tensor_id_t twice = gb_binary(&gb, ESP_ELT_MUL, y, y); /* and so is what is read twice */
    esp_tensor_id_t view = gb_reshape(&gb, twice, "1073741824");
    gb_output(&gb, view);
    bed_t bed = bed_make(&gb, ESP_PRECISION_FP32);
    double big = 4.0 * 1024 * 1048576, small = 4.0 * 1048576;
    assert_ns(time_of(&bed, y, 1, 0), (2 * big + small) / 750);
    assert_ns(time_of(&bed, y, 0.5, 0), (big + small) / 750);
    assert_ns(time_of(&bed, y, 0.5, 1), (big + small / 2) / 750);
    assert_ns(time_of(&bed, twice, 1, 0), 2 * big / 750);
    assert_int_equal(time_of(&bed, view, 1, 0), 0); /* an alias */
    assert_ns(esp_cost_copy_ns(bed.cost, 0, 3e6), 3e6 / 750);
    bed_free(&bed);
}

static void gather_touches_rows_only(void **state)
{
    (void)state;
    gb_t gb;
    gb_init(&gb);
    esp_tensor_id_t table = gb_parameter(&gb, "table", "1000000 64");
    esp_tensor_id_t indices = gb_tensor(&gb, "indices", ESP_ROLE_INPUT, ESP_DTYPE_I64, "512 128");
    esp_attr_t attr = {.axis = {.axis = 0}};
    esp_tensor_id_t inputs[] = {table, indices};
    esp_tensor_id_t y = gb_op(&gb, ESP_KIND_GATHER, &attr, 2, inputs);
    gb_output(&gb, y);
    bed_t bed = bed_make(&gb, ESP_PRECISION_FP32);
    double rows = 4.0 * 512 * 128 * 64, ids = 8.0 * 512 * 128;
    assert_ns(time_of(&bed, y, 1, 0), (2 * rows + ids) / 400);
    bed_free(&bed);
}

static void narrow_groups_are_memory_bound(void **state)
{
    (void)state;
    gb_t gb;
    gb_init(&gb);
    esp_tensor_id_t x = gb_input(&gb, "x", "64 256 56 56", 0);
    esp_tensor_id_t deep = gb_parameter(&gb, "deep", "256 1 3 3");
    esp_tensor_id_t full = gb_parameter(&gb, "full", "256 256 3 3");
    esp_attr_t attr = {.conv = {.window = {.rank = 2,
                                           .kernel = {3, 3},
                                           .stride = {1, 1},
                                           .dilation = {1, 1},
                                           .pad_lo = {1, 1},
                                           .pad_hi = {1, 1}},
                                .groups = 256}};
    esp_tensor_id_t inputs[] = {x, deep};
    esp_tensor_id_t y = gb_op(&gb, ESP_KIND_CONV, &attr, 2, inputs);
    esp_tensor_id_t z = gb_conv(&gb, x, full);
    gb_output(&gb, y);
    gb_output(&gb, z);
    bed_t bed = bed_make(&gb, ESP_PRECISION_FP16);
    double plane = 2.0 * 64 * 256 * 56 * 56;
    assert_ns(time_of(&bed, y, 1, 0), (2 * plane + 2 * 256 * 9) / 750);
    assert_true(bed.cost->op_workspace_bytes[bed.graph->tensor_producer[y]] == 64 << 20);
    assert_ns(time_of(&bed, z, 1, 0), 2.0 * 64 * 56 * 56 * 256 * 256 * 9 / (4e13 * 0.40) * 1e9);
    assert_true(bed.cost->op_workspace_bytes[bed.graph->tensor_producer[z]] == 64 << 20);
    assert_true(bed.cost->op_workspace_whole_bytes[bed.graph->tensor_producer[y]] ==
                2 * 256 * 9 + 4096);
    bed_free(&bed);
}

static double conv_ns(const char *image, const char *weight, esp_precision_t precision)
{
    gb_t gb;
    gb_init(&gb);
    esp_tensor_id_t x = gb_input(&gb, "x", image, 0), w = gb_parameter(&gb, "w", weight);
    esp_tensor_id_t y = gb_conv(&gb, x, w);
    gb_output(&gb, y);
    bed_t bed = bed_make(&gb, precision);
    double ns = (double)time_of(&bed, y, 1, 0) - CONSTANT_NS;
    bed_free(&bed);
    return ns;
}

static void winograd_halves_arithmetic(void **state)
{
    (void)state;
    const double direct = 2.0 * 64 * 28 * 28 * 128 * 128 * 9 / (1e13 * 0.65) * 1e9;
    assert_true(fabs(conv_ns("64 128 28 28", "128 128 3 3", ESP_PRECISION_FP32) - direct / 2) < 2);
    /* not in tensor units, not with other kernels, not for few channels */
    assert_true(fabs(conv_ns("64 128 28 28", "128 128 3 3", ESP_PRECISION_FP16) -
                     direct * 0.65 / (4 * 0.40)) < 2);
    assert_true(fabs(conv_ns("64 128 28 28", "128 128 5 5", ESP_PRECISION_FP32) - direct * 25 / 9) <
                2);
    assert_true(fabs(conv_ns("64 128 28 28", "32 128 3 3", ESP_PRECISION_FP32) - direct / 4) < 2);
}

/* ---- storage
 * -------------------------------------------------------------------------------------- */

static void half_precision_stores_half(void **state)
{
    (void)state;
    gb_t gb;
    gb_init(&gb);
    esp_tensor_id_t x = gb_input(&gb, "x", "8 16", 0), w = gb_parameter(&gb, "w", "16 32");
    esp_tensor_id_t m = gb_tensor(&gb, "m", ESP_ROLE_STATE, ESP_DTYPE_F32, "16 32");
    esp_tensor_id_t ids = gb_tensor(&gb, "ids", ESP_ROLE_INPUT, ESP_DTYPE_I64, "8");
    esp_tensor_id_t y = gb_einsum(&gb, "bi,ij->bj", x, w);
    gb_output(&gb, y);
    bed_t bed = bed_make(&gb, ESP_PRECISION_BF16);
    const double *bytes = bed.cost->tensor_bytes, *working = bed.cost->tensor_working_bytes;
    assert_true(bytes[x] == 2 * 8 * 16 && bytes[y] == 2 * 8 * 32);
    assert_true(bytes[w] == 4 * 16 * 32 && working[w] == 2 * 16 * 32); /* master and working copy */
    assert_true(bytes[m] == 4 * 16 * 32 && working[m] == 0);
    assert_true(bytes[ids] == 8 * 8);
    esp_op_id_t op = bed.graph->tensor_producer[y];
    assert_true(bed.cost->op_whole_bytes[op] == 2 * 16 * 32); /* reads the working copy */
    /* bf16 falls back to fp32 arithmetic on this device, at the efficiency of fp32 */
    assert_true(bed.cost->ns_per_flop[ESP_FAMILY_CONTRACT] == 1e9 / (1e13 * 0.85));
    bed_free(&bed);
}

/* ---- monotony and errors
 * ------------------------------------------------------------------------------ */

static void more_work_never_takes_less(void **state)
{
    (void)state;
    gb_t gb;
    gb_init(&gb);
    esp_tensor_id_t x = gb_input(&gb, "x", "512 512", 0), w = gb_parameter(&gb, "w", "512 512");
    esp_tensor_id_t y = gb_softmax(&gb, gb_einsum(&gb, "bi,ij->bj", x, w), 1, false);
    gb_output(&gb, y);
    bed_t bed = bed_make(&gb, ESP_PRECISION_FP16);
    for (esp_op_id_t op = 0; op < bed.graph->n_ops; ++op) {
        int64_t before = 1;
        for (int32_t k = 1; k <= 32; ++k) {
            int64_t ns = esp_cost_op_ns(bed.cost, op, 0, k / 32.0, 0);
            assert_true(ns >= before && ns >= esp_cost_op_ns(bed.cost, op, 0, k / 32.0, 1));
            before = ns;
        }
    }
    bed_free(&bed);
}

static esp_status_t attempt(const esp_allocator_t *alloc, void *context)
{
    const bed_t *bed = context;
    esp_cost_t *cost;
    ESP_TRY(esp_cost_create(bed->graph, bed->cluster, ESP_PRECISION_FP32, alloc, &cost, NULL));
    esp_cost_destroy(cost);
    return ESP_OK;
}

static void errors(void **state)
{
    (void)state;
    gb_t gb;
    gb_init(&gb);
    gb_output(&gb, gb_unary(&gb, ESP_ELT_TANH, gb_input(&gb, "x", "4 4", 0)));
    bed_t bed = bed_make(&gb, ESP_PRECISION_FP32);
    esp_diag_t diag = {0};
    esp_cost_t *cost;
    test_assert_fails(
        esp_cost_create(bed.graph, bed.cluster, ESP_PRECISION_COUNT, NULL, &cost, &diag), &diag,
        ESP_ERR_ARGUMENT, "precision");
    test_sweep_allocations(attempt, &bed, 1);
    esp_cost_destroy(NULL);
    bed_free(&bed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(contraction_is_bound_by_arithmetic),
        cmocka_unit_test(memory_ops_are_bound_by_bandwidth),
        cmocka_unit_test(gather_touches_rows_only),
        cmocka_unit_test(narrow_groups_are_memory_bound),
        cmocka_unit_test(winograd_halves_arithmetic),
        cmocka_unit_test(half_precision_stores_half),
        cmocka_unit_test(more_work_never_takes_less),
        cmocka_unit_test(errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
