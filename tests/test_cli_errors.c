/* The command: every bad input gives one clear line, the documented status, and nothing else. */
#include "cli_run.h"
#include "onnx_writer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static test_dir_t dir;

/* ---- files that are wrong ------------------------------------------------------------------ */

static const struct {
    const char *name, *text;
} files[] = {
    {"empty.yaml", ""},
    {"no_yaml.yaml", "name: [a\n"},
    {"unknown_key.yaml",
     "name: a\nnodes:\n  - {name: n, devices: [{type: rtx3090}], host: {bandwith: 1 GB/s}}\n"},
    {"no_unit.yaml", "name: a\nnodes:\n  - name: n\n    devices: [{type: rtx3090, count: 2}]\n"
                     "    intra: {kind: pcie, bandwidth: 12, latency: 5 us}\n"},
    {"wrong_unit.yaml", "name: a\nnodes:\n  - name: n\n    devices: [{type: rtx3090, count: 2}]\n"
                        "    intra: {kind: pcie, bandwidth: 12 GiB, latency: 5 us}\n"},
    {"zero_devices.yaml", "name: a\nnodes:\n  - {name: n, devices: [{type: rtx3090, count: 0}]}\n"},
    {"negative_count.yaml",
     "name: a\nnodes:\n  - {name: n, devices: [{type: rtx3090, count: -2}]}\n"},
    {"negative_memory.yaml",
     "name: a\nnodes:\n  - {name: n, devices: [{type: rtx3090, memory: -4 GiB}]}\n"},
    {"unknown_type.yaml", "name: a\nnodes:\n  - {name: n, devices: [{type: rtx3091}]}\n"},
    {"disconnected.yaml", "name: a\nnodes:\n  - {name: n, devices: [{type: rtx3090}]}\n"
                          "  - {name: m, devices: [{type: rtx3090}]}\n"},
    {"one.yaml", "name: one\nnodes:\n  - {name: n, devices: [{type: rtx3090}]}\n"},
    {"tiny.yaml", "name: tiny\nnodes:\n  - name: n\n    devices: [{type: rtx3090, count: 2, "
                  "memory: 150 MiB}]\n"
                  "    intra: {kind: pcie, bandwidth: 12 GB/s, latency: 5 us}\n"},
    {"small.yaml", "name: small\nnodes:\n  - name: n\n    devices: [{type: rtx3090, count: 2, "
                   "memory: 300 MiB}]\n"
                   "    intra: {kind: pcie, bandwidth: 12 GB/s, latency: 5 us}\n"},
    {"no_json.json", "{\"format\": "},
    {"other.json", "{\"a\": 1}"},
    {"text.onnx", "this is a text"},
    {"empty.onnx", ""},
};

static void write_onnx(const char *name, onnx_model_t *model, size_t cut)
{
    char path[TEST_PATH_MAX];
    message_t file = om_finish(model);
    om_free(model);
    test_write_file(test_dir_file(&dir, name, path), file.data, file.length - cut);
    message_free(&file);
}

static onnx_model_t dense(const char *type, const char *attributes)
{
    onnx_model_t m;
    om_init(&m, 17);
    om_input(&m, "x", OM_FLOAT, "N 16");
    om_weight(&m, "w", "16 10");
    om_node(&m, type, "x w", "y", attributes);
    om_output(&m, "y");
    return m;
}

static void write_models(void)
{
    onnx_model_t m = dense("MatMul", "");
    write_onnx("dense.onnx", &m, 0);
    m = dense("MatMul", "");
    write_onnx("truncated.onnx", &m, 7);
    m = dense("Frobnicate", "");
    write_onnx("unknown_op.onnx", &m, 0);
    om_init(&m, 17); /* a needs b, and b needs a */
    om_input(&m, "x", OM_FLOAT, "N 16");
    om_node(&m, "Add", "x b", "a", "");
    om_node(&m, "Relu", "a", "b", "");
    om_output(&m, "b");
    write_onnx("cycle.onnx", &m, 0);
    om_init(&m, 17);
    om_input(&m, "x", OM_FLOAT, "N 16");
    om_weight(&m, "w", "17 10");
    om_node(&m, "MatMul", "x w", "y", "");
    om_output(&m, "y");
    write_onnx("shapes.onnx", &m, 0);
    om_init(&m, 17); /* nothing to train */
    om_input(&m, "x", OM_FLOAT, "N 16");
    om_node(&m, "Relu", "x", "y", "");
    om_output(&m, "y");
    write_onnx("no_parameters.onnx", &m, 0);
    om_init(&m, 17); /* no sample in sight */
    om_input(&m, "x", OM_FLOAT, "");
    om_weight(&m, "w", "3");
    om_node(&m, "Mul", "x w", "y", "");
    om_output(&m, "y");
    write_onnx("no_batch.onnx", &m, 0);
    om_init(&m, 17); /* a symbol that nobody gives a value */
    om_input(&m, "x", OM_FLOAT, "N length");
    om_weight(&m, "w", "16 10");
    om_node(&m, "MatMul", "x w", "y", "");
    om_output(&m, "y");
    write_onnx("open_dim.onnx", &m, 0);
}

