/* The training graph: losses, gradients against finite differences, updates. */
#include "graph_build.h"
#include "interp.h"
#include "support.h"

#include <math.h>
#include <string.h>

static esp_graph_t *train(const esp_graph_t *model, const esp_training_opts_t *opts)
{
    esp_graph_t *graph = NULL;
    esp_diag_t diag = {0};
    test_assert_ok(esp_training_graph(model, opts, NULL, &graph, &diag), &diag);
    test_assert_ok(esp_graph_check(graph, &diag), &diag);
    for (esp_op_id_t op = 0; op < model->n_ops; op++) { /* the model is a prefix */
        assert_int_equal(graph->op_kind[op], model->op_kind[op]);
        assert_string_equal(graph->op_name[op], model->op_name[op]);
    }
    return graph;
}

static double loss_of(const esp_graph_t *graph, interp_t *interp)
{
    interp_run(interp);
    return interp_get(interp, graph->loss)[0];
}

/* Every gradient element against a central difference of the loss. */
static void check_gradients(const esp_graph_t *graph)
{
    interp_t *interp = interp_new(graph, 7);
    double values[256], gradient[256];
    for (int32_t p = 0; p < graph->n_parameters; p++) {
        esp_tensor_id_t w = graph->parameter[p];
        size_t n = (size_t)graph->tensor_elements[w];
        assert_true(n <= 256);
        interp_run(interp);
        memcpy(gradient, interp_get(interp, graph->gradient[p]), n * sizeof *gradient);
        memcpy(values, interp_get(interp, w), n * sizeof *values);
        for (size_t i = 0; i < n; i++) {
            const double kept = values[i], h = 1e-5;
            values[i] = kept + h;
            interp_set(interp, w, values);
            double above = loss_of(graph, interp);
            values[i] = kept - h;
            interp_set(interp, w, values);
            double difference = (above - loss_of(graph, interp)) / (2 * h);
            values[i] = kept;
            interp_set(interp, w, values);
            if (!(fabs(difference - gradient[i]) <= 1e-6 + 1e-5 * fabs(difference)))
                fail_msg("%s[%zu]: gradient %g, difference %g", graph->tensor_name[w], i,
                         gradient[i], difference);
        }
    }
    interp_free(interp);
}

/* x [5, 4] -> dense, gelu -> dense: logits [5, 3] */
static esp_graph_t *two_layers(void)
{
    gb_t gb;
    gb_init(&gb);
    esp_tensor_id_t x = gb_input(&gb, "x", "5 4", 0);
    esp_tensor_id_t w = gb_parameter(&gb, "w", "4 6"), b = gb_parameter(&gb, "b", "6");
    esp_tensor_id_t v = gb_parameter(&gb, "v", "3 6"), c = gb_parameter(&gb, "c", "3");
    esp_tensor_id_t h = gb_binary(&gb, ESP_ELT_ADD, gb_einsum(&gb, "bi,ij->bj", x, w), b);
    esp_tensor_id_t y = gb_einsum(&gb, "bj,kj->bk", gb_unary(&gb, ESP_ELT_GELU, h), v);
    gb_output(&gb, gb_binary(&gb, ESP_ELT_ADD, y, c));
    return gb_freeze(&gb);
}

/* ---- losses ------------------------------------------------------------------------------- */

static void test_cross_entropy(void **state)
{
    (void)state;
    esp_graph_t *model = two_layers(), *graph = train(model, NULL);
    esp_tensor_id_t labels = gb_find(graph, "labels");
    assert_int_equal(graph->tensor_dtype[labels], ESP_DTYPE_I64);
    assert_int_equal(graph->tensor_rank[labels], 1);
    gb_assert_batch(graph, labels, 1, 5, 1);
    assert_int_equal(graph->n_parameters, 4);
    assert_int_equal(graph->tensor_rank[graph->loss], 0);
    assert_int_equal(graph->output[0], graph->loss);
    check_gradients(graph);
    esp_graph_destroy(graph);
    esp_graph_destroy(model);
}

