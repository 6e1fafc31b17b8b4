/* The simulator on timelines that can be worked out by hand. */
#include "deploy_builder.h"
#include "naive_sim.h"

#include "base/json.h"
#include "espalier/cluster.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A byte takes 1 ns inside a node and 2 ns between nodes; no latency but that of a step. */
static const lab_link_t inside = {1e9, 0}, between = {5e8, 0};
#define STEP 3000

typedef struct bed {
    esp_cluster_t *cluster;
    deploy_t *deploy;
    esp_sim_t *sim;
    esp_sim_opts_t opts;
    esp_sim_result_t r;
    esp_diag_t diag;
} bed_t;

static bed_t bed_make(int32_t nodes, int32_t per_node, int32_t classes)
{
    bed_t bed = {.cluster = lab_cluster(nodes, per_node, NULL, inside, between),
                 .opts = esp_sim_opts_default()};
    bed.opts.timeline = 1;
    bed.deploy = deploy_new(bed.cluster, classes);
    assert_int_equal(esp_sim_create(NULL, &bed.sim), ESP_OK);
    return bed;
}

static void bed_free(bed_t *bed)
{
    esp_sim_destroy(bed->sim);
    deploy_free(bed->deploy);
    esp_cluster_destroy(bed->cluster);
}

static void bed_run(bed_t *bed, const int32_t *order)
{
    test_assert_ok(
        esp_sim_run(bed->sim, deploy_get(bed->deploy, order), &bed->opts, &bed->r, &bed->diag),
        &bed->diag);
}

#define assert_span(bed, task, start, end)                                                         \
    do {                                                                                           \
        assert_int_equal((bed).r.start_ns[task], (start));                                         \
        assert_int_equal((bed).r.end_ns[task], (end));                                             \
    } while (0)

/* ---- streams ------------------------------------------------------------------------------------
 */

/* A transfer makes the next task at each end longer, by the part of its time in which that side
 * computed. */
static void movements_take_compute_time(void **state)
{
    (void)state;
    bed_t bed = bed_make(1, 3, 3);
    int32_t move = deploy_transfer(bed.deploy, 0, 1, 1000); /* from the start */
    int32_t idle = deploy_compute(bed.deploy, 0, 50);       /* after it */
    int32_t half = deploy_compute(bed.deploy, 1, 500);      /* beside half of it */
    int32_t next = deploy_compute(bed.deploy, 1, 50);       /* after it */
    int32_t other = deploy_compute(bed.deploy, 2, 50);      /* has no part in it */
    deploy_edge(bed.deploy, move, idle);
    deploy_edge(bed.deploy, move, next);
    deploy_edge(bed.deploy, move, other);
    deploy_set_ns(bed.deploy, move, 1000);
    esp_deployment_t d = *deploy_get(bed.deploy, NULL);
    const int64_t taken[] = {90, 70}; /* sender, receiver */
    d.comm_class_ns = taken;
    bed.opts.barrier = 1;
    test_assert_ok(esp_sim_run(bed.sim, &d, &bed.opts, &bed.r, &bed.diag), &bed.diag);
    assert_span(bed, move, 0, 1000);
    assert_span(bed, half, 0, 500);
    assert_span(bed, idle, 1000, 1050);
    assert_span(bed, next, 1000, 1050 + 35);
    assert_span(bed, other, 1000, 1050);
    bed_free(&bed);
}

static void stream_waits_for_its_next_task(void **state)
{
    (void)state;
    bed_t bed = bed_make(1, 2, 2);
    int32_t a = deploy_compute(bed.deploy, 0, 100);
    int32_t b = deploy_compute(bed.deploy, 1, 10); /* after a */
    int32_t c = deploy_compute(bed.deploy, 1, 10); /* ready at once, but after b in the order */
    deploy_edge(bed.deploy, a, b);
    bed.opts.barrier = 1;
    bed_run(&bed, NULL);
    assert_span(bed, b, 100, 110);
    assert_span(bed, c, 110, 120);
    assert_int_equal(bed.r.makespan_ns, 120);
    assert_int_equal(bed.r.step_time_ns, 120);
    assert_int_equal(bed.r.class_busy_ns[1], 20);
    bed.opts.fifo = 1;
    bed_run(&bed, NULL);
    assert_span(bed, c, 0, 10);
    assert_span(bed, b, 100, 110);
    bed_free(&bed);
}

