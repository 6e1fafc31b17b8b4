/*
 * How plausible the op costs are: predicted times of the layers of published GPU profiles (one line
 * per layer, with its measured forward and backward time) against the measured ones.
 *
 *     bench_cost [--out FILE] [--type NAME] PROFILE...
 *
 * Prints per profile and layer kind: layers, rank correlation, median |log2 ratio|, ratio of the
 * sums (predicted / measured). A profile is a text of the PipeDream profiler.
 */
#include "common.h"

#include "espalier/cluster.h"
#include "espalier/cost.h"

#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LAYERS_MAX = 1024, BATCH = 32 };

typedef enum layer_kind { CONV, LINEAR, NORM, RELU, POOL, KINDS } layer_kind_t;
static const char *const kind_names[KINDS] = {"conv", "linear", "norm", "relu", "pool"};

typedef struct layer {
    layer_kind_t kind;
    int64_t in, out, kernel[2], stride[2]; /* channels; sides */
    double elements;                       /* of the result */
    double measured_ns, predicted_ns;
} layer_t;

typedef struct bench {
    esp_cluster_t *cluster;
    FILE *json;
} bench_t;

/* ---- reading profiles
 * ---------------------------------------------------------------------------- */

/* The number behind `key`, or -1. */
static double number(const char *line, const char *key)
{
    const char *at = strstr(line, key);
    return at ? strtod(at + strlen(key), NULL) : -1;
}

/* "(3, 5)" or "3": both sides. */
static void sides(const char *line, const char *key, int64_t out[2])
{
    const char *at = strstr(line, key);
    char *end;
    out[0] = out[1] = 1;
    if (!at)
        return;
    at += strlen(key);
    out[0] = out[1] = strtoll(at + (*at == '('), &end, 10);
    if (*at == '(')
        out[1] = strtoll(end + 1, NULL, 10);
}

static bool read_layer(const char *line, layer_t *layer)
{
    const char *what = strstr(line, "-- ");
    if (!what)
        return false;
    what += 3;
    *layer = (layer_t){
        .kernel = {1, 1}, .stride = {1, 1}, .elements = number(line, "activation_size=") / 4};
    if (sscanf(what, "Conv2d(%" SCNd64 ", %" SCNd64, &layer->in, &layer->out) == 2) {
        layer->kind = CONV;
        sides(what, "kernel_size=", layer->kernel);
        sides(what, "stride=", layer->stride);
    } else if (sscanf(what, "Linear(in_features=%" SCNd64 ", out_features=%" SCNd64, &layer->in,
                      &layer->out) == 2) {
        layer->kind = LINEAR;
    } else if (sscanf(what, "BatchNorm2d(%" SCNd64, &layer->out) == 1) {
        layer->kind = NORM;
    } else if (strncmp(what, "ReLU", 4) == 0) {
        layer->kind = RELU;
        layer->out = 1;
    } else if (strncmp(what, "MaxPool2d", 9) == 0) {
        layer->kind = POOL;
        layer->out = 1;
        sides(what, "kernel_size=", layer->kernel);
        sides(what, "stride=", layer->stride);
    } else {
        return false;
    }
    layer->in = layer->in > 0 ? layer->in : layer->out;
    return layer->elements >= (double)layer->out;
}

/* ---- layers as graphs
 * ----------------------------------------------------------------------------- */

typedef struct maker {
    esp_builder_t *builder;
    esp_diag_t diag;
} maker_t;

static esp_tensor_id_t tensor(maker_t *m, int32_t rank, int64_t d0, int64_t d1, int64_t d2,
                              int64_t d3)
{
    esp_tensor_id_t id;
    int64_t dims[4] = {d0, d1, d2, d3};
    bench_check(esp_builder_tensor(m->builder, "t", ESP_ROLE_INPUT, ESP_DTYPE_F32, rank, dims, NULL,
                                   &id, &m->diag),
                &m->diag);
    return id;
}

