/* --costs and --strategy on the command line. */
#include "cli_run.h"

#include "base/json.h"
#include "espalier/search.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static double number(const cli_result_t *result, const char *key)
{
    esp_i_json_doc_t *doc;
    esp_diag_t diag = {0};
    double value;
    test_assert_ok(
        esp_i_json_parse(NULL, result->out, (int64_t)strlen(result->out), "out", &doc, &diag),
        &diag);
    test_assert_ok(esp_i_json_get_real(esp_i_json_root(doc), key, -1e300, 1e300, &value, &diag),
                   &diag);
    esp_i_json_destroy(doc);
    return value;
}

/* All devices are connected ten times slower than the cluster says. */
static const char slow_links[] =
    "{\"format\": \"espalier-costs\", \"format_version\": 1, \"espalier\": \"0.1.0\",\n"
    " \"precision\": \"fp32\", \"types\": [{\"name\": \"t4\", \"launch_ns\": 400000, \"ops\": "
    "[]}],\n"
    " \"links\": [{\"from\": \"n/gpu0\", \"to\": \"n/gpu1\", \"latency_ns\": 1e6, \"bytes_per_s\": "
    "1e8},\n"
    "  {\"from\": \"n/gpu1\", \"to\": \"n/gpu0\", \"latency_ns\": 1e6, \"bytes_per_s\": 1e8}]}\n";

static const char two[] = "name: two\nnodes:\n  - name: n\n"
                          "    devices: [{type: t4, count: 2}]\n"
                          "    intra: {kind: pcie, bandwidth: 12 GB/s, latency: 3 us}\n";

typedef struct files {
    test_dir_t dir;
    char cluster[TEST_PATH_MAX], costs[TEST_PATH_MAX], plan[TEST_PATH_MAX];
} files_t;

static void files_make(files_t *f)
{
    test_dir_make(&f->dir);
    test_write_file(test_dir_file(&f->dir, "two.yaml", f->cluster), two, strlen(two));
    test_write_file(test_dir_file(&f->dir, "costs.json", f->costs), slow_links, strlen(slow_links));
    test_dir_file(&f->dir, "plan.json", f->plan);
}

/* The plan is slower than without, names the file, simulates to the same time, notices changes. */
static void plans_remember_their_costs(void **state)
{
    (void)state;
    files_t f;
    cli_result_t r;
    const char *format =
        "plan models/vgg19.onnx -c %s --batch 8 --strategy dp-allreduce --json -o %s"
        " %s%s";
    files_make(&f);
    cli_run(&r, format, f.cluster, f.plan, "", "");
    cli_expect(&r, 0);
    double without = number(&r, "step_time_s");
    cli_result_free(&r);
    cli_run(&r, format, f.cluster, f.plan, "--costs ", f.costs);
    cli_expect(&r, 0);
    double with = number(&r, "step_time_s");
    assert_true(with > 3 * without);
    assert_true(number(&r, "measured_tasks") == 0 && number(&r, "compute_tasks") > 10);
    cli_result_free(&r);
    char *text = test_read_file(f.plan, NULL);
    assert_non_null(strstr(text, "\"path\": \"costs.json\""));
    assert_non_null(strstr(text, "100000000 B/s"));
    free(text);
    cli_run(&r, "simulate %s --json", f.plan);
    cli_expect(&r, 0);
    assert_true(number(&r, "step_time_s") == with);
    cli_result_free(&r);
    test_write_file(f.costs, slow_links, strlen(slow_links) - 1);
    cli_run(&r, "simulate %s", f.plan);
    cli_expect_error(&r, 1, "have changed");
    cli_result_free(&r);
    cli_run(&r, "simulate %s --costs %s --json", f.plan, f.costs);
    cli_expect(&r, 0);
    assert_true(number(&r, "step_time_s") == with);
    cli_result_free(&r);
    test_dir_remove(&f.dir);
}

static void wrong_costs(void **state)
{
    (void)state;
    files_t f;
    cli_result_t r;
    files_make(&f);
    cli_run(&r, "plan models/vgg19.onnx -c %s --costs %s", f.cluster, f.cluster);
    cli_expect_error(&r, 1, "two.yaml");
    cli_result_free(&r);
    cli_run(&r, "plan models/vgg19.onnx -c %s --costs /nowhere.json", f.cluster);
    cli_expect_error(&r, 1, "/nowhere.json");
    cli_result_free(&r);
    cli_run(&r, "plan models/vgg19.onnx -c %s --costs %s --precision fp16", f.cluster, f.costs);
    cli_expect_error(&r, 2, "fp32");
    cli_result_free(&r);
    cli_run(&r, "plan models/vgg19.onnx -c %s --costs %s -o %s", f.cluster, f.costs, f.costs);
    cli_expect_error(&r, 2, "overwrite");
    cli_result_free(&r);
    cli_run(&r, "inspect models/vgg19.onnx --costs %s", f.costs);
    cli_expect(&r, 0);
    assert_non_null(strstr(r.out, "measured on t4: the times of 0 of "));
    cli_result_free(&r);
    test_dir_remove(&f.dir);
}

