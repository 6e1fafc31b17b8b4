/* espalier run: what it trains, writes and says; every bad input is one clear line. */
#include "cli_run.h"

#include "exec/files.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { ROWS = 70, BATCH = 16 };

static test_dir_t dir;

/* ---- files ----------------------------------------------------------------------------------- */

static const char cluster[] =
    "name: two\nnodes:\n  - name: n\n    devices: [{type: xeon-core, count: 2}]\n"
    "    intra: {kind: memory, bandwidth: 10 GB/s, latency: 300 ns}\n";

static void write_array(const char *name, esp_dtype_t dtype, int32_t rank, const int64_t *dims,
                        const void *data)
{
    char path[TEST_PATH_MAX];
    esp_diag_t diag = {0};
    test_assert_ok(esp_i_npy_write(test_dir_file(&dir, name, path), dtype, rank, dims, data, &diag),
                   &diag);
}

/* Images whose brightness is their class. */
static void write_data(void)
{
    static float images[ROWS][64];
    int64_t labels[ROWS];
    for (int i = 0; i < ROWS; i++) {
        labels[i] = i % 10;
        for (int k = 0; k < 64; k++)
            images[i][k] = k % 10 == i % 10 ? 1.0F : 0.0F;
    }
    write_array("x.npy", ESP_DTYPE_F32, 3, (int64_t[]){ROWS, 8, 8}, images);
    write_array("y.npy", ESP_DTYPE_I64, 1, (int64_t[]){ROWS}, labels);
    write_array("few.npy", ESP_DTYPE_I64, 1, (int64_t[]){ROWS - 1}, labels);
    labels[33] = 10;
    write_array("bad.npy", ESP_DTYPE_I64, 1, (int64_t[]){ROWS}, labels);
    labels[33] = INT64_MIN;
    write_array("least.npy", ESP_DTYPE_I64, 1, (int64_t[]){ROWS}, labels);
}

static int setup(void **state)
{
    char path[TEST_PATH_MAX];
    cli_result_t result;
    (void)state;
    test_dir_make(&dir);
    write_data();
    test_write_file(test_dir_file(&dir, "other.json", path), "{\"a\": 1}", 8);
    test_write_file(test_dir_file(&dir, "two.yaml", path), cluster, strlen(cluster));
    cli_run(&result,
            "plan examples/digits/digits.onnx -c %s/two.yaml --batch %d --optimizer adam --lr 0.01 "
            "--evaluations 0 --strategy dp-allreduce -o %s/plan.json",
            dir.path, BATCH, dir.path);
    cli_expect(&result, 0);
    cli_result_free(&result);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    test_dir_remove(&dir);
    return 0;
}

static char *file_text(const char *name)
{
    char path[TEST_PATH_MAX];
    return test_read_file(test_dir_file(&dir, name, path), NULL);
}

static void remove_file(const char *name)
{
    char path[TEST_PATH_MAX];
    (void)unlink(test_dir_file(&dir, name, path));
}

/* In the arguments @ is the directory of the files above. */
static void expand(const char *text, char out[4 * TEST_PATH_MAX])
{
    size_t n = 0;
    for (; *text != '\0'; text++)
        n += (size_t)snprintf(out + n, 4 * TEST_PATH_MAX - n, *text == '@' ? "%s" : "%.1s",
                              *text == '@' ? dir.path : text);
}

static void run_in_dir(cli_result_t *result, const char *arguments)
{
    char line[4 * TEST_PATH_MAX];
    expand(arguments, line);
    cli_run(result, "%s", line);
}

static int32_t count_lines(const char *text)
{
    int32_t n = 0;
    for (; *text != '\0'; text++)
        n += *text == '\n';
    return n;
}

#define RUN "run @/plan.json --data images=@/x.npy,labels=@/y.npy "

/* ---- good runs ------------------------------------------------------------------------------- */

