/* Dependencies: edges from reads, anti-dependencies, dependencies between steps, successors. */
#include "deploy/lowerer.h"

bool esp_i_pairs_grow(esp_lowerer_t *lw, esp_i_ids_t *before, esp_i_ids_t *after)
{
    int64_t need = (int64_t)before->count + 1;
    return esp_i_grow(&lw->alloc, &before->data, &before->capacity, need, sizeof(int32_t)) &&
           esp_i_grow(&lw->alloc, &after->data, &after->capacity, need, sizeof(int32_t));
}

/* ---- what is known of memory -------------------------------------------------------------------
 */

/* A task that writes memory again: those of the same memory form a list, in id order. */
typedef struct overwriter {
    int32_t task, next;  /* index of the next one; ESP_NONE */
    int32_t first, last; /* in the first of the list: first and last task that write the memory */
} overwriter_t;

/* Edges before + k -> after + k, for k < n. */
typedef struct edges {
    int32_t before, after, n;
} edges_t;

typedef struct memory {
    int32_t *row, *writer, *n_written; /* per value; see values_find */
    int32_t *apart, *later; /* of the tasks that are visited: inputs, and who writes them later */
    edges_t *edges;         /* of reads, by reader */
    int32_t n_edges;
    int32_t *again; /* root: first of its overwriters; ESP_NONE: its maker is the only writer */
    overwriter_t *overwriter;
    uint8_t *unread; /* root: a movement writes it, and nothing reads it after the last write */
} memory_t;

static void overwriters_index(const esp_lowerer_t *lw, memory_t *m)
{
    memset(m->again, 0xff, (size_t)lw->buffers.n * sizeof *m->again);
    for (int32_t i = lw->overwriters.count / 2 - 1; i >= 0; i--) {
        int32_t root = lw->overwriters.data[2 * i], task = lw->overwriters.data[2 * i + 1];
        int32_t next = m->again[root], made = lw->buffers.producer[root];
        m->overwriter[i] = (overwriter_t){task, next, made != ESP_NONE ? made : task,
                                          next != ESP_NONE ? m->overwriter[next].last : task};
        m->again[root] = i;
    }
}

/*
 * What is alike for all classes of a value, whose reads then need not be looked at one by one: the
 * first of the tasks of an op, one per class; ESP_NONE: it is not so.
 * row[v]: they make the buffers, and nothing writes that memory again.
 * writer[v]: they write memory that is there before the step, and nothing else does.
 * Movements neither read nor write the value: there are no edges between steps.
 */
static void values_find(const esp_lowerer_t *lw, memory_t *m)
{
    const int32_t *buffer = lw->values.buffer, n = lw->values.n;
    memcpy(m->row, lw->values.maker, (size_t)n * sizeof *m->row);
    memset(m->n_written, 0, (size_t)n * sizeof *m->n_written);
    for (int32_t i = 0; i < lw->overwriters.count; i += 2) {
        int32_t root = lw->overwriters.data[i], v = lw->buffers.value[root];
        int32_t first = lw->overwriters.data[i + 1] - (root - buffer[v]);
        m->row[v] = ESP_NONE;
        if (m->n_written[v]++ == 0)
            m->writer[v] = first;
        else if (m->writer[v] != first)
            m->writer[v] = ESP_NONE;
    }
    for (int32_t v = 0; v < n; v++) {
        bool all = m->n_written[v] == lw->local.data[lw->values.mesh[v]].n_classes;
        if (!all || lw->buffers.producer[buffer[v]] != ESP_NONE)
            m->writer[v] = ESP_NONE;
        else if (m->writer[v] != ESP_NONE && lw->tasks.kind[m->writer[v]] == ESP_TASK_COMM)
            m->writer[v] = ESP_NONE;
    }
    for (int32_t i = 0; i < lw->pair_src.count; i++) {
        int32_t src = lw->pair_src.data[i], dst = lw->pair_dst.data[i];
        m->row[src] = m->row[dst] = m->writer[src] = m->writer[dst] = ESP_NONE;
    }
}

static void unread_find(const esp_lowerer_t *lw, memory_t *m)
{
    memset(m->unread, 0, (size_t)lw->buffers.n);
    for (int32_t comm = 0; comm < lw->comms.n; comm++) {
        const int32_t *offset = lw->tasks.write_offset + lw->comms.task[comm];
        for (int32_t w = offset[0]; w < offset[1]; w++)
            m->unread[lw->buffers.root[lw->writes.data[w]]] = 1;
    }
}

/* ---- order of memory ---------------------------------------------------------------------------
 */

