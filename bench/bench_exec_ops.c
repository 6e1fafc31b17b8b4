/*
 * How fast the kernels of the CPU backend are on one core: GFLOP/s (by the registry's count), or
 * GB/s of operands where an op is bound by memory.
 *
 *     bench_exec_ops [--out FILE] [--scratch BYTES] [NAME...]
 *
 * Scratch is what the cost model plans unless it is given. NAME: only cases whose name contains
 * one.
 */
#include "common.h"

#include "espalier/cluster.h"
#include "espalier/cost.h"
#include "exec/kernels.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { INPUTS_MAX = 8, OPERANDS_MAX = 16, ALIGN = 64 };

typedef struct input {
    int32_t rank; /* 0: none */
    int64_t dims[5];
} input_t;

typedef struct bench_case {
    const char *name;
    esp_op_kind_t kind;
    esp_attr_t attr;
    int32_t n_in;
    input_t in[INPUTS_MAX];
} bench_case_t;

#define WINDOW(k, s, p)                                                                            \
    {                                                                                              \
        .rank = 2, .kernel = {k, k}, .stride = {s, s}, .dilation = {1, 1}, .pad_lo = {p, p},       \
        .pad_hi = {                                                                                \
            p,                                                                                     \
            p                                                                                      \
        }                                                                                          \
    }
/* The three passes of a square convolution. o: side of y. */
#define CONV(text, n, g, c, k, side, o, kernel, stride, pad)                                       \
    {.name = "conv_" text,                                                                         \
     .kind = ESP_KIND_CONV,                                                                        \
     .attr.conv = {.window = WINDOW(kernel, stride, pad), .groups = g},                            \
     .n_in = 2,                                                                                    \
     .in = {{4, {n, c, side, side}}, {4, {k, (c) / (g), kernel, kernel}}}},                        \
        {.name = "conv_dx_" text,                                                                  \
         .kind = ESP_KIND_CONV_DX,                                                                 \
         .attr.conv = {.window = WINDOW(kernel, stride, pad),                                      \
                       .groups = g,                                                                \
                       .target = {side, side}},                                                    \
         .n_in = 2,                                                                                \
         .in = {{4, {n, k, o, o}}, {4, {k, (c) / (g), kernel, kernel}}}},                          \
    {                                                                                              \
        .name = "conv_dw_" text, .kind = ESP_KIND_CONV_DW,                                         \
        .attr.conv = {.window = WINDOW(kernel, stride, pad), .groups = g}, .n_in = 2, .in = {      \
            {4, {n, c, side, side}},                                                               \
            {4, {n, k, o, o}}                                                                      \
        }                                                                                          \
    }
#define POOL(text, n, c, side, o, kernel, stride, pad)                                             \
    {.name = "maxpool_" text,                                                                      \
     .kind = ESP_KIND_POOL,                                                                        \
     .attr.pool = {.window = WINDOW(kernel, stride, pad), .is_max = 1},                            \
     .n_in = 1,                                                                                    \
     .in = {{4, {n, c, side, side}}}},                                                             \
    {                                                                                              \
        .name = "maxpool_grad_" text, .kind = ESP_KIND_POOL_GRAD,                                  \
        .attr.pool = {.window = WINDOW(kernel, stride, pad), .is_max = 1}, .n_in = 3, .in = {      \
            {4, {n, c, side, side}},                                                               \
            {4, {n, c, o, o}},                                                                     \
            {4, {n, c, o, o}}                                                                      \
        }                                                                                          \
    }
#define EINSUM(text, la, lb, ly, ...)                                                              \
    {                                                                                              \
        .name = text, .kind = ESP_KIND_CONTRACT, .attr.contract = {.a = la, .b = lb, .y = ly},     \
        .n_in = 2, .in = {                                                                         \
            __VA_ARGS__                                                                            \
        }                                                                                          \
    }
#define HEADS                                                                                      \
    {                                                                                              \
        4,                                                                                         \
        {                                                                                          \
            8, 8, 512, 64                                                                          \
        }                                                                                          \
    }
#define ROWS                                                                                       \
    {                                                                                              \
        3,                                                                                         \
        {                                                                                          \
            8, 8, 512                                                                              \
        }                                                                                          \
    }
#define ATTENTION_DROPOUT                                                                          \
    {                                                                                              \
        .q = "bhqd", .k = "bhkd", .v = "bhke", .y = "bhqe", .s = "bhqk", .scale = 0.125, .p = 0.1  \
    }
#define ATTENTION                                                                                  \
    {                                                                                              \
        .q = "bhqd", .k = "bhkd", .v = "bhke", .y = "bhqe", .s = "bhqk", .scale = 0.125            \
    }