static int setup(void **state)
{
    char path[TEST_PATH_MAX];
    (void)state;
    test_dir_make(&dir);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        test_write_file(test_dir_file(&dir, files[i].name, path), files[i].text,
                        strlen(files[i].text));
    write_models();
    test_write_file(test_dir_file(&dir, "secret.yaml", path), "name: a\n", 8);
    (void)chmod(path, 0);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    test_dir_remove(&dir);
    return 0;
}

/* ---- the table ----------------------------------------------------------------------------- */

/* In the arguments @ is the directory of the files above. */
static const struct bad {
    const char *arguments;
    int status;
    const char *part;
} table[] = {
    /* usage */
    {"''", 2, "unknown command"},
    {"insepct models/vgg19.onnx", 2, "did you mean inspect?"},
    {"frobnicate", 2, "unknown command frobnicate; see espalier --help"},
    {"--frob", 2, "unknown option --frob"},
    {"inspect", 2, "inspect needs a MODEL"},
    {"cluster", 2, "cluster needs a FILE"},
    {"inspect ''", 2, "inspect needs a MODEL that is not empty"},
    {"inspect a.onnx b.onnx", 2, "\"b.onnx\" is one too many"},
    {"inspect @/dense.onnx --bacth 3", 2,
     "unknown option --bacth of inspect; did you mean --batch"},
    {"inspect @/dense.onnx -z", 2, "unknown option -z"},
    {"inspect @/dense.onnx --cluster clusters/lab.yaml", 2, "unknown option --cluster of inspect"},
    {"inspect @/dense.onnx --batch", 2, "--batch needs a value: N"},
    {"inspect @/dense.onnx --batch 0", 2, "--batch 0: must be from 1"},
    {"inspect @/dense.onnx --batch=-5", 2, "--batch -5: must be from 1"},
    {"inspect @/dense.onnx --batch 1e3", 2, "--batch 1e3: not a whole number"},
    {"inspect @/dense.onnx --batch 99999999999999999999", 2, "must be from 1 to"},
    {"inspect @/dense.onnx --lr fast", 2, "--lr fast: not a number"},
    {"inspect @/dense.onnx --lr nan", 2, "--lr nan: must be from 0"},
    {"inspect @/dense.onnx --momentum 1", 2, "--momentum 1: must be from 0 to 0.999999"},
    {"inspect @/dense.onnx --loss squared", 2, "--loss squared: must be one of auto, xent"},
    {"inspect @/dense.onnx --precision fp8", 2, "one of fp32, tf32, fp16, bf16"},
    {"inspect @/dense.onnx --json=yes", 2, "--json takes no value"},
    {"inspect @/dense.onnx --train ''", 2, "--train needs a value that is not empty"},
    {"inspect @/dense.onnx --train [", 2, "train"},
    {"inspect @/dense.onnx --dump --json", 2, "exclude each other"},
    {"inspect @/dense.onnx --batch-dim nobody=0", 2, "nobody"},
    {"inspect @/dense.onnx --batch-dim x", 2, "x"},
    {"inspect @/dense.onnx --dim N", 2, "N"},
    {"inspect @/dense.onnx --dim N=0", 2, "a batch of 0 samples"},
    {"inspect @/no_batch.onnx --batch 5", 2, "no input has a batch dimension"},
    {"cluster clusters/lab.yaml --dot --json", 2, "exclude each other"},
    {"plan @/dense.onnx", 2, "plan needs a cluster: -c FILE"},
    {"compare @/dense.onnx", 2, "compare needs a cluster: -c FILE"},
    {"plan @/dense.onnx -c", 2, "--cluster needs a value: FILE"},
    {"plan @/dense.onnx -c clusters/lab.yaml --threads 0", 2, "--threads 0: must be from 1 to 64"},
    {"plan @/dense.onnx -c clusters/lab.yaml --evaluations=-1", 2, "must be from 0"},
    {"plan @/dense.onnx -c clusters/lab.yaml --time=-1", 2, "--time -1: must be from 0"},
    {"plan @/dense.onnx -c clusters/lab.yaml --groups 0", 2, "--groups 0: must be from 1"},
    {"plan @/dense.onnx -c clusters/lab.yaml --seed=-1", 2, "--seed -1: must be from 0"},
    {"plan @/dense.onnx -c clusters/lab.yaml --links wide", 2, "one of exclusive, fair"},
    /* models */
    {"inspect @/missing.onnx", 1, "missing.onnx: "},
    {"inspect @", 1, "directory"},
    {"inspect /dev/null", 1, "/dev/null"},
    {"inspect @/empty.onnx", 1, "empty.onnx"},
    {"inspect @/text.onnx", 1, "not an ONNX model"},
    {"inspect clusters/lab.yaml", 1, "not an ONNX model"},
    {"inspect @/truncated.onnx", 1, "truncated.onnx:"},
    {"inspect @/unknown_op.onnx", 1, "Frobnicate"},
    {"inspect @/cycle.onnx", 1, "cycle"},
    {"inspect @/shapes.onnx", 1, "shapes.onnx: "},
    {"inspect @/open_dim.onnx", 1, "open_dim.onnx: "},
    {"inspect @/no_parameters.onnx", 1, "no_parameters.onnx: "},
    {"inspect @/dense.onnx --freeze .*", 1, "dense.onnx: "},
    {"plan @/truncated.onnx -c clusters/lab.yaml", 1, "truncated.onnx:"},
    /* clusters */
    {"cluster @/missing.yaml", 1, "missing.yaml: "},
    {"cluster @", 1, "directory"},
    {"cluster @/empty.yaml", 1, "empty.yaml"},
    {"cluster @/no_yaml.yaml", 1, "no_yaml.yaml:"},
    {"cluster @/unknown_key.yaml", 1, "unknown_key.yaml:3:"},
    {"cluster @/no_unit.yaml", 1, "no_unit.yaml:5:"},
    {"cluster @/wrong_unit.yaml", 1, "wrong_unit.yaml:5:"},
    {"cluster @/zero_devices.yaml", 1, "zero_devices.yaml:3:"},
    {"cluster @/negative_count.yaml", 1, "negative_count.yaml:3:"},
    {"cluster @/negative_memory.yaml", 1, "negative_memory.yaml:3:"},
    {"cluster @/unknown_type.yaml", 1, "rtx3090"},
    {"cluster @/disconnected.yaml", 1, "disconnected.yaml"},
    {"cluster models/vgg19.onnx", 1, "vgg19.onnx"},
    {"plan @/dense.onnx -c @/missing.yaml", 1, "missing.yaml: "},
    {"plan @/dense.onnx -c @/wrong_unit.yaml", 1, "wrong_unit.yaml:5:"},
    /* plans */
    {"simulate @/missing.json", 1, "missing.json: "},
    {"simulate @", 1, "directory"},
    {"simulate @/no_json.json", 1, "no_json.json:1:"},
    {"simulate @/other.json", 1, "other.json: $."},
    {"simulate @/dense.onnx", 1, "dense.onnx"},
    {"simulate @/plan.json --trace @/nowhere/t.json", 1, "directory does not exist"},
    {"simulate @/plan.json --evaluations 3", 2, "unknown option --evaluations of simulate"},
    /* outputs */
    {"plan @/dense.onnx -c @/one.yaml -q -o /dev/full", 1, "/dev/full: "},
    {"plan @/dense.onnx -c @/one.yaml -q -o @", 1, "irectory"},
    {"plan @/dense.onnx -c @/one.yaml -q --trace /dev/full", 1, "/dev/full: "},
    {"plan @/dense.onnx -c @/one.yaml -o @/nowhere/plan.json", 1, "directory does not exist"},
    {"plan @/dense.onnx -c @/one.yaml --trace @/nowhere/t.json", 1, "directory does not exist"},
    {"plan @/dense.onnx -c @/one.yaml -o @/dense.onnx", 2, "would overwrite the input"},
    {"plan @/dense.onnx -c @/one.yaml --trace @/one.yaml", 2, "would overwrite the input"},
    {"plan @/dense.onnx -c @/one.yaml -o @/a --trace @/a", 2, "name the same file"},
    {"simulate @/other.json --trace @/other.json", 2, "would overwrite the input"},
    /* nothing fits */
    {"plan @/dense.onnx -c clusters/lab.yaml --batch 1000000000000 --evaluations 0 -q", 3, "lacks"},
    {"plan models/vgg19.onnx -c @/tiny.yaml --evaluations 0 -q", 3, "no plan fits"},
    {"plan models/vgg19.onnx -c @/small.yaml --evaluations 5 -q", 3,
     "no feasible plan was found in"},
    {"plan models/vgg19.onnx -c @/small.yaml --evaluations 0 -q -o @/plan.json", 3, "lacks"},
};

