/* The training loop: runs of some steps, and what is done between them. */
#include "exec/tensors.h"

#include <math.h>

enum { MOST_AT_ONCE = 256 };

esp_train_opts_t esp_train_opts_default(void)
{
    return (esp_train_opts_t){.struct_size = sizeof(esp_train_opts_t)};
}

typedef struct loop {
    const esp_train_job_t *job;
    const esp_train_opts_t *opts;
    esp_exec_feed_t feed;
    esp_schedule_opts_t schedule;
    int64_t at_once; /* steps in the next run */
    int64_t saved;   /* step of the last checkpoint; -1: none */
    double seconds;  /* in steps */
    esp_train_result_t result;
    double loss[MOST_AT_ONCE];
    esp_diag_t *diag;
} loop_t;

/* The feed's callbacks have one context: the loop. */
static esp_status_t input(void *context, uint64_t step, esp_tensor_id_t tensor, esp_view_t view,
                          int64_t offset, int64_t share, void *values_out, esp_diag_t *diag)
{
    const loop_t *loop = context;
    return esp_data_read(loop->opts->data, step, tensor, view, offset, share, values_out, diag);
}

static double rate(void *context, uint64_t step)
{
    const loop_t *loop = context;
    return esp_schedule_factor(&loop->schedule, step);
}

/* Steps to the next multiple of `every`; 0: to the end. */
static int64_t to_next(int64_t step, int64_t every, int64_t end)
{
    return every > 0 ? esp_i_min_i64(every - step % every, end - step) : end - step;
}

static bool due(int64_t step, int64_t every, int64_t end)
{
    return step == end || (every > 0 && step % every == 0);
}

/* ---- a run of some steps --------------------------------------------------------------------- */

/* What rank 0 decides for all. */
typedef struct decision {
    int64_t steps;
    int32_t stop;
} decision_t;

/*
 * Runs last some tenths of a second, so that stopping does not take long and what is between runs
 * costs little.
 */
static esp_status_t decide(loop_t *loop, decision_t *decision)
{
    const esp_train_opts_t *opts = loop->opts;
    int64_t step = (int64_t)esp_exec_step(loop->job->exec);
    int64_t n = opts->run_steps > 0 ? opts->run_steps : loop->at_once;
    n = esp_i_min_i64(n, opts->until - step);
    if (opts->checkpoint != NULL)
        n = esp_i_min_i64(n, to_next(step, opts->checkpoint_every, opts->until));
    if (opts->evaluator != NULL)
        n = esp_i_min_i64(n, to_next(step, opts->evaluate_every, opts->until));
    *decision = (decision_t){n, opts->stop != NULL && esp_launch_rank(loop->job->launch) == 0 &&
                                    opts->stop(opts->context) != 0};
    return esp_launch_share(loop->job->launch, decision, sizeof *decision, loop->diag);
}

static void adapt(loop_t *loop, double seconds)
{
    if (seconds < 0.15)
        loop->at_once = esp_i_min_i64(2 * loop->at_once, MOST_AT_ONCE);
    else if (seconds > 0.6)
        loop->at_once = esp_i_max_i64(loop->at_once / 2, 1);
}

static void tell(loop_t *loop, uint64_t first, int64_t n, double seconds,
                 const esp_evaluation_t *evaluation)
{
    const esp_train_opts_t *opts = loop->opts;
    double samples = (double)loop->job->graph->batch * (double)n;
    if (opts->step == NULL || esp_launch_rank(loop->job->launch) != 0)
        return;
    for (int64_t i = 0; i < n; i++) {
        esp_train_step_t step = {.step = first + (uint64_t)i,
                                 .loss = loop->loss[i],
                                 .factor = rate(loop, first + (uint64_t)i),
                                 .samples_per_s = seconds > 0 ? samples / seconds : 0,
                                 .evaluation = i == n - 1 ? evaluation : NULL};
        opts->step(opts->context, &step);
    }
}

