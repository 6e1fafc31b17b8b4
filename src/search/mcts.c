/*
 * Monte-Carlo tree search over the decisions of op groups (TAG, section on search).
 *
 * Depth 0 decides the micro-batches, depth d > 0 op group d - 1, most expensive first. A node is a
 * complete strategy: groups that are not decided take the decision of the most expensive one, or,
 * at the root, that of the best start. So every visit is an evaluation of a real strategy.
 *
 * Leaves are chosen in batches: one after another, each with a virtual loss on its path, evaluated
 * in parallel, backed up in order. The tree therefore depends on the seed alone.
 */
#include "search/search.h"

#include <math.h>
#include <string.h>

typedef struct node {
    int32_t parent, first_child, n_children; /* children are contiguous; n_children 0: a leaf */
    int32_t choice;                          /* decided by this node */
    int16_t depth;                           /* of the decision its children make */
    int32_t visits, pending;
    double value; /* mean reward */
} node_t;

typedef struct tree {
    esp_i_evaluator_t *e;
    ESP_VEC(node_t) nodes;
    int32_t *root_choice; /* completes what is not decided */
    int32_t *micro;       /* allowed choices of micro-batches */
    int32_t n_micro;
    esp_i_rng_t rng;
    int64_t base_ns;
} tree_t;

static int32_t depth_max(const tree_t *t)
{
    return t->e->space->n_groups + 1;
}

static int32_t children_of_depth(const tree_t *t, int32_t depth)
{
    return depth == 0 ? t->n_micro : t->e->space->n_actions;
}

/* Children in an order of their own: shuffled, so that ties are not broken by the order of actions.
 */
static esp_status_t node_expand(tree_t *t, int32_t node)
{
    int32_t depth = t->nodes.data[node].depth, n = children_of_depth(t, depth);
    int32_t first = t->nodes.count;
    if (!esp_vec_extend(&t->e->alloc, &t->nodes, n))
        return ESP_ERR_NOMEM;
    for (int32_t i = 0; i < n; i++)
        t->nodes.data[first + i] = (node_t){.parent = node,
                                            .first_child = ESP_NONE,
                                            .choice = depth == 0 ? t->micro[i] : i,
                                            .depth = (int16_t)(depth + 1)};
    for (int32_t i = n - 1; i > 0; i--) {
        int32_t j = (int32_t)esp_i_rng_below(&t->rng, i + 1);
        int32_t swap = t->nodes.data[first + i].choice;
        t->nodes.data[first + i].choice = t->nodes.data[first + j].choice;
        t->nodes.data[first + j].choice = swap;
    }
    t->nodes.data[node].first_child = first;
    t->nodes.data[node].n_children = n;
    return ESP_OK;
}

/*
 * PUCT with a uniform prior, TAG's exploration constant sqrt(children / 10); a pending visit counts
 * as one that lost. Unvisited children have value 0, that of the baseline.
 */
static int32_t child_select(const tree_t *t, int32_t node)
{
    const node_t *parent = &t->nodes.data[node];
    double n = parent->n_children, best_score = -INFINITY;
    double explore = sqrt(n / 10.0) / n * sqrt((double)(parent->visits + parent->pending) + 1.0);
    int32_t best = parent->first_child;
    for (int32_t i = 0; i < parent->n_children; i++) {
        const node_t *child = &t->nodes.data[parent->first_child + i];
        double visits = child->visits + child->pending;
        double value = visits > 0 ? (child->value * child->visits - child->pending) / visits : 0;
        double score = value + explore / (1.0 + visits);
        if (score > best_score) {
            best_score = score;
            best = parent->first_child + i;
        }
    }
    return best;
}

/* The strategy of a node. */
static void node_point(const tree_t *t, int32_t node, int32_t *choice_out)
{
    int32_t n_groups = t->e->space->n_groups, first = ESP_NONE;
    memcpy(choice_out, t->root_choice, (size_t)t->e->n_choices * sizeof *choice_out);
    for (int32_t i = node; t->nodes.data[i].parent != ESP_NONE; i = t->nodes.data[i].parent)
        if (t->nodes.data[i].depth == 2)
            first = t->nodes.data[i].choice;
    for (int32_t g = 0; g < n_groups && first != ESP_NONE; g++)
        choice_out[g] = first;
    for (int32_t i = node; t->nodes.data[i].parent != ESP_NONE; i = t->nodes.data[i].parent) {
        int32_t decided = t->nodes.data[i].depth - 1;
        choice_out[decided == 0 ? n_groups : decided - 1] = t->nodes.data[i].choice;
    }
}

