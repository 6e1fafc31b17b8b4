/* The command: what each one prints. */
#include "cli_run.h"

#include "base/json.h"
#include "espalier/report.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Arguments -> tests/golden/cli/<name>. Masked: numbers that depend on the cost model are left out.
 */
static const struct golden {
    const char *name, *arguments;
    bool masked;
} goldens[] = {
    {"help.txt", "--help", false},
    {"version.txt", "--version", true},
    {"inspect_help.txt", "inspect --help", false},
    {"cluster_help.txt", "cluster -h", false},
    {"plan_help.txt", "plan --help", false},
    {"compare_help.txt", "compare --help", false},
    {"simulate_help.txt", "simulate --help", false},
    {"run_help.txt", "run --help", false},
    {"profile_help.txt", "profile --help", false},
    {"cluster_lab.txt", "cluster clusters/lab.yaml", false},
    {"cluster_testbed.txt", "cluster clusters/testbed.yaml --verbose", false},
    {"cluster_h100x64.txt", "cluster clusters/h100x64.yaml", false},
    {"cluster_lab.json", "cluster clusters/lab.yaml --json", false},
    {"cluster_cpu4.dot", "cluster clusters/cpu4.yaml --dot", false},
    {"cluster_cpu4.yaml", "cluster clusters/cpu4.yaml --dump", false},
    {"inspect_vgg19.txt", "inspect models/vgg19.onnx --batch 64 --optimizer momentum", false},
    {"inspect_vgg19_forward.txt", "inspect models/vgg19.onnx --forward --verbose", false},
    {"inspect_vgg19.json", "inspect models/vgg19.onnx --json", false},
    {"inspect_freeze.txt", "inspect models/vgg19.onnx --freeze features -v", false},
    {"compare_vgg19.txt",
     "compare models/vgg19.onnx -c clusters/testbed.yaml --batch 96 --evaluations 0 --precision "
     "fp16",
     true},
};

static void test_goldens(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof goldens / sizeof *goldens; i++) {
        char name[128];
        cli_result_t result;
        cli_run(&result, "%s", goldens[i].arguments);
        cli_expect(&result, 0);
        assert_string_equal(result.err, "");
        if (strstr(goldens[i].name, ".json") != NULL)
            cli_expect_json(&result);
        else if (strstr(goldens[i].name, ".txt") != NULL)
            cli_expect_narrow(&result);
        (void)snprintf(name, sizeof name, "cli/%s", goldens[i].name);
        cli_golden(&result, name, goldens[i].masked);
        cli_result_free(&result);
    }
}

/* What prints a lot, or what changes whenever a kind is added: only its shape is looked at. */
static void test_shapes(void **state)
{
    static const char *const texts[] = {
        "inspect --ops",
        "inspect models/bert_large.onnx --optimizer adam --batch 8",
        "inspect models/transformer_2layer.onnx --verbose",
        "cluster clusters/cloud.yaml",
        "plan models/resnet50.onnx -c clusters/testbed.yaml --batch 64 --evaluations 20",
        "plan models/vgg19.onnx -c clusters/h100x64.yaml --batch 512 --evaluations 10",
        "compare models/resnet50.onnx -c clusters/lab.yaml --evaluations 20 --barrier",
    };
    static const char *const documents[] = {
        "inspect --ops --json",
        "inspect models/resnet50.onnx --verbose --json",
        "cluster clusters/h100x64.yaml --json",
        "plan models/resnet50.onnx -c clusters/testbed.yaml --batch 64 --evaluations 20 --json",
        "compare models/vgg19.onnx -c clusters/lab.yaml --evaluations 0 --json --quiet",
    };
    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        cli_result_t result;
        cli_run(&result, "%s", texts[i]);
        cli_expect(&result, 0);
        cli_expect_narrow(&result);
        assert_string_equal(result.err, "");
        cli_result_free(&result);
    }
    for (size_t i = 0; i < sizeof documents / sizeof *documents; i++) {
        cli_result_t result;
        cli_run(&result, "%s", documents[i]);
        cli_expect(&result, 0);
        cli_expect_json(&result);
        assert_string_equal(result.err, "");
        cli_result_free(&result);
    }
}

/* docs/cli.md knows every option that a command has. */
static void test_reference_is_complete(void **state)
{
    static const char *const commands[] = {"inspect", "cluster", "plan", "compare", "simulate"};
    char path[TEST_PATH_MAX], option[64];
    (void)state;
    char *page = test_read_file(test_source_path("docs/cli.md", path), NULL);
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        cli_result_t result;
        cli_run(&result, "%s --help", commands[i]);
        cli_expect(&result, 0);
        for (const char *at = result.out; (at = strstr(at, " --")) != NULL; at++) {
            size_t length = strspn(at + 3, "abcdefghijklmnopqrstuvwxyz0123456789-");
            (void)snprintf(option, sizeof option, "`--%.*s", (int)length, at + 3);
            if (length > 0 && strstr(page, option) == NULL)
                fail_msg("%s is not in docs/cli.md", option);
        }
        cli_result_free(&result);
    }
    free(page);
}