static void steps_overlap_up_to_the_cross_edges(void **state)
{
    (void)state;
    bed_t bed = bed_make(1, 2, 2);
    int32_t a = deploy_compute(bed.deploy, 0, 100);
    int32_t b = deploy_compute(bed.deploy, 1, 70);
    deploy_edge(bed.deploy, a, b);
    bed_run(&bed, NULL); /* pipelined: a of the next step runs beside b */
    assert_int_equal(bed.r.makespan_ns, 170);
    assert_int_equal(bed.r.step_time_ns, 100);
    assert_int_equal(bed.r.events, 6);
    deploy_cross(bed.deploy, b, a); /* a needs what b wrote */
    bed_run(&bed, NULL);
    assert_int_equal(bed.r.step_time_ns, 170);
    bed.opts.steps = 1;
    bed_run(&bed, NULL);
    assert_int_equal(bed.r.step_time_ns, 170);
    bed_free(&bed);
}

static void collectives_keep_their_order(void **state)
{
    (void)state;
    bed_t bed = bed_make(1, 3, 3);
    esp_pattern_t idle = {.comm = ESP_COMM_ALLREDUCE}; /* no links: only the streams matter */
    const int32_t pair[] = {0, 1}, other[] = {1, 2};
    int32_t slow = deploy_compute(bed.deploy, 0, 100);
    int32_t x = deploy_comm(bed.deploy, &idle, 1, true, 2, pair);
    int32_t y = deploy_comm(bed.deploy, &idle, 1, true, 2, other);
    deploy_set_ns(bed.deploy, x, 30);
    deploy_set_ns(bed.deploy, y, 40);
    deploy_edge(bed.deploy, slow, x);
    bed.opts.barrier = 1;
    bed_run(&bed, NULL);
    assert_span(bed, x, 100, 130); /* y is ready at 0, but x is before it on class 1 */
    assert_span(bed, y, 130, 170);
    bed_free(&bed);
}

/* ---- links
 * ---------------------------------------------------------------------------------------- */

static void exclusive_links_queue(void **state)
{
    (void)state;
    bed_t bed = bed_make(1, 3, 3);
    int32_t a = deploy_transfer(bed.deploy, 0, 2, 1000);
    int32_t b = deploy_transfer(bed.deploy, 1, 2, 500);
    int32_t c = deploy_transfer(bed.deploy, 0, 1, 100); /* shares the cable of device 0 with a */
    bed.opts.links = ESP_LINK_EXCLUSIVE;
    bed.opts.barrier = 1;
    bed_run(&bed, NULL);
    assert_span(bed, a, 0, 1000 + STEP);
    assert_span(bed, b, 1000 + STEP, 1500 + 2 * STEP);
    assert_span(bed, c, 1000 + STEP, 1100 + 2 * STEP);
    bed_free(&bed);
}

static void fair_links_share(void **state)
{
    (void)state;
    bed_t bed = bed_make(1, 3, 3);
    int32_t a = deploy_transfer(bed.deploy, 0, 2, 1000);
    int32_t b = deploy_transfer(bed.deploy, 1, 2, 500);
    bed.opts.links = ESP_LINK_FAIR;
    bed.opts.barrier = 1;
    bed_run(&bed, NULL);
    assert_span(bed, b, 0, STEP + 1000); /* half speed */
    assert_span(bed, a, 0, STEP + 1500); /* 500 left when b ends */
    bed_free(&bed);
}

/* Three on one link, of which one is held back elsewhere: it gets its share there, the others more.
 */
static void fair_links_are_max_min(void **state)
{
    (void)state;
    bed_t bed = bed_make(2, 3, 6);                          /* between nodes: half a byte per ns */
    int32_t a = deploy_transfer(bed.deploy, 0, 3, 1000000); /* these two share the node link */
    int32_t b = deploy_transfer(bed.deploy, 1, 4, 1000000);
    int32_t c = deploy_transfer(bed.deploy, 0, 2, 1000000); /* shares only the cable of 0 with a */
    bed.opts.barrier = 1;
    bed_run(&bed, NULL);
    /* a and b: 1/4 byte per ns each; c: the other 3/4 of the cable of device 0 */
    assert_int_equal(bed.r.end_ns[c], STEP + 1333334);
    assert_int_equal(bed.r.end_ns[a], STEP + 4000000);
    assert_int_equal(bed.r.end_ns[b], STEP + 4000000);
    bed_free(&bed);
}