static void test_trains(void **state)
{
    cli_result_t result;
    (void)state;
    run_in_dir(&result, RUN "--epochs 5 --schedule linear --eval-data images=@/x.npy "
                            "--eval-data labels=@/y.npy --eval 7 --log @/a.jsonl "
                            "--checkpoint @/a.safetensors --json");
    cli_expect(&result, 0);
    cli_expect_json(&result);
    assert_string_equal(result.err, "");
    assert_non_null(strstr(result.out, "\"steps\": 20"));
    assert_non_null(strstr(result.out, "\"accuracy\": "));
    assert_non_null(strstr(result.out, "\"device\": \"n/cpu1\""));
    cli_result_free(&result);
    char *log = file_text("a.jsonl");
    assert_int_equal(count_lines(log), 20);
    assert_non_null(strstr(log, "{\"step\": 6, \"loss\": "));
    assert_null(strstr(log, "samples_per_s"));
    assert_non_null(strstr(log, "\"rate\": 0.01}"));
    free(log);
    run_in_dir(&result, RUN "--steps 2");
    cli_expect(&result, 0);
    cli_expect_narrow(&result);
    assert_non_null(strstr(result.out, "2 steps: loss "));
    assert_non_null(strstr(result.out, "70 rows of data, 4 steps an epoch (6 left over)"));
    assert_non_null(strstr(result.out, "examples/digits/digits.onnx\n70 rows"));
    cli_result_free(&result);
    run_in_dir(&result, "run @/plan.json --steps 1 --weights seed --quiet");
    cli_expect(&result, 0);
    assert_string_equal(result.out, "");
    cli_result_free(&result);
}

/* Eight steps, and four, a checkpoint and four more: the same log, byte for byte. */
static void test_resumes(void **state)
{
    cli_result_t result;
    (void)state;
    run_in_dir(&result, RUN "--steps 8 --log @/whole.jsonl --schedule step --decay-every 3");
    cli_expect(&result, 0);
    cli_result_free(&result);
    run_in_dir(&result, RUN "--steps 4 --log @/parts.jsonl --schedule step --decay-every 3 "
                            "--checkpoint @/b.safetensors --checkpoint-every 3");
    cli_expect(&result, 0);
    cli_result_free(&result);
    run_in_dir(&result, RUN "--steps 8 --log @/parts.jsonl --schedule step --decay-every 3 "
                            "--resume @/b.safetensors");
    cli_expect(&result, 0);
    assert_non_null(strstr(result.out, "4 steps (8 in all)"));
    cli_result_free(&result);
    char *whole = file_text("whole.jsonl"), *parts = file_text("parts.jsonl");
    assert_string_equal(whole, parts);
    free(whole);
    free(parts);
    /* Parameters of a checkpoint are weights like any others. */
    run_in_dir(&result, RUN "--steps 1 --weights @/b.safetensors");
    cli_expect(&result, 0);
    cli_result_free(&result);
    /* Nothing is left to do, but to evaluate. */
    run_in_dir(&result, RUN "--steps 4 --resume @/b.safetensors --json "
                            "--eval-data images=@/x.npy,labels=@/y.npy");
    cli_expect(&result, 0);
    cli_expect_json(&result);
    assert_non_null(strstr(result.out, "\"steps\": 0"));
    assert_non_null(strstr(result.out, "\"accuracy\": "));
    cli_result_free(&result);
}