static void test_ignored_labels(void **state)
{
    (void)state;
    esp_graph_t *model = two_layers();
    esp_training_opts_t opts = esp_training_opts_default();
    opts.ignore_label = 1;
    esp_graph_t *graph = train(model, &opts);
    interp_t *interp = interp_new(graph, 3);
    const double some[5] = {0, 1, 2, 1, 1}, none[5] = {1, 1, 1, 1, 1};
    esp_tensor_id_t labels = gb_find(graph, "labels");
    interp_set(interp, labels, some);
    double loss = loss_of(graph, interp);
    const double *logits = interp_get(interp, model->output[0]);
    double expected = 0;
    for (int i = 0; i < 5; i++) {
        const double *row = logits + 3 * (size_t)i;
        if (some[i] != 1)
            expected += log(exp(row[0]) + exp(row[1]) + exp(row[2])) - row[(int)some[i]];
    }
    assert_true(fabs(loss - expected / 2) < 1e-12);
    interp_set(interp, labels, none); /* nothing counts: no loss, no gradient */
    assert_true(loss_of(graph, interp) == 0);
    for (int32_t p = 0; p < graph->n_parameters; p++)
        for (int64_t i = 0; i < graph->tensor_elements[graph->gradient[p]]; i++)
            assert_true(interp_get(interp, graph->gradient[p])[i] == 0);
    interp_free(interp);
    check_gradients(graph);
    esp_graph_destroy(graph);
    esp_graph_destroy(model);
}

static void test_mean_squared_error(void **state)
{
    (void)state;
    esp_graph_t *model = two_layers();
    esp_training_opts_t opts = esp_training_opts_default();
    opts.loss = ESP_LOSS_MSE;
    esp_graph_t *graph = train(model, &opts);
    esp_tensor_id_t labels = gb_find(graph, "labels");
    assert_int_equal(graph->tensor_dtype[labels], ESP_DTYPE_F32);
    gb_assert_batch(graph, labels, 1, 5, 3);
    check_gradients(graph);
    esp_graph_destroy(graph);
    esp_graph_destroy(model);
}

static void test_own_loss(void **state)
{
    (void)state;
    gb_t gb;
    gb_init(&gb);
    esp_tensor_id_t x = gb_input(&gb, "x", "5 4", 0), w = gb_parameter(&gb, "w", "4");
    esp_tensor_id_t y = gb_unary(&gb, ESP_ELT_TANH, gb_binary(&gb, ESP_ELT_MUL, x, w));
    gb_output(&gb, gb_reshape(&gb, gb_sum(&gb, y, "0 1", false), "1"));
    esp_graph_t *model = gb_freeze(&gb), *graph = train(model, NULL);
    assert_int_equal(graph->n_inputs, 1);
    assert_int_equal(graph->tensor_rank[graph->loss], 0);
    check_gradients(graph);
    esp_graph_destroy(graph);
    esp_graph_destroy(model);
}

static void test_segmentation(void **state)
{
    (void)state;
    gb_t gb;
    gb_init(&gb);
    esp_tensor_id_t x = gb_input(&gb, "x", "2 2 4 3", 0), w = gb_parameter(&gb, "w", "3 2 3 3");
    gb_output(&gb, gb_conv(&gb, x, w));
    esp_graph_t *model = gb_freeze(&gb), *graph = train(model, NULL);
    esp_tensor_id_t labels = gb_find(graph, "labels");
    assert_int_equal(graph->tensor_rank[labels], 3);
    assert_int_equal(graph->tensor_dims[labels][1], 4);
    assert_int_equal(graph->tensor_dims[labels][2], 3);
    gb_assert_batch(graph, labels, 1, 2, 12);
    check_gradients(graph);
    esp_graph_destroy(graph);
    esp_graph_destroy(model);
}