static void test_quiet(void **state)
{
    static const char *const lines[] = {
        "inspect models/vgg19.onnx --quiet",
        "cluster clusters/lab.yaml -q",
        "compare models/vgg19.onnx -c clusters/lab.yaml --evaluations 0 -q",
        "plan models/vgg19.onnx -c clusters/lab.yaml --evaluations 0 -q",
    };
    (void)state;
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        cli_result_t result;
        cli_run(&result, "%s", lines[i]);
        cli_expect(&result, 0);
        assert_string_equal(result.out, "");
        assert_string_equal(result.err, "");
        cli_result_free(&result);
    }
}

/* The text of the training graph is that of the library, and parses. */
static void test_dump(void **state)
{
    cli_result_t result;
    esp_graph_t *graph;
    esp_diag_t diag = {0};
    (void)state;
    cli_run(&result, "inspect models/vgg19.onnx --dump --batch 8");
    cli_expect(&result, 0);
    test_assert_ok(esp_graph_parse(result.out, strlen(result.out), "stdout", NULL, &graph, &diag),
                   &diag);
    assert_int_equal(graph->batch, 8);
    assert_true(graph->n_parameters > 30);
    esp_graph_destroy(graph);
    cli_result_free(&result);
}

/* ---- plan and compare as JSON -------------------------------------------------------------- */

static double real_of(esp_i_json_t object, const char *key)
{
    double value;
    esp_diag_t diag = {0};
    esp_i_json_t member;
    assert_true(esp_i_json_find(object, key, &member));
    test_assert_ok(esp_i_json_as_real(member, -1e18, 1e18, &value, &diag), &diag);
    return value;
}

/* The keys that a plan and each row of a comparison have. */
static void check_row(esp_i_json_t row, int32_t n_devices)
{
    static const char *const keys[] = {"step_time_s", "feasible",      "baselines", "lower_bound_s",
                                       "evaluations", "search_time_s", "seed",      "devices"};
    static const char *const device_keys[] = {"name", "type", "peak_memory_bytes", "memory_bytes",
                                              "busy_s"};
    esp_i_json_t member, device;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        assert_true(esp_i_json_find(row, keys[i], &member));
    assert_true(esp_i_json_find(row, "devices", &member));
    assert_int_equal(esp_i_json_count(member), n_devices);
    for (int32_t d = 0; d < n_devices; d++)
        for (size_t i = 0; i < sizeof device_keys / sizeof *device_keys; i++)
            assert_true(esp_i_json_find(esp_i_json_item(member, d), device_keys[i], &device));
    assert_true(esp_i_json_find(row, "baselines", &member));
    assert_int_equal(esp_i_json_count(member), ESP_BASELINE_COUNT);
    for (int32_t b = 0; b < ESP_BASELINE_COUNT; b++) {
        assert_true(esp_i_json_find(esp_i_json_item(member, b), "name", &device));
        assert_true(esp_i_json_find(esp_i_json_item(member, b), "step_time_s", &device));
        assert_true(esp_i_json_find(esp_i_json_item(member, b), "feasible", &device));
    }
}

static esp_i_json_doc_t *parse(const char *text)
{
    esp_i_json_doc_t *doc;
    esp_diag_t diag = {0};
    test_assert_ok(esp_i_json_parse(NULL, text, (int64_t)strlen(text), "stdout", &doc, &diag),
                   &diag);
    return doc;
}

static void test_plan_json(void **state)
{
    cli_result_t result;
    esp_i_json_t usage;
    (void)state;
    cli_run(&result, "plan models/resnet50.onnx -c clusters/testbed.yaml --batch 128 "
                     "--evaluations 30 --json --seed 7");
    cli_expect(&result, 0);
    esp_i_json_doc_t *doc = parse(result.out);
    esp_i_json_t root = esp_i_json_root(doc);
    check_row(root, 16);
    assert_true(real_of(root, "seed") == 7);
    assert_true(real_of(root, "step_time_s") >= real_of(root, "lower_bound_s"));
    /* Compute, exposed communication and idle time are the step, on every device. */
    assert_true(esp_i_json_find(root, "usage", &usage));
    assert_int_equal(esp_i_json_count(usage), 16);
    for (int32_t d = 0; d < 16; d++) {
        esp_i_json_t use = esp_i_json_item(usage, d);
        double sum = real_of(use, "compute_s") + real_of(use, "exposed_s") + real_of(use, "idle_s");
        assert_true(sum > 0.9999 * real_of(root, "step_time_s"));
        assert_true(sum < 1.0001 * real_of(root, "step_time_s"));
        assert_true(real_of(use, "idle_s") >= 0);
    }
    esp_i_json_destroy(doc);
    cli_result_free(&result);
}

static void test_compare_json(void **state)
{
    cli_result_t result;
    esp_i_json_t rows;
    (void)state;
    cli_run(&result, "compare models/vgg19.onnx -c clusters/lab.yaml --evaluations 20 --json");
    cli_expect(&result, 0);
    esp_i_json_doc_t *doc = parse(result.out);
    check_row(esp_i_json_root(doc), 3);
    assert_true(esp_i_json_find(esp_i_json_root(doc), "rows", &rows));
    assert_int_equal(esp_i_json_count(rows), ESP_BASELINE_COUNT + 1);
    for (int32_t i = 0; i < esp_i_json_count(rows); i++)
        check_row(esp_i_json_item(rows, i), 3);
    esp_i_json_destroy(doc);
    cli_result_free(&result);
}