static const bench_case_t cases[] = {
    EINSUM("gemm_1024", "mk", "kn", "mn", {2, {1024, 1024}}, {2, {1024, 1024}}),
    EINSUM("linear_512x4096x1024", "bk", "nk", "bn", {2, {512, 1024}}, {2, {4096, 1024}}),
    EINSUM("scores_bshd", "bshd", "bthd", "bhst", {4, {8, 512, 8, 64}}, {4, {8, 512, 8, 64}}),
    EINSUM("permuted_300x300x300", "axk", "bky", "yabx", {3, {20, 15, 300}}, {3, {15, 300, 20}}),
    EINSUM("vector_4096", "k", "kn", "n", {1, {4096}}, {2, {4096, 4096}}),
    CONV("3x3_64_56", 8, 1, 64, 64, 56, 56, 3, 1, 1),
    CONV("3x3_512_7", 8, 1, 512, 512, 7, 7, 3, 1, 1),
    CONV("1x1_256_64_56", 8, 1, 256, 64, 56, 56, 1, 1, 0),
    CONV("1x1_512_2048_7", 8, 1, 512, 2048, 7, 7, 1, 1, 0),
    CONV("1x1s2_256_512_56", 8, 1, 256, 512, 56, 28, 1, 2, 0),
    CONV("7x7s2_3_224", 8, 1, 3, 64, 224, 112, 7, 2, 3),
    CONV("3x3_groups32_128_56", 8, 32, 128, 128, 56, 56, 3, 1, 1),
    CONV("3x3_depthwise_96_56", 8, 96, 96, 96, 56, 56, 3, 1, 1),
    CONV("3x3_1_16_8", 64, 1, 1, 16, 8, 8, 3, 1, 1),
    POOL("3x3s2_64_112", 8, 64, 112, 56, 3, 2, 1),
    {.name = "attention_8x8x512x64",
     .kind = ESP_KIND_ATTENTION,
     .attr.attention = ATTENTION,
     .n_in = 3,
     .in = {HEADS, HEADS, HEADS}},
    {.name = "attention_dropout_8x8x512x64",
     .kind = ESP_KIND_ATTENTION,
     .attr.attention = ATTENTION_DROPOUT,
     .n_in = 3,
     .in = {HEADS, HEADS, HEADS}},
    {.name = "attention_grad_8x8x512x64",
     .kind = ESP_KIND_ATTENTION_GRAD,
     .attr.attention = ATTENTION,
     .n_in = 7,
     .in = {HEADS, HEADS, HEADS, HEADS, ROWS, ROWS, HEADS}},
    {.name = "lstm_35x32x650",
     .kind = ESP_KIND_LSTM,
     .n_in = 4,
     .in = {{3, {35, 32, 650}}, {2, {2600, 650}}, {2, {2600, 650}}, {1, {5200}}}},
    {.name = "lstm_grad_35x32x650",
     .kind = ESP_KIND_LSTM_GRAD,
     .n_in = 5,
     .in = {{2, {2600, 650}}, {3, {35, 32, 2600}}, {3, {35, 32, 650}}, {0}, {3, {35, 32, 650}}}},
    {.name = "gru_35x32x650",
     .kind = ESP_KIND_GRU,
     .n_in = 4,
     .in = {{3, {35, 32, 650}}, {2, {1950, 650}}, {2, {1950, 650}}, {1, {3900}}}},
};

typedef struct bench {
    FILE *json;
    int64_t scratch; /* -1: as planned */
    esp_cluster_t *cluster;
    int n_only;
    char **only;
} bench_t;

static esp_graph_t *graph_of(const bench_case_t *c)
{
    esp_diag_t diag = {0};
    esp_builder_t *builder;
    esp_graph_t *graph;
    esp_tensor_id_t in[INPUTS_MAX], out[INPUTS_MAX];
    bench_check(esp_builder_create(c->name, NULL, &builder), NULL);
    for (int32_t i = 0; i < c->n_in; i++) {
        in[i] = ESP_NONE;
        if (c->in[i].rank > 0)
            bench_check(esp_builder_tensor(builder, "in", ESP_ROLE_INPUT, ESP_DTYPE_F32,
                                           c->in[i].rank, c->in[i].dims, NULL, &in[i], &diag),
                        &diag);
    }
    bench_check(esp_builder_op(builder, c->kind, &c->attr, c->n_in, in, c->name, out, &diag),
                &diag);
    bench_check(esp_builder_freeze(builder, &graph, &diag), &diag);
    esp_builder_destroy(builder);
    return graph;
}

static int64_t planned(const bench_t *b, const esp_graph_t *graph)
{
    esp_diag_t diag = {0};
    esp_cost_t *cost;
    bench_check(esp_cost_create(graph, b->cluster, ESP_PRECISION_FP32, NULL, &cost, &diag), &diag);
    const int64_t bytes = (int64_t)ceil(cost->op_workspace_bytes[0]);
    esp_cost_destroy(cost);
    return bytes;
}

