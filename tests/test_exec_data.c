/* Orders of rows, rows for the inputs of a graph, factors of the learning rate. */
#include "models.h"
#include "support.h"

#include "espalier/train.h"
#include "exec/files.h"
#include "exec/shuffle.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- orders ---------------------------------------------------------------------------------- */

static void test_shuffle(void **state)
{
    static const int64_t sizes[] = {1, 2, 3, 4, 5, 16, 17, 64, 65, 1000, 4097};
    (void)state;
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        int64_t n = sizes[s], moved = 0, differs = 0;
        for (uint64_t epoch = 0; epoch < 3; epoch++) {
            uint8_t *seen = calloc((size_t)n, 1);
            assert_non_null(seen);
            for (int64_t i = 0; i < n; i++) {
                int64_t image = esp_i_shuffle(7, epoch, n, i);
                assert_in_range(image, 0, n - 1);
                assert_int_equal(seen[image], 0);
                seen[image] = 1;
                moved += image != i;
                differs += image != esp_i_shuffle(7, epoch + 1, n, i) ||
                           image != esp_i_shuffle(8, epoch, n, i);
            }
            free(seen);
        }
        if (n >= 16) { /* hardly any stay where they are */
            assert_true(moved > 2 * n);
            assert_true(differs > 2 * n);
        }
    }
}

/* Where rows go does not depend on where they are: first moments of images of a few rows. */
static void test_shuffle_is_even(void **state)
{
    enum { N = 100, EPOCHS = 2000 };
    (void)state;
    for (int64_t i = 0; i < N; i += 33) {
        double sum = 0;
        for (uint64_t epoch = 0; epoch < EPOCHS; epoch++)
            sum += (double)esp_i_shuffle(1, epoch, N, i);
        /* mean 49.5, deviation of the mean 28.9 / sqrt(2000) = 0.65 */
        assert_true(fabs(sum / EPOCHS - 49.5) < 3.3);
    }
}

/* ---- rows ------------------------------------------------------------------------------------ */

/* x[4, 3] (rows of 3), ids[2, 4] (the batch is axis 1), mask[2] (no batch), labels[4]. */
static esp_graph_t *graph_of_inputs(void)
{
    const esp_training_opts_t opts = train_with(ESP_LOSS_XENT, ESP_OPTIMIZER_SGD);
    const esp_attr_t axis = {.axis = {.axis = 0}};
    net_t net;
    net_init(&net, "inputs");
    esp_tensor_id_t x = net_input(&net, "x", ESP_DTYPE_F32, 2, NET_DIMS(4, 3), 0);
    esp_tensor_id_t ids = net_input(&net, "ids", ESP_DTYPE_I64, 2, NET_DIMS(2, 4), 1);
    esp_tensor_id_t mask = net_input(&net, "mask", ESP_DTYPE_F32, 1, NET_DIMS(2), -1);
    esp_tensor_id_t table = net_param(&net, "table", 2, NET_DIMS(11, 5));
    esp_tensor_id_t rows =
        net_op(&net, "rows", ESP_KIND_GATHER, &axis, 2, (esp_tensor_id_t[]){table, ids});
    esp_tensor_id_t y = net_einsum(&net, "mix", "abc,a->bc", rows, mask);
    y = net_binary(&net, ESP_ELT_ADD, y, net_dense(&net, "dense", x, 5));
    return net_train(&net, y, &opts);
}

static esp_tensor_id_t find(const esp_graph_t *graph, const char *name)
{
    for (int32_t i = 0; i < graph->n_inputs; i++)
        if (strcmp(graph->tensor_name[graph->input[i]], name) == 0)
            return graph->input[i];
    fail_msg("no input %s", name);
    return ESP_NONE;
}

enum { ROWS = 10 };
typedef struct files {
    test_dir_t dir;
    char spec[4 * TEST_PATH_MAX];
    double x[ROWS][3];
    int32_t ids[ROWS][2];
    uint8_t labels[ROWS];
} files_t;