/* Compute streams run step after step: only movements need an edge from one step to the next. */
static inline bool cross_push(esp_lowerer_t *lw, int32_t before, int32_t after)
{
    if (lw->tasks.kind[before] != ESP_TASK_COMM && lw->tasks.kind[after] != ESP_TASK_COMM)
        return true;
    return esp_i_pair_push(lw, &lw->cross_before, &lw->cross_after, before, after);
}

/*
 * Between steps: what is read before the first write waits for the last write of the step before;
 * the first write waits for the readers of the last one, and for it if there are none. Everything
 * in between is ordered within the step.
 */
static bool read_cross(esp_lowerer_t *lw, const memory_t *m, int32_t task, int32_t root,
                       int32_t first, int32_t last)
{
    if (task < first)
        return cross_push(lw, last, task);
    if (task <= last)
        return true;
    m->unread[root] = 0;
    return cross_push(lw, task, first);
}

/* What a read implies beside the edge from who made the buffer: the reader comes before the next
 * task that writes the memory again. */
static bool read_look(esp_lowerer_t *lw, const memory_t *m, int32_t task, int32_t root)
{
    int32_t made = lw->buffers.producer[root], i = m->again[root];
    if (i == ESP_NONE)
        return made == ESP_NONE || read_cross(lw, m, task, root, made, made);
    const overwriter_t *first = &m->overwriter[i], *next = first;
    while (next->task < task && next->next != ESP_NONE)
        next = &m->overwriter[next->next];
    if (task < next->task &&
        !esp_i_pair_push(lw, &lw->extra_before, &lw->extra_after, task, next->task))
        return false;
    return read_cross(lw, m, task, root, first->first, first->last);
}

/* Memory that nothing reads: the first write waits for the last one. */
static bool unread_cross(esp_lowerer_t *lw, const memory_t *m)
{
    const uint8_t *end = m->unread + lw->buffers.n;
    for (const uint8_t *at = m->unread; (at = memchr(at, 1, (size_t)(end - at))); at++) {
        int32_t root = (int32_t)(at - m->unread), i = m->again[root];
        int32_t made = lw->buffers.producer[root];
        int32_t first = i == ESP_NONE ? made : m->overwriter[i].first;
        int32_t last = i == ESP_NONE ? made : m->overwriter[i].last;
        if (!cross_push(lw, last, first))
            return false;
    }
    return true;
}

/* ---- reads -------------------------------------------------------------------------------------
 */

/* The mesh whose classes have one task each from this one on; ESP_NONE: the task is alone. */
static int32_t row_mesh(const esp_lowerer_t *lw, int32_t task)
{
    const int32_t *offset = lw->tasks.write_offset + task;
    if (lw->tasks.kind[task] != ESP_TASK_COMPUTE || offset[0] == offset[1])
        return ESP_NONE;
    return lw->values.mesh[lw->buffers.value[lw->writes.data[offset[0]]]];
}

/*
 * Finds the inputs that the tasks [first, first + n), one per class of a mesh, read alike: their
 * edges are made. Returns how many others there are.
 */
static int32_t inputs_sort(esp_lowerer_t *lw, memory_t *m, int32_t first, int32_t n, int32_t mesh)
{
    const int32_t *read = lw->reads.data + lw->tasks.read_offset[first];
    int32_t n_in = lw->tasks.read_offset[first + 1] - lw->tasks.read_offset[first];
    int32_t *n_successors = lw->successor_offset + 2, n_rows = 0, n_apart = 0;
    for (int32_t i = 0; i < n_in; i++) {
        if (read[i] == ESP_NONE)
            continue;
        int32_t v = lw->buffers.value[read[i]];
        bool alike = lw->values.mesh[v] == mesh;
        int32_t made = alike ? m->row[v] : ESP_NONE, later = alike ? m->writer[v] : ESP_NONE;
        if (made != ESP_NONE) {
            m->edges[m->n_edges++] = (edges_t){made, first, n};
            for (int32_t k = 0; k < n; k++)
                n_successors[made + k]++;
            n_rows++;
        } else if (later == ESP_NONE || later > first) {
            m->later[n_apart] = later;
            m->apart[n_apart++] = i;
        }
    }
    esp_i_row_fill(lw->n_predecessors + first, n, n_rows);
    return n_apart;
}

static inline bool read_visit(esp_lowerer_t *lw, memory_t *m, int32_t task, int32_t buffer)
{
    int32_t made = lw->buffers.producer[buffer];
    if (made != ESP_NONE && made != task) {
        m->edges[m->n_edges++] = (edges_t){made, task, 1};
        lw->successor_offset[made + 2]++;
        lw->n_predecessors[task]++;
    }
    return read_look(lw, m, task, lw->buffers.root[buffer]);
}

