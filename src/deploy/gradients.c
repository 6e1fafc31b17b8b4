/*
 * Gradient synchronisation in buckets: reductions of one kind between the same meshes, in the order
 * in which backward makes their inputs, up to bucket_bytes together. What needs more than one move,
 * or lies elsewhere, is left to the reshard that the update asks for.
 */
#include "deploy/lowerer.h"

typedef struct reduction {
    int32_t src; /* partial value; ESP_NONE: nothing to bucket */
    esp_comm_t comm;
    esp_i_want_t to;
} reduction_t;

static reduction_t reduction_of(const esp_lowerer_t *lw, esp_op_id_t update)
{
    const esp_graph_t *g = lw->graph;
    esp_tensor_id_t t = lw->facts.in[g->input_offset[update] + 1].root;
    int32_t mesh = esp_i_op_mesh(lw, update);
    reduction_t r = {.src = lw->tensor_value[t], .to = {.root = t, .mesh = mesh}};
    while (r.src != ESP_NONE && lw->values.form[r.src] != ESP_FORM_PARTIAL)
        r.src = lw->values.next[r.src];
    if (r.src == ESP_NONE)
        return r;
    int32_t n = esp_i_mesh_of(lw, mesh)->n;
    bool same = lw->values.mesh[r.src] == mesh;
    bool shard = lw->strategy->op_mode[update] == ESP_MODE_SHARD && lw->facts.op_shards[update] &&
                 g->tensor_elements[t] >= n;
    if (shard && same) {
        r.comm = ESP_COMM_REDUCE_SCATTER;
        r.to.form = ESP_FORM_SPLIT;
        r.to.share = ESP_SHARE_EVEN;
        r.to.view = (esp_view_t){1, g->tensor_elements[t], 1};
    } else if (!shard && same) {
        r.comm = ESP_COMM_ALLREDUCE;
    } else if (n == 1) {
        r.comm = ESP_COMM_REDUCE;
    } else {
        r.src = ESP_NONE;
    }
    return r;
}

static bool same_bucket(const esp_lowerer_t *lw, const reduction_t *a, const reduction_t *b)
{
    return b->src != ESP_NONE && a->comm == b->comm && a->to.mesh == b->to.mesh &&
           lw->values.mesh[a->src] == lw->values.mesh[b->src];
}

/* An all-reduce works in the memory of the addends, which are no values any more; unless they are
 * addends of something else too. */
static void reduce_in_place(esp_lowerer_t *lw, int32_t src, int32_t dst)
{
    int32_t n = lw->local.data[lw->values.mesh[dst]].n_classes;
    for (int32_t slot = 0; slot < n; slot++)
        if (lw->buffers.shared[lw->buffers.root[lw->values.buffer[src] + slot]])
            return;
    for (int32_t slot = 0; slot < n; slot++)
        lw->buffers.root[lw->values.buffer[dst] + slot] =
            lw->buffers.root[lw->values.buffer[src] + slot];
    lw->values.next[dst] = ESP_NONE;
}

static void pair_add(esp_lowerer_t *lw, int32_t comm, const reduction_t *r)
{
    int32_t dst = esp_i_value_new(lw, &r->to);
    if (r->comm == ESP_COMM_ALLREDUCE)
        reduce_in_place(lw, r->src, dst);
    esp_i_comm_pair(lw, comm, r->src, dst);
}

/* Reduces the gradient of reduction `first` with as many of the following ones as fit. */
static esp_status_t bucket_make(esp_lowerer_t *lw, int32_t first, const reduction_t *r,
                                esp_diag_t *diag)
{
    const esp_i_facts_t *f = &lw->facts;
    int32_t comm = esp_i_comm_open(lw, r->comm, f->reduction[first]);
    pair_add(lw, comm, r);
    for (int32_t i = first + 1; i < f->n_reductions && lw->strategy->bucket_bytes > 0; i++) {
        reduction_t next = reduction_of(lw, f->reduction[i]);
        if (!same_bucket(lw, r, &next) || esp_i_find(lw, &next.to) != ESP_NONE)
            continue;
        int64_t bytes = lw->comms.bytes[comm] + esp_i_tensor_bytes(lw, next.to.root);
        if (bytes > lw->strategy->bucket_bytes)
            break;
        pair_add(lw, comm, &next);
    }
    return esp_i_comm_close(lw, comm, diag);
}

esp_status_t esp_i_reduce_gradients(esp_lowerer_t *lw, esp_diag_t *diag)
{
    const esp_i_facts_t *f = &lw->facts;
    int64_t n = f->n_reductions;
    if (!esp_i_reserve(lw, n, n, n, 4 * n * lw->n_classes))
        return esp_i_nomem(diag);
    for (int32_t i = 0; i < f->n_reductions; i++) {
        reduction_t r = reduction_of(lw, f->reduction[i]);
        if (r.src == ESP_NONE || esp_i_find(lw, &r.to) != ESP_NONE)
            continue;
        ESP_TRY(bucket_make(lw, i, &r, diag));
    }
    return ESP_OK;
}