/* Every baseline can be planned as it is. */
static void baselines_as_they_are(void **state)
{
    (void)state;
    files_t f;
    files_make(&f);
    for (int32_t b = 0; b < ESP_BASELINE_COUNT; b++) {
        cli_result_t r;
        char wanted[64];
        cli_run(&r,
                "plan models/transformer_2layer.onnx -c %s --batch 16 --strategy %s --json -o %s",
                f.cluster, esp_baseline_name((esp_baseline_t)b), f.plan);
        cli_expect(&r, 0);
        (void)snprintf(wanted, sizeof wanted, "\"strategy\": \"%s\"",
                       esp_baseline_name((esp_baseline_t)b));
        assert_non_null(strstr(r.out, wanted));
        double step = number(&r, "step_time_s");
        cli_result_free(&r);
        cli_run(&r, "simulate %s --json", f.plan);
        cli_expect(&r, 0);
        assert_true(number(&r, "step_time_s") == step);
        cli_result_free(&r);
    }
    test_dir_remove(&f.dir);
}

/* profile, plan, run, compare: what one writes the next reads. */
static void from_profile_to_comparison(void **state)
{
    (void)state;
    files_t f;
    cli_result_t r;
    char trace[TEST_PATH_MAX];
    files_make(&f);
    test_dir_file(&f.dir, "trace.json", trace);
    assert_int_equal(remove(f.costs), 0);
    const char *profile = "profile examples/digits/digits.onnx --batch %d -c %s -q --seconds 0 "
                          "--runs 1 --shares 2 -o %s";
    cli_run(&r, profile, 32, f.cluster, f.costs);
    cli_expect(&r, 0);
    cli_result_free(&r);
    char *first = test_read_file(f.costs, NULL);
    cli_run(&r, profile, 8, f.cluster, f.costs); /* joins what is there */
    cli_expect(&r, 0);
    cli_result_free(&r);
    char *second = test_read_file(f.costs, NULL);
    assert_true(strlen(second) > strlen(first));
    free(first);
    free(second);
    cli_run(&r, "inspect examples/digits/digits.onnx --batch 64 --costs %s --json", f.costs);
    cli_expect(&r, 0);
    assert_null(strstr(r.out, "\"measured_ops\": 0"));
    cli_result_free(&r);
    cli_run(&r,
            "plan examples/digits/digits.onnx --batch 32 -c %s --costs %s --strategy dp-ps --json "
            "-o %s",
            f.cluster, f.costs, f.plan);
    cli_expect(&r, 0);
    assert_true(number(&r, "measured_tasks") == number(&r, "compute_tasks"));
    cli_result_free(&r);
    cli_run(&r, "run %s --steps 23 --trace %s -q", f.plan, trace);
    cli_expect(&r, 0);
    cli_result_free(&r);
    cli_run(&r, "compare --measured %s %s --json", trace, f.plan);
    cli_expect(&r, 0);
    assert_true(number(&r, "recorded_steps") == 3 && number(&r, "steps") == 4 + 4 + 2);
    assert_true(number(&r, "measured_step_s") > 0 && number(&r, "replay_s") > 0);
    cli_result_free(&r);
    cli_run(&r, "compare --measured %s %s --quiet", trace, f.plan);
    cli_expect(&r, 0);
    assert_string_equal(r.out, "");
    cli_result_free(&r);
    cli_run(&r, "compare --measured %s %s", trace, f.plan);
    cli_expect(&r, 0);
    cli_expect_narrow(&r);
    assert_non_null(strstr(r.out, "replay: "));
    cli_result_free(&r);
    test_write_file(trace, "{}", 2);
    cli_run(&r, "compare --measured %s %s", trace, f.plan);
    cli_expect_error(&r, 1, "no measured trace");
    cli_result_free(&r);
    test_dir_remove(&f.dir);
}

static void wrong_profiles(void **state)
{
    (void)state;
    static const struct {
        const char *arguments, *message;
        int status;
    } cases[] = {
        {"profile", "needs a MODEL", 2},
        {"profile --links", "needs a cluster", 2},
        {"profile examples/digits/digits.onnx --type x -c clusters/lab.yaml", "exclude", 2},
        {"profile examples/digits/digits.onnx --shares 0", "--shares", 2},
        {"profile examples/digits/digits.onnx -o /nowhere/costs.json", "/nowhere", 1},
        {"profile /nowhere.onnx", "/nowhere.onnx", 1},
        {"compare --measured t.json --batch 8 p.json", "--batch says nothing with --measured", 2},
        {"compare p.json -c clusters/lab.yaml --measured t.json", "--cluster says nothing", 2},
        {"profile examples/digits/digits.onnx --batch 4 --seconds 0 --runs 1 --shares 1 -o "
         "/dev/full",
         "/dev/full: cannot write: No space left", 1},
        {"profile --links -c clusters/lab.yaml -o clusters/lab.yaml", "would overwrite", 2},
        {"profile examples/digits/digits.onnx -c /nowhere.yaml", "/nowhere.yaml", 1},
        {"profile examples/digits/digits.onnx --seconds 3600 -q -o " /* before it is measured */
         "clusters/lab.yaml",
         "lab.yaml", 1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        cli_result_t r;
        cli_run(&r, "%s", cases[i].arguments);
        cli_expect_error(&r, cases[i].status, cases[i].message);
        cli_result_free(&r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plans_remember_their_costs),
        cmocka_unit_test(wrong_costs),
        cmocka_unit_test(baselines_as_they_are),
        cmocka_unit_test(from_profile_to_comparison),
        cmocka_unit_test(wrong_profiles),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