/* A ring and a transfer on its tightest link get half of it each, whatever the ring's loads. */
static void a_collective_is_one_among_equals(void **state)
{
    (void)state;
    bed_t bed = bed_make(2, 2, 4);
    const int32_t all[] = {0, 1, 2, 3};
    esp_place_t place = {4, all, NULL};
    esp_pattern_t pattern[ESP_PATTERN_MAX];
    int32_t count;
    assert_int_equal(
        esp_pattern_find(bed.cluster, ESP_COMM_ALLREDUCE, &place, &place, NULL, pattern, &count),
        ESP_OK);
    int32_t ring = deploy_comm(bed.deploy, &pattern[0], 1000000, true, 4, all);
    int32_t move = deploy_transfer(bed.deploy, 0, 2, 1000000);
    for (int32_t i = 0; i < count; ++i)
        esp_pattern_release(&pattern[i], NULL);
    bed.opts.barrier = 1;
    bed_run(&bed, NULL);
    /* The move at 1/4 byte per ns from STEP on. The ring (6 steps of latency) has 1.5 MB at 1/4. */
    int64_t joined = 6 * STEP, alone = joined - STEP;
    int64_t end = joined + (int64_t)ceil(((1000000 - (double)alone / 2) / 0.25));
    assert_int_equal(bed.r.end_ns[move], end);
    double left = 1500000 - (double)(end - joined) / 4;
    assert_int_equal(bed.r.end_ns[ring], end + (int64_t)ceil(left / 0.5));
    bed_free(&bed);
}

static bool is_bottleneck(const esp_cluster_t *c, const naive_flow_t *flows, const double *rate,
                          int32_t n, int32_t i, int32_t link)
{
    double used = 0, most = 0;
    for (int32_t f = 0; f < n; ++f) {
        const esp_pattern_t *p = flows[f].pattern;
        for (int32_t l = 0; l < p->n_links; ++l) {
            if (p->link[l] != link)
                continue;
            used += rate[f] * p->load[l];
            most = fmax(most, rate[f]);
        }
    }
    double width = c->link_bytes_per_s[link] * 1e-9;
    assert_true(used <= width * (1 + 1e-9)); /* nothing is over-used */
    return used >= width * (1 - 1e-9) && rate[i] >= most * (1 - 1e-9);
}

/* The definition: whatever is not at full speed has a full link on which nothing is faster. Equal
 * loads here, so that rates compare. */
static void sharing_is_max_min_by_definition(void **state)
{
    (void)state;
    esp_i_rng_t rng;
    esp_i_rng_seed(&rng, 5);
    for (int32_t k = 0; k < 50; ++k) {
        esp_cluster_t *c = lab_random_cluster(&rng, 3, 4);
        esp_pattern_t pattern[12][ESP_PATTERN_MAX];
        naive_flow_t flows[12];
        double rate[12];
        int32_t count[12], n = 1 + (int32_t)esp_i_rng_below(&rng, 12);
        for (int32_t i = 0; i < n; ++i) {
            int32_t a = (int32_t)esp_i_rng_below(&rng, c->n_devices);
            int32_t b = (int32_t)esp_i_rng_below(&rng, c->n_devices);
            esp_place_t src = {1, &a, NULL}, dst = {1, &b, NULL};
            assert_int_equal(
                esp_pattern_find(c, ESP_COMM_BROADCAST, &src, &dst, NULL, pattern[i], &count[i]),
                ESP_OK);
            double full = pattern[i][0].n_links ? 1 / pattern[i][0].ns_per_byte : 1;
            flows[i] = (naive_flow_t){&pattern[i][0], full, 0};
        }
        naive_share(c, n, flows);
        for (int32_t i = 0; i < n; ++i)
            rate[i] = flows[i].speed * flows[i].full;
        for (int32_t i = 0; i < n; ++i) {
            bool held = flows[i].speed == 1;
            for (int32_t l = 0; l < flows[i].pattern->n_links; ++l)
                held |= is_bottleneck(c, flows, rate, n, i, flows[i].pattern->link[l]);
            assert_true(held);
        }
        for (int32_t i = 0; i < n; ++i)
            esp_pattern_release(&pattern[i][0], NULL);
        esp_cluster_destroy(c);
    }
}

/* ---- memory
 * --------------------------------------------------------------------------------------- */

