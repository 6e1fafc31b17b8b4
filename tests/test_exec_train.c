/* Training: resuming, evaluation, initial weights, rates, and what stops it. */
#include "deployments.h"
#include "onnx_writer.h"

#include "espalier/train.h"
#include "exec/files.h"
#include "exec/safetensors.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BATCH = 8, FEATURES = 6, CLASSES = 3 };

/* ---- a run ----------------------------------------------------------------------------------- */

static esp_graph_t *model_of(double dropout)
{
    net_t net;
    esp_graph_t *model;
    net_init(&net, "classifier");
    esp_tensor_id_t x = net_input(&net, "x", ESP_DTYPE_F32, 2, NET_DIMS(BATCH, FEATURES), 0);
    x = net_unary(&net, ESP_ELT_TANH, net_dense(&net, "one", x, 10));
    if (dropout > 0)
        x = net_dropout(&net, x, dropout, 5);
    x = net_dense(&net, "two", x, CLASSES);
    assert_int_equal(esp_builder_output(net.builder, x), ESP_OK);
    test_assert_ok(esp_builder_freeze(net.builder, &model, &net.diag), &net.diag);
    esp_builder_destroy(net.builder);
    return model;
}

typedef struct run {
    esp_graph_t *model;
    esp_training_opts_t training;
    bench_t bench;
    plan_of_t plan;
    const esp_deployment_t *deployment;
    esp_exec_opts_t opts;
    esp_train_job_t job;
} run_t;

/* The first n devices of cpu4. update: where optimizers run. */
static void run_start(run_t *run, double dropout, double rate, int32_t n, esp_mode_t update)
{
    esp_graph_t *step;
    esp_diag_t diag = {0};
    *run = (run_t){.model = model_of(dropout)};
    run->training = train_with(ESP_LOSS_XENT, ESP_OPTIMIZER_ADAMW);
    run->training.rate = rate;
    run->training.clip_norm = 1;
    test_assert_ok(esp_training_graph(run->model, &run->training, NULL, &step, &diag), &diag);
    bench_init(&run->bench, step, bench_cluster("cpu4"));
    plan_data_parallel(&run->plan, &run->bench, update, 1);
    run->plan.mesh[0].n = n;
    test_assert_ok(esp_lower(run->bench.lowerer, &run->plan.strategy, &run->deployment, &diag),
                   &diag);
    test_assert_ok(esp_deployment_pack(run->bench.lowerer, &diag), &diag);
    run->opts = esp_exec_opts_default();
    run->opts.backend = "reference";
    run->opts.seed = 3;
    run->job = (esp_train_job_t){.graph = step, .seed = 3};
    test_assert_ok(esp_exec_create(run->deployment, &run->opts, NULL, &run->job.exec, &diag),
                   &diag);
}

static void run_end(run_t *run)
{
    esp_exec_destroy(run->job.exec);
    plan_fini(&run->plan);
    bench_fini(&run->bench);
    esp_graph_destroy(run->model);
}

/* What a run says, step by step. */
typedef struct record {
    double loss[64], factor[64];
    int32_t n, stop_at; /* stop_at 0: never */
    double accuracy[64];
    int32_t n_evaluations;
} record_t;

static void note(void *context, const esp_train_step_t *step)
{
    record_t *record = context;
    assert_true(record->n < 64);
    record->factor[record->n] = step->factor;
    record->loss[record->n++] = step->loss;
    if (step->evaluation != NULL)
        record->accuracy[record->n_evaluations++] = step->evaluation->accuracy;
}

static int stop(void *context)
{
    const record_t *record = context;
    return record->stop_at > 0 && record->n >= record->stop_at;
}

static esp_train_opts_t opts_of(record_t *record, int64_t until)
{
    esp_train_opts_t opts = esp_train_opts_default();
    opts.until = until;
    opts.context = record;
    opts.step = note;
    opts.stop = stop;
    return opts;
}

/* All that lives between steps, as one block; free(). */
static float *values_of(const run_t *run, int64_t *n_out)
{
    const esp_graph_t *g = run->job.graph;
    float *all = calloc(4096, sizeof *all);
    int64_t n = 0;
    assert_non_null(all);
    for (esp_tensor_id_t i = 0; i < g->n_tensors; i++) {
        esp_diag_t diag = {0};
        if (g->tensor_next[i] == ESP_NONE)
            continue;
        assert_true(n + g->tensor_elements[i] < 4096);
        test_assert_ok(esp_exec_get(run->job.exec, i, all + n, &diag), &diag);
        n += g->tensor_elements[i];
    }
    *n_out = n;
    return all;
}

