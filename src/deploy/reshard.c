/*
 * Reshards: from the values of a tensor that exist to the form that is needed.
 *
 * A plan is at most three moves: resolve inside the source mesh, cross, complete inside the target
 * mesh. The cheapest plan over all existing values is carried out; ties go to the first found. What
 * a plan makes stays in the tensor's list, so all consumers of one form share it.
 */
#include "deploy/lowerer.h"

#include <math.h>
#include <string.h>

static bool same_view(esp_view_t a, esp_view_t b)
{
    return a.outer == b.outer && a.extent == b.extent && a.inner == b.inner;
}

static bool value_is(const esp_lowerer_t *lw, int32_t value, const esp_i_want_t *want)
{
    const esp_i_values_t *values = &lw->values;
    if (values->mesh[value] != want->mesh || values->form[value] != want->form)
        return false;
    return want->form != ESP_FORM_SPLIT ||
           (values->share[value] == want->share && same_view(values->view[value], want->view));
}

int32_t esp_i_find(const esp_lowerer_t *lw, esp_i_want_t *want)
{
    esp_i_want_normalise(lw, want);
    int32_t value = lw->tensor_value[want->root];
    while (value != ESP_NONE && !value_is(lw, value, want))
        value = lw->values.next[value];
    return value;
}

/* ---- movements ----------------------------------------------------------------------------------
 */

int32_t esp_i_comm_open(esp_lowerer_t *lw, esp_comm_t kind, int32_t op)
{
    esp_i_comms_t *comms = &lw->comms;
    int32_t comm = comms->n++;
    comms->kind[comm] = (uint8_t)kind;
    comms->bytes[comm] = 0;
    comms->pair_offset[comm] = lw->pair_src.count;
    comms->class_offset[comm] = lw->comm_classes.count;
    comms->task[comm] = esp_i_task_new(lw, ESP_TASK_COMM, ESP_MODE_WHOLE, ESP_NONE, op, 0);
    lw->tasks.comm[comms->task[comm]] = comm;
    return comm;
}

void esp_i_comm_pair(esp_lowerer_t *lw, int32_t comm, int32_t src, int32_t dst)
{
    const esp_i_values_t *values = &lw->values;
    lw->pair_src.data[lw->pair_src.count++] = src;
    lw->pair_dst.data[lw->pair_dst.count++] = dst;
    lw->comms.bytes[comm] += esp_i_value_total_bytes(lw, src);
    int32_t n_src = lw->local.data[values->mesh[src]].n_classes;
    esp_i_row_count(lw->reads.data + lw->reads.count, n_src, values->buffer[src], 1);
    lw->reads.count += n_src;
    int32_t n_dst = lw->local.data[values->mesh[dst]].n_classes;
    int32_t task = lw->comms.task[comm], first = values->buffer[dst];
    if (lw->comms.kind[comm] != ESP_COMM_BROADCAST) {
        esp_i_row_write(lw, n_dst, first, task, 0);
        return;
    }
    for (int32_t b = first; b < first + n_dst; b++)
        if (lw->buffers.root[b] == b) /* else it is there already */
            esp_i_task_write(lw, task, b);
}

/*
 * Bytes per byte of the tensor that a member of one side sends and receives: what CPU ranks spend
 * compute time on. n, m: devices of this and of the other side.
 */
static double touched(esp_comm_t kind, bool receives, double n, double m)
{
    switch (kind) {
    case ESP_COMM_ALLREDUCE:
        return 4.0 * (n - 1) / n;
    case ESP_COMM_REDUCE_SCATTER:
    case ESP_COMM_ALL_GATHER:
        return 2.0 * (n - 1) / n;
    case ESP_COMM_ALL_TO_ALL:
        return 2.0 * (n - 1) / (n * n);
    case ESP_COMM_REDUCE:
        return receives ? m : 1.0;
    case ESP_COMM_BROADCAST:
        return receives ? 1.0 : 1.0 / n;
    case ESP_COMM_SCATTER:
    case ESP_COMM_EXCHANGE:
        return 1.0 / n;
    case ESP_COMM_GATHER:
        return receives ? 1.0 : 1.0 / n;
    case ESP_COMM_COUNT:
        break;
    }
    return 0;
}