static void test_final_softmax(void **state)
{
    (void)state;
    for (int logarithm = 0; logarithm < 2; logarithm++) {
        gb_t gb;
        gb_init(&gb);
        esp_tensor_id_t x = gb_input(&gb, "x", "5 4", 0), w = gb_parameter(&gb, "w", "4 3");
        esp_tensor_id_t logits = gb_einsum(&gb, "bi,ij->bj", x, w);
        gb_output(&gb, gb_softmax(&gb, logits, 1, logarithm == 1));
        esp_graph_t *model = gb_freeze(&gb), *graph = train(model, NULL);
        for (esp_op_id_t op = 0; op < graph->n_ops; op++)
            if (graph->op_kind[op] == ESP_KIND_XENT)
                assert_int_equal(graph->input_tensor[graph->input_offset[op]], logits);
        assert_int_equal(gb_count(graph, ESP_KIND_SOFTMAX_GRAD), 0);
        check_gradients(graph);
        esp_graph_destroy(graph);
        esp_graph_destroy(model);
    }
}

static void test_labels_follow_the_batch(void **state)
{
    (void)state;
    gb_t gb;
    gb_init(&gb);
    /* [s, b, v]: the batch of the labels [s, b] is second */
    esp_tensor_id_t x = gb_input(&gb, "x", "3 4 2", 1), w = gb_parameter(&gb, "w", "2 5");
    gb_output(&gb, gb_einsum(&gb, "sbi,iv->sbv", x, w));
    esp_graph_t *model = gb_freeze(&gb), *graph = train(model, NULL);
    gb_assert_batch(graph, gb_find(graph, "labels"), 3, 4, 1);
    for (esp_op_id_t op = 0; op < graph->n_ops; op++)
        if (graph->op_phase[op] == ESP_PHASE_BACKWARD &&
            graph->tensor_elements[graph->output_tensor[graph->output_offset[op]]] > 1)
            assert_int_not_equal(graph->op_batch[op].dim, ESP_NONE);
    check_gradients(graph);
    esp_graph_destroy(graph);
    esp_graph_destroy(model);
}

/* ---- the sweep ---------------------------------------------------------------------------- */

static void test_shared_parameter(void **state)
{
    (void)state;
    gb_t gb;
    gb_init(&gb);
    /* read three times: one sum of all contributions */
    esp_tensor_id_t x = gb_input(&gb, "x", "5 4", 0), w = gb_parameter(&gb, "w", "4 4");
    esp_tensor_id_t h = gb_unary(&gb, ESP_ELT_TANH, gb_einsum(&gb, "bi,ij->bj", x, w));
    h = gb_unary(&gb, ESP_ELT_TANH, gb_einsum(&gb, "bi,ij->bj", h, w));
    gb_output(&gb, gb_einsum(&gb, "bi,ji->bj", h, w));
    esp_graph_t *model = gb_freeze(&gb), *graph = train(model, NULL);
    assert_int_equal(graph->n_parameters, 1);
    esp_op_id_t sum = graph->tensor_producer[graph->gradient[0]];
    assert_int_equal(graph->op_kind[sum], ESP_KIND_ELTWISE);
    assert_int_equal(graph->input_offset[sum + 1] - graph->input_offset[sum], 3);
    assert_string_equal(graph->tensor_name[graph->gradient[0]], "w/grad");
    assert_int_equal(graph->tensor_role[graph->gradient[0]], ESP_ROLE_GRADIENT);
    assert_int_equal(graph->op_origin[graph->update[0]], 0);
    check_gradients(graph);
    esp_graph_destroy(graph);
    esp_graph_destroy(model);
}

static void test_gradients_are_tensors_of_their_own(void **state)
{
    (void)state;
    gb_t gb;
    gb_init(&gb);
    esp_tensor_id_t u = gb_parameter(&gb, "u", "4"), w = gb_parameter(&gb, "w", "4");
    esp_tensor_id_t y = gb_unary(&gb, ESP_ELT_EXP, gb_binary(&gb, ESP_ELT_ADD, u, w));
    gb_output(&gb, gb_sum(&gb, y, "0", false));
    esp_graph_t *model = gb_freeze(&gb), *graph = train(model, NULL);
    assert_int_equal(graph->n_parameters, 2);
    assert_int_not_equal(graph->gradient[0], graph->gradient[1]);
    check_gradients(graph);
    esp_graph_destroy(graph);
    esp_graph_destroy(model);
}