/* ---- resuming -------------------------------------------------------------------------------- */

/* Seven steps at once, or four, a checkpoint, another executor, and three more. */
static void resume(const test_dir_t *dir, int32_t n, esp_mode_t update, bool exact)
{
    char path[TEST_PATH_MAX];
    run_t whole, first, second;
    record_t all = {0}, parts = {0};
    esp_train_result_t result;
    esp_diag_t diag = {0};
    esp_schedule_opts_t schedule = esp_schedule_opts_default();
    schedule.kind = ESP_SCHEDULE_COSINE;
    schedule.total = 7;
    schedule.warmup = 2;
    test_dir_file(dir, "checkpoint", path);
    run_start(&whole, 0.3, 0.05, 3, ESP_MODE_BATCH);
    esp_train_opts_t opts = opts_of(&all, 7);
    opts.schedule = &schedule;
    test_assert_ok(esp_train(&whole.job, &opts, &result, &diag), &diag);
    assert_int_equal(result.steps, 7);
    assert_true(result.first_loss == all.loss[0] && result.loss == all.loss[6]);

    run_start(&first, 0.3, 0.05, 3, ESP_MODE_BATCH);
    opts = opts_of(&parts, 4);
    opts.schedule = &schedule;
    opts.checkpoint = path;
    opts.checkpoint_every = 3;
    test_assert_ok(esp_train(&first.job, &opts, &result, &diag), &diag);
    run_end(&first);

    run_start(&second, 0.3, 0.05, n, update);
    test_assert_ok(esp_checkpoint_load(&second.job, NULL, path, &diag), &diag);
    assert_int_equal(esp_exec_step(second.job.exec), 4);
    opts.until = 7;
    test_assert_ok(esp_train(&second.job, &opts, &result, &diag), &diag);
    assert_int_equal(result.steps, 3);
    assert_int_equal(parts.n, 7);
    for (int i = 0; i < 7; i++) {
        double tolerance = exact ? 0 : 1e-6 * fabs(all.loss[i]);
        assert_true(fabs(parts.loss[i] - all.loss[i]) <= tolerance);
        assert_true(parts.factor[i] == all.factor[i]);
    }
    int64_t n_whole, n_second;
    float *x = values_of(&whole, &n_whole), *y = values_of(&second, &n_second);
    assert_int_equal(n_whole, n_second);
    if (exact)
        assert_memory_equal(x, y, (size_t)n_whole * sizeof *x);
    free(x);
    free(y);
    run_end(&whole);
    run_end(&second);
}

static void test_resume(void **state)
{
    test_dir_t dir;
    (void)state;
    test_dir_make(&dir);
    resume(&dir, 3, ESP_MODE_BATCH, true);
    resume(&dir, 1, ESP_MODE_BATCH, false);
    resume(&dir, 5, ESP_MODE_SHARD, false);
    assert_int_equal(test_dir_count(&dir), 1);
    test_dir_remove(&dir);
}

static void test_stop(void **state)
{
    test_dir_t dir;
    char path[TEST_PATH_MAX];
    run_t run, other;
    record_t record = {.stop_at = 5};
    esp_train_result_t result;
    esp_diag_t diag = {0};
    (void)state;
    test_dir_make(&dir);
    run_start(&run, 0, 0.05, 2, ESP_MODE_BATCH);
    esp_train_opts_t opts = opts_of(&record, 60);
    opts.checkpoint = test_dir_file(&dir, "c", path);
    test_assert_ok(esp_train(&run.job, &opts, &result, &diag), &diag);
    assert_int_equal(result.stopped, 1);
    assert_true(result.steps >= 5 && result.steps < 60);
    run_start(&other, 0, 0.05, 2, ESP_MODE_BATCH);
    test_assert_ok(esp_checkpoint_load(&other.job, NULL, path, &diag), &diag);
    assert_int_equal(esp_exec_step(other.job.exec), result.steps);
    run_end(&run);
    run_end(&other);
    test_dir_remove(&dir);
}

/* ---- checkpoints that do not belong here ------------------------------------------------------
 */