static void add(maker_t *m, esp_op_kind_t kind, const esp_attr_t *attr, int32_t n,
                const esp_tensor_id_t *in, esp_tensor_id_t *out)
{
    esp_tensor_id_t unused[8];
    bench_check(esp_builder_op(m->builder, kind, attr, n, in, "op", out ? out : unused, &m->diag),
                &m->diag);
}

#define ADD(m, kind, attr, ...)                                                                    \
    do {                                                                                           \
        const esp_tensor_id_t in_[] = {__VA_ARGS__};                                               \
        add((m), (kind), (attr), (int32_t)(sizeof in_ / sizeof *in_), in_, NULL);                  \
    } while (0)

/* The image is a strip of the same area: the same work and the same bytes. */
static void make_conv(maker_t *m, const layer_t *l, int64_t length, bool backward)
{
    int64_t step = l->stride[0] * l->stride[1], wide = length * step, pad = l->kernel[0] - step;
    esp_attr_t attr = {.conv = {.groups = 1, .target = {wide, 1}}};
    attr.conv.window = (esp_window_t){.rank = 2,
                                      .kernel = {l->kernel[0], l->kernel[1]},
                                      .stride = {step, 1},
                                      .dilation = {1, 1},
                                      .pad_hi = {pad > 0 ? pad : 0, l->kernel[1] - 1}};
    esp_tensor_id_t x = tensor(m, 4, BATCH, l->in, wide, 1);
    esp_tensor_id_t w = tensor(m, 4, l->out, l->in, l->kernel[0], l->kernel[1]);
    if (!backward) {
        ADD(m, ESP_KIND_CONV, &attr, x, w);
        return;
    }
    esp_tensor_id_t dy = tensor(m, 4, BATCH, l->out, length, 1);
    if (l->in > 3) /* the first layer has no gradient of its input */
        ADD(m, ESP_KIND_CONV_DX, &attr, dy, w);
    ADD(m, ESP_KIND_CONV_DW, &attr, x, dy);
}

static void labels(int8_t *out, int8_t first, int8_t second)
{
    memset(out, 0, ESP_MAX_RANK); /* labels count from 1 */
    out[0] = (int8_t)(first + 1);
    out[1] = (int8_t)(second + 1);
}

static void make_linear(maker_t *m, const layer_t *l, int64_t rows, bool backward)
{
    esp_tensor_id_t x = tensor(m, 2, rows, l->in, 0, 0), w = tensor(m, 2, l->in, l->out, 0, 0);
    esp_tensor_id_t dy = tensor(m, 2, rows, l->out, 0, 0);
    esp_attr_t attr = {0};
    labels(attr.contract.a, 0, 1);
    labels(attr.contract.b, 1, 2);
    labels(attr.contract.y, 0, 2);
    if (!backward) {
        ADD(m, ESP_KIND_CONTRACT, &attr, x, w);
        return;
    }
    labels(attr.contract.a, 0, 2); /* dx = dy w' */
    labels(attr.contract.y, 0, 1);
    labels(attr.contract.b, 1, 2);
    ADD(m, ESP_KIND_CONTRACT, &attr, dy, w);
    labels(attr.contract.a, 0, 1); /* dw = x' dy */
    labels(attr.contract.b, 0, 2);
    labels(attr.contract.y, 1, 2);
    ADD(m, ESP_KIND_CONTRACT, &attr, x, dy);
}

static void make_norm(maker_t *m, const layer_t *l, int64_t length, bool backward)
{
    esp_attr_t attr = {.norm = {.epsilon = 1e-5, .count = BATCH * length}};
    esp_tensor_id_t x = tensor(m, 3, BATCH, l->out, length, 0),
                    dy = tensor(m, 3, BATCH, l->out, length, 0);
    esp_tensor_id_t sum = tensor(m, 1, l->out, 0, 0, 0), square = tensor(m, 1, l->out, 0, 0, 0);
    esp_tensor_id_t gamma = tensor(m, 1, l->out, 0, 0, 0), beta = tensor(m, 1, l->out, 0, 0, 0);
    if (backward) {
        ADD(m, ESP_KIND_BN_GRAD_STATS, &attr, x, sum, square, dy);
        ADD(m, ESP_KIND_BN_GRAD, &attr, x, sum, square, gamma, dy, beta, gamma);
    } else {
        ADD(m, ESP_KIND_BN_STATS, &attr, x);
        ADD(m, ESP_KIND_BN_NORM, &attr, x, sum, square, gamma, beta);
    }
}

