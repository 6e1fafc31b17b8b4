/* Plan files: round trips, paths, faults with their JSON path, and what a plan is for. */
#include "models.h"
#include "support.h"

#include "espalier/plan.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- a plan -------------------------------------------------------------------------------- */

#define HASH_A "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
#define HASH_B "00000000000000000000000000000000000000000000000000000000000000ff"

typedef struct sample {
    esp_plan_t plan;
    esp_plan_device_t device[3];
    esp_mesh_spec_t mesh[2];
    int32_t mesh_device[3], op_mesh[3], op_group[3];
    double mesh_weight[3];
    uint8_t op_mode[3];
    const char *op_name[3];
    esp_plan_group_t group[2];
    esp_plan_baseline_t baseline[2];
} sample_t;

static void sample_fill(sample_t *s)
{
    memset(s, 0, sizeof *s);
    s->device[0] = (esp_plan_device_t){"pc0/gpu0", 100, 120, 1000, 77};
    s->device[1] = (esp_plan_device_t){"pc0/gpu1", 101, 121, 1000, 78};
    s->device[2] = (esp_plan_device_t){"pc1/gpu0", 0, 0, INT64_C(1) << 40, 0};
    s->mesh_device[1] = 1;
    s->mesh_device[2] = 2;
    s->mesh_weight[0] = 1;
    s->mesh_weight[1] = 0.1;
    s->mesh_weight[2] = 1e-3;
    s->mesh[0] = (esp_mesh_spec_t){1, s->mesh_device, s->mesh_weight};
    s->mesh[1] = (esp_mesh_spec_t){2, s->mesh_device + 1, s->mesh_weight + 1};
    s->op_name[0] = "conv \"1\"";
    s->op_name[1] = "conv/grad";
    s->op_name[2] = "step";
    s->op_mesh[0] = 1;
    s->op_mesh[2] = ESP_NONE;
    s->op_mode[1] = ESP_MODE_SHARD;
    s->op_mode[2] = ESP_MODE_WHOLE;
    s->op_group[1] = 1;
    s->op_group[2] = ESP_NONE;
    s->group[0] = (esp_plan_group_t){"g0", 1, ESP_SYNC_SHARDED, ESP_SHARES_PROPORTIONAL};
    s->group[1] = (esp_plan_group_t){"g1", ESP_NONE, ESP_SYNC_ALLREDUCE, ESP_SHARES_EQUAL};
    s->baseline[0] = (esp_plan_baseline_t){"dp-allreduce", 123456, 1};
    s->baseline[1] = (esp_plan_baseline_t){"single", 0, 0};
    esp_plan_t *p = &s->plan;
    p->version = "0.1.0";
    p->model_path = "models/x.onnx";
    p->model_sha256 = HASH_A;
    p->batch_dim = "";
    p->dims = "seq=128";
    p->cluster_path = "";
    p->cluster_sha256 = HASH_B;
    p->cluster_text = "name: lab\nnodes:\n";
    p->graph_sha256 = HASH_B;
    p->batch = 96;
    p->precision = ESP_PRECISION_BF16;
    p->training = esp_training_opts_default();
    p->training.optimizer = ESP_OPTIMIZER_ADAMW;
    p->training.loss = ESP_LOSS_XENT;
    p->training.ignore_label = -100;
    p->training.rate = 0.1;
    p->training.freeze_regex = "^emb";
    p->n_devices = 3;
    p->device = s->device;
    p->strategy = (esp_strategy_t){2, s->mesh, s->op_mesh, s->op_mode, 4, 25 << 20, 1};
    p->n_ops = 3;
    p->op_name = s->op_name;
    p->op_group = s->op_group;
    p->n_groups = 2;
    p->group = s->group;
    p->links = ESP_LINK_FAIR;
    p->barrier = 1;
    p->step_time_ns = 1234567890123;
    p->makespan_ns = 5;
    p->lower_bound_ns = 3;
    p->seed = INT64_MAX;
    p->evaluations = 2000;
    p->n_baselines = 2;
    p->baseline = s->baseline;
}

/* Release with free(). In a struct, because gcc 12 takes a local pointer for what it points at. */
static char *json_of(const esp_plan_t *plan)
{
    struct {
        char *text;
    } out = {NULL};
    esp_diag_t diag = {0};
    test_assert_ok(esp_plan_to_json(plan, NULL, NULL, &out.text, &diag), &diag);
    return out.text;
}

