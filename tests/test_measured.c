/* Measured timelines: collecting, trace files both ways, durations, replays. */
#include "deployments.h"
#include "strategies.h"

#include "base/json.h"
#include "espalier/report.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A packed deployment on a mixed cluster, its simulated step and a measurement of it. */
typedef struct bed {
    bench_t bench;
    strategy_t strategy;
    const esp_deployment_t *d;
    esp_sim_t *sim;
    esp_sim_result_t r;
    int32_t n_ranks, device[8];
    esp_diag_t diag;
} bed_t;

static void simulate(bed_t *bed, const esp_sim_opts_t *opts)
{
    test_assert_ok(esp_sim_run(bed->sim, bed->d, opts, &bed->r, &bed->diag), &bed->diag);
}

typedef enum kind { MIXED, SERVER, DATA_PARALLEL } kind_t;

static void bed_init(bed_t *bed, esp_cluster_t *cluster, int32_t model, kind_t kind)
{
    memset(bed, 0, sizeof *bed);
    bench_init(&bed->bench, deploy_graph(model, 8), cluster);
    int32_t n = cluster->n_devices;
    if (kind == SERVER)
        strategy_parameter_server(&bed->strategy, bed->bench.graph, n, NULL, 0);
    else if (kind == DATA_PARALLEL)
        strategy_data_parallel(&bed->strategy, bed->bench.graph, n, NULL);
    else
        strategy_mixed(&bed->strategy, bed->bench.graph, n, NULL);
    test_assert_ok(esp_lower(bed->bench.lowerer, &bed->strategy.strategy, &bed->d, &bed->diag),
                   &bed->diag);
    test_assert_ok(esp_deployment_pack(bed->bench.lowerer, &bed->diag), &bed->diag);
    assert_int_equal(esp_sim_create(NULL, &bed->sim), ESP_OK);
    for (int32_t device = 0; device < n; device++)
        if (bed->d->device_class[device] != ESP_NONE)
            bed->device[bed->n_ranks++] = device;
}

static void bed_fini(bed_t *bed)
{
    esp_sim_destroy(bed->sim);
    strategy_fini(&bed->strategy);
    bench_fini(&bed->bench);
}

static bool takes_part(const esp_deployment_t *d, int32_t device, int32_t task)
{
    int32_t comm = d->task_comm[task];
    if (comm < 0)
        return d->task_class[task] == d->device_class[device];
    for (int32_t i = d->comm_class_offset[comm]; i < d->comm_class_offset[comm + 1]; i++)
        if (d->comm_class[i] == d->device_class[device])
            return true;
    return false;
}

/* The simulated timeline as if it had been measured: every rank sees what its class does, ranks
 * after the first start their movements `early` ns earlier. */
static esp_measured_t *measure(const bed_t *bed, int32_t steps, int64_t early)
{
    const esp_deployment_t *d = bed->d;
    esp_measured_t *m;
    esp_diag_t diag = {0};
    int64_t n = (int64_t)bed->n_ranks * d->n_tasks;
    int64_t *start = malloc((size_t)n * sizeof *start), *end = malloc((size_t)n * sizeof *end);
    test_assert_ok(esp_measured_create(d, bed->n_ranks, bed->device, NULL, &m, &diag), &diag);
    for (int64_t i = 0; i < n; i++) {
        int32_t rank = (int32_t)(i / d->n_tasks), task = (int32_t)(i % d->n_tasks);
        bool part = takes_part(d, bed->device[rank], task);
        int64_t before = rank > 0 && d->task_comm[task] >= 0 ? early : 0;
        start[i] = part ? 5000 + bed->r.start_ns[task] - before : -1;
        end[i] = part ? 5000 + bed->r.end_ns[task] : -1;
    }
    for (int32_t s = 0; s < steps; s++)
        test_assert_ok(esp_measured_add(m, start, end, 1, &bed->r.step_time_ns, &diag), &diag);
    free(start);
    free(end);
    return m;
}