static esp_status_t leaf_select(tree_t *t, int32_t *leaf_out)
{
    int32_t node = 0;
    while (t->nodes.data[node].n_children)
        node = child_select(t, node);
    if (t->nodes.data[node].visits + t->nodes.data[node].pending > 0 &&
        t->nodes.data[node].depth < depth_max(t)) {
        ESP_TRY(node_expand(t, node));
        node = child_select(t, node);
    }
    for (int32_t i = node; i != ESP_NONE; i = t->nodes.data[i].parent)
        t->nodes.data[i].pending++;
    *leaf_out = node;
    return ESP_OK;
}

static void leaf_backup(tree_t *t, int32_t leaf, double reward)
{
    for (int32_t i = leaf; i != ESP_NONE; i = t->nodes.data[i].parent) {
        node_t *node = &t->nodes.data[i];
        node->pending--;
        node->visits++;
        node->value += (reward - node->value) / node->visits;
    }
}

static esp_status_t tree_batch(tree_t *t, int32_t *points, esp_diag_t *diag)
{
    int32_t leaf[ESP_I_BATCH];
    esp_outcome_t outcome[ESP_I_BATCH];
    for (int32_t i = 0; i < ESP_I_BATCH; i++) {
        if (leaf_select(t, &leaf[i]) != ESP_OK)
            return esp_i_nomem(diag);
        node_point(t, leaf[i], points + (int64_t)i * t->e->n_choices);
    }
    ESP_TRY(esp_i_evaluate(t->e, ESP_I_BATCH, points, outcome, diag));
    for (int32_t i = 0; i < ESP_I_BATCH; i++)
        leaf_backup(t, leaf[i], esp_i_reward(&outcome[i], t->base_ns));
    return ESP_OK;
}

/* A tree that has been seen whole proposes nothing new: stop after that many idle batches. */
enum { IDLE_BATCHES_MAX = 64 };

static esp_status_t tree_search(tree_t *t, int64_t budget, bool *stopped, esp_diag_t *diag)
{
    int32_t *points =
        esp_i_alloc_array(&t->e->alloc, (int64_t)ESP_I_BATCH * t->e->n_choices, sizeof *points);
    esp_status_t status = points ? ESP_OK : esp_i_nomem(diag);
    for (int32_t idle = 0; status == ESP_OK && idle < IDLE_BATCHES_MAX &&
                           esp_i_evaluator_go_on(t->e, budget, "tree search", stopped);) {
        int64_t before = t->e->evaluations;
        status = tree_batch(t, points, diag);
        idle = t->e->evaluations == before ? idle + 1 : 0;
    }
    esp_i_free(&t->e->alloc, points);
    return status;
}

esp_status_t esp_i_mcts(esp_i_evaluator_t *e, int64_t budget, int64_t base_ns, bool *stopped,
                        esp_diag_t *diag)
{
    int32_t micro[ESP_I_MICRO_CHOICES];
    tree_t t = {.e = e, .micro = micro, .base_ns = base_ns};
    esp_i_rng_seed(&t.rng, e->opts->seed);
    for (int32_t i = 0; i < ESP_I_MICRO_CHOICES; i++)
        if (esp_i_micro_allowed(e, i))
            micro[t.n_micro++] = i;
    t.root_choice = esp_i_alloc_array(&e->alloc, e->n_choices, sizeof *t.root_choice);
    node_t root = {.parent = ESP_NONE, .first_child = ESP_NONE};
    esp_status_t status = ESP_OK;
    if (!t.root_choice || !esp_vec_push(&e->alloc, &t.nodes, root))
        status = esp_i_nomem(diag);
    if (status == ESP_OK) {
        memcpy(t.root_choice, e->best_choice, (size_t)e->n_choices * sizeof *t.root_choice);
        status = tree_search(&t, budget, stopped, diag);
    }
    esp_i_free(&e->alloc, t.root_choice);
    esp_vec_free(&e->alloc, &t.nodes);
    return status;
}
