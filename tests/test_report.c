/* Reports: numbers, tables, where a step goes; memory that runs out. */
#include "models.h"
#include "support.h"

#include "report/run.h"

#include <stdlib.h>
#include <string.h>

/* ---- numbers ------------------------------------------------------------------------------- */

static void test_numbers(void **state)
{
    static const struct {
        double value;
        const char *unit, *text;
    } table[] = {
        {0, "", "0"},
        {7, "", "7"},
        {999, "", "999"},
        {999.6, "", "1.00 k"},
        {1234, "", "1.23 k"},
        {25.56e6, "", "25.6 M"},
        {4.09e9, "FLOP", "4.09 GFLOP"},
        {125e6, "B/s", "125 MB/s"},
        {1.5, "", "1.50"},
        {1e18, "FLOP", "1.00 EFLOP"},
        {3e21, "", "3000 E"},
        {-1500, "", "-1.50 k"},
    };
    char text[32];
    (void)state;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        esp_i_report_si(table[i].value, table[i].unit, text);
        assert_string_equal(text, table[i].text);
    }
}

static void test_percent(void **state)
{
    static const struct {
        double share;
        const char *text;
    } table[] = {{0, "0 %"},      {0.00001, "<0.01 %"}, {0.0001, "0.01 %"}, {0.0123, "1.23 %"},
                 {0.5, "50.0 %"}, {0.999, "99.9 %"},    {0.9999, "99.9 %"}, {1, "100 %"}};
    char text[32];
    (void)state;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        esp_i_report_percent(table[i].share, text);
        assert_string_equal(text, table[i].text);
    }
}

/* ---- tables -------------------------------------------------------------------------------- */

static void test_table(void **state)
{
    static const esp_i_column_t columns[] = {{"name", ESP_I_LEFT}, {"n", ESP_I_RIGHT}};
    esp_i_table_t table;
    esp_i_text_t text;
    (void)state;
    esp_i_text_init(&text, NULL);
    esp_i_table_init(&table, NULL, 2, columns);
    esp_i_table_cell(&table, "a");
    esp_i_table_cell(&table, "%d", 12345);
    esp_i_table_cell(&table, "m\xc3\xbcnchen"); /* aligned by characters, not by bytes */
    esp_i_table_cell(&table, "6");
    esp_i_table_print(&table, 2, &text);
    assert_string_equal(text.data, "  name         n\n"
                                   "  a        12345\n"
                                   "  m\xc3\xbcnchen      6\n");
    esp_i_text_fini(&text);
}

static void test_wide_table(void **state)
{
    static const esp_i_column_t cut[] = {{"name", ESP_I_LEFT}, {"n", ESP_I_RIGHT}};
    static const esp_i_column_t wrapped[] = {{"n", ESP_I_RIGHT}, {"words", ESP_I_WRAP}};
    char name[201];
    esp_i_table_t table;
    esp_i_text_t text;
    (void)state;
    memset(name, 'x', 200);
    name[0] = 'a';
    name[199] = 'z';
    name[200] = '\0';
    esp_i_text_init(&text, NULL);
    esp_i_table_init(&table, NULL, 2, cut);
    esp_i_table_cell(&table, "%s", name);
    esp_i_table_cell(&table, "1");
    esp_i_table_print(&table, 0, &text);
    const char *row = strchr(text.data, '\n') + 1;
    assert_int_equal(strcspn(row, "\n"), 100);
    assert_non_null(strstr(row, "x..x"));
    assert_true(row[0] == 'a' && row[96] == 'z');
    esp_i_text_fini(&text);

    for (size_t i = 9; i < 200; i += 10)
        name[i] = ' ';
    esp_i_text_init(&text, NULL);
    esp_i_table_init(&table, NULL, 2, wrapped);
    esp_i_table_cell(&table, "1");
    esp_i_table_cell(&table, "%s", name);
    esp_i_table_print(&table, 0, &text);
    int lines = 0;
    for (const char *line = text.data; *line != '\0'; line += strcspn(line, "\n") + 1, lines++)
        assert_true(strcspn(line, "\n") <= 100);
    assert_int_equal(lines, 4); /* the header, and 200 characters in three lines */
    esp_i_text_fini(&text);
}