/* The graph of a batch of one has lost the batch of the labels; they have rows all the same. */
static void test_batch_of_one(void **state)
{
    cli_result_t result;
    (void)state;
    run_in_dir(&result, "plan examples/digits/digits.onnx -c @/two.yaml --batch 1 --optimizer adam "
                        "--strategy single --evaluations 0 -o @/single.json -q");
    cli_expect(&result, 0);
    cli_result_free(&result);
    run_in_dir(&result, "run @/single.json --data images=@/x.npy,labels=@/y.npy --epochs 5 "
                        "--eval-data images=@/x.npy,labels=@/y.npy");
    cli_expect(&result, 0);
    assert_non_null(strstr(result.out, "70 rows of data, 70 steps an epoch"));
    assert_non_null(strstr(result.out, "100 % of 70 labels"));
    cli_result_free(&result);
    run_in_dir(&result, "run @/single.json --data images=@/x.npy,labels=@/few.npy");
    cli_expect_error(&result, 1, "few.npy: it has 69 rows");
    cli_result_free(&result);
}

/* ---- signals --------------------------------------------------------------------------------- */

static pid_t start(const char *arguments)
{
    char line[4 * TEST_PATH_MAX], *argv[32] = {NULL};
    int n = 0;
    expand(arguments, line);
    static char program[] = ESP_CLI;
    argv[n++] = program;
    for (char *word = strtok(line, " "); word != NULL && n < 31; word = strtok(NULL, " "))
        argv[n++] = word;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        if (chdir(ESP_SOURCE_DIR) == 0 && freopen("/dev/null", "w", stdout) != NULL)
            (void)execv(argv[0], argv);
        _exit(127);
    }
    return child;
}

static void test_signals(void **state)
{
    static const int signals[] = {SIGINT, SIGTERM, SIGUSR1};
    (void)state;
    for (int i = 0; i < 3; i++) {
        char path[TEST_PATH_MAX];
        struct stat st;
        int status;
        cli_result_t result;
        remove_file("s.safetensors");
        test_dir_file(&dir, "s.safetensors", path);
        pid_t child = start(RUN "--steps 100000000 --checkpoint @/s.safetensors "
                                "--checkpoint-every 5 --quiet");
        while (stat(path, &st) != 0) { /* it runs */
            const struct timespec moment = {.tv_nsec = 5000000};
            assert_int_equal(waitpid(child, &status, WNOHANG), 0);
            (void)nanosleep(&moment, NULL);
        }
        assert_int_equal(kill(child, signals[i]), 0);
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
        run_in_dir(&result, RUN "--steps 1 --resume @/s.safetensors");
        cli_expect(&result, 0);
        assert_non_null(strstr(result.out, "0 steps ("));
        cli_result_free(&result);
    }
}

/* ---- bad inputs ------------------------------------------------------------------------------ */

