/* The movements that take longest. */
#include "report/run.h"

enum { SHOWN = 6 };

#define PURPOSE_MAP(X)                                                                             \
    X(GRADIENTS, "gradients")                                                                      \
    X(PARAMETERS, "parameters")                                                                    \
    X(STATISTICS, "BatchNorm statistics")                                                          \
    X(SCALARS, "scalars")                                                                          \
    X(ACTIVATIONS, "activations")                                                                  \
    X(BACKWARD, "activation gradients")
typedef enum purpose {
#define PURPOSE_ENUM(name, text) PURPOSE_##name,
    PURPOSE_MAP(PURPOSE_ENUM)
#undef PURPOSE_ENUM
        PURPOSE_COUNT
} purpose_t;

static const char *const purposes[] = {
#define PURPOSE_TEXT(name, text) text,
    PURPOSE_MAP(PURPOSE_TEXT)
#undef PURPOSE_TEXT
};

typedef struct moves {
    int32_t count;
    int64_t bytes, ns; /* ns: sum of durations, which may overlap */
} moves_t;

static purpose_t purpose_of(const esp_graph_t *graph, esp_tensor_id_t tensor)
{
    esp_op_id_t producer = graph->tensor_producer[tensor];
    if (graph->tensor_role[tensor] == ESP_ROLE_GRADIENT)
        return PURPOSE_GRADIENTS;
    if (producer == ESP_NONE || graph->op_phase[producer] == ESP_PHASE_UPDATE)
        return graph->tensor_elements[tensor] <= 1 ? PURPOSE_SCALARS : PURPOSE_PARAMETERS;
    if (graph->op_kind[producer] == ESP_KIND_BN_STATS ||
        graph->op_kind[producer] == ESP_KIND_BN_GRAD_STATS ||
        (graph->op_kind[producer] == ESP_KIND_BN_NORM &&
         graph->output_tensor[graph->output_offset[producer]] != tensor))
        return PURPOSE_STATISTICS;
    if (graph->tensor_elements[tensor] <= 1)
        return PURPOSE_SCALARS;
    return graph->op_phase[producer] == ESP_PHASE_BACKWARD ? PURPOSE_BACKWARD : PURPOSE_ACTIVATIONS;
}

/* A bucket is what its largest tensor is. */
static esp_tensor_id_t largest_of(const esp_deployment_t *d, int32_t comm)
{
    esp_tensor_id_t largest = ESP_NONE;
    for (int32_t i = d->comm_pair_offset[comm]; i < d->comm_pair_offset[comm + 1]; i++) {
        esp_tensor_id_t tensor = d->value_tensor[d->comm_src[i]];
        if (largest == ESP_NONE || d->graph->tensor_bytes[tensor] > d->graph->tensor_bytes[largest])
            largest = tensor;
    }
    return largest;
}

static void collect(const esp_deployment_t *d, const esp_sim_result_t *sim,
                    moves_t moves[ESP_COMM_COUNT][PURPOSE_COUNT])
{
    for (int32_t t = 0; t < d->n_tasks; t++) {
        if (d->task_kind[t] != ESP_TASK_COMM)
            continue;
        int32_t comm = d->task_comm[t];
        purpose_t purpose = purpose_of(d->graph, largest_of(d, comm));
        moves_t *sum = &moves[d->comm_kind[comm]][purpose];
        sum->count++;
        sum->bytes += d->comm_bytes[comm];
        sum->ns += sim->end_ns[t] - sim->start_ns[t];
    }
}

/* Takes the cell with the most time out; false: none is left. */
static bool take_longest(moves_t moves[ESP_COMM_COUNT][PURPOSE_COUNT], int32_t *comm_out,
                         int32_t *purpose_out, moves_t *sum_out)
{
    moves_t *longest = NULL;
    for (int32_t c = 0; c < ESP_COMM_COUNT; c++)
        for (int32_t p = 0; p < PURPOSE_COUNT; p++)
            if (moves[c][p].count > 0 && (longest == NULL || moves[c][p].ns > longest->ns)) {
                longest = &moves[c][p];
                *comm_out = c;
                *purpose_out = p;
            }
    if (longest == NULL)
        return false;
    *sum_out = *longest;
    longest->count = 0;
    return true;
}

void esp_i_put_moves(const esp_deployment_t *deployment, const esp_sim_result_t *sim,
                     const esp_allocator_t *alloc, esp_i_text_t *text)
{
    static const esp_i_column_t columns[] = {{"movement", ESP_I_LEFT},
                                             {"of", ESP_I_LEFT},
                                             {"times", ESP_I_RIGHT},
                                             {"bytes", ESP_I_RIGHT},
                                             {"sum of durations", ESP_I_RIGHT}};
    moves_t moves[ESP_COMM_COUNT][PURPOSE_COUNT] = {0}, sum;
    int32_t comm, purpose;
    collect(deployment, sim, moves);
    if (deployment->n_comms == 0) {
        esp_i_text_add(text, "nothing moves between devices\n");
        return;
    }
    esp_i_table_t table;
    esp_i_table_init(&table, alloc, 5, columns);
    for (int32_t i = 0; i < SHOWN && take_longest(moves, &comm, &purpose, &sum); i++) {
        char bytes[32], time[32];
        esp_i_format_bytes(sum.bytes, bytes);
        esp_i_format_ns(sum.ns, time);
        esp_i_table_cell(&table, "%s", esp_comm_name((esp_comm_t)comm));
        esp_i_table_cell(&table, "%s", purposes[purpose]);
        esp_i_table_cell(&table, "%d", (int)sum.count);
        esp_i_table_cell(&table, "%s", bytes);
        esp_i_table_cell(&table, "%s", time);
    }
    esp_i_table_print(&table, 0, text);
}