static void test_backward_is_pruned(void **state)
{
    (void)state;
    esp_graph_t *model = two_layers();
    esp_training_opts_t opts = esp_training_opts_default();
    opts.train_regex = "^[vcw]$";
    opts.freeze_regex = "w";
    esp_graph_t *graph = train(model, &opts);
    assert_int_equal(graph->n_parameters, 2);
    assert_int_equal(graph->tensor_role[gb_find(graph, "w")], ESP_ROLE_FROZEN);
    assert_int_equal(graph->tensor_role[gb_find(graph, "b")], ESP_ROLE_FROZEN);
    assert_int_equal(gb_count(graph, ESP_KIND_CONTRACT), 3); /* two forward, one for v */
    for (esp_op_id_t op = 0; op < graph->n_ops; op++)        /* nothing behind the gelu */
        if (graph->op_phase[op] == ESP_PHASE_BACKWARD)
            assert_true(graph->op_origin[op] >= 3);
    check_gradients(graph);
    esp_graph_destroy(graph);
    esp_graph_destroy(model);
}

static void test_what_is_not_trained(void **state)
{
    (void)state;
    gb_t gb;
    gb_init(&gb);
    esp_tensor_id_t x = gb_input(&gb, "x", "5 4", 0), w = gb_parameter(&gb, "w", "4");
    (void)gb_parameter(&gb, "unused", "4");
    esp_tensor_id_t scalar = gb_parameter(&gb, "scalar", "");
    (void)gb_tensor(&gb, "integers", ESP_ROLE_PARAMETER, ESP_DTYPE_I64, "4");
    esp_tensor_id_t y = gb_binary(&gb, ESP_ELT_MUL, gb_binary(&gb, ESP_ELT_MUL, x, w), scalar);
    gb_output(&gb, gb_sum(&gb, y, "0 1", false));
    esp_graph_t *model = gb_freeze(&gb), *graph = train(model, NULL);
    assert_int_equal(graph->n_parameters, 1);
    assert_int_equal(graph->parameter[0], w);
    assert_int_equal(graph->tensor_role[gb_find(graph, "unused")], ESP_ROLE_FROZEN);
    assert_int_equal(graph->tensor_role[scalar], ESP_ROLE_FROZEN);
    esp_graph_destroy(graph);
    esp_graph_destroy(model);
}

static void test_batch_normalisation(void **state)
{
    (void)state;
    gb_t gb;
    gb_init(&gb);
    esp_tensor_id_t x = gb_input(&gb, "x", "3 2 2 2", 0), w = gb_parameter(&gb, "w", "2 2 1 1");
    esp_tensor_id_t in[5] = {gb_conv(&gb, x, w)}, sums[4], out[4];
    esp_tensor_id_t mean = gb_tensor(&gb, "mean", ESP_ROLE_STATISTIC, ESP_DTYPE_F32, "2");
    esp_tensor_id_t variance = gb_tensor(&gb, "variance", ESP_ROLE_STATISTIC, ESP_DTYPE_F32, "2");
    esp_attr_t attr = {.norm = {.epsilon = 1e-3, .count = 12}};
    in[3] = gb_parameter(&gb, "gamma", "2");
    in[4] = gb_parameter(&gb, "beta", "2");
    test_assert_ok(
        esp_builder_op(gb.builder, ESP_KIND_BN_STATS, &attr, 1, in, "stats", sums, &gb.diag),
        &gb.diag);
    in[1] = sums[0];
    in[2] = sums[1];
    test_assert_ok(
        esp_builder_op(gb.builder, ESP_KIND_BN_NORM, &attr, 5, in, "norm", out, &gb.diag),
        &gb.diag);
    test_assert_ok(esp_builder_statistic(gb.builder, mean, out[1], 0.1, &gb.diag), &gb.diag);
    test_assert_ok(esp_builder_statistic(gb.builder, variance, out[2], 0.1, &gb.diag), &gb.diag);
    esp_tensor_id_t y = gb_unary(&gb, ESP_ELT_TANH, out[0]);
    gb_output(&gb, gb_reshape(&gb, y, "3 8"));
    esp_graph_t *model = gb_freeze(&gb), *graph = train(model, NULL);
    assert_int_equal(graph->n_parameters, 3);
    assert_int_not_equal(graph->tensor_next[mean], ESP_NONE);
    esp_op_id_t update = graph->tensor_producer[graph->tensor_next[variance]];
    assert_int_equal(graph->op_phase[update], ESP_PHASE_UPDATE);
    assert_int_equal(graph->op_origin[update], graph->tensor_producer[out[0]]);
    check_gradients(graph);
    interp_t *interp = interp_new(graph, 1);
    double before = interp_get(interp, mean)[0];
    interp_step(interp);
    double now = interp_get(interp, out[1])[0];
    assert_true(fabs(interp_get(interp, mean)[0] - (0.9 * before + 0.1 * now)) < 1e-12);
    interp_free(interp);
    esp_graph_destroy(graph);
    esp_graph_destroy(model);
}

