/*
 * How many micro-batches may be in flight. Without a limit the order, which prefers the longest
 * remaining path, would run all forward passes before the first backward pass, and activations of
 * the whole batch would live at once. As in one-forward-one-backward
 * pipelines, a device begins micro-batch m only when it is done with m - depth. With n meshes in
 * the body of the step (pipeline stages), depth is 2 n - 1: n micro-batches keep n stages busy, and
 * one more is under way between each two stages.
 */
#include "deploy/lowerer.h"

static int32_t pipeline_depth(esp_lowerer_t *lw)
{
    int32_t depth = 0;
    for (int32_t m = 0; m < lw->local.count; m++)
        for (esp_op_id_t op = 0; op < lw->graph->n_ops; op++)
            if (lw->facts.op_stage[op] == ESP_I_OP_BODY && esp_i_op_mesh(lw, op) == m) {
                depth++;
                break;
            }
    return 2 * depth - 1;
}

static bool is_forward(const esp_lowerer_t *lw, int32_t task)
{
    return lw->tasks.op[task] != ESP_NONE &&
           lw->graph->op_phase[lw->tasks.op[task]] == ESP_PHASE_FORWARD;
}

bool esp_i_micro_limit(esp_lowerer_t *lw)
{
    int32_t n_micro = lw->strategy->micro_batches, n_classes = lw->n_classes;
    if (n_micro == 1)
        return true;
    int32_t depth = pipeline_depth(lw);
    /* last[m][c]: the last task of backward of micro-batch m on class c, in the order of emission
     */
    int32_t *last = esp_i_alloc_array(&lw->alloc, (int64_t)n_micro * n_classes, sizeof *last);
    if (!last)
        return false;
    for (int32_t i = 0; i < n_micro * n_classes; i++)
        last[i] = ESP_NONE;
    bool fine = true;
    for (int32_t t = 0; t < lw->tasks.n && fine; t++) {
        int32_t micro = lw->tasks.micro[t], class_ = lw->tasks.class_[t];
        if (micro == ESP_NONE || lw->tasks.kind[t] != ESP_TASK_COMPUTE)
            continue; /* sums of gradients over micro-batches say nothing of progress */
        if (!is_forward(lw, t))
            last[micro * n_classes + class_] = t;
        else if (micro >= depth && last[(micro - depth) * n_classes + class_] != ESP_NONE)
            fine = esp_i_pair_push(lw, &lw->extra_before, &lw->extra_after,
                                   last[(micro - depth) * n_classes + class_], t);
    }
    esp_i_free(&lw->alloc, last);
    return fine;
}