static esp_status_t parse(const char *text, esp_plan_t **plan, esp_diag_t *diag)
{
    memset(diag, 0, sizeof *diag);
    return esp_plan_parse(text, strlen(text), NULL, NULL, plan, diag);
}

/* ---- round trips --------------------------------------------------------------------------- */

static void test_golden_text(void **state)
{
    (void)state;
    sample_t s;
    sample_fill(&s);
    char *text = json_of(&s.plan);
    test_golden("plan.json", text);
    free(text);
}

static void test_round_trip(void **state)
{
    (void)state;
    sample_t s;
    esp_plan_t *read, *clone;
    esp_diag_t diag;
    sample_fill(&s);
    char *text = json_of(&s.plan);
    test_assert_ok(parse(text, &read, &diag), &diag);
    char *again = json_of(read);
    assert_string_equal(text, again);
    assert_int_equal(read->strategy.op_mesh[2], ESP_NONE);
    assert_int_equal(read->strategy.mesh[1].device[1], 2);
    assert_true(read->strategy.mesh[1].weight[0] == 0.1);
    assert_int_equal(read->training.ignore_label, -100);
    assert_null(read->training.train_regex);
    assert_true(read->seed == INT64_MAX);
    test_assert_ok(esp_plan_clone(read, NULL, &clone, &diag), &diag);
    esp_plan_destroy(read);
    char *third = json_of(clone);
    assert_string_equal(text, third);
    esp_plan_destroy(clone);
    esp_plan_destroy(NULL);
    free(text);
    free(again);
    free(third);
}

/* ---- paths --------------------------------------------------------------------------------- */

static void expect_path(const char *directory, const char *model, const char *expected)
{
    sample_t s;
    char *text, member[TEST_PATH_MAX];
    esp_diag_t diag = {0};
    sample_fill(&s);
    s.plan.model_path = model;
    test_assert_ok(esp_plan_to_json(&s.plan, directory, NULL, &text, &diag), &diag);
    (void)snprintf(member, sizeof member, "\"path\": \"%s\"", expected);
    if (!strstr(text, member))
        fail_msg("%s in %s is not written as %s", model, directory, expected);
    free(text);
}

static void test_paths(void **state)
{
    (void)state;
    expect_path("/a/b", "/a/b/m.onnx", "m.onnx");
    expect_path("/a/b/", "/a/b/c//./m.onnx", "c/m.onnx");
    expect_path("/a/b", "/a/bc/m.onnx", "/a/bc/m.onnx");
    expect_path("/a/b", "/a/b/../m.onnx", "/a/m.onnx");
    expect_path("/a/b", "/../../m.onnx", "/m.onnx");
    expect_path("/", "/m.onnx", "m.onnx");
    expect_path(".", "m.onnx", "m.onnx");
    expect_path("x/..", "models/m.onnx", "models/m.onnx");
    expect_path(NULL, "../m.onnx", "../m.onnx");
}

/* Written beside its model, moved with it, the plan still names it. */
static void test_files(void **state)
{
    (void)state;
    sample_t s;
    test_dir_t dir;
    char model[TEST_PATH_MAX], file[TEST_PATH_MAX], again[TEST_PATH_MAX];
    esp_plan_t *plan;
    esp_diag_t diag = {0};
    sample_fill(&s);
    test_dir_make(&dir);
    s.plan.model_path = test_dir_file(&dir, "sub/m.onnx", model);
    test_assert_ok(esp_plan_write(&s.plan, test_dir_file(&dir, "plan.json", file), &diag), &diag);
    test_assert_ok(esp_plan_read(file, NULL, &plan, &diag), &diag);
    assert_string_equal(plan->model_path, model);
    test_assert_ok(esp_plan_write(plan, test_dir_file(&dir, "again.json", again), &diag), &diag);
    esp_plan_destroy(plan);
    char *one = test_read_file(file, NULL), *two = test_read_file(again, NULL);
    assert_string_equal(one, two);
    free(one);
    free(two);
    s.plan.batch = -1; /* nothing is written, nothing is left */
    test_assert_fails(esp_plan_write(&s.plan, file, &diag), &diag, ESP_ERR_ARGUMENT,
                      "$.step.batch");
    assert_int_equal(test_dir_count(&dir), 2);
    memset(&diag, 0, sizeof diag);
    test_assert_fails(esp_plan_read(test_dir_file(&dir, "absent", again), NULL, &plan, &diag),
                      &diag, ESP_ERR_IO, "absent");
    test_dir_remove(&dir);
}