static void comm_add_classes(esp_lowerer_t *lw, int32_t comm, int32_t mesh, int32_t other,
                             bool receives)
{
    double n = esp_i_mesh_of(lw, mesh)->n, m = esp_i_mesh_of(lw, other)->n;
    double bytes =
        touched((esp_comm_t)lw->comms.kind[comm], receives, n, m) * (double)lw->comms.bytes[comm];
    const esp_i_local_mesh_t *local = &lw->local.data[mesh];
    int32_t first = lw->comms.class_offset[comm];
    for (int32_t slot = 0; slot < local->n_classes; slot++) {
        int32_t class_ = lw->mesh_class.data[local->class_first + slot], at = first;
        while (at < lw->comm_classes.count && lw->comm_classes.data[at] != class_)
            at++;
        if (at == lw->comm_classes.count) {
            lw->comm_classes.data[lw->comm_classes.count++] = class_;
            lw->comm_class_ns.data[lw->comm_class_ns.count++] = 0;
        }
        const esp_device_type_t *type = &lw->cluster->types[lw->class_type[class_]];
        lw->comm_class_ns.data[at] += (int64_t)ceil(bytes * type->comm_compute_s_per_byte * 1e9);
    }
}

esp_status_t esp_i_comm_close(esp_lowerer_t *lw, int32_t comm, esp_diag_t *diag)
{
    const esp_i_values_t *values = &lw->values;
    int32_t pair = lw->comms.pair_offset[comm];
    int32_t src = lw->pair_src.data[pair], dst = lw->pair_dst.data[pair];
    esp_comm_t kind = (esp_comm_t)lw->comms.kind[comm];
    const esp_pattern_t *pattern = esp_i_pattern_for(
        lw, kind, values->mesh[src], values->mesh[dst], (esp_share_t)values->share[src],
        (esp_share_t)values->share[dst], lw->comms.bytes[comm]);
    if (!pattern)
        return esp_i_nomem(diag);
    lw->comms.pattern[comm] = pattern;
    lw->comms.collective[comm] = kind == ESP_COMM_ALLREDUCE || kind == ESP_COMM_REDUCE_SCATTER ||
                                 kind == ESP_COMM_ALL_GATHER || kind == ESP_COMM_ALL_TO_ALL;
    lw->tasks.ns[lw->comms.task[comm]] = esp_i_pattern_ns(pattern, lw->comms.bytes[comm]);
    comm_add_classes(lw, comm, values->mesh[src], values->mesh[dst], false);
    if (values->mesh[dst] != values->mesh[src])
        comm_add_classes(lw, comm, values->mesh[dst], values->mesh[src], true);
    return ESP_OK;
}

/* ---- plans
 * ---------------------------------------------------------------------------------------- */

/* One move to a form: by communication, or locally (comm == ESP_COMM_COUNT: alias or slice). */
typedef struct move {
    esp_comm_t comm;
    esp_i_want_t to;
} move_t;

typedef struct plan {
    int32_t src, n;
    move_t move[3];
    int64_t ns;
} plan_t;

static void plan_add(esp_lowerer_t *lw, plan_t *plan, esp_comm_t comm, const esp_i_want_t *to)
{
    esp_i_want_t from = {.mesh = lw->values.mesh[plan->src],
                         .share = (esp_share_t)lw->values.share[plan->src]};
    if (plan->n > 0)
        from = plan->move[plan->n - 1].to;
    plan->move[plan->n++] = (move_t){comm, *to};
    if (comm == ESP_COMM_COUNT || plan->ns == INT64_MAX)
        return;
    int64_t bytes = esp_i_tensor_bytes(lw, to->root);
    const esp_pattern_t *pattern =
        esp_i_pattern_for(lw, comm, from.mesh, to->mesh, from.share, to->share, bytes);
    plan->ns = pattern ? plan->ns + esp_i_pattern_ns(pattern, bytes) : INT64_MAX;
}

static plan_t plan_start(int32_t src)
{
    return (plan_t){.src = src};
}

static bool plan_better(const plan_t *a, const plan_t *b)
{
    return b->n == 0 || a->ns < b->ns;
}

/* From a value replicated on `mesh` (the source, or the last move) to the target. */
static void plan_from_replicated(esp_lowerer_t *lw, plan_t *plan, int32_t mesh,
                                 const esp_i_want_t *want)
{
    if (esp_i_mesh_contains(lw, mesh, want->mesh))
        plan_add(lw, plan, ESP_COMM_COUNT, want);
    else
        plan_add(lw, plan, want->form == ESP_FORM_SPLIT ? ESP_COMM_SCATTER : ESP_COMM_BROADCAST,
                 want);
}