static esp_status_t save(loop_t *loop, int64_t step)
{
    const esp_train_opts_t *opts = loop->opts;
    if (opts->checkpoint == NULL || loop->saved == step)
        return ESP_OK;
    ESP_TRY(esp_checkpoint_save(loop->job, opts->data, opts->checkpoint, loop->diag));
    loop->saved = step;
    return ESP_OK;
}

static esp_status_t evaluate(loop_t *loop)
{
    const esp_train_opts_t *opts = loop->opts;
    ESP_TRY(esp_evaluator_run(opts->evaluator, loop->job, opts->evaluation_data,
                              &loop->result.evaluation, loop->diag));
    loop->result.evaluated = 1;
    return ESP_OK;
}

static esp_status_t run(loop_t *loop, int64_t n)
{
    const esp_train_opts_t *opts = loop->opts;
    esp_exec_t *exec = loop->job->exec;
    uint64_t first = esp_exec_step(exec);
    const int64_t start_ns = esp_i_now_ns();
    ESP_TRY(esp_exec_run(exec, n, &loop->feed, loop->loss, loop->diag));
    double seconds = 1e-9 * (double)(esp_i_now_ns() - start_ns);
    if (opts->ran != NULL)
        ESP_TRY(opts->ran(opts->context, n, loop->diag));
    int64_t step = (int64_t)first + n;
    bool evaluates = opts->evaluator != NULL && due(step, opts->evaluate_every, opts->until);
    if (loop->result.steps == 0)
        loop->result.first_loss = loop->loss[0];
    loop->result.steps += n;
    loop->result.loss = loop->loss[n - 1];
    loop->seconds += seconds;
    adapt(loop, seconds);
    if (evaluates)
        ESP_TRY(evaluate(loop));
    tell(loop, first, n, seconds, evaluates ? &loop->result.evaluation : NULL);
    return due(step, opts->checkpoint_every, opts->until) ? save(loop, step) : ESP_OK;
}

/* ---- the whole ------------------------------------------------------------------------------- */

static esp_status_t run_all(loop_t *loop)
{
    const esp_exec_t *exec = loop->job->exec;
    while ((int64_t)esp_exec_step(exec) < loop->opts->until) {
        decision_t decision;
        ESP_TRY(decide(loop, &decision));
        if (decision.stop != 0) {
            loop->result.stopped = 1;
            break;
        }
        ESP_TRY(run(loop, decision.steps));
    }
    /* Nothing was left to do: what is there is evaluated. */
    if (loop->opts->evaluator != NULL && loop->result.steps == 0 && loop->result.stopped == 0)
        ESP_TRY(evaluate(loop));
    return save(loop, (int64_t)esp_exec_step(exec));
}

static esp_status_t check(const esp_train_opts_t *opts, esp_diag_t *diag)
{
    if (opts->struct_size != sizeof *opts)
        return esp_i_fail(diag, ESP_ERR_ARGUMENT, "options of an unknown version");
    if (opts->until < 0 || opts->checkpoint_every < 0 || opts->evaluate_every < 0 ||
        opts->run_steps < 0 || opts->run_steps > MOST_AT_ONCE)
        return esp_i_fail(diag, ESP_ERR_ARGUMENT, "a number of steps that is out of range");
    if (opts->evaluator != NULL && opts->evaluation_data == NULL)
        return esp_i_fail(diag, ESP_ERR_ARGUMENT, "an evaluation without data");
    return ESP_OK;
}

esp_status_t esp_train(const esp_train_job_t *job, const esp_train_opts_t *opts,
                       esp_train_result_t *result_out, esp_diag_t *diag)
{
    loop_t loop = {.job = job, .opts = opts, .at_once = 1, .saved = -1, .diag = diag};
    ESP_TRY(check(opts, diag));
    loop.schedule = opts->schedule != NULL ? *opts->schedule : esp_schedule_opts_default();
    loop.feed = (esp_exec_feed_t){&loop, opts->data != NULL ? input : NULL, rate};
    ESP_TRY(run_all(&loop));
    if (loop.seconds > 0)
        loop.result.samples_per_s =
            (double)job->graph->batch * (double)loop.result.steps / loop.seconds;
    *result_out = loop.result;
    return ESP_OK;
}