static void make_relu(maker_t *m, int64_t length, bool backward)
{
    esp_tensor_id_t x = tensor(m, 3, BATCH, 1, length, 0), dy = tensor(m, 3, BATCH, 1, length, 0);
    esp_attr_t attr = {.eltwise = {.code = backward ? ESP_ELT_MUL : ESP_ELT_RELU}};
    if (backward)
        ADD(m, ESP_KIND_ELTWISE, &attr, x, dy);
    else
        ADD(m, ESP_KIND_ELTWISE, &attr, x);
}

static void make_pool(maker_t *m, const layer_t *l, int64_t length, bool backward)
{
    int64_t area = l->stride[0] * l->stride[1], wide = length * area;
    esp_attr_t attr = {.pool = {.is_max = 1, .target = {wide}}};
    attr.pool.window = (esp_window_t){.rank = 1, .kernel = {area}, .stride = {area}};
    attr.pool.window.dilation[0] = 1;
    esp_tensor_id_t x = tensor(m, 3, BATCH, 1, wide, 0), y = tensor(m, 3, BATCH, 1, length, 0);
    if (backward)
        ADD(m, ESP_KIND_POOL_GRAD, &attr, x, y, y);
    else
        ADD(m, ESP_KIND_POOL, &attr, x);
}

static double predict(const bench_t *b, const layer_t *l, bool backward)
{
    maker_t m = {0};
    esp_graph_t *graph;
    esp_cost_t *cost;
    double ns = 0;
    int64_t length = (int64_t)(l->elements / (double)l->out / BATCH);
    bench_check(esp_builder_create("layer", NULL, &m.builder), &m.diag);
    length = length > 0 ? length : 1;
    switch (l->kind) {
    case CONV:
        make_conv(&m, l, length, backward);
        break;
    case LINEAR:
        make_linear(&m, l, (int64_t)(l->elements / (double)l->out), backward);
        break;
    case NORM:
        make_norm(&m, l, length, backward);
        break;
    case RELU:
        make_relu(&m, length, backward);
        break;
    case POOL:
        make_pool(&m, l, length, backward);
        break;
    case KINDS:
        break;
    }
    bench_check(esp_builder_freeze(m.builder, &graph, &m.diag), &m.diag);
    bench_check(esp_cost_create(graph, b->cluster, ESP_PRECISION_FP32, NULL, &cost, &m.diag),
                &m.diag);
    for (esp_op_id_t op = 0; op < graph->n_ops; ++op)
        ns += (double)esp_cost_op_ns(cost, op, 0, 1, 0);
    esp_cost_destroy(cost);
    esp_graph_destroy(graph);
    esp_builder_destroy(m.builder);
    return ns;
}

/* ---- comparing
 * --------------------------------------------------------------------------------------- */

static double rank_of(const double *value, int32_t n, int32_t i)
{
    double rank = 0;
    for (int32_t k = 0; k < n; ++k)
        rank += value[k] < value[i] ? 1 : value[k] == value[i] ? 0.5 : 0;
    return rank;
}