static void plan_from_split(esp_lowerer_t *lw, int32_t src, const esp_i_want_t *want, plan_t *best)
{
    const esp_i_values_t *values = &lw->values;
    int32_t mesh = values->mesh[src];
    plan_t plan = plan_start(src);
    if (want->form == ESP_FORM_REPLICATED) {
        plan_add(lw, &plan, mesh == want->mesh ? ESP_COMM_ALL_GATHER : ESP_COMM_GATHER, want);
    } else if (same_view(values->view[src], want->view)) {
        plan_add(lw, &plan, ESP_COMM_EXCHANGE, want);
    } else if (mesh == want->mesh) {
        plan_add(lw, &plan, ESP_COMM_ALL_TO_ALL, want);
    } else {
        esp_i_want_t whole = *want;
        whole.form = ESP_FORM_REPLICATED;
        plan_add(lw, &plan, ESP_COMM_GATHER, &whole);
        plan_add(lw, &plan, ESP_COMM_COUNT, want);
    }
    if (plan_better(&plan, best))
        *best = plan;
}

/* Even rows of the flat buffer: the form in which a sum is cheapest to resolve on a mesh. */
static esp_i_want_t even_split(const esp_lowerer_t *lw, const esp_i_want_t *want, int32_t mesh)
{
    esp_i_want_t split = *want;
    split.mesh = mesh;
    split.form = ESP_FORM_SPLIT;
    split.share = ESP_SHARE_EVEN;
    split.view = (esp_view_t){1, lw->graph->tensor_elements[want->root], 1};
    return split;
}

static void plan_from_partial(esp_lowerer_t *lw, int32_t src, const esp_i_want_t *want,
                              plan_t *best)
{
    int32_t mesh = lw->values.mesh[src];
    if (want->form == ESP_FORM_SPLIT && mesh == want->mesh) {
        plan_t plan = plan_start(src);
        plan_add(lw, &plan, ESP_COMM_REDUCE_SCATTER, want);
        if (plan_better(&plan, best))
            *best = plan;
        return;
    }
    if (want->form == ESP_FORM_REPLICATED && esp_i_mesh_of(lw, want->mesh)->n == 1) {
        plan_t plan = plan_start(src);
        plan_add(lw, &plan, ESP_COMM_REDUCE, want);
        if (plan_better(&plan, best))
            *best = plan;
    }
    esp_i_want_t whole = *want; /* all-reduce at the source, then as from a replicated value */
    whole.mesh = mesh;
    whole.form = ESP_FORM_REPLICATED;
    whole.view = (esp_view_t){0, 0, 0};
    plan_t plan = plan_start(src);
    plan_add(lw, &plan, ESP_COMM_ALLREDUCE, &whole);
    if (mesh != want->mesh)
        plan_from_replicated(lw, &plan, mesh, want);
    if (plan_better(&plan, best))
        *best = plan;
    /* reduce-scatter at the source, then each piece to where it is needed */
    esp_i_want_t split = even_split(lw, want, mesh);
    if (mesh != want->mesh && want->form == ESP_FORM_REPLICATED &&
        split.view.extent >= esp_i_mesh_of(lw, mesh)->n) {
        plan = plan_start(src);
        plan_add(lw, &plan, ESP_COMM_REDUCE_SCATTER, &split);
        plan_add(lw, &plan, ESP_COMM_GATHER, want);
        if (plan_better(&plan, best))
            *best = plan;
    }
}

static void plan_find(esp_lowerer_t *lw, const esp_i_want_t *want, plan_t *best)
{
    const esp_i_values_t *values = &lw->values;
    for (int32_t v = lw->tensor_value[want->root]; v != ESP_NONE; v = values->next[v]) {
        switch ((esp_form_t)values->form[v]) {
        case ESP_FORM_REPLICATED: {
            plan_t plan = plan_start(v);
            plan_from_replicated(lw, &plan, values->mesh[v], want);
            if (plan_better(&plan, best))
                *best = plan;
            break;
        }
        case ESP_FORM_SPLIT:
            plan_from_split(lw, v, want, best);
            break;
        case ESP_FORM_PARTIAL:
            plan_from_partial(lw, v, want, best);
            break;
        }
    }
}

/* ---- carrying out
 * --------------------------------------------------------------------------------- */

/* Buffer of `class_` in a value, or ESP_NONE. */
static int32_t buffer_of(const esp_lowerer_t *lw, int32_t value, int32_t class_)
{
    int32_t slot = esp_i_mesh_slot(lw, lw->values.mesh[value], class_);
    return slot == ESP_NONE ? ESP_NONE : lw->values.buffer[value] + slot;
}