static void test_foreign_checkpoints(void **state)
{
    test_dir_t dir;
    char path[TEST_PATH_MAX], other[TEST_PATH_MAX];
    run_t run, different;
    esp_diag_t diag = {0};
    size_t length;
    (void)state;
    test_dir_make(&dir);
    test_dir_file(&dir, "c", path);
    test_dir_file(&dir, "d", other);
    run_start(&run, 0, 0.05, 2, ESP_MODE_BATCH);
    test_assert_ok(esp_checkpoint_save(&run.job, NULL, path, &diag), &diag);
    run_start(&different, 0, 0.04, 2, ESP_MODE_BATCH);
    test_assert_fails(esp_checkpoint_load(&different.job, NULL, path, &diag), &diag,
                      ESP_ERR_INVALID, "another training graph");
    run_end(&different);
    run.job.seed = 4;
    test_assert_fails(esp_checkpoint_load(&run.job, NULL, path, &diag), &diag, ESP_ERR_INVALID,
                      "another seed: 3, not 4");
    run.job.seed = 3;
    test_assert_fails(esp_checkpoint_load(&run.job, NULL, other, &diag), &diag, ESP_ERR_IO, "d:");
    char *file = test_read_file(path, &length);
    for (size_t n = 0; n < length; n += n < 64 ? 7 : 101) {
        test_write_file(other, file, n);
        diag = (esp_diag_t){0};
        assert_int_not_equal(esp_checkpoint_load(&run.job, NULL, other, &diag), ESP_OK);
        assert_true(diag.text[0] != '\0');
    }
    /* A file of tensors that is no checkpoint. */
    char *at = strstr(file + 8, "espalier-checkpoint-1");
    assert_non_null(at);
    at[0] = 'E';
    test_write_file(other, file, length);
    test_assert_fails(esp_checkpoint_load(&run.job, NULL, other, &diag), &diag, ESP_ERR_INVALID,
                      "no checkpoint");
    free(file);
    assert_int_equal(esp_exec_step(run.job.exec), 0);
    test_assert_fails(esp_checkpoint_save(&run.job, NULL, "/nowhere/c", &diag), &diag, ESP_ERR_IO,
                      "/nowhere/c");
    assert_int_equal(test_dir_count(&dir), 2);
    run_end(&run);
    test_dir_remove(&dir);
}

/* ---- learning and evaluation ----------------------------------------------------------------- */

enum { ROWS = 45 };

/* Classes that are apart: row i is of class i % 3, near a corner of its own. */
static void write_toy(const test_dir_t *dir, char *spec, size_t capacity)
{
    float x[ROWS][FEATURES];
    int32_t labels[ROWS];
    char x_path[TEST_PATH_MAX], y_path[TEST_PATH_MAX];
    esp_diag_t diag = {0};
    for (int i = 0; i < ROWS; i++) {
        labels[i] = i % CLASSES;
        for (int j = 0; j < FEATURES; j++)
            x[i][j] = (j % CLASSES == labels[i] ? 1.0F : -1.0F) +
                      0.3F * (float)esp_i_philox(1, 2, (uint64_t)i, (uint64_t)j) / 4294967296.0F;
    }
    test_dir_file(dir, "x.npy", x_path);
    test_dir_file(dir, "y.npy", y_path);
    test_assert_ok(esp_i_npy_write(x_path, ESP_DTYPE_F32, 2, NET_DIMS(ROWS, FEATURES), x, &diag),
                   &diag);
    test_assert_ok(esp_i_npy_write(y_path, ESP_DTYPE_I32, 1, NET_DIMS(ROWS), labels, &diag), &diag);
    (void)snprintf(spec, capacity, "x=%s,labels=%s", x_path, y_path);
}