static void assert_same(const esp_measured_t *a, const esp_measured_t *b)
{
    int64_t n = (int64_t)a->n_steps * a->n_ranks * a->deployment->n_tasks;
    assert_int_equal(a->n_ranks, b->n_ranks);
    assert_int_equal(a->n_steps, b->n_steps);
    assert_int_equal(a->isolated, b->isolated);
    assert_int_equal(a->periods, b->periods);
    assert_true(a->mean_step_ns == b->mean_step_ns && a->spread_ns == b->spread_ns);
    assert_true(a->median_step_ns == b->median_step_ns);
    assert_memory_equal(a->device, b->device, (size_t)a->n_ranks * sizeof *a->device);
    assert_memory_equal(a->step_ns, b->step_ns, (size_t)a->n_steps * sizeof *a->step_ns);
    for (int64_t i = 0; i < n; i++) {
        assert_int_equal(a->start_ns[i], b->start_ns[i]);
        assert_int_equal(a->end_ns[i], b->end_ns[i]);
    }
}

/* ---- replays ----------------------------------------------------------------------------------
 */

/* Whatever the links did to it, an isolated step that is replayed takes as long again. */
static void replay_reproduces_the_step(void **state)
{
    (void)state;
    for (int32_t i = 0; i < 2 * DEPLOY_MODELS; i++) {
        bed_t bed;
        esp_sim_opts_t opts = esp_sim_opts_default();
        bed_init(&bed, cluster_mixed(), i / 2, i % 2 ? SERVER : MIXED);
        opts.barrier = 1;
        opts.timeline = 1;
        simulate(&bed, &opts);
        int64_t step_ns = bed.r.step_time_ns;
        esp_measured_t *m = measure(&bed, 1, 100);
        int64_t *ns = malloc((size_t)bed.d->n_tasks * sizeof *ns);
        esp_measured_durations(m, 0, ns);
        for (int32_t t = 0; t < bed.d->n_tasks; t++)
            assert_int_equal(ns[t], bed.r.end_ns[t] - bed.r.start_ns[t]);
        opts.links = ESP_LINK_FREE;
        opts.task_ns = ns;
        simulate(&bed, &opts);
        assert_int_equal(bed.r.step_time_ns, step_ns);
        ns[bed.d->order[0]] += 1000; /* the first task is on the way to some end */
        simulate(&bed, &opts);
        assert_true(bed.r.step_time_ns >= step_ns);
        free(ns);
        esp_measured_destroy(m);
        bed_fini(&bed);
    }
}

static void durations_of_classes(void **state)
{
    (void)state;
    bed_t bed;
    esp_sim_opts_t opts = esp_sim_opts_default();
    bed_init(&bed, cluster_uniform(2), 0, DATA_PARALLEL);
    const esp_deployment_t *d = bed.d;
    assert_int_equal(d->n_classes, 1); /* two devices, one class */
    opts.timeline = 1;
    simulate(&bed, &opts);
    esp_measured_t *m = measure(&bed, 1, 0);
    int64_t *start = (int64_t *)(uintptr_t)m->start_ns, *end = (int64_t *)(uintptr_t)m->end_ns;
    int64_t *ns = malloc((size_t)d->n_tasks * sizeof *ns);
    for (int32_t t = 0; t < d->n_tasks; t++) {
        start[t] = 10;
        end[t] = 20;
        start[d->n_tasks + t] = 14;
        end[d->n_tasks + t] = 30;
    }
    esp_measured_durations(m, 0, ns);
    bool moved = false;
    for (int32_t t = 0; t < d->n_tasks; t++) { /* the mean; from the later start to the later end */
        assert_int_equal(ns[t], d->task_comm[t] < 0 ? (10 + 16) / 2 : 30 - 14);
        moved = moved || d->task_comm[t] >= 0;
    }
    assert_true(moved);
    free(ns);
    esp_measured_destroy(m);
    bed_fini(&bed);
}

/* ---- reports -----------------------------------------------------------------------------------
 */

static double number(esp_i_json_t object, const char *key)
{
    double value = -1;
    esp_diag_t diag = {0};
    test_assert_ok(esp_i_json_get_real(object, key, -1e300, 1e300, &value, &diag), &diag);
    return value;
}