/* Copies `text` with every @ replaced by the directory. */
static void expand(const char *text, char out[4 * TEST_PATH_MAX])
{
    size_t n = 0;
    for (; *text != '\0'; text++)
        n += (size_t)snprintf(out + n, 4 * TEST_PATH_MAX - n, *text == '@' ? "%s" : "%.1s",
                              *text == '@' ? dir.path : text);
}

static void test_table(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        char line[4 * TEST_PATH_MAX];
        cli_result_t result;
        int32_t before = test_dir_count(&dir);
        expand(table[i].arguments, line);
        cli_run(&result, "%s", line);
        if (result.status != table[i].status || strstr(result.err, table[i].part) == NULL)
            print_error("espalier %s\n", line);
        cli_expect_error(&result, table[i].status, table[i].part);
        assert_int_equal(test_dir_count(&dir), before);
        cli_result_free(&result);
    }
}

static void test_no_arguments(void **state)
{
    cli_result_t result;
    (void)state;
    cli_run(&result, "%s", "");
    cli_expect(&result, 2);
    assert_string_equal(result.out, "");
    assert_non_null(strstr(result.err, "usage: espalier"));
    cli_result_free(&result);
}

static void test_unreadable(void **state)
{
    char path[TEST_PATH_MAX];
    cli_result_t result;
    (void)state;
    if (geteuid() == 0)
        skip(); /* nothing is unreadable for root */
    cli_run(&result, "cluster %s", test_dir_file(&dir, "secret.yaml", path));
    cli_expect_error(&result, 1, "secret.yaml: ");
    cli_result_free(&result);
}