static void test_learns(void **state)
{
    test_dir_t dir;
    char spec[3 * TEST_PATH_MAX];
    double last = -1;
    (void)state;
    test_dir_make(&dir);
    write_toy(&dir, spec, sizeof spec);
    for (int32_t n = 1; n <= 5; n += 2) { /* shares of 8 samples on 3 and 5 devices are uneven */
        run_t run;
        record_t record = {0};
        esp_graph_t *graph;
        esp_evaluator_t *evaluator;
        esp_data_t *data, *held;
        esp_data_opts_t in_order = esp_data_opts_default();
        esp_train_result_t result;
        esp_diag_t diag = {0};
        in_order.shuffle = 0;
        run_start(&run, 0.1, 0.05, n, ESP_MODE_BATCH);
        test_assert_ok(esp_evaluation_graph(run.model, &run.training, NULL, &graph, &diag), &diag);
        test_assert_ok(
            esp_evaluator_create(graph, run.deployment, &run.opts, NULL, &evaluator, &diag), &diag);
        test_assert_ok(esp_data_open(run.job.graph, spec, NULL, NULL, &data, &diag), &diag);
        test_assert_ok(esp_data_open(graph, spec, &in_order, NULL, &held, &diag), &diag);
        esp_train_opts_t opts = opts_of(&record, 50);
        opts.data = data;
        opts.evaluator = evaluator;
        opts.evaluation_data = held;
        opts.evaluate_every = 20;
        test_assert_ok(esp_train(&run.job, &opts, &result, &diag), &diag);
        assert_int_equal(record.n_evaluations, 3);
        assert_int_equal(result.evaluated, 1);
        assert_true(result.evaluation.accuracy == 1);
        assert_int_equal(result.evaluation.labels, ROWS / BATCH * BATCH);
        assert_true(result.evaluation.loss < 0.3 && result.loss < result.first_loss);
        /* However many devices, the same numbers. */
        assert_true(last < 0 || fabs(result.evaluation.loss - last) < 1e-4 * last);
        last = result.evaluation.loss;
        esp_data_close(data);
        esp_data_close(held);
        esp_evaluator_destroy(evaluator);
        esp_graph_destroy(graph);
        run_end(&run);
    }
    test_dir_remove(&dir);
}

/* Data that turns out to be bad in a step fails the run, and says where. */
static void test_bad_rows(void **state)
{
    test_dir_t dir;
    char spec[3 * TEST_PATH_MAX], path[TEST_PATH_MAX];
    int32_t labels[ROWS] = {[17] = 9};
    run_t run;
    record_t record = {0};
    esp_data_t *data;
    esp_train_result_t result;
    esp_diag_t diag = {0};
    (void)state;
    test_dir_make(&dir);
    write_toy(&dir, spec, sizeof spec);
    test_dir_file(&dir, "y.npy", path);
    test_assert_ok(esp_i_npy_write(path, ESP_DTYPE_I32, 1, NET_DIMS(ROWS), labels, &diag), &diag);
    run_start(&run, 0, 0.05, 2, ESP_MODE_BATCH);
    test_assert_ok(esp_data_open(run.job.graph, spec, NULL, NULL, &data, &diag), &diag);
    esp_train_opts_t opts = opts_of(&record, 50);
    opts.data = data;
    esp_status_t status = esp_train(&run.job, &opts, &result, &diag);
    assert_true(status == ESP_ERR_INVALID || status == ESP_ERR_IO);
    char text[1024];
    (void)esp_diag_format(&diag, text, sizeof text);
    if (strstr(text, "row 17: 9 is not in [0, 3)") == NULL)
        fail_msg("%s", text);
    esp_data_close(data);
    run_end(&run);
    test_dir_remove(&dir);
}

/* A rate of 0 from the second step on: nothing moves any more. */
static void test_rate(void **state)
{
    run_t run;
    record_t record = {0};
    esp_train_result_t result;
    esp_diag_t diag = {0};
    esp_schedule_opts_t schedule = esp_schedule_opts_default();
    esp_tensor_id_t w;
    float before[64], after[64];
    (void)state;
    schedule.kind = ESP_SCHEDULE_STEP;
    schedule.every = 1;
    schedule.gamma = 0;
    run_start(&run, 0, 0.05, 2, ESP_MODE_BATCH);
    w = run.job.graph->parameter[0];
    assert_true(run.job.graph->tensor_elements[w] <= 64);
    test_assert_ok(esp_exec_get(run.job.exec, w, before, &diag), &diag);
    esp_train_opts_t opts = opts_of(&record, 1);
    opts.schedule = &schedule;
    test_assert_ok(esp_train(&run.job, &opts, &result, &diag), &diag);
    test_assert_ok(esp_exec_get(run.job.exec, w, after, &diag), &diag);
    assert_memory_not_equal(before, after,
                            (size_t)run.job.graph->tensor_elements[w] * sizeof *before);
    opts.until = 3;
    test_assert_ok(esp_train(&run.job, &opts, &result, &diag), &diag);
    test_assert_ok(esp_exec_get(run.job.exec, w, before, &diag), &diag);
    assert_memory_equal(before, after, (size_t)run.job.graph->tensor_elements[w] * sizeof *before);
    run_end(&run);
}

/* ---- initial weights ------------------------------------------------------------------------- */

typedef struct names {
    char missing[256], unused[256];
} names_t;

static void unmatched(void *context, const char *name, int in_file)
{
    names_t *names = context;
    char *list = in_file ? names->unused : names->missing;
    size_t length = strlen(list);
    (void)snprintf(list + length, 256 - length, "%s ", name);
}