static void assert_near(double a, double b)
{
    if (a - b > 1e-9 * (1 + a) || b - a > 1e-9 * (1 + a))
        fail_msg("%.12g is not %.12g", a, b);
}

/* Tasks and their times in a report, by hand from the deployment. */
static void check_rows(const bed_t *bed, esp_i_json_t root, double factor)
{
    esp_i_json_t rows;
    double tasks = 0, predicted = 0, measured = 0, sum = 0, all = 0;
    assert_int_equal(esp_i_json_get(root, "tasks", ESP_I_JSON_ARRAY, &rows, NULL), ESP_OK);
    for (int32_t i = 0; i < esp_i_json_count(rows); i++) {
        esp_i_json_t row = esp_i_json_item(rows, i);
        bool moves;
        assert_int_equal(esp_i_json_get_bool(row, "moves", &moves, NULL), ESP_OK);
        tasks += number(row, "count");
        predicted += moves ? 0 : number(row, "predicted_s");
        measured += moves ? 0 : number(row, "measured_s");
    }
    for (int32_t t = 0; t < bed->d->n_tasks; t++) {
        double ns = (double)(bed->r.end_ns[t] - bed->r.start_ns[t]);
        sum += bed->d->task_comm[t] < 0 ? ns : 0;
        all += 1;
    }
    assert_true(tasks == all);
    assert_near(predicted, sum / 1e9);
    assert_near(measured, factor * sum / 1e9);
}

static void reports_by_hand(void **state)
{
    (void)state;
    for (int32_t factor = 1; factor <= 3; factor += 2) {
        bed_t bed;
        char *text;
        esp_i_json_doc_t *doc;
        esp_sim_opts_t opts = esp_sim_opts_default();
        esp_report_opts_t form = esp_report_opts_default();
        bed_init(&bed, cluster_mixed(), 5, MIXED);
        opts.timeline = opts.barrier = 1;
        simulate(&bed, &opts);
        esp_measured_t *m = measure(&bed, 2, 0);
        /* everything `factor` times as slow */
        int64_t n = (int64_t)m->n_steps * m->n_ranks * bed.d->n_tasks;
        for (int64_t i = 0; i < n; i++) {
            ((int64_t *)(uintptr_t)m->start_ns)[i] *= factor;
            ((int64_t *)(uintptr_t)m->end_ns)[i] *= factor;
        }
        m->mean_step_ns *= factor;
        for (int32_t s = 0; s < m->n_steps; s++)
            ((int64_t *)(uintptr_t)m->step_ns)[s] *= factor;
        esp_report_measured_args_t subject = {"m", m, ESP_LINK_FAIR};
        form.form = ESP_REPORT_JSON;
        test_assert_ok(esp_report_measured(&subject, &form, NULL, &text, &bed.diag), &bed.diag);
        test_assert_ok(esp_i_json_parse(NULL, text, (int64_t)strlen(text), "r", &doc, &bed.diag),
                       &bed.diag);
        esp_i_json_t root = esp_i_json_root(doc);
        assert_near(number(root, "prediction_error"), 1.0 / factor - 1);
        assert_near(number(root, "replay_error"), 0); /* it knows how slow everything was */
        assert_near(number(root, "replay_error_worst"), 0);
        assert_near(number(root, "predicted_step_s"), (double)bed.r.step_time_ns / 1e9);
        assert_near(number(root, "measured_step_s"), factor * (double)bed.r.step_time_ns / 1e9);
        check_rows(&bed, root, factor);
        esp_i_json_destroy(doc);
        free(text);
        form.form = ESP_REPORT_TEXT;
        test_assert_ok(esp_report_measured(&subject, &form, NULL, &text, &bed.diag), &bed.diag);
        assert_non_null(strstr(text, factor == 1 ? "steps one by one: +0.0 %" : ": -66.7 %"));
        free(text);
        m->n_steps = 0;
        test_assert_fails(esp_report_measured(&subject, &form, NULL, &text, &bed.diag), &bed.diag,
                          ESP_ERR_ARGUMENT, "no step");
        esp_measured_destroy(m);
        bed_fini(&bed);
    }
}