/* A movement of no duration that waits for a link takes its memory, and gives it back. */
static void instant_movement_frees_its_memory(void **state)
{
    (void)state;
    bed_t bed = bed_make(1, 2, 2);
    int32_t kept = deploy_buffer(bed.deploy, 1, 50, false, ESP_ROLE_ACTIVATION);
    int32_t dropped = deploy_buffer(bed.deploy, 1, 100, false, ESP_ROLE_ACTIVATION);
    int32_t late = deploy_buffer(bed.deploy, 1, 1000, false, ESP_ROLE_ACTIVATION);
    int32_t a = deploy_transfer(bed.deploy, 0, 1, 1000);
    int32_t b = deploy_transfer(bed.deploy, 0, 1, 10);
    int32_t c = deploy_compute(bed.deploy, 1, 10), d = deploy_compute(bed.deploy, 1, 10);
    deploy_set_ns(bed.deploy, b, 0);
    deploy_write(bed.deploy, b, kept);
    deploy_write(bed.deploy, b, dropped);
    deploy_edge(bed.deploy, a, c);
    deploy_read(bed.deploy, c, kept);
    deploy_write(bed.deploy, d, late);
    deploy_read(bed.deploy, d, kept);
    bed.opts.links = ESP_LINK_EXCLUSIVE;
    for (int32_t k = 0; k < 4; ++k) {
        bed.opts.timeline = k % 2;
        bed_run(&bed, NULL);
        assert_int_equal(bed.r.class_peak_bytes[1], 1050);
    }
    assert_span(bed, b, bed.r.end_ns[a], bed.r.end_ns[a]);
    bed_free(&bed);
}

static void memory_by_hand(void **state)
{
    (void)state;
    bed_t bed = bed_make(1, 2, 2);
    (void)deploy_buffer(bed.deploy, 0, 1000, true, ESP_ROLE_PARAMETER);
    int32_t x = deploy_buffer(bed.deploy, 0, 100, false, ESP_ROLE_ACTIVATION);
    int32_t view = deploy_alias(bed.deploy, x);
    int32_t g = deploy_buffer(bed.deploy, 0, 30, false, ESP_ROLE_GRADIENT);
    int32_t dropped = deploy_buffer(bed.deploy, 0, 7, false, ESP_ROLE_ACTIVATION);
    int32_t there = deploy_buffer(bed.deploy, 1, 100, false, ESP_ROLE_ACTIVATION);
    int32_t a = deploy_compute(bed.deploy, 0, 10); /* x and a result that nobody reads */
    deploy_write(bed.deploy, a, x);
    deploy_write(bed.deploy, a, dropped);
    int32_t b = deploy_compute(bed.deploy, 0, 10); /* reads an alias; scratch memory */
    deploy_read(bed.deploy, b, view);
    deploy_write(bed.deploy, b, g);
    deploy_set_workspace(bed.deploy, b, 300.5, 200);
    int32_t m = deploy_transfer(bed.deploy, 0, 1, 100);
    deploy_read(bed.deploy, m, x);
    deploy_write(bed.deploy, m, there);
    int32_t c = deploy_compute(bed.deploy, 0, 10);
    deploy_read(bed.deploy, c, g);
    bed_run(&bed, NULL);
    assert_int_equal(bed.r.class_peak_bytes[0], 1000 + 100 + 30 + 501); /* while b runs */
    assert_int_equal(bed.r.class_peak_bytes[1], 100);
    const int64_t *role = bed.r.class_peak_role_bytes;
    assert_int_equal(role[ESP_ROLE_PARAMETER], 1000);
    assert_int_equal(role[ESP_ROLE_ACTIVATION], 100 + 501);
    assert_int_equal(role[ESP_ROLE_GRADIENT], 30);
    bed_free(&bed);
}

/* ---- options and errors
 * ----------------------------------------------------------------------------- */

static void replays_measured_durations(void **state)
{
    (void)state;
    bed_t bed = bed_make(1, 2, 2);
    int32_t a = deploy_compute(bed.deploy, 0, 10);
    int32_t m = deploy_transfer(bed.deploy, 0, 1, 100);
    deploy_edge(bed.deploy, a, m);
    const int64_t measured[] = {70, 50}; /* the transfer: less than its latency was thought to be */
    bed.opts.task_ns = measured;
    for (int32_t links = 0; links < 3; ++links) {
        bed.opts.links = (esp_link_mode_t)links;
        bed_run(&bed, NULL);
        assert_span(bed, m, 70, 120);
        assert_int_equal(bed.r.class_busy_ns[0], 70);
    }
    bed_free(&bed);
}

