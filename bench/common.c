#include "common.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

void bench_check(esp_status_t status, const esp_diag_t *diag)
{
    char text[1024];
    if (status == ESP_OK)
        return;
    (void)esp_diag_format(diag, text, sizeof text);
    fprintf(stderr, "bench: %s: %s\n", esp_status_text(status), text);
    exit(1);
}

double bench_seconds(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* relu(x w + b) */
static esp_tensor_id_t add_layer(esp_builder_t *builder, int64_t width, esp_tensor_id_t x,
                                 esp_diag_t *diag)
{
    const int64_t square[] = {width, width};
    const esp_attr_t product = {.contract = {{'b', 'i'}, {'i', 'o'}, {'b', 'o'}}};
    const esp_attr_t add = {.eltwise = {.code = ESP_ELT_ADD}};
    const esp_attr_t relu = {.eltwise = {.code = ESP_ELT_RELU}};
    esp_tensor_id_t in[2] = {x, ESP_NONE}, y;
    bench_check(esp_builder_tensor(builder, "w", ESP_ROLE_PARAMETER, ESP_DTYPE_F32, 2, square, NULL,
                                   &in[1], diag),
                diag);
    bench_check(esp_builder_op(builder, ESP_KIND_CONTRACT, &product, 2, in, "dense", &y, diag),
                diag);
    in[0] = y;
    bench_check(esp_builder_tensor(builder, "b", ESP_ROLE_PARAMETER, ESP_DTYPE_F32, 1, square, NULL,
                                   &in[1], diag),
                diag);
    bench_check(esp_builder_op(builder, ESP_KIND_ELTWISE, &add, 2, in, "bias", &y, diag), diag);
    bench_check(esp_builder_op(builder, ESP_KIND_ELTWISE, &relu, 1, &y, "relu", &y, diag), diag);
    return y;
}

esp_graph_t *bench_perceptron(int32_t layers, int64_t batch, int64_t width)
{
    const int64_t dims[] = {batch, width};
    esp_diag_t diag = {0};
    esp_builder_t *builder;
    esp_graph_t *model;
    esp_tensor_id_t x;
    bench_check(esp_builder_create("mlp", NULL, &builder), &diag);
    bench_check(
        esp_builder_tensor(builder, "x", ESP_ROLE_INPUT, ESP_DTYPE_F32, 2, dims, NULL, &x, &diag),
        &diag);
    bench_check(esp_builder_batch(builder, x, (esp_view_t){1, batch, width}, &diag), &diag);
    for (int32_t i = 0; i < layers; ++i)
        x = add_layer(builder, width, x, &diag);
    bench_check(esp_builder_output(builder, x), &diag);
    bench_check(esp_builder_freeze(builder, &model, &diag), &diag);
    esp_builder_destroy(builder);
    return model;
}