/* A full disk and a reader that went away. */
static void test_standard_output(void **state)
{
    static const char *const lines[] = {
        "--help",
        "--version",
        "plan --help",
        "cluster clusters/lab.yaml",
        "cluster clusters/h100x64.yaml --json",
        "inspect models/vgg19.onnx",
        "compare models/vgg19.onnx -c clusters/lab.yaml --evaluations 0 --json",
    };
    (void)state;
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        cli_result_t result;
        cli_run_to(&result, "/dev/full", "%s", lines[i]);
        cli_expect_error(&result, 1, "standard output: No space left on device");
        cli_result_free(&result);
        cli_run_to(&result, "|", "%s", lines[i]);
        cli_expect_error(&result, 1, "standard output: Broken pipe");
        cli_result_free(&result);
    }
}

/* Even then there is a report, so that one sees how much is missing. */
static void test_nothing_fits(void **state)
{
    char path[TEST_PATH_MAX];
    cli_result_t result;
    (void)state;
    test_dir_file(&dir, "tiny.yaml", path);
    cli_run(&result, "plan models/vgg19.onnx -c %s --evaluations 5 --json", path);
    cli_expect(&result, 3);
    cli_expect_json(&result);
    assert_non_null(strstr(result.out, "\"feasible\": false"));
    assert_non_null(strstr(result.err, "lacks"));
    cli_result_free(&result);
    cli_run(&result, "compare models/vgg19.onnx -c %s --evaluations 5", path);
    cli_expect(&result, 3);
    cli_expect_narrow(&result);
    assert_non_null(strstr(result.out, "no: n/gpu"));
    cli_result_free(&result);
}

/* A batch of fewer samples than devices uses some of them. */
static void test_small_batches(void **state)
{
    char path[TEST_PATH_MAX];
    cli_result_t result;
    (void)state;
    test_dir_file(&dir, "dense.onnx", path);
    for (int batch = 1; batch <= 3; batch++) {
        cli_run(&result, "plan %s -c clusters/testbed.yaml --batch %d --evaluations 10", path,
                batch);
        cli_expect(&result, 0);
        cli_expect_narrow(&result);
        cli_result_free(&result);
    }
}