static esp_tensor_id_t find(const esp_graph_t *graph, const char *name)
{
    for (esp_tensor_id_t i = 0; i < graph->n_tensors; i++)
        if (strcmp(graph->tensor_name[i], name) == 0)
            return i;
    fail_msg("no tensor %s", name);
    return ESP_NONE;
}

static void test_weights(void **state)
{
    test_dir_t dir;
    char path[TEST_PATH_MAX];
    run_t run;
    names_t names = {"", ""};
    esp_weights_opts_t opts = esp_weights_opts_default();
    esp_weights_result_t result;
    esp_diag_t diag = {0};
    double w[10 * CLASSES];
    float got[10 * CLASSES];
    static const uint16_t b[CLASSES] = {0x3c00, 0xc000, 0x0000};
    esp_i_st_tensor_t tensors[3] = {
        {.name = "two/w", .dtype = ESP_DTYPE_F64, .rank = 2, .dims = {10, CLASSES}},
        {.name = "two/b", .dtype = ESP_DTYPE_F16, .rank = 1, .dims = {CLASSES}},
        {.name = "head", .dtype = ESP_DTYPE_U8, .rank = 1, .dims = {1}},
    };
    esp_i_file_out_t file;
    (void)state;
    opts.unmatched = unmatched;
    opts.context = &names;
    test_dir_make(&dir);
    test_dir_file(&dir, "w.safetensors", path);
    for (int i = 0; i < 10 * CLASSES; i++)
        w[i] = 0.125 * i - 1;
    test_assert_ok(esp_i_st_begin(path, NULL, 0, NULL, 3, tensors, &file, &diag), &diag);
    test_assert_ok(esp_i_file_append(&file, w, sizeof w, &diag), &diag);
    test_assert_ok(esp_i_file_append(&file, b, sizeof b, &diag), &diag);
    test_assert_ok(esp_i_file_append(&file, "x", 1, &diag), &diag);
    test_assert_ok(esp_i_file_commit(&file, &diag), &diag);
    run_start(&run, 0, 0.05, 2, ESP_MODE_SHARD);
    test_assert_ok(esp_weights_load(&run.job, path, &opts, &result, &diag), &diag);
    assert_true(result.loaded == 2 && result.missing == 2 && result.unused == 1);
    assert_string_equal(names.missing, "one/w one/b ");
    assert_string_equal(names.unused, "head ");
    test_assert_ok(esp_exec_get(run.job.exec, find(run.job.graph, "two/w"), got, &diag), &diag);
    for (int i = 0; i < 10 * CLASSES; i++)
        assert_true((double)got[i] == w[i]);
    test_assert_ok(esp_exec_get(run.job.exec, find(run.job.graph, "two/b"), got, &diag), &diag);
    assert_true(got[0] == 1 && got[1] == -2 && got[2] == 0);
    /* Another shape; no name that fits. */
    tensors[0].dims[0] = CLASSES;
    tensors[0].dims[1] = 10;
    test_assert_ok(esp_i_st_begin(path, NULL, 0, NULL, 1, tensors, &file, &diag), &diag);
    test_assert_ok(esp_i_file_append(&file, w, sizeof w, &diag), &diag);
    test_assert_ok(esp_i_file_commit(&file, &diag), &diag);
    test_assert_fails(esp_weights_load(&run.job, path, NULL, &result, &diag), &diag,
                      ESP_ERR_INVALID, "two/w");
    test_assert_ok(esp_i_st_begin(path, NULL, 0, NULL, 0, tensors, &file, &diag), &diag);
    test_assert_ok(esp_i_file_commit(&file, &diag), &diag);
    test_assert_fails(esp_weights_load(&run.job, path, NULL, &result, &diag), &diag,
                      ESP_ERR_INVALID, "no weight of the graph");
    run_end(&run);
    test_dir_remove(&dir);
}