static void write_array(files_t *files, const char *name, esp_dtype_t dtype, int32_t rank,
                        const int64_t *dims, const void *data)
{
    char path[TEST_PATH_MAX], file[64];
    esp_diag_t diag = {0};
    (void)snprintf(file, sizeof file, "%s.npy", name);
    test_dir_file(&files->dir, file, path);
    test_assert_ok(esp_i_npy_write(path, dtype, rank, dims, data, &diag), &diag);
    size_t length = strlen(files->spec);
    (void)snprintf(files->spec + length, sizeof files->spec - length, "%s%s=%s",
                   length > 0 ? "," : "", name, path);
}

static void files_make(files_t *files)
{
    static const float mask[2] = {0.5F, 2};
    memset(files, 0, sizeof *files);
    test_dir_make(&files->dir);
    for (int i = 0; i < ROWS; i++) {
        for (int j = 0; j < 3; j++)
            files->x[i][j] = i + 0.25 * j;
        files->ids[i][0] = i;
        files->ids[i][1] = 10 - i;
        files->labels[i] = (uint8_t)(i % 5);
    }
    write_array(files, "x", ESP_DTYPE_F64, 3, NET_DIMS(ROWS, 1, 3), files->x);
    write_array(files, "ids", ESP_DTYPE_I32, 2, NET_DIMS(ROWS, 2), files->ids);
    write_array(files, "mask", ESP_DTYPE_F32, 1, NET_DIMS(2), mask);
    write_array(files, "labels", ESP_DTYPE_U8, 1, NET_DIMS(ROWS), files->labels);
}

static void test_rows(void **state)
{
    esp_graph_t *graph = graph_of_inputs();
    files_t files;
    esp_data_t *data;
    esp_diag_t diag = {0};
    (void)state;
    files_make(&files);
    test_assert_ok(esp_data_open(graph, files.spec, NULL, NULL, &data, &diag), &diag);
    assert_int_equal(esp_data_rows(data), ROWS);
    assert_int_equal(esp_data_epoch_steps(data), 2);
    for (uint64_t step = 0; step < 6; step++) {
        float x[12], part[12], mask[2];
        int64_t ids[8], labels[4];
        const esp_view_t none = {0, 0, 0};
        test_assert_ok(esp_data_read(data, step, find(graph, "x"), none, 0, 0, x, &diag), &diag);
        test_assert_ok(esp_data_read(data, step, find(graph, "ids"), none, 0, 0, ids, &diag),
                       &diag);
        test_assert_ok(esp_data_read(data, step, find(graph, "labels"), none, 0, 0, labels, &diag),
                       &diag);
        test_assert_ok(esp_data_read(data, step, find(graph, "mask"), none, 0, 0, mask, &diag),
                       &diag);
        assert_true(mask[0] == 0.5F && mask[1] == 2);
        for (int b = 0; b < 4; b++) {
            int64_t row = esp_data_row(data, step, b);
            for (int j = 0; j < 3; j++)
                assert_true((double)x[3 * b + j] == files.x[row][j]);
            for (int j = 0; j < 2; j++)
                assert_int_equal(ids[4 * j + b], files.ids[row][j]);
            assert_int_equal(labels[b], files.labels[row]);
        }
        /* Rows 1 and 2 of the batch, and a cut along another axis. */
        test_assert_ok(
            esp_data_read(data, step, find(graph, "x"), (esp_view_t){1, 4, 3}, 1, 2, part, &diag),
            &diag);
        assert_memory_equal(part, x + 3, 6 * sizeof *x);
        int64_t cut[4];
        test_assert_ok(
            esp_data_read(data, step, find(graph, "ids"), (esp_view_t){2, 4, 1}, 3, 1, cut, &diag),
            &diag);
        assert_true(cut[0] == ids[3] && cut[1] == ids[7]);
        test_assert_ok(
            esp_data_read(data, step, find(graph, "x"), (esp_view_t){4, 3, 1}, 2, 1, part, &diag),
            &diag);
        for (int b = 0; b < 4; b++)
            assert_true(part[b] == x[3 * b + 2]);
    }
    esp_data_close(data);
    test_dir_remove(&files.dir);
    esp_graph_destroy(graph);
}