/* Places every operand of op 0; returns the end. */
static int64_t place(const esp_graph_t *graph, esp_i_call_t *call, esp_i_local_t *operand)
{
    int64_t used = 0;
    call->n_in = graph->input_offset[1];
    call->n_out = graph->output_offset[1];
    call->operand = operand;
    for (int32_t i = 0; i < call->n_in + call->n_out; i++) {
        const esp_tensor_id_t t =
            i < call->n_in ? graph->input_tensor[i] : graph->output_tensor[i - call->n_in];
        operand[i] = (esp_i_local_t){.dtype = ESP_DTYPE_F32, .rank = -1, .place = -1};
        if (t == ESP_NONE)
            continue;
        operand[i].rank = operand[i].global_rank = graph->tensor_rank[t];
        memcpy(operand[i].dims, graph->tensor_dims[t], sizeof operand[i].dims);
        memcpy(operand[i].global, graph->tensor_dims[t], sizeof operand[i].global);
        operand[i].elements = graph->tensor_elements[t];
        operand[i].place = used;
        used += (graph->tensor_bytes[t] + ALIGN - 1) / ALIGN * ALIGN;
    }
    return used;
}

static void fill(esp_i_kernels_t *kernels, const esp_i_call_t *call)
{
    for (int32_t i = 0; i < call->n_in; i++) {
        const esp_i_local_t *local = &call->operand[i];
        float *data = (float *)(void *)(kernels->memory + local->place);
        for (int64_t j = 0; local->place >= 0 && j < local->elements; j++)
            data[j] = (float)(j * 7919 % 1021) / 1021.0f - 0.4f;
    }
}

/* Of this thread alone: neighbours on the machine disturb it less. */
static double cpu_seconds(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double fastest(esp_i_kernels_t *kernels, void *kernel)
{
    esp_diag_t diag = {0};
    const esp_i_moment_t moment = {.seed = 1, .rate = 1};
    double best = INFINITY, begin = bench_seconds();
    for (int32_t round = 0; round < 3 || bench_seconds() - begin < 0.4; round++) {
        const double start = cpu_seconds();
        bench_check(kernels->type->run(kernels, kernel, &moment, &diag), &diag);
        best = fmin(best, cpu_seconds() - start);
    }
    return best;
}

static void measure(const bench_t *b, const bench_case_t *c)
{
    esp_diag_t diag = {0};
    esp_graph_t *graph = graph_of(c);
    esp_i_local_t operand[OPERANDS_MAX];
    esp_i_call_t call = {.name = c->name, .kind = c->kind, .attr = graph->op_attr};
    esp_i_kernels_t *kernels;
    char *memory;
    void *kernel;
    const int64_t bytes = call.scratch_place = place(graph, &call, operand);
    call.scratch_bytes = b->scratch < 0 ? planned(b, graph) : b->scratch;
    bench_check(esp_i_kernels_cpu.create(NULL, false, &kernels, &diag), &diag);
    bench_check(esp_i_kernels_cpu.arena(kernels, bytes + call.scratch_bytes, &memory), &diag);
    bench_check(esp_i_kernels_cpu.prepare(kernels, &call, &kernel, &diag), &diag);
    fill(kernels, &call);
    const double seconds = fastest(kernels, kernel);
    printf("%-28s %9.3f ms %8.1f GFLOP/s %7.1f GB/s\n", c->name, 1e3 * seconds,
           graph->op_flops[0] / seconds * 1e-9, (double)bytes / seconds * 1e-9);
    if (b->json)
        fprintf(b->json, "{\"exec_%s_gflops\": %.1f, \"exec_%s_ms\": %.3f}\n", c->name,
                graph->op_flops[0] / seconds * 1e-9, c->name, 1e3 * seconds);
    esp_i_kernels_cpu.destroy(kernels);
    esp_graph_destroy(graph);
}

static void parse(bench_t *b, int argc, char **argv)
{
    int i = 1;
    for (; i + 1 < argc && strncmp(argv[i], "--", 2) == 0; i += 2) {
        if (strcmp(argv[i], "--out") == 0)
            b->json = fopen(argv[i + 1], "a");
        else
            b->scratch = strtoll(argv[i + 1], NULL, 10);
    }
    b->only = argv + i;
    b->n_only = argc - i;
}

int main(int argc, char **argv)
{
    esp_diag_t diag = {0};
    bench_t b = {.scratch = -1};
    parse(&b, argc, argv);
    bench_check(esp_cluster_load(ESP_SOURCE_DIR "/clusters/cpu4.yaml", NULL, &b.cluster, &diag),
                &diag);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        bool wanted = b.n_only == 0;
        for (int o = 0; o < b.n_only; o++)
            wanted = wanted || strstr(cases[i].name, b.only[o]);
        if (wanted)
            measure(&b, &cases[i]);
    }
    esp_cluster_destroy(b.cluster);
    if (b.json)
        (void)fclose(b.json);
    return 0;
}