/* The other inputs of these tasks: by task, then input. */
static bool apart_visit(esp_lowerer_t *lw, memory_t *m, int32_t first, int32_t n, int32_t n_apart)
{
    const int32_t *offset = lw->tasks.read_offset + first;
    for (int32_t k = 0; k < n; k++)
        for (int32_t i = 0; i < n_apart; i++) {
            int32_t buffer = lw->reads.data[offset[k] + m->apart[i]], later = m->later[i];
            bool fine = later == ESP_NONE ? read_visit(lw, m, first + k, buffer)
                                          : esp_i_pair_push(lw, &lw->extra_before, &lw->extra_after,
                                                            first + k, later + k);
            if (!fine)
                return false;
        }
    return true;
}

/* All that reads imply. Counts the edges that leave task t in successor_offset[t + 2]. */
static bool reads_visit(esp_lowerer_t *lw, memory_t *m)
{
    for (int32_t t = 0, n; t < lw->tasks.n; t += n) {
        int32_t mesh = row_mesh(lw, t);
        n = mesh == ESP_NONE ? 1 : lw->local.data[mesh].n_classes;
        int32_t n_apart = inputs_sort(lw, m, t, n, mesh);
        if (n_apart > 0 && !apart_visit(lw, m, t, n, n_apart))
            return false;
    }
    return true;
}

/* ---- successors --------------------------------------------------------------------------------
 */

static bool tasks_reserve(esp_lowerer_t *lw)
{
    int32_t n = lw->tasks.n;
    if (n + ESP_I_BLOCK > lw->task_scratch_capacity) {
        int64_t need = 2 * (int64_t)n + 64;
        if (!esp_i_resize(&lw->alloc, &lw->successor_offset, 0, need, sizeof(int32_t)) ||
            !esp_i_resize(&lw->alloc, &lw->n_predecessors, 0, need, sizeof(int32_t)) ||
            !esp_i_resize(&lw->alloc, &lw->order_ids, 0, need, sizeof(int32_t)) ||
            !esp_i_resize(&lw->alloc, &lw->position, 0, need, sizeof(int32_t)))
            return false;
        lw->task_scratch_capacity = (int32_t)need;
    }
    memset(lw->successor_offset, 0, ((size_t)n + 2) * sizeof *lw->successor_offset);
    return true;
}

/* Counting sort of all edges by their tail: those of reads by reader, then the extra ones. */
static bool successors_fill(esp_lowerer_t *lw, const memory_t *m)
{
    int32_t *offset = lw->successor_offset, *next = offset + 1, n_extra = lw->extra_before.count;
    int32_t edges = lw->reads.count + n_extra;
    if (edges > lw->successor_capacity) {
        if (!esp_i_resize(&lw->alloc, &lw->successor, 0, 2 * (int64_t)edges, sizeof(int32_t)))
            return false;
        lw->successor_capacity = 2 * edges;
    }
    for (int32_t e = 0; e < n_extra; e++)
        offset[lw->extra_before.data[e] + 2]++;
    for (int32_t t = 0, sum = 0; t < lw->tasks.n; t++)
        offset[t + 2] = sum += offset[t + 2];
    int32_t *successor = lw->successor;
    for (const edges_t *e = m->edges, *end = e + m->n_edges; e < end; e++) {
        int32_t *at = next + e->before, after = e->after, last = after + e->n;
        for (; after < last; after++)
            successor[(*at++)++] = after;
    }
    for (int32_t e = 0; e < n_extra; e++) {
        int32_t after = lw->extra_after.data[e];
        successor[next[lw->extra_before.data[e]]++] = after;
        lw->n_predecessors[after]++;
    }
    return true;
}

bool esp_i_depend(esp_lowerer_t *lw)
{
    size_t buffers = (size_t)lw->buffers.n, values = (size_t)lw->values.n;
    size_t writers = (size_t)lw->overwriters.count / 2, reads = (size_t)lw->reads.count;
    size_t ids = buffers + 3 * values + 2 * reads;
    memory_t m = {.overwriter = esp_i_alloc(&lw->alloc, writers * sizeof *m.overwriter +
                                                            reads * sizeof *m.edges +
                                                            ids * sizeof *m.row + buffers)};
    if (!m.overwriter)
        return false;
    m.edges = (edges_t *)(void *)(m.overwriter + writers);
    m.again = (int32_t *)(void *)(m.edges + reads);
    m.row = m.again + buffers;
    m.writer = m.row + values;
    m.n_written = m.writer + values;
    m.apart = m.n_written + values;
    m.later = m.apart + reads;
    m.unread = (uint8_t *)(m.later + reads);
    overwriters_index(lw, &m);
    values_find(lw, &m);
    unread_find(lw, &m);
    bool fine =
        tasks_reserve(lw) && reads_visit(lw, &m) && unread_cross(lw, &m) && successors_fill(lw, &m);
    esp_i_free(&lw->alloc, m.overwriter);
    return fine;
}