static void deadlock_is_reported(void **state)
{
    (void)state;
    bed_t bed = bed_make(1, 1, 1);
    int32_t a = deploy_compute(bed.deploy, 0, 10);
    int32_t b = deploy_compute(bed.deploy, 0, 10);
    deploy_edge(bed.deploy, a, b);
    const int32_t order[] = {1, 0};
    test_assert_fails(esp_sim_run(bed.sim, deploy_get(bed.deploy, order), NULL, &bed.r, &bed.diag),
                      &bed.diag, ESP_ERR_INTERNAL, "task 1 of step 0 waits for 1");
    char *text;
    test_assert_fails(esp_sim_trace(bed.sim, NULL, &text, &bed.diag), &bed.diag, ESP_ERR_ARGUMENT,
                      "timeline");
    bed_free(&bed);
}

static void options_are_checked(void **state)
{
    (void)state;
    bed_t bed = bed_make(1, 1, 1);
    (void)deploy_compute(bed.deploy, 0, 10);
    const esp_deployment_t *d = deploy_get(bed.deploy, NULL);
    esp_sim_opts_t opts = esp_sim_opts_default();
    opts.steps = ESP_SIM_STEPS_MAX + 1;
    test_assert_fails(esp_sim_run(bed.sim, d, &opts, &bed.r, &bed.diag), &bed.diag,
                      ESP_ERR_ARGUMENT, "steps");
    opts = esp_sim_opts_default();
    opts.struct_size = 1;
    test_assert_fails(esp_sim_run(bed.sim, d, &opts, &bed.r, &bed.diag), &bed.diag,
                      ESP_ERR_ARGUMENT, "version");
    opts = esp_sim_opts_default();
    opts.links = (esp_link_mode_t)7;
    test_assert_fails(esp_sim_run(bed.sim, d, &opts, &bed.r, &bed.diag), &bed.diag,
                      ESP_ERR_ARGUMENT, "link mode");
    esp_sim_destroy(NULL);
    bed_free(&bed);
}

static void empty_deployment(void **state)
{
    (void)state;
    bed_t bed = bed_make(1, 1, 1);
    bed.opts.timeline = 0;
    bed_run(&bed, NULL);
    assert_int_equal(bed.r.step_time_ns, 0);
    assert_int_equal(bed.r.events, 0);
    bed_free(&bed);
}

/* ---- traces
 * -------------------------------------------------------------------------------------------- */

/* Two devices: forward, all-reduce beside a transfer, update. */
static void make_example(deploy_t *deploy, const esp_cluster_t *cluster)
{
    const int32_t both[] = {0, 1};
    esp_place_t place = {2, both, NULL};
    esp_pattern_t pattern[ESP_PATTERN_MAX];
    int32_t count, grad[2], reduced[2], forward[2];
    for (int32_t k = 0; k < 2; ++k) {
        forward[k] = deploy_compute(deploy, k, 4000 + 1000 * k);
        grad[k] = deploy_buffer(deploy, k, 600, false, ESP_ROLE_GRADIENT);
        deploy_write(deploy, forward[k], grad[k]);
    }
    assert_int_equal(
        esp_pattern_find(cluster, ESP_COMM_ALLREDUCE, &place, &place, NULL, pattern, &count),
        ESP_OK);
    int32_t reduce = deploy_comm(deploy, &pattern[0], 600, true, 2, both);
    for (int32_t i = 0; i < count; ++i)
        esp_pattern_release(&pattern[i], NULL);
    int32_t move = deploy_transfer(deploy, 0, 1, 800);
    deploy_edge(deploy, forward[0], move);
    for (int32_t k = 0; k < 2; ++k) {
        reduced[k] = deploy_buffer(deploy, k, 600, false, ESP_ROLE_GRADIENT);
        deploy_read(deploy, reduce, grad[k]);
        deploy_write(deploy, reduce, reduced[k]);
        int32_t update = deploy_compute(deploy, k, 2000);
        deploy_read(deploy, update, reduced[k]);
        deploy_cross(deploy, update, forward[k]);
    }
}

/* The highest memory counter of a class. */
static int64_t highest_counter(esp_i_json_t events, int64_t pid)
{
    int64_t most = 0;
    for (int32_t i = 0; i < esp_i_json_count(events); ++i) {
        esp_i_json_t event = esp_i_json_item(events, i), args;
        const char *phase;
        int64_t owner, bytes;
        assert_int_equal(esp_i_json_get_string(event, "ph", &phase, NULL), ESP_OK);
        assert_int_equal(esp_i_json_get_int(event, "pid", 0, 100, &owner, NULL), ESP_OK);
        if (strcmp(phase, "C") != 0 || owner != pid)
            continue;
        assert_int_equal(esp_i_json_get(event, "args", ESP_I_JSON_OBJECT, &args, NULL), ESP_OK);
        assert_int_equal(esp_i_json_get_int(args, "bytes", 0, 1 << 30, &bytes, NULL), ESP_OK);
        most = bytes > most ? bytes : most;
    }
    return most;
}