/* Without shuffling rows come in order; the wide form is double. */
static void test_in_order(void **state)
{
    esp_graph_t *graph = graph_of_inputs();
    esp_data_opts_t opts = esp_data_opts_default();
    files_t files;
    esp_data_t *data;
    esp_diag_t diag = {0};
    double x[12];
    (void)state;
    files_make(&files);
    opts.shuffle = 0;
    opts.wide = 1;
    test_assert_ok(esp_data_open(graph, files.spec, &opts, NULL, &data, &diag), &diag);
    test_assert_ok(esp_data_read(data, 3, find(graph, "x"), (esp_view_t){0, 0, 0}, 0, 0, x, &diag),
                   &diag);
    assert_memory_equal(x, files.x[4], sizeof x);
    esp_data_close(data);
    test_dir_remove(&files.dir);
    esp_graph_destroy(graph);
}

static void test_bad_specs(void **state)
{
    esp_graph_t *graph = graph_of_inputs();
    files_t files;
    esp_data_t *data;
    esp_diag_t diag = {0};
    char spec[9 * TEST_PATH_MAX];
    (void)state;
    files_make(&files);
    const struct {
        const char *before; /* the whole spec, if after is NULL */
        bool whole;
        esp_status_t status;
        const char *part;
    } cases[] = {
        {"", true, ESP_ERR_ARGUMENT, "no data for input x"},
        {"x", true, ESP_ERR_ARGUMENT, "not NAME=FILE"},
        {"=a.npy", true, ESP_ERR_ARGUMENT, "not NAME=FILE"},
        {"x=", true, ESP_ERR_ARGUMENT, "not NAME=FILE"},
        {"y=a.npy,", false, ESP_ERR_ARGUMENT, "which is no input; those are x, ids, mask, labels"},
        {"x=/nowhere/a.npy,", false, ESP_ERR_IO, "/nowhere/a.npy: cannot open"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        (void)snprintf(spec, sizeof spec, "%s%s", cases[i].before,
                       cases[i].whole ? "" : files.spec);
        test_assert_fails(esp_data_open(graph, spec, NULL, NULL, &data, &diag), &diag,
                          cases[i].status, cases[i].part);
    }
    (void)snprintf(spec, sizeof spec, "%s,%s", files.spec, files.spec);
    test_assert_fails(esp_data_open(graph, spec, NULL, NULL, &data, &diag), &diag, ESP_ERR_ARGUMENT,
                      "two files for input x");
    /* Arrays that do not fit: the file of one input given to another, or replaced. */
    const float few[9] = {0};
    char path[TEST_PATH_MAX];
    test_dir_file(&files.dir, "x.npy", path);
    test_assert_ok(esp_i_npy_write(path, ESP_DTYPE_F32, 2, NET_DIMS(3, 3), few, &diag), &diag);
    test_assert_fails(esp_data_open(graph, files.spec, NULL, NULL, &data, &diag), &diag,
                      ESP_ERR_INVALID, "10 rows, and");
    test_assert_ok(esp_i_npy_write(path, ESP_DTYPE_F32, 2, NET_DIMS(3, 2), few, &diag), &diag);
    test_assert_fails(esp_data_open(graph, files.spec, NULL, NULL, &data, &diag), &diag,
                      ESP_ERR_INVALID, "its shape [3, 2] does not fit input x [4, 3]");
    test_dir_file(&files.dir, "ids.npy", path);
    test_assert_ok(esp_i_npy_write(path, ESP_DTYPE_F32, 2, NET_DIMS(3, 2), few, &diag), &diag);
    test_assert_fails(esp_data_open(graph, strstr(files.spec, "ids="), NULL, NULL, &data, &diag),
                      &diag, ESP_ERR_INVALID, "input ids is of int64, and the array of float32");
    test_dir_remove(&files.dir);
    esp_graph_destroy(graph);
}

/* What indexes a table, and what names a class, must be in range; the row is named. */
static void test_out_of_range(void **state)
{
    esp_graph_t *graph = graph_of_inputs();
    files_t files;
    esp_data_t *data;
    esp_data_opts_t opts = esp_data_opts_default();
    esp_diag_t diag = {0};
    char path[TEST_PATH_MAX];
    int64_t ids[8];
    (void)state;
    files_make(&files);
    opts.shuffle = 0;
    for (int k = 0; k < 2; k++) {
        const char *name = k == 0 ? "ids" : "labels";
        files.ids[2][1] = 11;
        files.labels[2] = 5;
        test_dir_file(&files.dir, k == 0 ? "ids.npy" : "labels.npy", path);
        test_assert_ok(
            k == 0 ? esp_i_npy_write(path, ESP_DTYPE_I32, 2, NET_DIMS(ROWS, 2), files.ids, &diag)
                   : esp_i_npy_write(path, ESP_DTYPE_U8, 1, NET_DIMS(ROWS), files.labels, &diag),
            &diag);
        test_assert_ok(esp_data_open(graph, files.spec, &opts, NULL, &data, &diag), &diag);
        test_assert_fails(
            esp_data_read(data, 0, find(graph, name), (esp_view_t){0, 0, 0}, 0, 0, ids, &diag),
            &diag, ESP_ERR_INVALID, k == 0 ? "row 2: 11 is not in [0, 11)" : "row 2: 5");
        test_assert_ok(
            esp_data_read(data, 1, find(graph, name), (esp_view_t){0, 0, 0}, 0, 0, ids, &diag),
            &diag);
        esp_data_close(data);
    }
    test_dir_remove(&files.dir);
    esp_graph_destroy(graph);
}

/* ---- learning rates -------------------------------------------------------------------------- */

static void test_schedules(void **state)
{
    const double pi = acos(-1);
    esp_schedule_opts_t opts = esp_schedule_opts_default();
    (void)state;
    for (uint64_t t = 0; t < 50; t++)
        assert_true(esp_schedule_factor(&opts, t) == 1);
    opts.warmup = 4;
    for (uint64_t t = 0; t < 50; t++)
        assert_true(esp_schedule_factor(&opts, t) == (t < 4 ? (double)(t + 1) / 4 : 1));
    opts.total = 24;
    opts.least = 0.1;
    opts.every = 7;
    opts.gamma = 0.5;
    for (uint64_t t = 4; t < 60; t++) {
        double part = t < 24 ? (double)(t - 4) / 20 : 1;
        opts.kind = ESP_SCHEDULE_COSINE;
        double cosine = 0.1 + 0.9 * 0.5 * (1 + cos(pi * part));
        assert_true(fabs(esp_schedule_factor(&opts, t) - cosine) < 1e-15);
        opts.kind = ESP_SCHEDULE_LINEAR;
        assert_true(fabs(esp_schedule_factor(&opts, t) - (0.1 + 0.9 * (1 - part))) < 1e-15);
        opts.kind = ESP_SCHEDULE_STEP;
        double stair = fmax(0.1, pow(0.5, (double)((t - 4) / 7)));
        assert_true(fabs(esp_schedule_factor(&opts, t) - stair) < 1e-15);
    }
    /* A run that is all warm-up, or has no steps, ends at the least factor. */
    opts.kind = ESP_SCHEDULE_LINEAR;
    opts.total = 4;
    assert_true(esp_schedule_factor(&opts, 2) == 0.75);
    assert_true(fabs(esp_schedule_factor(&opts, 4) - 0.1) < 1e-15);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shuffle),   cmocka_unit_test(test_shuffle_is_even),
        cmocka_unit_test(test_rows),      cmocka_unit_test(test_in_order),
        cmocka_unit_test(test_bad_specs), cmocka_unit_test(test_out_of_range),
        cmocka_unit_test(test_schedules),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