static void test_wrap(void **state)
{
    esp_i_text_t text;
    char words[300];
    (void)state;
    memset(words, 'w', sizeof words - 1); /* one word that fits nowhere */
    words[sizeof words - 1] = '\0';
    esp_i_text_init(&text, NULL);
    esp_i_report_wrap(&text, 4, words);
    assert_int_equal(text.length, sizeof words);
    esp_i_text_fini(&text);
    for (size_t i = 5; i < sizeof words - 1; i += 6)
        words[i] = ' ';
    esp_i_text_init(&text, NULL);
    esp_i_report_wrap(&text, 4, words);
    assert_true(strcspn(text.data, "\n") <= 100);
    assert_true(strncmp(strchr(text.data, '\n') + 1, "    w", 5) == 0);
    esp_i_text_fini(&text);
}

/* ---- options ------------------------------------------------------------------------------- */

static void test_bad_options(void **state)
{
    esp_report_opts_t opts = esp_report_opts_default();
    esp_report_model_args_t model = {0};
    esp_report_search_args_t search = {0};
    esp_report_run_args_t run = {0};
    esp_diag_t diag = {0};
    char *text = NULL;
    (void)state;
    test_assert_fails(esp_report_model(&model, &opts, NULL, &text, &diag), &diag, ESP_ERR_ARGUMENT,
                      "no model");
    test_assert_fails(esp_report_plan(&search, &opts, NULL, &text, &diag), &diag, ESP_ERR_ARGUMENT,
                      "no search");
    test_assert_fails(esp_report_compare(&search, &opts, NULL, &text, &diag), &diag,
                      ESP_ERR_ARGUMENT, "no search");
    test_assert_fails(esp_report_run(&run, &opts, NULL, &text, &diag), &diag, ESP_ERR_ARGUMENT,
                      "timeline");
    opts.form = (esp_report_form_t)7;
    test_assert_fails(esp_report_kinds(&opts, NULL, &text, &diag), &diag, ESP_ERR_ARGUMENT,
                      "unknown form");
    opts.struct_size = 1;
    test_assert_fails(esp_report_kinds(&opts, NULL, &text, &diag), &diag, ESP_ERR_ARGUMENT,
                      "version");
    assert_null(text);
}

/* ---- a whole search, in little ------------------------------------------------------------- */

typedef struct scene {
    esp_training_opts_t training;
    esp_graph_t *step;
    esp_cluster_t *cluster;
    esp_cost_t *cost;
    esp_search_opts_t opts;
    esp_search_result_t *result;
} scene_t;

static int scene_make(void **state)
{
    scene_t *s = calloc(1, sizeof *s);
    esp_diag_t diag = {0};
    char path[TEST_PATH_MAX];
    assert_non_null(s);
    s->training = train_with(ESP_LOSS_XENT, ESP_OPTIMIZER_ADAM);
    s->step = model_convnet(24, 0, NULL, &s->training);
    test_assert_ok(
        esp_cluster_load(test_source_path("clusters/testbed.yaml", path), NULL, &s->cluster, &diag),
        &diag);
    test_assert_ok(esp_cost_create(s->step, s->cluster, ESP_PRECISION_FP32, NULL, &s->cost, &diag),
                   &diag);
    s->opts = esp_search_opts_default();
    s->opts.evaluations = 20;
    test_assert_ok(esp_search(s->cost, &s->opts, NULL, &s->result, &diag), &diag);
    *state = s;
    return 0;
}