static void test_hash_file(void **state)
{
    (void)state;
    test_dir_t dir;
    char path[TEST_PATH_MAX], hex[65];
    esp_diag_t diag = {0};
    test_dir_make(&dir);
    test_write_file(test_dir_file(&dir, "abc", path), "abc", 3);
    test_assert_ok(esp_plan_hash_file(path, hex, &diag), &diag);
    assert_string_equal(hex, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    test_assert_fails(esp_plan_hash_file(test_dir_file(&dir, "no", path), hex, &diag), &diag,
                      ESP_ERR_IO, "no");
    test_dir_remove(&dir);
}

/* ---- faults in files ----------------------------------------------------------------------- */

typedef struct edit {
    const char *from, *to; /* the first occurrence is replaced */
    esp_status_t status;
    const char *part;
} edit_t;

static const edit_t edits[] = {
    {"espalier-plan", "other", ESP_ERR_INVALID, "this is no plan"},
    {"\"format_version\": 1", "\"format_version\": 2", ESP_ERR_UNSUPPORTED, "format version 2"},
    {"\"graph\":", "\"grap\":", ESP_ERR_INVALID, "grap"},
    {"\"batch\": 96", "\"batch\": -1", ESP_ERR_INVALID, "$.step.batch"},
    {"\"batch\": 96", "\"batch\": 97", ESP_ERR_INVALID, "$.strategy.micro_batches"},
    {"\"batch\": 96", "\"batch\": 96.5", ESP_ERR_INVALID, "$.step.batch"},
    {"\"batch\": 96,", "", ESP_ERR_INVALID, "batch"},
    {"\"batch\": 96,", "\"batch\": 96, \"batch\": 96,", ESP_ERR_SYNTAX, "batch"},
    {"\"bf16\"", "\"fp8\"", ESP_ERR_INVALID, "$.step.precision"},
    {"\"adamw\"", "\"statistic\"", ESP_ERR_INVALID, "$.step.optimizer"},
    {"0123456789abcdef0123", "0123456789ABCDEF0123", ESP_ERR_INVALID, "$.model.sha256"},
    {"\"models/x.onnx\"", "\"\"", ESP_ERR_INVALID, "$.model.path"},
    {"\"train_regex\": null", "\"train_regex\": 1", ESP_ERR_INVALID, "$.step.train_regex"},
    {"{\"name\": \"pc0/gpu1\"", "{\"name\": \"pc0/gpu0\"", ESP_ERR_INVALID, "$.devices[1]"},
    {"\"peak_bytes\": 100", "\"peak_bytes\": -1", ESP_ERR_INVALID, "$.devices[0].peak_bytes"},
    {"\"devices\": [\"pc0/gpu0\"]", "\"devices\": [\"pc9\"]", ESP_ERR_INVALID,
     "$.strategy.meshes[0].devices[0]"},
    {"\"devices\": [\"pc0/gpu1\", \"pc1/gpu0\"]", "\"devices\": [\"pc1/gpu0\", \"pc0/gpu1\"]",
     ESP_ERR_INVALID, "$.strategy.meshes[1].devices[1]"},
    {"\"weights\": [0.1, ", "\"weights\": [", ESP_ERR_INVALID, "$.strategy.meshes[1].weights"},
    {"\"weights\": [0.1, ", "\"weights\": [0, ", ESP_ERR_INVALID,
     "$.strategy.meshes[1].weights[0]"},
    {"\"sync\": \"sharded\"", "\"sync\": \"zero\"", ESP_ERR_INVALID, "$.strategy.groups[0].sync"},
    {"\"name\": \"g0\", \"mesh\": 1", "\"name\": \"g0\", \"mesh\": 2", ESP_ERR_INVALID,
     "$.strategy.groups[0].mesh"},
    {"\"modes\": [\"batch\"]", "\"modes\": [\"batch\", \"batch\"]", ESP_ERR_UNSUPPORTED,
     "$.strategy.ops[0].modes"},
    {"\"modes\": [\"batch\"]", "\"modes\": [\"row\"]", ESP_ERR_INVALID,
     "$.strategy.ops[0].modes[0]"},
    {"\"group\": 1", "\"group\": 7", ESP_ERR_INVALID, "$.strategy.ops[1].group"},
    {"\"mesh\": null, \"modes\": [\"whole\"]", "\"mesh\": null, \"modes\": [\"batch\"]",
     ESP_ERR_INVALID, "$.strategy.ops[2].mesh"},
    {"conv/grad", "step", ESP_ERR_INVALID, "$.strategy.ops[2].name"},
    {"\"links\": \"fair\"", "\"links\": \"lossy\"", ESP_ERR_INVALID, "$.prediction.links"},
    {"\"barrier\": true", "\"barrier\": 1", ESP_ERR_INVALID, "$.prediction.barrier"},
    {"\"seed\": ", "\"seed\": -", ESP_ERR_INVALID, "$.search.seed"},
    {"\"fits\": true", "\"fits\": 1", ESP_ERR_INVALID, "$.search.baselines[0].fits"},
    {"\"makespan_ns\": 5", "\"makespan_ns\": 5, \"colour\": 1", ESP_ERR_INVALID, "colour"},
    {"{\n", "[\n", ESP_ERR_SYNTAX, ""},
};

static char *edited(const char *text, const edit_t *edit)
{
    const char *at = strstr(text, edit->from);
    if (!at)
        fail_msg("%s is not in the text", edit->from);
    size_t length = strlen(text) + strlen(edit->to) + 1;
    char *out = malloc(length);
    assert_non_null(out);
    (void)snprintf(out, length, "%.*s%s%s", (int)(at - text), text, edit->to,
                   at + strlen(edit->from));
    return out;
}

static void test_faults(void **state)
{
    (void)state;
    sample_t s;
    sample_fill(&s);
    char *text = json_of(&s.plan);
    for (size_t i = 0; i < sizeof edits / sizeof *edits; i++) {
        char *bad = edited(text, &edits[i]);
        esp_plan_t *plan;
        esp_diag_t diag = {0};
        test_assert_fails(esp_plan_parse(bad, strlen(bad), "my.json", NULL, &plan, &diag), &diag,
                          edits[i].status, edits[i].part);
        assert_string_equal(diag.file, "my.json");
        free(bad);
    }
    free(text);
}

/* ---- faults in plans made by hand ------------------------------------------------------------ */

static void expect_fault(sample_t *s, const char *place)
{
    char *text;
    esp_plan_t *clone;
    esp_diag_t diag = {0};
    test_assert_fails(esp_plan_to_json(&s->plan, NULL, NULL, &text, &diag), &diag, ESP_ERR_ARGUMENT,
                      place);
    test_assert_fails(esp_plan_clone(&s->plan, NULL, &clone, &diag), &diag, ESP_ERR_ARGUMENT,
                      place);
    sample_fill(s);
}

static void test_faults_by_hand(void **state)
{
    (void)state;
    sample_t s;
    sample_fill(&s);
    s.plan.version = NULL;
    expect_fault(&s, "$.espalier");
    s.plan.dims = "\xff";
    expect_fault(&s, "$.model.dims");
    s.plan.training.rate = (double)NAN;
    expect_fault(&s, "$.step.rate");
    s.plan.training.optimizer = ESP_OPTIMIZER_STATISTIC;
    expect_fault(&s, "$.step.optimizer");
    s.plan.n_devices = 0;
    expect_fault(&s, "$.devices");
    s.device[1].name = "pc0/gpu0";
    expect_fault(&s, "$.devices[1].name");
    s.mesh_device[1] = 3;
    expect_fault(&s, "$.strategy.meshes[1].devices[0]");
    s.mesh_weight[0] = (double)INFINITY;
    expect_fault(&s, "$.strategy.meshes[0].weights[0]");
    s.plan.strategy.sync_batchnorm = 2;
    expect_fault(&s, "$.strategy.sync_batchnorm");
    s.op_mode[0] = 3;
    expect_fault(&s, "$.strategy.ops[0].modes[0]");
    s.op_mesh[0] = 2;
    expect_fault(&s, "$.strategy.ops[0].mesh");
    s.op_group[0] = 2;
    expect_fault(&s, "$.strategy.ops[0].group");
    s.plan.step_time_ns = -1;
    expect_fault(&s, "$.prediction");
    s.baseline[0].fits = 2;
    expect_fault(&s, "$.search.baselines[0]");
}

/* ---- what a plan is for -------------------------------------------------------------------- */

static void expect_other(esp_plan_t *plan, const esp_graph_t *graph, const esp_cluster_t *cluster,
                         const char *part)
{
    esp_diag_t diag = {0};
    test_assert_fails(esp_plan_check(plan, graph, cluster, &diag), &diag, ESP_ERR_INVALID, part);
}

static void test_check(void **state)
{
    (void)state;
    esp_training_opts_t opts = train_with(ESP_LOSS_XENT, ESP_OPTIMIZER_SGD);
    esp_graph_t *graph = model_mlp(8, 0, &opts), *other = model_mlp(16, 0, &opts);
    esp_cluster_t *cluster = NULL;
    char path[TEST_PATH_MAX], graph_hash[65], cluster_hash[65];
    esp_diag_t diag = {0};
    sample_t s;
    sample_fill(&s);
    test_assert_ok(
        esp_cluster_load(test_source_path("clusters/lab.yaml", path), NULL, &cluster, &diag),
        &diag);
    assert_int_equal(cluster->n_devices, 3);
    assert_int_equal(esp_graph_hash(graph, graph_hash), ESP_OK);
    test_assert_ok(esp_cluster_hash(cluster, NULL, cluster_hash, &diag), &diag);
    for (int32_t i = 0; i < 3; i++) {
        s.device[i].name = cluster->vertex_name[i];
        s.device[i].capacity_bytes = cluster->device_memory_bytes[i];
    }
    int32_t *index = calloc((size_t)graph->n_ops, sizeof *index);
    uint8_t *mode = calloc((size_t)graph->n_ops, 1);
    assert_true(index && mode);
    esp_plan_t *p = &s.plan;
    p->batch = 8;
    p->n_ops = graph->n_ops;
    p->op_name = graph->op_name;
    p->op_group = p->strategy.op_mesh = index;
    p->strategy.op_mode = mode;
    p->graph_sha256 = graph_hash;
    p->cluster_sha256 = cluster_hash;
    test_assert_ok(esp_plan_check(p, graph, cluster, &diag), &diag);
    expect_other(p, other, cluster, "batch");
    p->graph_sha256 = HASH_A;
    expect_other(p, graph, cluster, "training graph has changed");
    p->cluster_sha256 = HASH_A;
    expect_other(p, graph, cluster, "cluster has changed");
    s.device[1].capacity_bytes++;
    expect_other(p, graph, cluster, s.device[1].name);
    s.device[1].name = "elsewhere";
    expect_other(p, graph, cluster, "elsewhere");
    free(index);
    free(mode);
    esp_cluster_destroy(cluster);
    esp_graph_destroy(graph);
    esp_graph_destroy(other);
}

/* ---- memory -------------------------------------------------------------------------------- */

static esp_status_t attempt_all(const esp_allocator_t *alloc, void *context)
{
    const char *text = context;
    esp_plan_t *plan = NULL, *clone = NULL;
    char *json = NULL;
    esp_diag_t diag = {0};
    esp_status_t status = esp_plan_parse(text, strlen(text), "dir/file", alloc, &plan, &diag);
    if (status == ESP_OK)
        status = esp_plan_clone(plan, alloc, &clone, &diag);
    if (status == ESP_OK)
        status = esp_plan_to_json(clone, "/dir", alloc, &json, &diag);
    if (json)
        alloc->release(alloc->context, json);
    esp_plan_destroy(plan);
    esp_plan_destroy(clone);
    return status;
}

static void test_without_memory(void **state)
{
    (void)state;
    sample_t s;
    sample_fill(&s);
    char *text = json_of(&s.plan);
    test_sweep_allocations(attempt_all, text, 1);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden_text),    cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_paths),          cmocka_unit_test(test_files),
        cmocka_unit_test(test_hash_file),      cmocka_unit_test(test_faults),
        cmocka_unit_test(test_faults_by_hand), cmocka_unit_test(test_check),
        cmocka_unit_test(test_without_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