static const struct bad {
    const char *arguments;
    int status;
    const char *part;
} table[] = {
    {"run", 2, "run needs a PLAN"},
    {"run @/missing.json", 1, "missing.json: "},
    {"run @/other.json", 1, "other.json: $."},
    {"run @/plan.json --steps=-1", 2, "--steps -1: must be from 0"},
    {"run @/plan.json --batch 3", 2, "unknown option --batch of run"},
    {"run @/plan.json --schedule round", 2, "one of constant, step, cosine, linear"},
    {"run @/plan.json --epochs 2", 2, "--epochs needs data"},
    {RUN "--epochs 2 --steps 3", 2, "--steps and --epochs"},
    {"run @/plan.json --eval 3", 2, "--eval needs rows"},
    {"run @/plan.json --checkpoint-every 3", 2, "--checkpoint-every needs a file"},
    {"run @/plan.json --min-rate 5", 2, "--min-rate 5 is above the rate of the plan, 0.01"},
    {"run @/plan.json --double", 1, "double"},
    {"run @/plan.json --collectives mpi", 2, "no collectives of MPI: run under mpirun"},
    {"run @/plan.json --collectives his", 2, "one of own, mpi, auto"},
    {"run @/plan.json --collectives auto", 2, "no measured collectives to choose by"},
    {"run @/plan.json --map n/cpu7,n/cpu0", 2, "\"n/cpu7\" is no device"},
    {"run @/plan.json --map n/cpu0,n/cpu0", 2, "n/cpu0"},
    {"run @/plan.json --map n/cpu0", 2, ""},
    {"run @/plan.json --status @/nowhere/s", 1, "nowhere/s"},
    /* data */
    {"run @/plan.json --data images", 2, "not NAME=FILE.npy"},
    {"run @/plan.json --data images=@/x.npy", 2, "no data for input labels"},
    {"run @/plan.json --data x=@/x.npy", 2, "no input; those are images, labels"},
    {"run @/plan.json --data images=@/none.npy,labels=@/y.npy", 1, "none.npy: cannot open"},
    {"run @/plan.json --data images=@/plan.json,labels=@/y.npy", 1, "plan.json: not a .npy file"},
    {"run @/plan.json --data images=@/y.npy,labels=@/y.npy", 1, "y.npy: its shape [70]"},
    {"run @/plan.json --data images=@/x.npy,labels=@/few.npy", 1, "few.npy: it has 69 rows"},
    {"run @/plan.json --data images=@/x.npy,labels=@/bad.npy", 1, "row 33: 10 is not in [0, 10)"},
    {"run @/plan.json --data images=@/x.npy,labels=@/least.npy", 1, "row 33: -922337203685"},
    {"run @/plan.json --data images=@/x.npy,labels=@/x.npy", 1, "x.npy: input labels is of int64"},
    {RUN "--eval-data images=@/x.npy", 2, "no data for input labels"},
    /* weights and checkpoints */
    {"run @/plan.json --weights @/none.safetensors", 1, "none.safetensors: cannot open"},
    {"run @/plan.json --weights @/x.npy", 1, "x.npy: not a safetensors file"},
    {"run @/plan.json --weights models/vgg19.onnx", 1, "vgg19.onnx: it has data for no weight"},
    {"run @/plan.json --resume @/none.safetensors", 1, "none.safetensors: cannot open"},
    {"run @/plan.json --resume @/plan.json", 1, "plan.json: not a safetensors file"},
    {"run @/plan.json --resume a --weights b", 2, "both set the weights"},
    {"run @/plan.json --checkpoint @/nowhere/c", 1, "directory does not exist"},
    {"run @/plan.json --checkpoint @", 1, "it is a directory"},
    {"run @/plan.json --checkpoint @/plan.json", 2, "would overwrite the input"},
    {"run @/plan.json --log @/plan.json", 2, "would overwrite the input"},
    {"run @/plan.json --log @/l --checkpoint @/l", 2, "name the same file"},
    {RUN "--log @/x.npy", 2, "x.npy would overwrite the input"},
    {RUN "--status @/y.npy", 2, "would overwrite the input"},
    {RUN "--eval-data images=@/x.npy,labels=@/few.npy --trace @/few.npy", 2, "would overwrite"},
    {RUN "--weights @/w --checkpoint @/w", 2, "would overwrite the input"},
    {RUN "--resume @/w --log @/w", 2, "would overwrite the input"},
    {RUN "--checkpoint examples/digits/digits.onnx", 2, "would overwrite the input"},
    {RUN "--status @/s --trace @/s", 2, "--trace and --status name the same file"},
    {RUN "--log /dev/stdout --json", 2, "is standard output, which --json has"},
    {"run @/plan.json --log @/nowhere/l", 1, "directory does not exist"},
    {"run @/plan.json --quiet --log /dev/full", 1, "/dev/full: cannot write: No space left"},
    {"run @/plan.json --quiet --checkpoint /dev/full", 1, "/dev/full: cannot write"},
};

static void test_table(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        cli_result_t result;
        int32_t before = test_dir_count(&dir);
        run_in_dir(&result, table[i].arguments);
        if (result.status != table[i].status || strstr(result.err, table[i].part) == NULL)
            print_error("espalier %s\n", table[i].arguments);
        cli_expect_error(&result, table[i].status, table[i].part);
        assert_int_equal(test_dir_count(&dir), before);
        cli_result_free(&result);
    }
}