/* A plan that was written simulates to what it predicts, and is the same bytes every time. */
static void test_plan_file(void **state)
{
    test_dir_t dir;
    char path[TEST_PATH_MAX], again[TEST_PATH_MAX], trace[TEST_PATH_MAX];
    const char *format =
        "plan models/vgg19.onnx -c clusters/testbed.yaml --batch 64 "
        "--evaluations 40 --optimizer adam --freeze features.0 -q -o %s --trace %s";
    cli_result_t result;
    (void)state;
    test_dir_make(&dir);
    test_dir_file(&dir, "trace.json", trace);
    cli_run(&result, format, test_dir_file(&dir, "plan.json", path), trace);
    cli_expect(&result, 0);
    assert_string_equal(result.out, "");
    cli_result_free(&result);
    cli_run(&result, format, test_dir_file(&dir, "again.json", again), trace);
    cli_expect(&result, 0);
    cli_result_free(&result);
    char *first = test_read_file(path, NULL), *second = test_read_file(again, NULL);
    assert_string_equal(first, second);
    char *events = test_read_file(trace, NULL);
    esp_i_json_destroy(parse(events));
    free(events);
    free(first);
    free(second);

    cli_run(&result, "simulate %s --json --trace %s", path, trace);
    cli_expect(&result, 0);
    esp_i_json_doc_t *doc = parse(result.out);
    esp_i_json_t root = esp_i_json_root(doc);
    assert_true(real_of(root, "step_time_s") - real_of(root, "plan_step_time_s") == 0);
    esp_i_json_destroy(doc);
    cli_result_free(&result);
    cli_run(&result, "simulate %s --links exclusive --barrier", path);
    cli_expect(&result, 0);
    cli_expect_narrow(&result);
    cli_result_free(&result);
    assert_int_equal(test_dir_count(&dir), 3);
    test_dir_remove(&dir);
}

/* One step alone is planned for: simulate knows, and comes to the same time. */
static void test_barrier_plan(void **state)
{
    test_dir_t dir;
    char path[TEST_PATH_MAX];
    cli_result_t result;
    (void)state;
    test_dir_make(&dir);
    cli_run(&result,
            "plan models/vgg19.onnx -c clusters/testbed.yaml --evaluations 20 --barrier -q -o %s",
            test_dir_file(&dir, "plan.json", path));
    cli_expect(&result, 0);
    cli_result_free(&result);
    cli_run(&result, "simulate %s --json", path);
    cli_expect(&result, 0);
    esp_i_json_doc_t *doc = parse(result.out);
    esp_i_json_t root = esp_i_json_root(doc);
    assert_true(real_of(root, "step_time_s") - real_of(root, "plan_step_time_s") == 0);
    assert_non_null(strstr(result.out, "\"barrier\": true"));
    esp_i_json_destroy(doc);
    cli_result_free(&result);
    test_dir_remove(&dir);
}

/* Drops the one member that may differ between equal runs. */
static void drop_time(char *text)
{
    for (char *at = text; (at = strstr(at, "\"search_time_s\": ")) != NULL;) {
        char *end = at + strcspn(at, "\n");
        memmove(at, end, strlen(end) + 1);
    }
}

static void test_threads_do_not_matter(void **state)
{
    cli_result_t one, three;
    (void)state;
    const char *format = "plan models/vgg19.onnx -c clusters/testbed.yaml --batch 64 "
                         "--evaluations 60 --json --threads %d";
    cli_run(&one, format, 1);
    cli_run(&three, format, 3);
    cli_expect(&one, 0);
    cli_expect(&three, 0);
    drop_time(one.out);
    drop_time(three.out);
    assert_string_equal(one.out, three.out);
    cli_result_free(&one);
    cli_result_free(&three);
}

static void test_ghost_batches_are_named(void **state)
{
    cli_result_t local, sync;
    (void)state;
    cli_run(&local, "compare models/resnet50.onnx -c clusters/testbed.yaml --evaluations 0");
    cli_run(&sync, "compare models/resnet50.onnx -c clusters/testbed.yaml --evaluations 0 "
                   "--batchnorm sync");
    assert_non_null(strstr(local.out, "trains another function"));
    assert_null(strstr(sync.out, "trains another function"));
    cli_result_free(&local);
    cli_result_free(&sync);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_goldens),
        cmocka_unit_test(test_shapes),
        cmocka_unit_test(test_reference_is_complete),
        cmocka_unit_test(test_quiet),
        cmocka_unit_test(test_dump),
        cmocka_unit_test(test_plan_json),
        cmocka_unit_test(test_compare_json),
        cmocka_unit_test(test_plan_file),
        cmocka_unit_test(test_barrier_plan),
        cmocka_unit_test(test_threads_do_not_matter),
        cmocka_unit_test(test_ghost_batches_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