/* Initialisers: raw and typed lists, doubles, and one without data. */
static void test_onnx_weights(void **state)
{
    test_dir_t dir;
    char path[TEST_PATH_MAX];
    onnx_model_t model;
    esp_onnx_weights_t *weights;
    run_t run;
    esp_weights_result_t result;
    esp_diag_t diag = {0};
    float got[10 * CLASSES];
    (void)state;
    test_dir_make(&dir);
    test_dir_file(&dir, "m.onnx", path);
    om_init(&model, 17);
    om_input(&model, "x", OM_FLOAT, "8 6");
    om_weight(&model, "one/w", "6 10");
    om_floats(&model, "two/b", "3", "0.5 -1 2");
    om_ints(&model, "shape", "2", "8 6");
    om_node(&model, "Relu", "x", "y", "");
    om_output(&model, "y");
    message_t bytes = om_finish(&model);
    test_write_file(path, bytes.data, bytes.length);
    test_assert_ok(esp_onnx_weights_open(path, NULL, &weights, &diag), &diag);
    assert_int_equal(weights->n, 3);
    assert_true(weights->weight[0].there == 0 && weights->weight[1].there == 1);
    assert_int_equal(weights->weight[0].dims[1], 10);
    int64_t shape[2];
    test_assert_ok(esp_onnx_weights_read(weights, 2, shape, &diag), &diag);
    assert_true(shape[0] == 8 && shape[1] == 6);
    esp_onnx_weights_close(weights);
    run_start(&run, 0, 0.05, 2, ESP_MODE_BATCH);
    test_assert_ok(esp_weights_load(&run.job, path, NULL, &result, &diag), &diag);
    assert_true(result.loaded == 1 && result.missing == 3 && result.unused == 0);
    test_assert_ok(esp_exec_get(run.job.exec, find(run.job.graph, "two/b"), got, &diag), &diag);
    assert_true(got[0] == 0.5F && got[1] == -1 && got[2] == 2);
    for (size_t n = 0; n < bytes.length; n += 3) {
        test_write_file(path, bytes.data, n);
        diag = (esp_diag_t){0};
        if (esp_weights_load(&run.job, path, NULL, &result, &diag) != ESP_OK)
            assert_true(diag.text[0] != '\0');
    }
    message_free(&bytes);
    om_free(&model);
    run_end(&run);
    test_dir_remove(&dir);
}

/* A ninth device, which only updates, has no sample of eight to evaluate. */
static void test_too_few_samples(void **state)
{
    run_t run;
    esp_graph_t *graph;
    esp_evaluator_t *evaluator;
    esp_diag_t diag = {0};
    (void)state;
    run_start(&run, 0, 0.05, 8, ESP_MODE_WHOLE);
    plan_of_t *plan = &run.plan;
    plan->device[1][0] = 8;
    plan->weight[1][0] = 1;
    plan->mesh[1] = (esp_mesh_spec_t){1, plan->device[1], plan->weight[1]};
    plan->strategy.n_meshes = 2;
    for (esp_op_id_t op = 0; op < run.bench.graph->n_ops; op++)
        plan->op_mesh[op] = run.bench.graph->op_phase[op] == ESP_PHASE_UPDATE;
    esp_exec_destroy(run.job.exec);
    run.job.exec = NULL;
    test_assert_ok(esp_lower(run.bench.lowerer, &plan->strategy, &run.deployment, &diag), &diag);
    test_assert_ok(esp_deployment_pack(run.bench.lowerer, &diag), &diag);
    test_assert_ok(esp_evaluation_graph(run.model, &run.training, NULL, &graph, &diag), &diag);
    test_assert_fails(
        esp_evaluator_create(graph, run.deployment, &run.opts, NULL, &evaluator, &diag), &diag,
        ESP_ERR_UNSUPPORTED, "a batch of 8 samples");
    esp_graph_destroy(graph);
    run_end(&run);
}

static void test_bad_options(void **state)
{
    run_t run;
    record_t record = {0};
    esp_train_result_t result;
    esp_diag_t diag = {0};
    (void)state;
    run_start(&run, 0, 0.05, 1, ESP_MODE_BATCH);
    esp_train_opts_t opts = opts_of(&record, -1);
    test_assert_fails(esp_train(&run.job, &opts, &result, &diag), &diag, ESP_ERR_ARGUMENT,
                      "out of range");
    opts.struct_size = 0;
    test_assert_fails(esp_train(&run.job, &opts, &result, &diag), &diag, ESP_ERR_ARGUMENT,
                      "version");
    run_end(&run);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_resume),      cmocka_unit_test(test_stop),
        cmocka_unit_test(test_learns),      cmocka_unit_test(test_foreign_checkpoints),
        cmocka_unit_test(test_bad_rows),    cmocka_unit_test(test_rate),
        cmocka_unit_test(test_weights),     cmocka_unit_test(test_onnx_weights),
        cmocka_unit_test(test_bad_options), cmocka_unit_test(test_too_few_samples),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