static void check_counters(const char *text, const esp_sim_result_t *r, int32_t classes)
{
    esp_i_json_doc_t *doc;
    esp_i_json_t events;
    esp_diag_t diag = {0};
    test_assert_ok(esp_i_json_parse(NULL, text, (int64_t)strlen(text), "trace", &doc, &diag),
                   &diag);
    test_assert_ok(
        esp_i_json_get(esp_i_json_root(doc), "traceEvents", ESP_I_JSON_ARRAY, &events, &diag),
        &diag);
    for (int32_t k = 0; k < classes; ++k)
        assert_int_equal(highest_counter(events, k + 1), r->class_peak_bytes[k]);
    esp_i_json_destroy(doc);
}

static void trace_is_golden(void **state)
{
    (void)state;
    bed_t bed = bed_make(1, 2, 2);
    make_example(bed.deploy, bed.cluster);
    char *text;
    bed_run(&bed, NULL);
    test_assert_ok(esp_sim_trace(bed.sim, NULL, &text, &bed.diag), &bed.diag);
    check_counters(text, &bed.r, 2);
    test_golden("sim_trace.json", text);
    free(text);
    bed_free(&bed);
}

static esp_status_t attempt(const esp_allocator_t *alloc, void *context)
{
    const bed_t *bed = context;
    esp_sim_t *sim;
    esp_sim_result_t r;
    char *text = NULL;
    ESP_TRY(esp_sim_create(alloc, &sim));
    esp_status_t status = esp_sim_run(sim, deploy_get(bed->deploy, NULL), &bed->opts, &r, NULL);
    if (status == ESP_OK)
        status = esp_sim_trace(sim, alloc, &text, NULL);
    if (status == ESP_OK)
        alloc->release(alloc->context, text);
    esp_sim_destroy(sim);
    return status;
}

static void survives_failing_allocations(void **state)
{
    (void)state;
    for (int32_t links = 0; links < 3; ++links) {
        bed_t bed = bed_make(1, 2, 2);
        make_example(bed.deploy, bed.cluster);
        bed.opts.links = (esp_link_mode_t)links;
        bed.opts.fifo = links % 2;
        test_sweep_allocations(attempt, &bed, 1);
        bed_free(&bed);
    }
}

/* The same again, also after a smaller and a larger deployment went through the same memory. */
static void runs_repeat(void **state)
{
    (void)state;
    esp_i_rng_t rng;
    esp_i_rng_seed(&rng, 11);
    bed_t bed = bed_make(2, 3, 6);
    make_example(bed.deploy, bed.cluster);
    bed_run(&bed, NULL);
    esp_sim_result_t first = bed.r, r;
    for (int32_t k = 0; k < 20; ++k) {
        deploy_t *other = deploy_random(&rng, bed.cluster, 5 + 10 * k, false);
        test_assert_ok(esp_sim_run(bed.sim, deploy_get(other, NULL), NULL, &r, &bed.diag),
                       &bed.diag);
        deploy_free(other);
        bed_run(&bed, NULL);
        assert_int_equal(bed.r.step_time_ns, first.step_time_ns);
        assert_int_equal(bed.r.makespan_ns, first.makespan_ns);
    }
    bed_free(&bed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(movements_take_compute_time),
        cmocka_unit_test(stream_waits_for_its_next_task),
        cmocka_unit_test(steps_overlap_up_to_the_cross_edges),
        cmocka_unit_test(collectives_keep_their_order),
        cmocka_unit_test(exclusive_links_queue),
        cmocka_unit_test(fair_links_share),
        cmocka_unit_test(fair_links_are_max_min),
        cmocka_unit_test(a_collective_is_one_among_equals),
        cmocka_unit_test(sharing_is_max_min_by_definition),
        cmocka_unit_test(memory_by_hand),
        cmocka_unit_test(instant_movement_frees_its_memory),
        cmocka_unit_test(replays_measured_durations),
        cmocka_unit_test(deadlock_is_reported),
        cmocka_unit_test(options_are_checked),
        cmocka_unit_test(empty_deployment),
        cmocka_unit_test(trace_is_golden),
        cmocka_unit_test(survives_failing_allocations),
        cmocka_unit_test(runs_repeat),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