/* A step that no run reaches. */
static void test_far_checkpoint(void **state)
{
    static const char far[] = "\"step\": \"18446744073709551615\"";
    char path[TEST_PATH_MAX], *all;
    size_t length, at = 8, more = strlen(far) - strlen("\"step\": \"1\"");
    cli_result_t result;
    (void)state;
    run_in_dir(&result, RUN "--steps 1 --checkpoint @/far.safetensors");
    cli_expect(&result, 0);
    cli_result_free(&result);
    char *old = test_read_file(test_dir_file(&dir, "far.safetensors", path), &length);
    while (memcmp(old + at, "\"step\": \"1\"", strlen(far) - more) != 0)
        at++;
    assert_non_null(all = malloc(length + more));
    memcpy(all, old, at);
    memcpy(all + at, far, strlen(far));
    memcpy(all + at + strlen(far), old + at + strlen(far) - more, length - at - strlen(far) + more);
    uint64_t header;
    memcpy(&header, old, sizeof header);
    header += more;
    memcpy(all, &header, sizeof header);
    test_write_file(path, all, length + more);
    free(old);
    free(all);
    run_in_dir(&result, RUN "--steps 2 --resume @/far.safetensors");
    cli_expect_error(&result, 1, "its metadata has no step");
    cli_result_free(&result);
}

/* With a standard file closed, no other takes its number. */
static void test_closed_output(void **state)
{
    char path[TEST_PATH_MAX], line[TEST_PATH_MAX * 4];
    int status;
    (void)state;
    expand(RUN "--steps 3 --log @/closed.jsonl --checkpoint @/closed.safetensors --verbose", line);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        char *argv[32] = {NULL}, program[] = ESP_CLI;
        int n = 0;
        argv[n++] = program;
        for (char *word = strtok(line, " "); word != NULL; word = strtok(NULL, " "))
            argv[n++] = word;
        for (int fd = 0; fd < 3; fd++)
            (void)close(fd);
        if (chdir(ESP_SOURCE_DIR) == 0)
            (void)execv(argv[0], argv);
        _exit(127);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 1); /* its report is lost */
    char *log = test_read_file(test_dir_file(&dir, "closed.jsonl", path), NULL);
    assert_int_equal(count_lines(log), 3);
    assert_null(strstr(log, "espalier"));
    free(log);
    remove_file("closed.jsonl");
    remove_file("closed.safetensors");
}

/* Another graph, another seed, other data. */
static void test_foreign_checkpoints(void **state)
{
    static const struct bad cases[] = {
        {RUN "--resume @/c.safetensors --seed 2", 1, "another seed: 1, not 2"},
        {"run @/plan.json --resume @/c.safetensors", 1,
         "another number of rows of data: 70, not 0"},
        {"run @/other_plan.json --data images=@/x.npy,labels=@/y.npy --resume @/c.safetensors", 1,
         "another training graph"},
    };
    cli_result_t result;
    (void)state;
    run_in_dir(&result, RUN "--steps 1 --checkpoint @/c.safetensors");
    cli_expect(&result, 0);
    cli_result_free(&result);
    run_in_dir(&result, "plan examples/digits/digits.onnx -c @/two.yaml --batch 16 --optimizer "
                        "adam --lr 0.02 --evaluations 0 -o @/other_plan.json");
    cli_expect(&result, 0);
    cli_result_free(&result);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        run_in_dir(&result, cases[i].arguments);
        cli_expect_error(&result, cases[i].status, cases[i].part);
        cli_result_free(&result);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_trains),         cmocka_unit_test(test_resumes),
        cmocka_unit_test(test_batch_of_one),   cmocka_unit_test(test_signals),
        cmocka_unit_test(test_table),          cmocka_unit_test(test_foreign_checkpoints),
        cmocka_unit_test(test_far_checkpoint), cmocka_unit_test(test_closed_output),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