/* ---- updates ------------------------------------------------------------------------------ */

static void test_optimizers_reduce_the_loss(void **state)
{
    (void)state;
    static const esp_optimizer_t optimizers[] = {ESP_OPTIMIZER_SGD, ESP_OPTIMIZER_MOMENTUM,
                                                 ESP_OPTIMIZER_ADAM, ESP_OPTIMIZER_ADAMW};
    static const int32_t states[] = {0, 4, 9, 9};
    esp_graph_t *model = two_layers();
    const double labels[5] = {0, 1, 2, 1, 0};
    for (int k = 0; k < 4; k++) {
        esp_training_opts_t opts = esp_training_opts_default();
        opts.optimizer = optimizers[k];
        opts.rate = 0.01;
        opts.decay = 1e-3;
        opts.clip_norm = k % 2 == 0 ? 1 : 0;
        esp_graph_t *graph = train(model, &opts);
        int32_t n = 0;
        for (esp_tensor_id_t i = 0; i < graph->n_tensors; i++)
            if (graph->tensor_role[i] == ESP_ROLE_STATE) {
                assert_int_not_equal(graph->tensor_next[i], ESP_NONE);
                n++;
            }
        assert_int_equal(n, states[k]);
        interp_t *interp = interp_new(graph, 5);
        /* the same samples in every step */
        double x[20];
        for (int i = 0; i < 20; i++)
            x[i] = sin(i);
        interp_set(interp, gb_find(graph, "x"), x);
        interp_set(interp, gb_find(graph, "labels"), labels);
        double first = loss_of(graph, interp);
        for (int step = 0; step < 20; step++)
            interp_step(interp);
        assert_true(loss_of(graph, interp) < first);
        interp_free(interp);
        esp_graph_destroy(graph);
    }
    esp_graph_destroy(model);
}

static void test_clipping(void **state)
{
    (void)state;
    esp_graph_t *model = two_layers();
    esp_training_opts_t opts = esp_training_opts_default();
    opts.clip_norm = 1e-3;
    opts.rate = 1;
    esp_graph_t *graph = train(model, &opts);
    interp_t *interp = interp_new(graph, 5);
    double squares = 0;
    interp_run(interp);
    for (int32_t p = 0; p < graph->n_parameters; p++) {
        esp_tensor_id_t w = graph->parameter[p];
        for (int64_t i = 0; i < graph->tensor_elements[w]; i++) {
            double d = interp_get(interp, w)[i] - interp_get(interp, graph->tensor_next[w])[i];
            squares += d * d;
        }
    }
    assert_true(fabs(sqrt(squares) - 1e-3) < 2e-6); /* 1e-6 is added to the norm */
    interp_free(interp);
    esp_graph_destroy(graph);
    esp_graph_destroy(model);
}

/* ---- errors ------------------------------------------------------------------------------- */

static void check_error(const esp_graph_t *model, const esp_training_opts_t *opts,
                        esp_status_t status, const char *part)
{
    esp_diag_t diag = {0};
    esp_graph_t *graph = NULL;
    test_assert_fails(esp_training_graph(model, opts, NULL, &graph, &diag), &diag, status, part);
    assert_null(graph);
}