/* A model without a batch has no samples per second, but a plan. */
static void test_no_batch(void **state)
{
    char model[TEST_PATH_MAX], plan[TEST_PATH_MAX];
    cli_result_t result;
    (void)state;
    test_dir_file(&dir, "no_batch.onnx", model);
    test_dir_file(&dir, "no_batch.json", plan);
    cli_run(&result, "plan %s -c clusters/lab.yaml --evaluations 5 -o %s", model, plan);
    cli_expect(&result, 0);
    assert_non_null(strstr(result.out, "3 devices, no batch, fp32"));
    cli_result_free(&result);
    cli_run(&result, "simulate %s", plan);
    cli_expect(&result, 0);
    assert_null(strstr(result.out, "samples/s"));
    cli_result_free(&result);
    assert_int_equal(unlink(plan), 0);
}

/* Hundreds of movements that wait for nothing in their own step: the check must not search. */
static void test_wide_op(void **state)
{
    enum { WEIGHTS = 600 };
    static char inputs[WEIGHTS * 8];
    char name[16], path[TEST_PATH_MAX];
    onnx_model_t m;
    cli_result_t result;
    size_t length = 0;
    (void)state;
    om_init(&m, 17);
    om_input(&m, "x", OM_FLOAT, "N 16");
    for (int i = 0; i < WEIGHTS; i++) {
        (void)snprintf(name, sizeof name, "w%d", i);
        om_weight(&m, name, "16 10");
        length += (size_t)snprintf(inputs + length, sizeof inputs - length, "%s%s",
                                   i > 0 ? " " : "", name);
    }
    om_node(&m, "Concat", inputs, "c", "axis=1");
    om_node(&m, "MatMul", "x c", "y", "");
    om_output(&m, "y");
    write_onnx("wide.onnx", &m, 0);
    cli_run(&result, "plan %s -c clusters/lab.yaml --evaluations 0 -q",
            test_dir_file(&dir, "wide.onnx", path));
    cli_expect(&result, 0);
    cli_result_free(&result);
    assert_int_equal(unlink(path), 0);
}

/* Replaces the first `from` in a file by `to`, which has the same length. */
static void tamper(const char *path, const char *from, const char *to)
{
    size_t length;
    char *text = test_read_file(path, &length);
    char *at = strstr(text, from);
    assert_non_null(at);
    memcpy(at, to, strlen(to));
    test_write_file(path, text, length);
    free(text);
}

/* A plan whose model, cluster or contents are no longer what was planned. */
static void test_stale_plans(void **state)
{
    static const struct {
        const char *from, *to, *part;
    } changes[] = {
        {"\"batch\": 32", "\"batch\": 33", ""},
        {"launch: 5000 ns", "launch: 6000 ns", "the cluster has changed"},
        {"dense.onnx", "dance.onnx", "dance.onnx"},
        {"\"format_version\": 1", "\"format_version\": 7", "version"},
        {"\"seed\"", "\"sead\"", "sead"},
    };
    char model[TEST_PATH_MAX], cluster[TEST_PATH_MAX], path[TEST_PATH_MAX];
    cli_result_t result;
    (void)state;
    test_dir_file(&dir, "dense.onnx", model);
    test_dir_file(&dir, "one.yaml", cluster);
    test_dir_file(&dir, "stale.json", path);
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        cli_run(&result, "plan %s -c %s --batch 32 --evaluations 0 -q -o %s", model, cluster, path);
        cli_expect(&result, 0);
        cli_result_free(&result);
        tamper(path, changes[i].from, changes[i].to);
        cli_run(&result, "simulate %s", path);
        cli_expect_error(&result, 1, changes[i].part);
        cli_result_free(&result);
    }
    assert_int_equal(unlink(path), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_table),        cmocka_unit_test(test_no_arguments),
        cmocka_unit_test(test_unreadable),   cmocka_unit_test(test_standard_output),
        cmocka_unit_test(test_nothing_fits), cmocka_unit_test(test_small_batches),
        cmocka_unit_test(test_stale_plans),  cmocka_unit_test(test_no_batch),
        cmocka_unit_test(test_wide_op),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