static int scene_destroy(void **state)
{
    scene_t *s = *state;
    esp_search_result_destroy(s->result);
    esp_cost_destroy(s->cost);
    esp_cluster_destroy(s->cluster);
    esp_graph_destroy(s->step);
    free(s);
    return 0;
}

/* Compute, exposed communication and idle time of every class fill the step; compute is what the
 * simulator says. */
static void test_usage(void **state)
{
    scene_t *s = *state;
    esp_diag_t diag = {0};
    esp_sim_opts_t opts = esp_sim_opts_default();
    esp_sim_result_t run;
    esp_sim_t *sim;
    esp_lowerer_t *lowerer;
    opts.timeline = 1;
    test_assert_ok(esp_sim_create(NULL, &sim), NULL);
    test_assert_ok(esp_lowerer_create(s->cost, NULL, &lowerer, &diag), &diag);
    for (int32_t b = 0; b < ESP_BASELINE_COUNT; b++) {
        const esp_deployment_t *d;
        esp_i_usage_t usage[64];
        if (s->result->baseline[b].op_mesh == NULL)
            continue;
        test_assert_ok(esp_lower(lowerer, &s->result->baseline[b].strategy, &d, &diag), &diag);
        test_assert_ok(esp_sim_run(sim, d, &opts, &run, &diag), &diag);
        assert_true(d->n_classes <= 64);
        test_assert_ok(esp_i_usage(d, &run, &esp_i_malloc, usage, &diag), &diag);
        for (int32_t c = 0; c < d->n_classes; c++) {
            assert_true(usage[c].idle_ns >= 0 && usage[c].exposed_ns >= 0);
            assert_int_equal(usage[c].compute_ns + usage[c].exposed_ns + usage[c].idle_ns,
                             run.step_time_ns);
            assert_true(usage[c].compute_ns <= run.class_busy_ns[c]);
        }
    }
    esp_lowerer_destroy(lowerer);
    esp_sim_destroy(sim);
}

/* The parts of the work sum up to all of it, and the samples to the batch where all is split. */
static void test_duties(void **state)
{
    scene_t *s = *state;
    esp_diag_t diag = {0};
    const esp_strategy_t *strategy = &s->result->baseline[ESP_BASELINE_DP_ALLREDUCE].strategy;
    const esp_deployment_t *d;
    esp_lowerer_t *lowerer;
    esp_i_duty_t duty[3];
    double work = 0;
    test_assert_ok(esp_lowerer_create(s->cost, NULL, &lowerer, &diag), &diag);
    test_assert_ok(esp_lower(lowerer, strategy, &d, &diag), &diag);
    assert_int_equal(s->cluster->n_groups, 3);
    esp_i_duties(d, strategy, duty);
    for (int32_t g = 0; g < 3; g++) {
        work += duty[g].work;
        assert_true(duty[g].units_min >= 1 && duty[g].units_max <= 2); /* 24 on 16 devices */
        assert_true(duty[g].home_bytes[ESP_I_HOME_ALLREDUCED] > 0);
        assert_int_equal(duty[g].home_bytes[ESP_I_HOME_SERVED], 0);
    }
    assert_true(work > 0.999999 && work < 1.000001);
    assert_true(esp_i_ghost_ops(s->step, strategy) > 0);
    esp_lowerer_destroy(lowerer);
}

/* ---- memory that runs out ------------------------------------------------------------------ */

typedef esp_status_t (*report_fn)(const scene_t *scene, const esp_report_opts_t *opts,
                                  const esp_allocator_t *alloc, char **text_out, esp_diag_t *diag);

static esp_status_t report_model(const scene_t *s, const esp_report_opts_t *opts,
                                 const esp_allocator_t *alloc, char **text_out, esp_diag_t *diag)
{
    esp_report_model_args_t subject = {.model = s->step, .step = s->step, .training = &s->training};
    return esp_report_model(&subject, opts, alloc, text_out, diag);
}