/* ---- collecting --------------------------------------------------------------------------------
 */

static void runs_add_up(void **state)
{
    (void)state;
    bed_t bed;
    esp_sim_opts_t opts = esp_sim_opts_default();
    bed_init(&bed, cluster_mixed(), 0, MIXED);
    opts.timeline = 1;
    simulate(&bed, &opts);
    esp_measured_t *once = measure(&bed, 1, 0), *m;
    test_assert_ok(esp_measured_create(bed.d, bed.n_ranks, bed.device, NULL, &m, &bed.diag),
                   &bed.diag);
    const int64_t ends[] = {500, 600, 720}, back[] = {10, 9};
    test_assert_ok(esp_measured_add(m, once->start_ns, once->end_ns, 3, ends, &bed.diag),
                   &bed.diag);
    assert_int_equal(m->periods, 2);
    assert_true(m->mean_step_ns == 110 && m->spread_ns > 9.99 && m->spread_ns < 10.01);
    assert_true(m->median_step_ns == 110);
    assert_int_equal(m->step_ns[0], 120);
    assert_int_equal(m->isolated, 0);
    test_assert_fails(esp_measured_add(m, once->start_ns, once->end_ns, 1, ends, &bed.diag),
                      &bed.diag, ESP_ERR_ARGUMENT, "one step among longer");
    test_assert_fails(esp_measured_add(m, once->start_ns, once->end_ns, 2, back, &bed.diag),
                      &bed.diag, ESP_ERR_ARGUMENT, "step 1 ends before");
    test_assert_fails(esp_measured_add(m, once->end_ns, once->start_ns, 2, ends, &bed.diag),
                      &bed.diag, ESP_ERR_ARGUMENT, "times of task");
    assert_int_equal(m->n_steps, 1);
    assert_int_equal(esp_measured_add(m, NULL, NULL, 3, ends, NULL), ESP_OK);
    assert_true(m->n_steps == 1 && m->periods == 4 && m->mean_step_ns == 110);
    const int64_t held_up[] = {0, 101, 1000, 1099}; /* 101, 899, 99: 99 100 100 101 120 120 899 */
    assert_int_equal(esp_measured_add(m, NULL, NULL, 4, held_up, NULL), ESP_OK);
    assert_true(m->periods == 7 && m->median_step_ns == 101 && m->mean_step_ns > 200);
    for (int32_t s = 1; s < ESP_MEASURED_MAX_STEPS; s++)
        assert_int_equal(esp_measured_add(m, once->start_ns, once->end_ns, 2, ends, NULL), ESP_OK);
    test_assert_fails(esp_measured_add(m, once->start_ns, once->end_ns, 2, ends, &bed.diag),
                      &bed.diag, ESP_ERR_LIMIT, "recorded steps");
    esp_measured_destroy(m);
    const int32_t twice[] = {0, 0}, unknown[] = {99};
    test_assert_fails(esp_measured_create(bed.d, 2, twice, NULL, &m, &bed.diag), &bed.diag,
                      ESP_ERR_ARGUMENT, "same device");
    test_assert_fails(esp_measured_create(bed.d, 1, unknown, NULL, &m, &bed.diag), &bed.diag,
                      ESP_ERR_ARGUMENT, "no device");
    esp_measured_destroy(once);
    esp_measured_destroy(NULL);
    bed_fini(&bed);
}

/* ---- traces ------------------------------------------------------------------------------------
 */

static void traces_read_back(void **state)
{
    (void)state;
    for (int32_t model = 0; model < DEPLOY_MODELS; model++) {
        bed_t bed;
        char *text;
        esp_measured_t *back;
        esp_sim_opts_t opts = esp_sim_opts_default();
        bed_init(&bed, cluster_mixed(), model, model % 2 ? SERVER : MIXED);
        opts.timeline = 1;
        simulate(&bed, &opts);
        esp_measured_t *m = measure(&bed, 3, 20);
        test_assert_ok(esp_measured_trace(m, NULL, &text, &bed.diag), &bed.diag);
        test_assert_ok(
            esp_measured_parse(text, strlen(text), "t.json", bed.d, NULL, &back, &bed.diag),
            &bed.diag);
        assert_same(m, back);
        free(text);
        esp_measured_destroy(m);
        esp_measured_destroy(back);
        bed_fini(&bed);
    }
}