static void buffer_alias(esp_lowerer_t *lw, int32_t buffer, int32_t of)
{
    lw->buffers.root[buffer] = lw->buffers.root[of];
    lw->buffers.producer[buffer] = lw->buffers.producer[of];
    lw->buffers.resident[buffer] = lw->buffers.resident[of];
}

/*
 * Replicated to replicated or to rows of it, without a link. Rows that lie together (outer == 1)
 * are an alias; others are copied.
 */
static void move_locally(esp_lowerer_t *lw, int32_t src, int32_t dst, int32_t op)
{
    const esp_i_local_mesh_t *local = &lw->local.data[lw->values.mesh[dst]];
    bool rows = lw->values.form[dst] == ESP_FORM_SPLIT;
    for (int32_t slot = 0; slot < local->n_classes; slot++) {
        int32_t class_ = lw->mesh_class.data[local->class_first + slot];
        int32_t buffer = lw->values.buffer[dst] + slot, from = buffer_of(lw, src, class_);
        if (!rows || lw->values.view[dst].outer == 1) {
            buffer_alias(lw, buffer, from);
            continue;
        }
        int64_t ns = esp_cost_copy_ns(lw->cost, lw->class_type[class_],
                                      2.0 * (double)lw->buffers.bytes[buffer]);
        int32_t task = esp_i_task_new(lw, ESP_TASK_SLICE, ESP_MODE_WHOLE, class_, op, ns);
        esp_i_task_read(lw, from);
        esp_i_task_write(lw, task, buffer);
    }
}

/* A broadcast leaves alone what is there already: those buffers are aliases of the source's. */
static void broadcast_keep(esp_lowerer_t *lw, int32_t src, int32_t dst)
{
    const esp_i_local_mesh_t *local = &lw->local.data[lw->values.mesh[dst]];
    for (int32_t slot = 0; slot < local->n_classes; slot++) {
        int32_t class_ = lw->mesh_class.data[local->class_first + slot];
        int32_t from = buffer_of(lw, src, class_), buffer = lw->values.buffer[dst] + slot;
        if (from != ESP_NONE)
            buffer_alias(lw, buffer, from);
    }
}

static esp_status_t plan_run(esp_lowerer_t *lw, const plan_t *plan, int32_t op, int32_t *value_out,
                             esp_diag_t *diag)
{
    int32_t value = plan->src;
    for (int32_t i = 0; i < plan->n; i++) {
        const esp_i_want_t *to = &plan->move[i].to;
        int32_t next = esp_i_value_new(lw, to);
        if (plan->move[i].comm == ESP_COMM_COUNT) {
            move_locally(lw, value, next, op);
        } else {
            if (plan->move[i].comm == ESP_COMM_BROADCAST)
                broadcast_keep(lw, value, next);
            int32_t comm = esp_i_comm_open(lw, plan->move[i].comm, op);
            esp_i_comm_pair(lw, comm, value, next);
            ESP_TRY(esp_i_comm_close(lw, comm, diag));
        }
        value = next;
    }
    *value_out = value;
    return ESP_OK;
}

/* Inputs and literals appear in any form on any device at no cost: each rank reads its rows. */
static int32_t value_appear(esp_lowerer_t *lw, const esp_i_want_t *want)
{
    int32_t value = esp_i_value_new(lw, want);
    esp_i_value_settle(lw, value);
    return value;
}

esp_status_t esp_i_value_make(esp_lowerer_t *lw, const esp_i_want_t *want, int32_t op,
                              int32_t *value_out, esp_diag_t *diag)
{
    const char *name = lw->graph->tensor_name[want->root];
    if (want->form == ESP_FORM_PARTIAL)
        return esp_i_fail(
            diag, ESP_ERR_ARGUMENT,
            "op %s needs the addends of %s where they are made: same mesh, batch mode",
            lw->graph->op_name[op], name);
    if (lw->facts.tensor_free[want->root]) {
        *value_out = value_appear(lw, want);
        return ESP_OK;
    }
    plan_t plan = {.n = 0};
    plan_find(lw, want, &plan);
    if (plan.n == 0)
        return esp_i_fail(diag, ESP_ERR_INTERNAL, "op %s reads %s, which nothing has made",
                          lw->graph->op_name[op], name);
    if (plan.ns == INT64_MAX)
        return esp_i_nomem(diag);
    return plan_run(lw, &plan, op, value_out, diag);
}