static esp_status_t report_cluster(const scene_t *s, const esp_report_opts_t *opts,
                                   const esp_allocator_t *alloc, char **text_out, esp_diag_t *diag)
{
    return esp_report_cluster(s->cluster, opts, alloc, text_out, diag);
}

static esp_status_t report_kinds(const scene_t *s, const esp_report_opts_t *opts,
                                 const esp_allocator_t *alloc, char **text_out, esp_diag_t *diag)
{
    (void)s;
    return esp_report_kinds(opts, alloc, text_out, diag);
}

static esp_status_t report_plan(const scene_t *s, const esp_report_opts_t *opts,
                                const esp_allocator_t *alloc, char **text_out, esp_diag_t *diag)
{
    esp_report_search_args_t subject = {"net", s->cost, &s->opts, s->result};
    return esp_report_plan(&subject, opts, alloc, text_out, diag);
}

static esp_status_t report_compare(const scene_t *s, const esp_report_opts_t *opts,
                                   const esp_allocator_t *alloc, char **text_out, esp_diag_t *diag)
{
    esp_report_search_args_t subject = {NULL, s->cost, &s->opts, s->result};
    return esp_report_compare(&subject, opts, alloc, text_out, diag);
}

typedef struct attempt {
    const scene_t *scene;
    report_fn report;
    esp_report_opts_t opts;
} attempt_t;

static esp_status_t try_report(const esp_allocator_t *alloc, void *context)
{
    const attempt_t *attempt = context;
    esp_diag_t diag = {0};
    char *text = NULL;
    esp_status_t status = attempt->report(attempt->scene, &attempt->opts, alloc, &text, &diag);
    if (status == ESP_OK)
        alloc->release(alloc->context, text);
    else
        assert_null(text);
    return status;
}

static void test_out_of_memory(void **state)
{
    static const struct {
        report_fn report;
        int64_t stride;
    } reports[] = {{report_model, 1},
                   {report_cluster, 1},
                   {report_kinds, 7},
                   {report_plan, 61},
                   {report_compare, 61}};
    for (size_t i = 0; i < sizeof reports / sizeof *reports; i++)
        for (int form = 0; form < 2; form++) {
            attempt_t attempt = {*state, reports[i].report, esp_report_opts_default()};
            attempt.opts.form = form == 0 ? ESP_REPORT_TEXT : ESP_REPORT_JSON;
            attempt.opts.verbose = 1;
            test_sweep_allocations(try_report, &attempt, reports[i].stride);
        }
}

/* The plan of a search, too. */
static esp_status_t try_create(const esp_allocator_t *alloc, void *context)
{
    const scene_t *s = context;
    char path[TEST_PATH_MAX];
    esp_diag_t diag = {0};
    esp_plan_t *plan = NULL;
    esp_plan_source_t source = {
        .model_path = test_source_path("clusters/lab.yaml", path), /* any file */
        .training = &s->training,
        .cost = s->cost,
        .opts = &s->opts,
        .result = s->result,
    };
    esp_status_t status = esp_plan_create(&source, alloc, &plan, &diag);
    if (status == ESP_OK)
        test_assert_ok(esp_plan_check(plan, s->step, s->cluster, &diag), &diag);
    esp_plan_destroy(plan);
    return status;
}

static void test_plan_create(void **state)
{
    test_sweep_allocations(try_create, *state, 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_percent),
        cmocka_unit_test(test_table),
        cmocka_unit_test(test_wide_table),
        cmocka_unit_test(test_wrap),
        cmocka_unit_test(test_bad_options),
        cmocka_unit_test_setup_teardown(test_usage, scene_make, scene_destroy),
        cmocka_unit_test_setup_teardown(test_duties, scene_make, scene_destroy),
        cmocka_unit_test_setup_teardown(test_out_of_memory, scene_make, scene_destroy),
        cmocka_unit_test_setup_teardown(test_plan_create, scene_make, scene_destroy),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