/* Spearman: correlation of the ranks. */
static double rank_correlation(const double *x, const double *y, int32_t n)
{
    double sx = 0, sy = 0, sxx = 0, syy = 0, sxy = 0;
    for (int32_t i = 0; i < n; ++i) {
        double a = rank_of(x, n, i), c = rank_of(y, n, i);
        sx += a;
        sy += c;
        sxx += a * a;
        syy += c * c;
        sxy += a * c;
    }
    double spread = sqrt((n * sxx - sx * sx) * (n * syy - sy * sy));
    return spread > 0 ? (n * sxy - sx * sy) / spread : 1;
}

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void report(const bench_t *b, const char *profile, const char *what, int32_t n,
                   const layer_t *layers, int32_t kind)
{
    static double measured[LAYERS_MAX], predicted[LAYERS_MAX], error[LAYERS_MAX];
    double sum_measured = 0, sum_predicted = 0;
    int32_t count = 0;
    for (int32_t i = 0; i < n; ++i) {
        if (kind < KINDS && (int32_t)layers[i].kind != kind)
            continue;
        measured[count] = layers[i].measured_ns;
        predicted[count] = layers[i].predicted_ns;
        error[count] = fabs(log2(predicted[count] / measured[count]));
        sum_measured += measured[count];
        sum_predicted += predicted[count++];
    }
    if (count < 3)
        return;
    double rho = rank_correlation(measured, predicted, count);
    qsort(error, (size_t)count, sizeof *error, compare_doubles);
    printf("%-14s %-9s %-7s %4d layers  rank correlation %5.2f  median |log2| %4.2f  sums %4.2f\n",
           profile, what, kind < KINDS ? kind_names[kind] : "all", count, rho, error[count / 2],
           sum_predicted / sum_measured);
    if (b->json && kind == KINDS)
        fprintf(b->json, "{\"cost_%s_%s_rank\": %.3f, \"log2_error\": %.3f, \"sums\": %.3f}\n",
                profile, what, rho, error[count / 2], sum_predicted / sum_measured);
}

static void study(const bench_t *b, const char *path)
{
    static layer_t layers[LAYERS_MAX];
    static char line[4096];
    char profile[64] = "";
    const char *slash = strrchr(path, '/');
    (void)snprintf(profile, sizeof profile, "%s", slash ? slash + 1 : path);
    if (strrchr(profile, '.'))
        *strrchr(profile, '.') = '\0';
    for (int32_t backward = 0; backward < 2; ++backward) {
        FILE *file = fopen(path, "r");
        int32_t n = 0;
        while (file && n < LAYERS_MAX && fgets(line, sizeof line, file)) {
            layer_t *l = &layers[n];
            if (!read_layer(line, l))
                continue;
            l->measured_ns =
                1e6 * number(line, backward ? "backward_compute_time=" : "forward_compute_time=");
            if (l->measured_ns <= 0)
                continue;
            l->predicted_ns = predict(b, l, backward != 0);
            n++;
        }
        if (!file)
            return;
        (void)fclose(file);
        for (int32_t kind = 0; kind <= KINDS; ++kind)
            report(b, profile, backward ? "backward" : "forward", n, layers, kind);
    }
}

static esp_cluster_t *one_device(const char *type_name)
{
    esp_cluster_builder_t *builder;
    esp_cluster_t *cluster;
    esp_diag_t diag = {0};
    int32_t type, node, vertex;
    bench_check(esp_cluster_builder_create("one", NULL, &builder, &diag), &diag);
    bench_check(esp_cluster_builder_use_type(builder, type_name, &type, &diag), &diag);
    bench_check(esp_cluster_builder_add_node(builder, "n", &node, &diag), &diag);
    esp_cluster_device_t device = {"n/gpu", type, node, INT64_C(1) << 33, -1, 0};
    bench_check(esp_cluster_builder_add_device(builder, &device, &vertex, &diag), &diag);
    bench_check(esp_cluster_builder_freeze(builder, 0, &cluster, &diag), &diag);
    esp_cluster_builder_destroy(builder);
    return cluster;
}

int main(int argc, char **argv)
{
    const char *type = "v100-sxm-16", *out = NULL;
    int first = 1;
    for (; first + 1 < argc && strncmp(argv[first], "--", 2) == 0; first += 2) {
        if (strcmp(argv[first], "--type") == 0)
            type = argv[first + 1];
        else if (strcmp(argv[first], "--out") == 0)
            out = argv[first + 1];
    }
    bench_t b = {.cluster = one_device(type), .json = out ? fopen(out, "a") : NULL};
    for (int i = first; i < argc; ++i)
        study(&b, argv[i]);
    if (first == argc)
        printf("bench_cost: no profile is given, nothing to compare with\n");
    esp_cluster_destroy(b.cluster);
    if (b.json)
        (void)fclose(b.json);
    return 0;
}