static void test_option_errors(void **state)
{
    (void)state;
    esp_graph_t *model = two_layers();
    const esp_training_opts_t defaults = esp_training_opts_default();
    esp_training_opts_t opts = defaults;
    opts.struct_size = 1;
    check_error(model, &opts, ESP_ERR_ARGUMENT, "version");
    opts = defaults;
    opts.train_regex = "(";
    check_error(model, &opts, ESP_ERR_ARGUMENT, "train \"(\"");
    opts = defaults;
    opts.freeze_regex = ".*";
    check_error(model, &opts, ESP_ERR_INVALID, "no trainable parameter");
    opts = defaults;
    opts.beta1 = 1;
    check_error(model, &opts, ESP_ERR_ARGUMENT, "beta1");
    opts = defaults;
    opts.rate = NAN;
    check_error(model, &opts, ESP_ERR_ARGUMENT, "rate");
    opts = defaults;
    opts.optimizer = ESP_OPTIMIZER_STATISTIC;
    check_error(model, &opts, ESP_ERR_ARGUMENT, "optimizer");
    opts = defaults;
    opts.loss = ESP_LOSS_OUTPUT;
    check_error(model, &opts, ESP_ERR_INVALID, "not a scalar");
    esp_graph_t *graph = train(model, NULL);
    check_error(graph, NULL, ESP_ERR_ARGUMENT, "training graph already");
    esp_graph_destroy(graph);
    esp_graph_destroy(model);
}

static void test_model_errors(void **state)
{
    (void)state;
    gb_t gb;
    gb_init(&gb);
    esp_tensor_id_t x = gb_input(&gb, "x", "5 4", 0), w = gb_parameter(&gb, "w", "5 4");
    esp_graph_t *model = gb_freeze(&gb);
    check_error(model, NULL, ESP_ERR_INVALID, "no output");
    esp_graph_destroy(model);

    gb_init(&gb);
    gb_output(&gb, gb_input(&gb, "x", "5 4", 0));
    model = gb_freeze(&gb);
    check_error(model, NULL, ESP_ERR_INVALID, "the first output, x, is computed by no op");
    esp_graph_destroy(model);

    gb_init(&gb);
    x = gb_input(&gb, "x", "5 4", 0);
    w = gb_parameter(&gb, "w", "5 4");
    esp_attr_t attr = {.update = {.optimizer = ESP_OPTIMIZER_SGD}};
    esp_tensor_id_t in[2] = {x, w};
    gb_output(&gb, gb_op(&gb, ESP_KIND_UPDATE, &attr, 2, in));
    model = gb_freeze(&gb);
    check_error(model, NULL, ESP_ERR_UNSUPPORTED, "update (update) has no gradient");
    esp_graph_destroy(model);
}

static esp_status_t attempt(const esp_allocator_t *alloc, void *context)
{
    esp_graph_t *graph = NULL;
    esp_training_opts_t opts = esp_training_opts_default();
    esp_diag_t diag = {0};
    opts.optimizer = ESP_OPTIMIZER_ADAM;
    opts.clip_norm = 1;
    opts.ignore_label = 0;
    esp_status_t status = esp_training_graph(context, &opts, alloc, &graph, &diag);
    assert_int_equal(diag.status, status);
    esp_graph_destroy(graph);
    return status;
}

static void test_allocation_failures(void **state)
{
    (void)state;
    esp_graph_t *model = two_layers();
    test_sweep_allocations(attempt, model, 1);
    esp_graph_destroy(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cross_entropy),
        cmocka_unit_test(test_ignored_labels),
        cmocka_unit_test(test_mean_squared_error),
        cmocka_unit_test(test_own_loss),
        cmocka_unit_test(test_segmentation),
        cmocka_unit_test(test_final_softmax),
        cmocka_unit_test(test_labels_follow_the_batch),
        cmocka_unit_test(test_shared_parameter),
        cmocka_unit_test(test_gradients_are_tensors_of_their_own),
        cmocka_unit_test(test_backward_is_pruned),
        cmocka_unit_test(test_what_is_not_trained),
        cmocka_unit_test(test_batch_normalisation),
        cmocka_unit_test(test_optimizers_reduce_the_loss),
        cmocka_unit_test(test_clipping),
        cmocka_unit_test(test_option_errors),
        cmocka_unit_test(test_model_errors),
        cmocka_unit_test(test_allocation_failures),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