/* Every task and link of the predicted trace is in the measured one, by the same names. */
static void names_match_the_prediction(void **state)
{
    (void)state;
    bed_t bed;
    char *predicted, *measured;
    esp_sim_opts_t opts = esp_sim_opts_default();
    bed_init(&bed, cluster_mixed(), 5, MIXED);
    opts.timeline = 1;
    simulate(&bed, &opts);
    esp_measured_t *m = measure(&bed, 1, 0);
    test_assert_ok(esp_sim_trace(bed.sim, NULL, &predicted, &bed.diag), &bed.diag);
    test_assert_ok(esp_measured_trace(m, NULL, &measured, &bed.diag), &bed.diag);
    esp_i_json_doc_t *doc;
    esp_i_json_t events;
    test_assert_ok(
        esp_i_json_parse(NULL, predicted, (int64_t)strlen(predicted), "p", &doc, &bed.diag),
        &bed.diag);
    test_assert_ok(
        esp_i_json_get(esp_i_json_root(doc), "traceEvents", ESP_I_JSON_ARRAY, &events, &bed.diag),
        &bed.diag);
    int32_t spans = 0;
    for (int32_t i = 0; i < esp_i_json_count(events); i++) {
        const char *phase, *name;
        char wanted[512];
        esp_i_json_t event = esp_i_json_item(events, i), args;
        int64_t task = 0;
        assert_int_equal(esp_i_json_get_string(event, "ph", &phase, NULL), ESP_OK);
        assert_int_equal(esp_i_json_get_string(event, "name", &name, NULL), ESP_OK);
        if (strcmp(phase, "X") != 0)
            continue;
        assert_int_equal(esp_i_json_get(event, "args", ESP_I_JSON_OBJECT, &args, NULL), ESP_OK);
        assert_int_equal(esp_i_json_get_int(args, "task", 0, INT32_MAX, &task, NULL), ESP_OK);
        (void)snprintf(wanted, sizeof wanted, "\"name\": \"%s\"", name);
        assert_non_null(strstr(measured, wanted));
        (void)snprintf(wanted, sizeof wanted, "\"args\": {\"task\": %lld, \"step\": 0",
                       (long long)task);
        assert_non_null(strstr(measured, wanted));
        spans++;
    }
    assert_true(spans >= bed.d->n_tasks);
    esp_i_json_destroy(doc);
    free(predicted);
    free(measured);
    esp_measured_destroy(m);
    bed_fini(&bed);
}

/* The trace with one text replaced. */
static char *edited(const char *text, const char *from, const char *to)
{
    const char *at = strstr(text, from);
    if (!at)
        fail_msg("\"%s\" is not in the trace", from);
    size_t head = (size_t)(at - text), size = strlen(text) + strlen(to) + 1;
    char *out = malloc(size);
    (void)snprintf(out, size, "%.*s%s%s", (int)head, text, to, at + strlen(from));
    return out;
}

static void hostile_traces(void **state)
{
    (void)state;
    static const struct {
        const char *from, *to, *message;
        esp_status_t status;
    } cases[] = {
        {"\"espalier\"", "\"x\"", "no measured trace", ESP_ERR_INVALID},
        {"\"espalier-trace\"", "\"other\"", "format other", ESP_ERR_UNSUPPORTED},
        {"\"format_version\": 1", "\"format_version\": 2", "version 2", ESP_ERR_UNSUPPORTED},
        {"\"graph_sha256\": \"", "\"graph_sha256\": \"x", "another deployment", ESP_ERR_INVALID},
        {"\"tasks\": ", "\"tasks\": 9", "another deployment", ESP_ERR_INVALID},
        {"\"devices\": [\"", "\"devices\": [\"no", "no device of the deployment", ESP_ERR_INVALID},
        {"\"devices\": [", "\"devices\": [] , \"more\": [", "0 devices", ESP_ERR_INVALID},
        {"\"ph\": \"X\"", "\"ph\": \"Y\"", "lacks tasks", ESP_ERR_INVALID},
        {"\"ph\": \"X\"", "\"ph\": 1", "$.traceEvents[", ESP_ERR_INVALID},
        {"\"args\": {\"task\": ", "\"args\": {\"task\": 99999", "99999", ESP_ERR_INVALID},
        {"\"args\": {\"task\": ", "\"args\": {\"task\": -1", "-1", ESP_ERR_INVALID},
        {"\"step\": 0", "\"step\": 7", "7", ESP_ERR_INVALID},
        {"\"step\": 0", "\"step\": 1", "there twice", ESP_ERR_INVALID},
        {"\"ts\": ", "\"ts\": -", "ts", ESP_ERR_INVALID},
        {"\"dur\": ", "\"dur\": 1e300, \"old\": ", "dur", ESP_ERR_INVALID},
        {"\"isolated\": true", "\"isolated\": 3", "$.espalier.isolated", ESP_ERR_INVALID},
        {"\"mean_step_ns\": ", "\"mean_step_ns\": -", "mean_step_ns", ESP_ERR_INVALID},
        {"\"step_ns\": [", "\"step_ns\": [0, ", "lacks tasks", ESP_ERR_INVALID},
        {"\"traceEvents\"", "\"events\"", "traceEvents", ESP_ERR_INVALID},
        {"{", "[", "", ESP_ERR_SYNTAX},
    };
    bed_t bed;
    char *text;
    esp_sim_opts_t opts = esp_sim_opts_default();
    bed_init(&bed, cluster_mixed(), 0, MIXED);
    opts.timeline = 1;
    simulate(&bed, &opts);
    esp_measured_t *m = measure(&bed, 2, 0), *back;
    test_assert_ok(esp_measured_trace(m, NULL, &text, &bed.diag), &bed.diag);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *wrong = edited(text, cases[i].from, cases[i].to);
        memset(&bed.diag, 0, sizeof bed.diag);
        test_assert_fails(
            esp_measured_parse(wrong, strlen(wrong), "t.json", bed.d, NULL, &back, &bed.diag),
            &bed.diag, cases[i].status, cases[i].message);
        free(wrong);
    }
    free(text);
    esp_measured_destroy(m);
    bed_fini(&bed);
}

static esp_status_t attempt(const esp_allocator_t *alloc, void *context)
{
    bed_t *bed = context;
    esp_measured_t *m, *back = NULL;
    char *text = NULL;
    int64_t n = (int64_t)bed->n_ranks * bed->d->n_tasks;
    esp_measured_t *from = measure(bed, 1, 0);
    esp_status_t status = esp_measured_create(bed->d, bed->n_ranks, bed->device, alloc, &m, NULL);
    if (status == ESP_OK) {
        assert_true(n > 0);
        status = esp_measured_add(m, from->start_ns, from->end_ns, 1, from->step_ns, NULL);
        if (status == ESP_OK)
            status = esp_measured_trace(m, alloc, &text, NULL);
        if (status == ESP_OK)
            status = esp_measured_parse(text, strlen(text), "t", bed->d, alloc, &back, NULL);
        if (status == ESP_OK)
            esp_measured_destroy(back);
        if (text)
            alloc->release(alloc->context, text);
        esp_measured_destroy(m);
    }
    esp_measured_destroy(from);
    return status;
}

static void survives_failing_allocations(void **state)
{
    (void)state;
    bed_t bed;
    esp_sim_opts_t opts = esp_sim_opts_default();
    bed_init(&bed, cluster_mixed(), 0, SERVER);
    opts.timeline = 1;
    simulate(&bed, &opts);
    test_sweep_allocations(attempt, &bed, 1);
    bed_fini(&bed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(replay_reproduces_the_step),
        cmocka_unit_test(durations_of_classes),
        cmocka_unit_test(reports_by_hand),
        cmocka_unit_test(runs_add_up),
        cmocka_unit_test(traces_read_back),
        cmocka_unit_test(names_match_the_prediction),
        cmocka_unit_test(hostile_traces),
        cmocka_unit_test(survives_failing_allocations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
